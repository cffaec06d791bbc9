package ps_test

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// T16, stuck target: whoever dies at whichever step of a move, the move ends by its
// deadline, one server owns the shard, no acknowledged push is lost, and the next
// move works.

// forward is the way of a move that succeeds.
var forward = []shard.EffectKind{
	shard.EffectPersistPending, shard.EffectPrepare, shard.EffectFollow, shard.EffectFreeze,
	shard.EffectCommit, shard.EffectActivate, shard.EffectRelease, shard.EffectClearPending,
}

const stuckElems = ps.BlockElems + 100 // of layer a: two blocks

func stuckJob() ps.Job {
	return ps.Job{
		Replicas:  ps.NoReplicas, // the steps of a move, and nothing else
		Model:     shard.Model{Layers: []shard.Layer{layer("a", stuckElems), layer("b", 10)}},
		Optimizer: ps.SGD(1), MaxShardBytes: 64 << 20, // a is shard 0, b is shard 1
	}
}

// steps lets a test act at a step of a move.
type steps struct {
	hook atomic.Pointer[func(shard.Effect)]
}

func (s *steps) install(c *cluster) {
	c.cfg.BeforeStep(func(e shard.Effect) {
		if f := s.hook.Load(); f != nil {
			(*f)(e)
		}
	})
}

// once calls f when a move comes to that step for the first time.
func (s *steps) once(at shard.EffectKind, f func()) {
	var done atomic.Bool
	hook := func(e shard.Effect) {
		if e.Kind == at && done.CompareAndSwap(false, true) {
			f()
		}
	}
	s.hook.Store(&hook)
}

// try moves shard 0, which is layer a, and returns what became of it within the
// time that all steps may take.
func (c *cluster) try(to shard.ServerID) ps.MoveReport {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	r, err := c.admin.Move(ctx, 0, to)
	require.NoError(c.t, err)
	return r
}

func TestT16TargetKilledAtEachStep(t *testing.T) {
	together(t)
	for _, at := range forward {
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel()
			s := &steps{}
			c := newCluster(t, stuckJob(), s.install)
			c.server("s1")
			c.placed()
			target := c.process("server", "s2")
			c.server("s3")
			s.once(at, target.kill)
			if at == shard.EffectRelease || at == shard.EffectClearPending {
				c.lostTarget()
				return
			}
			tr := c.traffic("a", stuckElems, c.worker("w1"), c.worker("w2"))
			tr.goesOn()
			r := c.try("s2")
			require.Equal(t, shard.Aborted, r.Outcome, r.Reason)
			require.NotEmpty(t, r.Reason)
			require.Error(t, r.Err())
			require.Equal(t, shard.ServerID("s1"), c.owner(0))
			tr.goesOn() // the source has thawed
			require.Equal(t, shard.Moved, c.try("s3").Outcome)
			tr.goesOn()
			tr.exact()
			c.oneOwner()
		})
	}
}

// lostTarget: the target dies when it already is the owner. Without a replica the
// shard is gone; everybody is told, and everything else goes on.
func (c *cluster) lostTarget() {
	t := c.t
	w := c.worker("w1")
	require.Equal(t, shard.Moved, c.try("s2").Outcome)
	ctx, cancel := context.WithTimeout(c.ctx, 300*time.Millisecond)
	defer cancel()
	err := w.Push(ctx, "a", vector(stuckElems, -1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, ps.ErrUnavailable)
	var op *ps.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, shard.ID(0), op.Shard)
	require.Equal(t, shard.Lost, c.try("s3").Outcome)
	require.NoError(t, w.Push(c.ctx, "b", vector(10, -1)))
	c.move(1, "s3")
	got := make([]float32, 10)
	require.NoError(t, w.PushPull(c.ctx, "b", vector(10, -1), got))
	require.Equal(t, vector(10, 2), got)
}

