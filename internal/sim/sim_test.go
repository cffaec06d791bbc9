package sim_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/sim"
)

var (
	seed     = flag.Uint64("sim.seed", 0, "run this seed only, with its log")
	duration = flag.Duration("sim.duration", 2*time.Second, "how long fresh seeds are tried")
	tail     = flag.Int("sim.tail", 120, "lines of the log that are shown of a seed that fails")
)

// seeds are the schedules that every run tries. Those that have shown a fault of the
// protocol are in mutation_test.go, each with the fault that it shows.
const seeds = 1000

// world makes the world of a seed: New or NewTwins.
type world func(seed uint64, mutants sim.Mutants, verbose bool) *sim.World

// schedules runs the seeds from first on, on every processor, while more says so. It
// returns how often what has happened.
func schedules(t *testing.T, create world, first uint64, more func(n uint64) bool) map[string]int {
	var next, events, failed atomic.Uint64
	counts := map[string]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for failed.Load() == 0 {
				n := next.Add(1) - 1
				if !more(n) {
					return
				}
				w := create(first+n, sim.Mutants{}, false)
				if err := w.Run(); err != nil {
					failed.Store(first + n)
				}
				events.Add(uint64(w.Events()))
				mu.Lock()
				counts["schedules"]++
				for what, k := range w.Counts {
					counts[what] += k
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("%d events: %v", events.Load(), counts)
	if n := failed.Load(); n != 0 {
		t.Fatal(explain(t, create, n))
	}
	return counts
}

// explain runs a seed again with its log.
func explain(t *testing.T, create world, n uint64) string {
	w := create(n, sim.Mutants{}, true)
	err := w.Run()
	log := w.Log()
	test := "TestSeeds"
	if strings.Contains(t.Name(), "Twins") {
		test = "TestTwins"
	}
	return fmt.Sprintf("seed %d: %v\nagain: go test ./internal/sim -run %s -sim.seed %d\n%s",
		n, err, test, n, strings.Join(log[max(0, len(log)-*tail):], "\n"))
}

// one runs the seed of -sim.seed, with its log, if there is one.
func one(t *testing.T, create world) bool {
	if *seed == 0 {
		return false
	}
	w := create(*seed, sim.Mutants{}, true)
	err := w.Run()
	fmt.Fprintln(os.Stderr, strings.Join(w.Log(), "\n"))
	require.NoError(t, err)
	return true
}

// TestSeeds runs the seeds that every run tries, or the one of -sim.seed. They have to
// reach what the protocol has: each way in which a move ends, and each way out of trouble.
func TestSeeds(t *testing.T) {
	if one(t, sim.New) {
		return
	}
	t.Parallel()
	counts := schedules(t, sim.New, 1, func(n uint64) bool { return n < seeds })
	for _, what := range []string{
		"move moved", "move aborted", "move lost", "move superseded",
		"switch moved", "switch aborted", "switch lost", "switch superseded",
		"replicate moved", "replicate aborted", "replicate superseded",
		"acknowledged", "read", "promotion", "refollow", "drop", "retain", "fenced", "loss", "roll back",
	} {
		require.Positive(t, counts[what], "no schedule has had: %s", what)
	}
}

// TestTwins is TestSeeds for jobs in which several processes live under the name of one
// server: one that was replaced, and comes back.
func TestTwins(t *testing.T) {
	if one(t, sim.NewTwins) {
		return
	}
	t.Parallel()
	counts := schedules(t, sim.NewTwins, 1, func(n uint64) bool { return n < seeds })
	for _, what := range []string{
		"run replaced", "run expelled", "move moved", "switch moved", "replicate moved",
		"acknowledged", "read", "promotion", "refollow", "drop", "loss",
	} {
		require.Positive(t, counts[what], "no schedule has had: %s", what)
	}
}

// TestFoundTwins runs the seeds that have shown a fault: a switch did not wait for the lease of
// the owner before a promoted one, an order was taken by another run than it was for, a run
// that did not count stayed, and a late write went unseen.
func TestFoundTwins(t *testing.T) {
	for _, n := range []uint64{1796073442181906823, 1796072877751501582, 1796073197494528718, 1796073318909597282} {
		require.NoError(t, sim.NewTwins(n, sim.Mutants{}, false).Run(), "seed %d", n)
	}
}

// TestFresh runs seeds that nobody has tried, for -sim.duration, and TestFreshTwins as long.
func TestFresh(t *testing.T) {
	if *seed != 0 {
		t.Skip("one seed only")
	}
	t.Parallel()
	end := time.Now().Add(*duration)
	schedules(t, sim.New, uint64(time.Now().UnixNano()), func(uint64) bool { return time.Now().Before(end) })
}

func TestFreshTwins(t *testing.T) {
	if *seed != 0 {
		t.Skip("one seed only")
	}
	t.Parallel()
	end := time.Now().Add(*duration)
	schedules(t, sim.NewTwins, uint64(time.Now().UnixNano()), func(uint64) bool { return time.Now().Before(end) })
}

// TestSameSeed runs seeds twice: what happens follows from the seed alone.
func TestSameSeed(t *testing.T) {
	t.Parallel()
	for n := uint64(1); n <= 20; n++ {
		first, second := sim.New(n, sim.Mutants{}, true), sim.New(n, sim.Mutants{}, true)
		require.NoError(t, first.Run())
		require.NoError(t, second.Run())
		require.Equal(t, first.Log(), second.Log())
	}
}

// bytesSource draws from the fuzzer's bytes first, and goes on from them.
type bytesSource struct {
	data []byte
	rest *rand.PCG
}

// Uint64 spreads each byte over all bits, because ranges are made of the upper ones.
func (s *bytesSource) Uint64() uint64 {
	if len(s.data) == 0 {
		return s.rest.Uint64()
	}
	b := uint64(s.data[0])
	s.data = s.data[1:]
	return b * 0x0101010101010101
}

func FuzzWorld(f *testing.F) {
	f.Add([]byte("a push, a move, a crash"))
	f.Add([]byte{7, 1, 0, 0, 0, 0, 8, 8, 8, 9, 0, 0, 3, 1, 4, 1, 5, 9, 2, 6})
	f.Fuzz(func(t *testing.T, data []byte) {
		var start [8]byte
		copy(start[:], data)
		source := func() *bytesSource {
			return &bytesSource{data, rand.NewPCG(binary.LittleEndian.Uint64(start[:]), uint64(len(data)))}
		}
		if err := sim.NewFrom(source(), sim.Mutants{}, false).Run(); err != nil {
			w := sim.NewFrom(source(), sim.Mutants{}, true)
			_ = w.Run() // the same, with its log
			t.Fatalf("%v\n%s", err, strings.Join(w.Log(), "\n"))
		}
	})
}
