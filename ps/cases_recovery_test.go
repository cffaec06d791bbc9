package ps_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

func tinyJob(mode ps.Mode, layers ...shard.Layer) ps.Job {
	return ps.Job{Model: shard.Model{Layers: layers}, Optimizer: ps.SGD(1), Consistency: ps.Consistency{Mode: mode}}
}

// A server that restarts between the commit and its activation has not lost the
// shard: the source takes it back, nobody is told that it is lost, and a later move
// to that server works.
func TestRestartedTargetIsNotTakenForLossLater(t *testing.T) {
	s := &steps{}
	job := tinyJob(ps.ASP, layer("a", 10))
	job.Replicas = ps.NoReplicas
	c := newCluster(t, job, s.install)
	c.server("s1")
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "a", vector(10, -1)))
	first := c.server("s2")
	s.once(shard.EffectActivate, func() {
		require.NoError(t, first.Close())
		cfg := ps.ServerConfig{Node: c.node("s2-again"), ID: "s2", Coordinator: c.ref(), Logger: c.log}
		again, err := ps.StartServer(c.ctx, cfg)
		if err == nil {
			t.Cleanup(func() { _ = again.Close() })
		}
	})
	r, err := c.admin.Move(c.ctx, 0, "s2")
	require.NoError(t, err)
	require.Equal(t, shard.Aborted, r.Outcome, r.Reason)
	require.NoError(t, w.Push(c.ctx, "a", vector(10, -1)))
	c.move(0, "s2")
	fresh := c.worker("fresh")
	got := make([]float32, 10)
	require.NoError(t, fresh.Pull(c.ctx, "a", got))
	require.Equal(t, vector(10, 2), got)
}

// A coordinator whose node closes in the middle of a move has learned nothing about
// the servers: the move stays in the store for the next one.
func TestClosedNodeOfCoordinatorDoesNotUndoAMove(t *testing.T) {
	together(t)
	s := &steps{}
	job := tinyJob(ps.ASP, layer("a", 10))
	job.Replicas = ps.NoReplicas // the source of a move has something to release
	c := newCluster(t, job, s.install)
	c.server("s1")
	require.NoError(t, c.worker("w").Push(c.ctx, "a", vector(10, -1)))
	c.server("s2")
	closed := make(chan struct{})
	s.once(shard.EffectRelease, func() { _ = c.home.Close(); close(closed) })
	ctx, cancel := context.WithCancel(c.ctx)
	go func() { _, _ = c.admin.Move(ctx, 0, "s2") }()
	select {
	case <-closed:
	case <-c.ctx.Done():
		require.FailNow(t, "the move did not come to the step")
	}
	require.Never(t, func() bool {
		e, err := c.store.Get(c.ctx, "elasticps/job/shard/00000000")
		if err != nil {
			return true
		}
		r, err := shard.DecodeRecord(e.Value)
		return err != nil || r.Pending == nil
	}, 300*time.Millisecond, 10*time.Millisecond, "the source has not been released, but the move counts as ended")
	cancel()
	_ = c.coord.Close()
}

// A move whose source is silent does not hold up the moves of other shards.
func TestSilentServerHoldsUpNoOtherMove(t *testing.T) {
	s := &steps{}
	job := tinyJob(ps.ASP, layer("a", 10), layer("b", 10))
	job.Replicas = ps.NoReplicas // the source of a move has something to release
	c := newCluster(t, job, s.install, func(c *cluster) {
		c.cfg.MaxMoves, c.cfg.StepTimeout = 1, 300*time.Millisecond
	})
	c.server("s1")
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "a", vector(10, -1)))
	require.NoError(t, w.Push(c.ctx, "b", vector(10, -1)))
	c.server("s2")
	c.move(1, "s2")
	c.server("s3")
	deaf := func(to actor.Ref, msg any) bool { return to.Node == "s1" }
	s.once(shard.EffectRelease, func() { c.drop.Store(&deaf) })
	first := make(chan struct{})
	go func() { defer close(first); _, _ = c.admin.Move(c.ctx, 0, "s2") }()
	require.Eventually(t, func() bool { return c.drop.Load() != nil }, 10*time.Second, 5*time.Millisecond)
	ctx, cancel := context.WithTimeout(c.ctx, 5*time.Second)
	defer cancel()
	r, err := c.admin.Move(ctx, 1, "s3")
	c.drop.Store(nil)
	<-first
	require.NoError(t, err)
	require.NoError(t, r.Err())
}

