package ps_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/internal/leak"
	"github.com/elasticps/elasticps/ps"
)

// gate is a device that lets nothing through while it is shut.
type gate struct {
	shut    atomic.Pointer[chan struct{}]
	waiting atomic.Int64
}

func (g *gate) Use(ctx context.Context, _ int64) error {
	c := g.shut.Load()
	if c == nil {
		return nil
	}
	g.waiting.Add(1)
	defer g.waiting.Add(-1)
	select {
	case <-*c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) Usage(time.Duration) device.Usage { return device.Usage{} }

func (g *gate) close() (open func()) {
	c := make(chan struct{})
	g.shut.Store(&c)
	return func() {
		g.shut.Store(nil)
		close(c)
	}
}

var errChanged = errors.New("the caller has changed its mind")

// T9: 1000 pulls are cancelled while the server works on them: all return with the
// cause at once, nothing is left of them, and the connection serves later pulls.
func TestT9CancelPulls(t *testing.T) {
	everywhere(t, func(t *testing.T, options ...option) {
		settled(t)
		const pulls, n = 1000, 4096
		g := &gate{}
		c := newCluster(t, sgdJob(layer("x", n)), options...)
		c.serverWith("s1", func(cfg *ps.ServerConfig) {
			cfg.Device = g
			if c.shared != nil {
				cfg.Listen = ps.ListenNone
			}
		})
		w := c.worker("w")
		dst := make([]float32, n)
		require.NoError(t, w.Pull(c.ctx, "x", dst))
		goroutines, files, heap := runtime.NumGoroutine(), leak.OpenFiles(t), heapInUse()

		for range 3 {
			open := g.close()
			ctx, cancel := context.WithCancelCause(c.ctx)
			errs := make(chan error, pulls)
			for range pulls {
				go func() { errs <- w.Pull(ctx, "x", make([]float32, n)) }()
			}
			eventually(t, "pulls are under way", func() bool { return g.waiting.Load() > 0 && runtime.NumGoroutine() > pulls })
			started := time.Now()
			cancel(errChanged)
			if c.shared != nil {
				defer open() // the caller's own goroutine is in the device: it ends with ctx
			}
			for range pulls {
				requireCancelled(t, <-errs)
			}
			require.Less(t, time.Since(started), 5*time.Second)
			if c.shared == nil {
				open()
			} else {
				g.shut.Store(nil)
			}
			require.NoError(t, w.Pull(c.ctx, "x", dst))
		}
		requireBack(t, goroutines, files)
		require.Less(t, heapInUse(), heap+8<<20)
	})
}

func requireCancelled(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, errChanged)
	var op *ps.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "pull", op.Op)
	require.Equal(t, "x", op.Layer)
}

// requireBack waits until there are no more goroutines and files than before.
func requireBack(t *testing.T, goroutines, files int) {
	t.Helper()
	eventually(t, "goroutines and files return to base", func() bool {
		// Eventually itself runs the condition on a goroutine of its own.
		return runtime.NumGoroutine() <= goroutines+2 && leak.OpenFiles(t) <= files
	})
}

// T9 in the middle of a transfer: pulls and pushes of large layers are cancelled at
// any moment. A slice belongs to the caller again when the call has returned: what
// is written then stays. Each push has been applied at most once.
func TestT9CancelTransfers(t *testing.T) {
	settled(t)
	const n = 2*ps.BlockElems + 5
	c := newCluster(t, sgdJob(layer("x", n)), patient)
	c.server("s1")
	c.placed()
	w := c.worker("w")
	parallel(t, 4, func(i int) error {
		rng := rand.New(rand.NewPCG(9, uint64(i)))
		slice := make([]float32, n)
		for round := range 40 {
			ctx, cancel := context.WithTimeoutCause(c.ctx, time.Duration(rng.IntN(4000))*time.Microsecond, errChanged)
			err := w.Pull(ctx, "x", slice)
			cancel()
			if err != nil && !errors.Is(err, errChanged) && !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			mark := float32(-1 - round)
			for j := range slice {
				slice[j] = mark
			}
			if err := w.Push(c.ctx, "x", vector(n, -1)); err != nil {
				return err
			}
			for j := range slice {
				if slice[j] != mark {
					return errors.New("a cancelled pull wrote into a slice that was the caller's again")
				}
			}
		}
		return nil
	})
	got := make([]float32, n)
	require.NoError(t, w.Pull(c.ctx, "x", got))
	require.Equal(t, vector(n, 160), got)
}

// A push that is cancelled has been applied once or not at all, and the next ones go
// on from there.
func TestT9CancelPushes(t *testing.T) {
	settled(t)
	c := newCluster(t, sgdJob(layer("x", 1)), patient)
	c.proxied("s1", newFrameProxy(t, newFaulty(9).judge))
	c.placed()
	var sure, unsure atomic.Int64
	node := c.node("workers")
	parallel(t, 8, func(i int) error {
		w := c.workerOn(node, "w")
		rng := rand.New(rand.NewPCG(10, uint64(i)))
		for range 100 {
			ctx, cancel := context.WithTimeout(c.ctx, time.Duration(rng.IntN(30_000))*time.Microsecond)
			err := w.Push(ctx, "x", []float32{-1})
			cancel()
			if err == nil {
				sure.Add(1)
				continue
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			unsure.Add(1)
		}
		return nil
	})
	got := make([]float32, 1)
	require.NoError(t, c.worker("reader").Pull(c.ctx, "x", got))
	require.GreaterOrEqual(t, int64(got[0]), sure.Load())
	require.LessOrEqual(t, int64(got[0]), sure.Load()+unsure.Load())
	require.Positive(t, sure.Load())
	require.Positive(t, unsure.Load())
}

// A server that has stopped reading cannot hold a push of more than the sockets take
// for long beyond its deadline; when it goes on, so does the worker.
func TestT9DeadlineAtHungServer(t *testing.T) {
	settled(t)
	const n = 32 * ps.BlockElems
	g := &gate{}
	c := newCluster(t, sgdJob(layer("x", n)), patient)
	c.serverWith("s1", func(cfg *ps.ServerConfig) { cfg.Device = g })
	w := c.worker("w")
	before, after := make([]float32, n), make([]float32, n)
	require.NoError(t, w.Pull(c.ctx, "x", before))
	open := g.close()
	ctx, cancel := context.WithTimeout(c.ctx, 300*time.Millisecond)
	defer cancel()
	started := time.Now()
	err := w.Push(ctx, "x", vector(n, -1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(started), 4*time.Second)
	open()
	require.NoError(t, w.Pull(c.ctx, "x", before)) // what came through of the first
	require.NoError(t, w.Push(c.ctx, "x", vector(n, -1)))
	require.NoError(t, w.Pull(c.ctx, "x", after))
	for i := range after {
		first := after[i] - 1
		require.True(t, first == 0 || first == 1, "element %d was given %v", i, after[i])
	}
}