// A target that hangs is not dead: up to the commit the move is undone by its
// deadline; after it, the move goes on when the target does.
func TestT16TargetHangsAtEachStep(t *testing.T) {
	together(t)
	for _, at := range forward[:6] {
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel()
			s := &steps{}
			c := newCluster(t, stuckJob(), s.install, func(c *cluster) {
				c.cfg.StepTimeout, c.cfg.CopyTimeout = time.Second, time.Second
			})
			c.server("s1")
			c.placed()
			target := c.process("server", "s2")
			c.server("s3")
			tr := c.traffic("a", stuckElems, c.worker("w1"), c.worker("w2"))
			tr.goesOn()
			s.once(at, func() {
				target.signal(syscall.SIGSTOP)
				if at == shard.EffectFreeze { // it must not have all that there is
					tr.advance()
				}
			})
			if at == shard.EffectCommit || at == shard.EffectActivate {
				ctx, cancel := context.WithTimeout(c.ctx, 1500*time.Millisecond)
				defer cancel()
				_, err := c.admin.Move(ctx, 0, "s2")
				require.ErrorIs(t, err, context.DeadlineExceeded, "the caller does not hang")
				target.signal(syscall.SIGCONT)
				eventually(t, "the move ends", func() bool { return len(c.status().Moves) == 1 })
				require.NoError(t, c.status().Moves[0].Err())
			} else {
				r := c.try("s2")
				require.Equal(t, shard.Aborted, r.Outcome, r.Reason)
				tr.goesOn()
				target.signal(syscall.SIGCONT)
				eventually(t, "the server is back", func() bool { return c.isUp("s2") })
			}
			c.move(0, "s3")
			c.move(0, "s2")
			tr.goesOn()
			tr.exact()
			c.oneOwner()
		})
	}
}

func (c *cluster) isUp(id shard.ServerID) bool {
	c.t.Helper()
	for _, s := range c.status().Servers {
		if s.ID == id {
			return s.Up
		}
	}
	return false
}

func TestT16SourceKilledAtEachStep(t *testing.T) {
	together(t)
	for i, at := range forward {
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel()
			s := &steps{}
			c := newCluster(t, stuckJob(), s.install)
			source := c.process("server", "s1")
			c.placed()
			c.server("s2")
			c.move(1, "s2")
			w := c.worker("w1")
			require.NoError(t, w.Push(c.ctx, "a", vector(stuckElems, -1)))
			s.once(at, source.kill)
			if i < 4 { // what the source has not handed over is gone with it
				r := c.try("s2")
				require.Equal(t, shard.Lost, r.Outcome, r.Reason)
				ctx, cancel := context.WithTimeout(c.ctx, 300*time.Millisecond)
				defer cancel()
				err := w.Pull(ctx, "a", make([]float32, stuckElems))
				require.True(t, errors.Is(err, ps.ErrUnavailable) || errors.Is(err, ps.ErrShardLost), "%v", err)
			} else {
				tr := c.traffic("a", stuckElems, w)
				tr.acked.Add(1)
				require.Equal(t, shard.Moved, c.try("s2").Outcome)
				tr.goesOn()
				tr.exact()
			}
			require.NoError(t, w.Push(c.ctx, "b", vector(10, -1)), "the other shard is not touched")
			c.server("s3")
			c.move(1, "s3")
		})
	}
}

// Two servers die at once, or the store and a server do not agree: nothing hangs.
func TestT16BothKilled(t *testing.T) {
	for _, at := range forward[1:7] {
		t.Run(at.String(), func(t *testing.T) {
			settled(t)
			s := &steps{}
			c := newCluster(t, stuckJob(), s.install)
			source := c.process("server", "s1")
			c.placed()
			target := c.process("server", "s2")
			c.server("s3")
			c.move(1, "s3")
			s.once(at, func() {
				target.kill()
				source.kill()
			})
			r := c.try("s2")
			require.NotEqual(t, shard.Outcome(0), r.Outcome)
			require.NoError(t, c.worker("w").Push(c.ctx, "b", vector(10, -1)))
		})
	}
}
