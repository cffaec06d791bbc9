package ps_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/leak"
	"github.com/elasticps/elasticps/ps"
)

// Large pushes and large pulls of one client share a connection. Neither end may wait
// for the other to take what it writes while it does not read.
func TestPushesAndPullsDoNotBlockEachOther(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			settled(t)
			const n, rounds = 96 * ps.BlockElems, 4
			c := newCluster(t, sgdJob(layer("pushed", n), layer("pulled", n)), patient)
			c.serverOver("s1", network)
			w := c.worker("w")
			require.NoError(t, w.Pull(c.ctx, "pulled", make([]float32, n)))
			started := time.Now()
			parallel(t, 4, func(i int) error {
				x := make([]float32, n)
				for range rounds {
					if i%2 == 0 {
						if err := w.Push(c.ctx, "pushed", x); err != nil {
							return err
						}
					} else if err := w.Pull(c.ctx, "pulled", x); err != nil {
						return err
					}
				}
				return nil
			})
			require.Less(t, time.Since(started), 9*time.Second, "a write that waits for its timeout of 10 s")
		})
	}
}

// A server process that stands still: a worker that pushes to it holds no more memory
// however often it tries, each push returns at its deadline, and when the process goes
// on every push counts once, whatever the worker has been told.
func TestPressureStoppedServer(t *testing.T) {
	const n, tries, concurrent = 32 * ps.BlockElems, 4, 4
	settled(t)
	c := newCluster(t, sgdJob(layer("x", n), layer("small", 16)), patient)
	p := c.process("server", "s1")
	c.placed()
	w := c.worker("w")
	grad := vector(n, -1)
	for range 3 {
		require.NoError(t, w.Push(c.ctx, "x", grad))
	}
	before := heapInUse()
	p.signal(syscall.SIGSTOP)
	for range tries {
		parallel(t, concurrent, func(i int) error {
			ctx, cancel := context.WithTimeout(c.ctx, 300*time.Millisecond)
			defer cancel()
			began := time.Now()
			layer, x := "x", grad
			if i == 0 {
				layer, x = "small", grad[:16]
			}
			err := w.Push(ctx, layer, x)
			if took := time.Since(began); took > 2*time.Second { // a write that is stuck is given up after one
				return fmt.Errorf("a push with 300 ms returned after %v", took)
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("push to a process that stands still: %w", err)
			}
			return nil
		})
	}
	require.Less(t, int64(heapInUse())-int64(before), int64(16<<20))
	p.signal(syscall.SIGCONT)
	got := make([]float32, n)
	require.NoError(t, w.Push(c.ctx, "x", grad))
	require.NoError(t, w.Pull(c.ctx, "x", got))
	most := float32(4 + tries*(concurrent-1))
	for i, v := range got {
		if v != float32(int(v)) || v < 4 || v > most {
			require.FailNow(t, "wrong value", "element %d is %v after 4 acknowledged pushes and %d others", i, v, tries*(concurrent-1))
		}
	}
	require.NoError(t, w.Push(c.ctx, "x", grad))
	again := make([]float32, n)
	require.NoError(t, w.Pull(c.ctx, "x", again))
	for i := range again {
		if again[i]-got[i] < 1 || again[i] > most+1 {
			require.FailNow(t, "wrong value", "element %d was %v and is %v one push later", i, got[i], again[i])
		}
	}
}

// A push that was under way when the server process stopped, with time enough: it is
// acknowledged after the process has gone on, and counts once although it was sent
// again and again meanwhile.
func TestPressureStoppedServerGoesOn(t *testing.T) {
	const n, pushes = 16 * ps.BlockElems, 4
	settled(t)
	c := newCluster(t, sgdJob(layer("x", n)), patient)
	p := c.process("server", "s1")
	c.placed()
	w := c.worker("w")
	grad := vector(n, -1)
	require.NoError(t, w.Push(c.ctx, "x", grad))
	for round := range 2 {
		p.signal(syscall.SIGSTOP)
		errs := make(chan error, pushes)
		for range pushes {
			go func() { errs <- w.Push(c.ctx, "x", grad) }()
		}
		select { // it is sent more than once meanwhile
		case err := <-errs:
			require.FailNow(t, "acknowledged by a process that stands still", "%v", err)
		case <-time.After(700 * time.Millisecond):
		}
		p.signal(syscall.SIGCONT)
		for range pushes {
			require.NoError(t, <-errs)
		}
		requireSum(t, c, w, "x", n, 1+pushes*(round+1))
	}
}

// A thousand goroutines push 64 bytes each through one client.
func TestPressureThousandPushers(t *testing.T) {
	const goroutines, rounds, n = 1000, 20, 16
	for _, network := range []string{"local", "unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			settled(t)
			c := newCluster(t, sgdJob(layer("a", n), layer("b", n), layer("c", n)), append([]option{patient}, where(network)...)...)
			c.serverOver("s1", network)
			w := c.worker("w")
			layers := []string{"a", "b", "c"}
			for _, l := range layers {
				require.NoError(t, w.Push(c.ctx, l, vector(n, -1)))
			}
			running, files := runtime.NumGoroutine(), leak.OpenFiles(t)
			parallel(t, goroutines, func(i int) error {
				grad := vector(n, -1)
				for range rounds {
					if err := w.Push(c.ctx, layers[i%3], grad); err != nil {
						return err
					}
				}
				return nil
			})
			requireBack(t, running, files)
			for i, l := range layers {
				requireSum(t, c, w, l, n, 1+rounds*((goroutines-i+2)/3))
			}
		})
	}
}
