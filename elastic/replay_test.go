package elastic

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite testdata with the present output")

// TestReplay runs the conversations of testdata. Lines before the first "tick" set
// up a world; each "tick" gives the time and what every server measured; lines
// that begin with "> " are what the policy says to it:
//
//	policy dwell=2s max=12    fields of the policy
//	world shards=24 servers=8
//	fail move_shard           operators of that kind fail from here on; "fail none" ends it
//	down ps-1 / up ps-1       a server goes and comes
//	target 4                  somebody asks for four servers; 0 takes it back
//	tick 1s latency=63ms util=0.5 gbps=40
func TestReplay(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			got := replay(t, want)
			if *update {
				require.NoError(t, os.WriteFile(file, got, 0o644))
				return
			}
			require.Equal(t, string(want), string(got))
		})
	}
}

func replay(t *testing.T, text []byte) []byte {
	var out bytes.Buffer
	var w *world
	var p Policy
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, ">") {
			continue
		}
		fmt.Fprintln(&out, line)
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		args := arguments(words[1:])
		switch words[0] {
		case "policy":
			p = replayPolicy(t, args)
		case "world":
			w = newWorld(t, p, number(t, args["shards"]), number(t, args["servers"]))
		case "fail":
			kind := words[1]
			w.fail = func(o Operator) bool { return o.Kind.String() == kind }
		case "down", "up":
			for i := range w.servers {
				if string(w.servers[i].ID) == words[1] {
					w.servers[i].Up = words[0] == "up"
				}
			}
		case "target":
			w.target = number(t, words[1])
		case "tick":
			replayTick(t, w, words[1], args, &out)
		default:
			require.Fail(t, "unknown line", line)
		}
	}
	return out.Bytes()
}

func arguments(words []string) map[string]string {
	args := make(map[string]string)
	for _, word := range words {
		if k, v, ok := strings.Cut(word, "="); ok {
			args[k] = v
		}
	}
	return args
}

func number(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

func replayPolicy(t *testing.T, args map[string]string) Policy {
	var p Policy
	for k, v := range args {
		var err error
		switch k {
		case "dwell":
			p.Dwell, err = time.ParseDuration(v)
		case "dwelldown":
			p.DwellDown, err = time.ParseDuration(v)
		case "cooldown":
			p.Cooldown, err = time.ParseDuration(v)
		case "min":
			p.Min = number(t, v)
		case "max":
			p.Max = number(t, v)
		case "moves":
			p.MaxMoves = number(t, v)
		default:
			require.Fail(t, "unknown field", k)
		}
		require.NoError(t, err)
	}
	require.NoError(t, p.Validate())
	return p
}

func replayTick(t *testing.T, w *world, at string, args map[string]string, out *bytes.Buffer) {
	now, err := time.ParseDuration(at)
	require.NoError(t, err)
	latency, util, gbps := time.Duration(0), float64(Unknown), float64(Unknown)
	if v, ok := args["latency"]; ok {
		latency, err = time.ParseDuration(v)
		require.NoError(t, err)
	}
	for k, dst := range map[string]*float64{"util": &util, "gbps": &gbps} {
		if v, ok := args[k]; ok {
			*dst, err = strconv.ParseFloat(v, 64)
			require.NoError(t, err)
		}
	}
	w.measured(latency, util, gbps*1e9/8)
	plan := w.tick(t, now)
	fmt.Fprintf(out, "> %v\n", plan.Decision)
	for _, o := range plan.Operators {
		fmt.Fprintf(out, ">   %v, %d bytes, %+d servers: %s\n", o, o.Influence.Bytes, o.Influence.Servers, o.Reason)
	}
	for _, r := range plan.Decision.Rejected {
		fmt.Fprintf(out, ">   not %s: %v\n", r.Subject, r.Reason)
	}
}