// An observer's push is summed in whichever clock is open: that its clock was closed
// on the way does not make it fail.
func TestObserverPushesUnderBSP(t *testing.T) {
	c := newCluster(t, tinyJob(ps.BSP, layer("a", 10)))
	c.server("s1")
	w, o := c.worker("w"), c.client("o")
	got := make([]float32, 10)
	for range 3 {
		require.NoError(t, w.PushPull(c.ctx, "a", vector(10, -1), got))
		require.NoError(t, w.Tick(c.ctx))
	}
	require.NoError(t, w.Pull(c.ctx, "a", got))
	require.NoError(t, o.Push(c.ctx, "a", vector(10, -1)))
	require.NoError(t, w.Tick(c.ctx))
	require.NoError(t, w.Pull(c.ctx, "a", got))
	require.Equal(t, vector(10, 4), got)
}

// A clock that a pull has closed stays closed when the shard moves.
func TestClockClosedByPullStaysClosedAcrossMove(t *testing.T) {
	s := &steps{}
	c := newCluster(t, tinyJob(ps.BSP, layer("a", 10)), s.install)
	c.server("s1")
	w, zombie := c.worker("w"), c.worker("zombie")
	require.NoError(t, w.Push(c.ctx, "a", vector(10, -1)))
	require.NoError(t, zombie.Push(c.ctx, "a", vector(10, -1)))
	c.server("s2")
	before, after := make([]float32, 10), make([]float32, 10)
	s.once(shard.EffectFreeze, func() { // every block has been sent, the clock is open there
		if ps.Expel(c.ctx, zombie.Client) != nil || w.Tick(c.ctx) != nil || w.Pull(c.ctx, "a", before) != nil {
			t.Error("the clock cannot be closed")
		}
	})
	c.move(0, "s2")
	require.ErrorIs(t, zombie.Push(c.ctx, "a", vector(10, -1)), ps.ErrNotMember)
	require.NoError(t, w.Pull(c.ctx, "a", after))
	require.Equal(t, vector(10, 2), before)
	require.Equal(t, before, after, "two pulls in one clock see the same")
}

// A server whose actor has ended acknowledges nothing: it counts as dead.
func TestServerWithoutActorServesNothing(t *testing.T) {
	c := newCluster(t, tinyJob(ps.ASP, layer("a", 10)))
	node := c.node("s1")
	server, err := ps.StartServer(c.ctx, ps.ServerConfig{Node: node, ID: "s1", Coordinator: c.ref(), Logger: c.log})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "a", vector(10, -1)))
	require.NoError(t, node.Stop(c.ctx, actor.Ref{Node: "s1", Name: "ps/server/s1"}))
	ctx, cancel := context.WithTimeout(c.ctx, 300*time.Millisecond)
	defer cancel()
	require.Error(t, w.Push(ctx, "a", vector(10, -1)))
}

// amnesia is a store that writes and then says that it does not know.
type amnesia struct {
	store.Store
	fail func(key string) bool
}

func (a *amnesia) CompareAndSwap(ctx context.Context, key string, old store.Revision, value []byte) (store.Revision, error) {
	r, err := a.Store.CompareAndSwap(ctx, key, old, value)
	if err == nil && a.fail(key) {
		return 0, errors.New("store: no answer")
	}
	return r, err
}

// A placement whose write was not confirmed is found in the store.
func TestPlacementWhoseWriteWasNotConfirmed(t *testing.T) {
	failed := false
	c := newCluster(t, tinyJob(ps.ASP, layer("a", 10)), func(c *cluster) {
		c.cfg.Store = &amnesia{c.store, func(key string) bool {
			first := key == "elasticps/job/shard/00000000" && !failed
			failed = failed || first
			return first
		}}
	})
	c.server("s1")
	w := c.worker("w")
	ctx, cancel := context.WithTimeout(c.ctx, 3*time.Second)
	defer cancel()
	require.NoError(t, w.Push(ctx, "a", vector(10, -1)))
}

