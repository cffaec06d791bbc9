package starved

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/elasticps/elasticps/internal/leak"
)

// recorder is a test whose failure is looked at.
type recorder struct {
	testing.TB
	failed, said string
}

func (r *recorder) Fatalf(format string, args ...any) { r.failed = fmt.Sprintf(format, args...) }
func (r *recorder) Logf(format string, args ...any)   { r.said = fmt.Sprintf(format, args...) }

// TestBound: the bound holds, and the time waited on top of it.
func TestBound(t *testing.T) {
	for _, c := range []struct {
		took, bound, waited time.Duration
		failed, said        bool
	}{
		{took: 9, bound: 10},
		{took: 10, bound: 10, failed: true},
		{took: 10, bound: 10, waited: 1, said: true},
		{took: 11, bound: 10, waited: 1, failed: true},
	} {
		r := &recorder{TB: t}
		m := &Meter{tb: r, began: time.Now()}
		m.since.Store(int64(time.Hour)) // no nap is under way
		m.waited.Store(int64(c.waited * time.Second))
		m.Less(c.took*time.Second, c.bound*time.Second)
		if (r.failed != "") != c.failed || (r.said != "") != c.said {
			t.Errorf("%+v: failed with %q, said %q", c, r.failed, r.said)
		}
	}
}

// TestStarved: with more busy goroutines than processors, the watch waits; what it says is no more
// than the time that has passed.
func TestStarved(t *testing.T) {
	leak.Check(t, 10*time.Second)
	m := Watch(t)
	began := time.Now()
	var busy sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		busy.Go(func() {
			for time.Since(began) < 500*time.Millisecond {
			}
		})
	}
	busy.Wait()
	waited := m.Waited()
	if waited == 0 || waited > time.Since(began) {
		t.Errorf("waited %v of %v", waited, time.Since(began))
	}
}

// TestLate: naps of the usual length wait for nobody.
func TestLate(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: 0, nap: 0, nap + tolerance: 0, nap + tolerance + 1: tolerance + 1, time.Second: time.Second - nap,
	} {
		if got := late(took); got != want {
			t.Errorf("a nap of %v: %v, want %v", took, got, want)
		}
	}
}
