package acceltest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective/accelerator"
	"github.com/elasticps/elasticps/internal/leak"
)

// Misuse that a fake notes, as in fake.h.
const (
	BadConcurrent = 1 << iota
	BadDevice
	BadUse
	BadThread
	BadBusy
	BadID
	BadMemory
	BadConfig
)

// Fake is a library that was built for a test.
type Fake struct {
	Vendor accelerator.Vendor
	// Path is that of the file, which is the vendor's library and its runtime.
	Path string
	// Dir is where it counts, and where ranks meet, in other processes too.
	Dir string
	// Misuse is what a test does wrong on purpose.
	Misuse int64
}

// compiled is what has been built in this process: a library is compiled once, and copied
// for each test, so that each has its own state.
var compiled struct {
	sync.Mutex
	files map[string][]byte
}

// Build compiles the fake of a vendor, with macros for what it lacks; see testdata/fake.c. At
// the end of the test it must have been given back everything, and have been used well. The
// working directory is that of a package beside internal.
func Build(t *testing.T, v accelerator.Vendor, macros ...string) *Fake {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc on this system")
	}
	if _, err := accelerator.Open(accelerator.Config{Vendors: []accelerator.Vendor{v}, Library: "/", Runtime: "/"}); errors.Is(err, accelerator.ErrNotBuilt) {
		t.Skip(err)
	}
	leak.Check(t, 10*time.Second)
	f := &Fake{Vendor: v, Dir: t.TempDir()}
	f.Path = filepath.Join(f.Dir, fmt.Sprintf("libfake%d.so", v))
	require.NoError(t, os.WriteFile(f.Path, compile(t, v, macros), 0o700))
	t.Setenv("FAKE_CCL_DIR", f.Dir)
	t.Cleanup(func() { f.check(t) })
	return f
}

func compile(t *testing.T, v accelerator.Vendor, macros []string) []byte {
	t.Helper()
	key := fmt.Sprint(v, macros)
	compiled.Lock()
	defer compiled.Unlock()
	if b := compiled.files[key]; b != nil {
		return b
	}
	path := filepath.Join(t.TempDir(), "fake.so")
	sources := filepath.Join("..", "internal", "acceltest", "testdata")
	args := []string{
		"-O1", "-g", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", fmt.Sprintf("-DVENDOR=%d", v),
		"-I", filepath.Join("..", "internal", "abi"), "-o", path,
	}
	version := true
	for _, m := range macros {
		args = append(args, "-D"+m)
		version = version && !strings.HasPrefix(m, "VERSION=")
	}
	if version {
		args = append(args, "-DVERSION=23007")
	}
	args = append(args, filepath.Join(sources, "fake.c"), filepath.Join(sources, "run.c"), "-lm", "-lpthread")
	out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	if compiled.files == nil {
		compiled.files = map[string][]byte{}
	}
	compiled.files[key] = b
	return b
}

// Open opens the library, and closes it at the end of the test.
func (f *Fake) Open(t *testing.T) *accelerator.Library {
	t.Helper()
	l, err := accelerator.Open(f.Config())
	require.NoError(t, err)
	t.Cleanup(func() { // a thread that cannot be stopped may be in it, for a while
		require.Eventually(t, func() bool { return l.Close() == nil }, 10*time.Second, 10*time.Millisecond)
	})
	return l
}

// Config returns the configuration that opens it.
func (f *Fake) Config() accelerator.Config {
	return accelerator.Config{Vendors: []accelerator.Vendor{f.Vendor}, Library: f.Path, Runtime: f.Path}
}

// Stats is what a fake has given out and not got back, and what it has noted.
type Stats struct {
	Comms, Streams, Events, Bytes, HostBytes, Misuse, Aborts, Devices int64
}

// Stats reads the counters, of all processes that use the fake.
func (f *Fake) Stats(t *testing.T) Stats {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(f.Dir, "stats"))
	if os.IsNotExist(err) {
		return Stats{} // it was never loaded
	}
	require.NoError(t, err)
	var s Stats
	_, err = binary.Decode(b, binary.NativeEndian, &s)
	require.NoError(t, err)
	return s
}

// check wants everything given back and nothing misused.
func (f *Fake) check(t *testing.T) {
	s := f.Stats(t)
	require.Equal(t, f.Misuse, s.Misuse, "used wrongly")
	s.Aborts, s.Misuse = 0, 0
	require.Zero(t, s, "not given back")
}
