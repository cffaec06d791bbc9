package sim_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elasticps/elasticps/internal/sim"
)

var (
	seed     = flag.Uint64("sim.seed", 0, "run this seed only, with its log")
	duration = flag.Duration("sim.duration", 3*time.Second, "how long fresh seeds are tried")
	tail     = flag.Int("sim.tail", 120, "lines of the log that are shown of a seed that fails")
)

// explain runs a seed again with its log.
func explain(n uint64, mutants sim.Mutants) string {
	w := sim.New(n, mutants, true)
	err := w.Run()
	log := w.Log()
	return fmt.Sprintf("seed %d: %v\nagain: go test ./internal/sim -run TestSeeds -sim.seed %d\n%s",
		n, err, n, strings.Join(log[max(0, len(log)-*tail):], "\n"))
}

// TestSeeds runs fresh seeds for -sim.duration, or the one of -sim.seed.
func TestSeeds(t *testing.T) {
	if *seed != 0 {
		w := sim.New(*seed, sim.Mutants{}, true)
		err := w.Run()
		fmt.Fprintln(os.Stderr, strings.Join(w.Log(), "\n"))
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	first := uint64(time.Now().UnixNano())
	var next, events, failed atomic.Uint64
	counts := map[string]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	end := time.Now().Add(*duration)
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for time.Now().Before(end) && failed.Load() == 0 {
				n := first + next.Add(1)
				w := sim.New(n, sim.Mutants{}, false)
				if err := w.Run(); err != nil {
					failed.Store(n)
				}
				events.Add(uint64(w.Events()))
				mu.Lock()
				for what, k := range w.Counts {
					counts[what] += k
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("%d schedules, %d events, %v", next.Load(), events.Load(), counts)
	if n := failed.Load(); n != 0 {
		t.Fatal(explain(n, sim.Mutants{}))
	}
}
