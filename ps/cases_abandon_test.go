package ps_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/starved"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// staller is a proxy's spoil that lets a number of bytes of one connection through to
// the client, once it is armed, and then nothing until it is released.
type staller struct {
	armed    atomic.Bool
	left     atomic.Int64
	stalls   atomic.Int64
	released chan struct{}
}

func (s *staller) arm(bytes int64) {
	s.left.Store(bytes)
	s.armed.Store(true)
}

func (s *staller) pass(toServer bool, _ int64, b []byte) int {
	if toServer || !s.armed.Load() || s.left.Add(int64(-len(b))) > 0 {
		return len(b)
	}
	if s.armed.CompareAndSwap(true, false) {
		s.stalls.Add(1)
		<-s.released
	}
	return len(b)
}

// wholeShards keeps a layer in one shard.
func wholeShards(c *cluster) { c.cfg.Job.MaxShardBytes = 64 << 20 }

// An answer that stops in the middle: the pull whose context was cancelled returns a
// second later at the latest and gives the connection up; nothing comes into its slice
// after that, and the next operation works on a new connection.
func TestT9CancelStalledAnswer(t *testing.T) {
	for _, as := range []shard.DType{shard.Float32, shard.Float16} {
		t.Run(as.String(), func(t *testing.T) {
			settled(t)
			const n = ps.BlockElems
			s := &staller{released: make(chan struct{})}
			p := newFrameProxy(t, nil)
			t.Cleanup(func() { close(s.released) })
			p.spoil = s.pass
			c := newCluster(t, sgdJob(wired("x", as, n)), patient, wholeShards)
			c.proxied("s1", p)
			w := c.worker("w")
			dst := make([]float32, n)
			require.NoError(t, w.PushPull(c.ctx, "x", vector(n, -1), dst))
			s.arm(64 << 10)
			ctx, cancel := context.WithCancelCause(c.ctx)
			defer cancel(nil)
			errs := make(chan error, 1)
			go func() { errs <- w.Pull(ctx, "x", dst) }()
			eventually(t, "the answer has stopped in the middle", func() bool { return s.stalls.Load() == 1 })
			m := starved.Watch(t)
			cancel(errChanged)
			err := <-errs
			m.Less(m.Took(), 1200*time.Millisecond)
			require.ErrorIs(t, err, errChanged)
			fill(dst, -7)
			again := make([]float32, n)
			require.NoError(t, w.Pull(c.ctx, "x", again))
			require.Equal(t, vector(n, 1), again)
			require.Equal(t, vector(n, -7), dst)
		})
	}
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// A cancelled operation returns within 100 ms with the cause, whether it reads for the
// others or one of them does; those go on.
func TestT9CancelAmongOthers(t *testing.T) {
	settled(t)
	const n, pulls = 1 << 12, 20
	g := &gate{}
	c := newCluster(t, sgdJob(layer("x", n)), patient)
	c.serverWith("s1", func(cfg *ps.ServerConfig) { cfg.Device = g })
	w := c.worker("w")
	require.NoError(t, w.Pull(c.ctx, "x", make([]float32, n)))
	open := g.close()
	var cancels [pulls]context.CancelCauseFunc
	var errs [pulls]chan error
	for i := range pulls {
		var ctx context.Context
		ctx, cancels[i] = context.WithCancelCause(c.ctx)
		defer cancels[i](nil)
		errs[i] = make(chan error, 1)
		go func() { errs[i] <- w.Pull(ctx, "x", make([]float32, n)) }()
		if i == 0 { // the first one reads
			eventually(t, "a pull is under way", func() bool { return g.waiting.Load() > 0 })
		}
	}
	for i := range pulls - 1 { // each becomes the reader when its turn comes
		m := starved.Watch(t)
		cancels[i](errChanged)
		requireCancelled(t, <-errs[i])
		m.Less(m.Took(), 100*time.Millisecond)
	}
	open()
	require.NoError(t, <-errs[pulls-1])
}

// abandoner is one of many goroutines that share a client and change their mind.
type abandoner struct {
	w      *ps.Worker
	row    int
	rng    *rand.Rand
	large  []float32
	sure   int
	unsure int
}

const (
	abandonRow   = 16
	abandonLarge = 20_000
)

// step is one operation, cancelled in half of the cases at any moment.
func (a *abandoner) step(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	if a.rng.IntN(2) == 0 {
		timer := time.AfterFunc(time.Duration(a.rng.IntN(4000))*time.Microsecond, func() { cancel(errChanged) })
		defer timer.Stop()
	}
	var err error
	switch a.rng.IntN(4) {
	case 0:
		err = a.pull(ctx)
	case 1: // a large push, of nothing
		clear(a.large)
		err = a.w.Push(ctx, "large", a.large)
	default:
		if err = a.w.PushRange(ctx, "own", a.row, vector(abandonRow, -1)); err == nil {
			a.sure++
		} else {
			a.unsure++
		}
	}
	if err != nil && !errors.Is(err, errChanged) {
		return err
	}
	return nil
}

// pull requires that the slice belongs to the caller when the pull has returned.
func (a *abandoner) pull(ctx context.Context) error {
	err := a.w.Pull(ctx, "large", a.large)
	mark := float32(-1 - a.rng.IntN(1000))
	fill(a.large, mark)
	began := time.Now()
	for time.Since(began) < time.Millisecond {
		if i := slices.IndexFunc(a.large, func(v float32) bool { return v != mark }); i >= 0 {
			return fmt.Errorf("element %d was written to after the pull had returned", i)
		}
	}
	return err
}

// 200 goroutines share a client and cancel at any moment for some seconds: what was
// acknowledged has been applied once, what was not at most once, and no slice is
// written to after its call has returned.
func TestT9CancelRandomly(t *testing.T) {
	const goroutines, lasts = 200, 3 * time.Second
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			settled(t)
			c := newCluster(t, sgdJob(layer("own", goroutines, abandonRow), layer("large", abandonLarge)), patient)
			c.serverOver("s1", network)
			c.placed()
			w := c.worker("w")
			all := make([]*abandoner, goroutines)
			end := time.Now().Add(lasts)
			parallel(t, goroutines, func(i int) error {
				a := &abandoner{w: w, row: i, rng: rand.New(rand.NewPCG(9, uint64(i))), large: make([]float32, abandonLarge)}
				all[i] = a
				for time.Now().Before(end) {
					if err := a.step(c.ctx); err != nil {
						return err
					}
				}
				return nil
			})
			got := make([]float32, goroutines*abandonRow)
			require.NoError(t, w.Pull(c.ctx, "own", got))
			sure, unsure := 0, 0
			for i, a := range all {
				row := got[i*abandonRow : (i+1)*abandonRow]
				require.Equal(t, vector(abandonRow, row[0]), row, "a push in part")
				require.GreaterOrEqual(t, int(row[0]), a.sure)
				require.LessOrEqual(t, int(row[0]), a.sure+a.unsure)
				sure, unsure = sure+a.sure, unsure+a.unsure
			}
			t.Logf("%d pushes acknowledged, %d cancelled", sure, unsure)
			require.Positive(t, sure)
			require.Positive(t, unsure)
			requireSum(t, c, w, "large", abandonLarge, 0)
		})
	}
}

// A server that goes while a client is idle: nobody reads from the connection, so it is
// found at the next dial, and closed.
func TestIdleConnectionOfClosedServer(t *testing.T) {
	settled(t)
	const n = 1 << 14
	c := newCluster(t, sgdJob(layer("a", n), layer("b", 16)), patient, wholeShards)
	s1 := c.server("s1")
	c.placed()
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "a", vector(n, -1)))
	require.NoError(t, w.Push(c.ctx, "b", vector(16, -1)))
	require.Equal(t, 2, w.Connections(), "one for small requests, one for large ones")
	c.server("s2")
	c.moveAll("s2")
	require.NoError(t, s1.Close())
	require.Equal(t, 2, w.Connections(), "nobody has looked")
	require.NoError(t, w.Push(c.ctx, "b", vector(16, -1))) // dials the other server
	require.Equal(t, 1, w.Connections())
	require.NoError(t, w.Push(c.ctx, "a", vector(n, -1)))
	require.Equal(t, 2, w.Connections())
	requireSum(t, c, w, "a", n, 2)
	requireSum(t, c, w, "b", 16, 2)
}