// A coordinator that starts on an empty store gives out no incarnation that the
// servers remember from before.
func TestIncarnationsAreNewAfterTheStoreIsLost(t *testing.T) {
	c := newCluster(t, tinyJob(ps.ASP, layer("a", 10)))
	c.server("s1")
	old := c.worker("old")
	got := make([]float32, 10)
	require.NoError(t, old.Push(c.ctx, "a", vector(10, -1)))
	require.NoError(t, c.coord.Close())
	empty, err := store.NewMemory(store.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = empty.Close() })
	c.cfg.Store = empty
	c.startCoordinator()
	fresh := c.worker("fresh")
	require.NoError(t, fresh.PushPull(c.ctx, "a", vector(10, -1), got))
	require.Equal(t, vector(10, 2), got, "the push was acknowledged")
	require.NoError(t, old.PushPull(c.ctx, "a", vector(10, -1), got))
	require.Equal(t, vector(10, 3), got)
}

// lateStore is a store that holds one write back, as if it were lost, and makes it just
// before the next one of that key.
type lateStore struct {
	store.Store
	hold func(key string) bool
	held func()
}

func (l *lateStore) CompareAndSwap(ctx context.Context, key string, old store.Revision, value []byte) (store.Revision, error) {
	if l.hold(key) {
		ctx = context.WithoutCancel(ctx)
		l.held = func() { _, _ = l.Store.CompareAndSwap(ctx, key, old, value) }
		return 0, errors.New("store: no answer")
	}
	if l.held != nil {
		l.held()
		l.held = nil
	}
	return l.Store.CompareAndSwap(ctx, key, old, value)
}

// A move whose first write comes long after it was given up blocks no later move.
func TestWriteOfAGivenUpMoveThatComesLate(t *testing.T) {
	var armed atomic.Bool
	job := tinyJob(ps.ASP, layer("a", 10))
	job.Replicas = ps.NoReplicas
	c := newCluster(t, job, func(c *cluster) {
		c.cfg.Store = &lateStore{Store: c.store, hold: func(key string) bool {
			return key == "elasticps/job/shard/00000000" && armed.CompareAndSwap(true, false)
		}}
	})
	c.server("s1")
	require.NoError(t, c.worker("w").Push(c.ctx, "a", vector(10, -1)))
	c.server("s2")
	c.server("s3")
	armed.Store(true)
	r, err := c.admin.Move(c.ctx, 0, "s2")
	require.NoError(t, err)
	require.Equal(t, shard.Aborted, r.Outcome)
	r, err = c.admin.Move(c.ctx, 0, "s3")
	require.NoError(t, err)
	require.Equal(t, shard.Superseded, r.Outcome)
	require.Eventually(t, func() bool {
		r, err := c.admin.Move(c.ctx, 0, "s3")
		return err == nil && r.Err() == nil
	}, 10*time.Second, 20*time.Millisecond)
}

// A copy that was created here but recorded as another server's has never had a
// client; it is dropped, so that the shard can be moved here later.
func TestCopyOfNobodyIsDropped(t *testing.T) {
	c := newCluster(t, tinyJob(ps.ASP, layer("a", 10)))
	c.server("s1")
	require.NoError(t, c.worker("w").Push(c.ctx, "a", vector(10, -1)))
	require.NoError(t, c.coord.Close())
	const key = "elasticps/job/shard/00000000"
	e, err := c.store.Get(c.ctx, key)
	require.NoError(t, err)
	r, err := shard.DecodeRecord(e.Value)
	require.NoError(t, err)
	r.Assignment.Owner = "s2"
	text, err := r.Encode()
	require.NoError(t, err)
	_, err = c.store.CompareAndSwap(c.ctx, key, e.Revision, text)
	require.NoError(t, err)
	c.startCoordinator()
	eventually(t, "the copy is gone", func() bool {
		for _, s := range c.status().Servers {
			if s.ID == "s1" && s.Up {
				load, err := c.admin.Load(c.ctx, s)
				return err == nil && load.Shards == 0 && load.StateBytes == 0
			}
		}
		return false
	})
}

// A worker that waits in vain is told for whom, and requests without a deadline of
// their own end all the same.
func TestTickSaysForWhomItWaits(t *testing.T) {
	c := newCluster(t, tinyJob(ps.BSP, layer("a", 10)))
	c.server("s1")
	w := c.worker("quick")
	slow := c.worker("slow")
	ctx, cancel := context.WithTimeout(c.ctx, 1500*time.Millisecond)
	defer cancel()
	err := w.Tick(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, `waiting for other members at clock 0: ["slow"]`)
	require.NotContains(t, err.Error(), "no answer")
	go func() { _ = slow.Tick(c.ctx) }()
	require.NoError(t, w.Tick(c.ctx))
	require.Equal(t, uint32(1), w.Clock())
}
