package ps_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// runOf is one run of a server.
type runOf struct {
	*ps.Server
	c    *cluster
	host *actor.Node
	ref  actor.Ref
	run  uint64
	// cut says that neither the coordinator nor the server hears of the other.
	cut atomic.Bool
}

// start starts a run of a server on a host.
func (c *cluster) start(id shard.ServerID, host *actor.Node) *runOf {
	c.t.Helper()
	s, err := ps.StartServer(c.ctx, ps.ServerConfig{Node: host, ID: id, Coordinator: c.ref(), Checkpoints: c.checkpoints, Logger: c.log})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = s.Close() })
	r := &runOf{Server: s, c: c, host: host, run: c.coord.RunOf(id)}
	for _, st := range c.status().Servers {
		if st.ID == id {
			r.ref = actor.Ref{Node: st.Node, Name: st.Process}
		}
	}
	return r
}

// isolates has the cluster lose what goes to the runs that are cut off, and comes from them,
// and other messages.
func (c *cluster) isolates(others func(to actor.Ref, msg any) bool, runs ...*runOf) {
	loses := func(to actor.Ref, msg any) bool {
		for _, r := range runs {
			if r.cut.Load() && (to == r.ref || ps.SpeaksOf(msg, r.run)) {
				return true
			}
		}
		return others(to, msg)
	}
	c.drop.Store(&loses)
}

// isolate cuts a run off from the coordinator, which hears of it.
func (r *runOf) isolate() {
	r.c.t.Helper()
	r.cut.Store(true)
	require.NoError(r.c.t, r.c.home.Cast(r.c.ctx, r.c.ref(), actor.Down{Ref: r.ref}))
}

// back ends that; the server looks for the coordinator.
func (r *runOf) back() {
	r.c.t.Helper()
	r.cut.Store(false)
	require.NoError(r.c.t, r.host.Cast(r.c.ctx, r.ref, actor.Down{Ref: r.c.ref()}))
}

// follower reports whether a server follows shard 0, as the coordinator has it.
func (c *cluster) follower(id shard.ServerID) bool { return c.records()[0].Followers.Has(id) }

// TestEarlierRunThatOwned: another run of a server has taken its place on another host, and
// owns the shard again. Then that one seems to be down, and the earlier run, cut off all the
// time, is first to register. It is out, has nothing any more, and the follower takes over.
func TestEarlierRunThatOwned(t *testing.T) {
	settled(t)
	c := newCluster(t, layersJob(1, 2, 100))
	earlier := c.start("s1", c.node("host"))
	c.placed()
	c.server("s2")
	c.protected()
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	require.Equal(t, shard.ServerID("s1"), c.owner(0))
	c.isolates(nothing, earlier)
	earlier.isolate()
	eventually(t, "s2 owns", func() bool { return c.owner(0) == "s2" })
	later := c.start("s1", c.node("another"))
	c.isolates(nothing, earlier, later)
	require.NotEqual(t, earlier.ref, later.ref)
	require.Greater(t, later.run, earlier.run)
	c.protected()
	c.move(0, "s1")
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	later.isolate()
	earlier.back()
	eventually(t, "the earlier run is out", func() bool { return ps.IsOut(earlier.Server) })
	require.Equal(t, shard.Copy{}, ps.CopyOf(earlier.Server, 0))
	require.NoError(t, later.Close())
	c.has(w, 3)
}

func nothing(actor.Ref, any) bool { return false }

// has pushes once more, and requires that l0 has so many pushes then.
func (c *cluster) has(w *ps.Worker, pushes float32) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
	defer cancel()
	got := make([]float32, 100)
	require.NoError(c.t, w.Push(ctx, "l0", vector(100, -1)))
	require.NoError(c.t, w.Pull(ctx, "l0", got))
	require.Equal(c.t, vector(100, pushes), got)
}

// TestEarlierRunThatFollows: an earlier run of a server still has a copy from which it could
// serve, of a time that is over, when the record names the server because its later run
// follows. That one seems to be down, the earlier one registers, with the coordinator that has
// seen both or with another, and the owner dies. The follower that counts takes over when it
// is back, with every acknowledged push, and never the earlier one.
func TestEarlierRunThatFollows(t *testing.T) {
	settled(t)
	for state, leaves := range map[shard.CopyState]func(c *cluster, earlier *runOf, s *steps){
		shard.CaughtUp: func(c *cluster, earlier *runOf, _ *steps) {
			if c.owner(0) == "s1" {
				c.move(0, "s2")
			}
			earlier.isolate()
		},
		shard.Frozen: func(c *cluster, earlier *runOf, s *steps) {
			if c.owner(0) == "s2" {
				c.move(0, "s1")
			}
			s.once(shard.EffectCommit, earlier.isolate)
			c.move(0, "s2")
		},
	} {
		for name, isRestarted := range map[string]bool{"one coordinator": false, "another coordinator": true} {
			t.Run(state.String()+"/"+name, func(t *testing.T) { earlierRunFollows(t, state, leaves, isRestarted) })
		}
	}
}

func earlierRunFollows(t *testing.T, state shard.CopyState, leaves func(*cluster, *runOf, *steps), isRestarted bool) {
	s := &steps{}
	c := newCluster(t, layersJob(1, 2, 100), s.install)
	earlier := c.start("s1", c.node("host"))
	c.isolates(nothing, earlier)
	s2 := c.start("s2", c.node("s2"))
	c.placed()
	c.protected()
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	leaves(c, earlier, s)
	eventually(t, "s1 is dropped", func() bool { return c.owner(0) == "s2" && !c.follower("s1") })
	later := c.start("s1", c.node("another"))
	var keeps atomic.Bool // s1 in the set: the coordinator may not drop whom its owner does not miss
	c.isolates(func(_ actor.Ref, msg any) bool { return keeps.Load() && ps.OrderOf(msg) == "owns" }, earlier, later)
	eventually(t, "s1 follows again", func() bool { return c.follower("s1") && c.records()[0].Pending == nil })
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	require.Equal(t, state, ps.CopyOf(earlier.Server, 0).State)
	require.Equal(t, shard.CaughtUp, ps.CopyOf(later.Server, 0).State)

	keeps.Store(true)
	later.isolate()
	if isRestarted {
		require.NoError(t, c.coord.Close())
		c.startCoordinator()
		eventually(t, "s2 is back", func() bool { return c.upServer("s2") })
	}
	earlier.back()
	eventually(t, "the earlier run is out", func() bool { return ps.IsOut(earlier.Server) })
	require.True(t, c.follower("s1"))
	require.NoError(t, s2.Close())
	later.back()
	c.has(w, 3)
	require.Equal(t, shard.Serving, ps.CopyOf(later.Server, 0).State)
}

// TestRunReplacedAsFollower: a server gets another run between the last step at which its
// earlier one, which goes on following, was asked and the commit. The earlier run is no
// follower that could take over; the later one becomes it.
func TestRunReplacedAsFollower(t *testing.T) {
	settled(t)
	s := &steps{}
	c := newCluster(t, layersJob(1, 1, 100), s.install)
	s2 := c.start("s2", c.node("s2"))
	c.placed()
	w := c.worker("w")
	another := c.node("another")
	var earlier, later *runOf
	replaced := make(chan struct{})
	ready := make(chan struct{})
	s.once(shard.EffectCommit, func() {
		<-ready
		earlier.isolate()
		later = c.start("s1", another)
		close(replaced)
	})
	earlier = c.start("s1", c.node("host"))
	c.isolates(nothing, earlier)
	close(ready)
	select {
	case <-replaced:
	case <-time.After(patience):
		t.Fatal("s1 never became a follower")
	}
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	require.Equal(t, shard.CaughtUp, ps.CopyOf(earlier.Server, 0).State)
	eventually(t, "the later run follows", func() bool {
		return ps.CopyOf(later.Server, 0).State == shard.CaughtUp && c.follower("s1") && c.records()[0].Pending == nil
	})
	require.NoError(t, s2.Close())
	c.has(w, 2)
}

// TestReplacedRunHearsOfIt from the answer to its next report, without having lost the
// coordinator, and serves nobody any more.
func TestReplacedRunHearsOfIt(t *testing.T) {
	settled(t)
	c := newCluster(t, layersJob(ps.NoReplicas, 1, 100))
	earlier := c.start("s1", c.node("host"))
	c.placed()
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	c.isolates(nothing, earlier)
	earlier.isolate()
	eventually(t, "s1 is down", func() bool { return !c.upServer("s1") })
	later := c.start("s1", c.node("another"))
	earlier.cut.Store(false)
	eventually(t, "the earlier run is out", func() bool { return ps.IsOut(earlier.Server) })
	require.False(t, ps.IsOut(later.Server))
	require.Equal(t, shard.Copy{}, ps.CopyOf(earlier.Server, 0))
	require.ErrorIs(t, w.Push(c.ctx, "l0", vector(100, -1)), ps.ErrShardLost)
}

// TestLostShardOfARunThatLives: a server that is alone with its shard is cut off, and two other
// runs take its place, one after the other. The death of the second one, and that another
// coordinator knows only the third, are no proof that the first one serves nobody: the shard
// is filled from the checkpoint when that has heard that it is out, and not before.
func TestLostShardOfARunThatLives(t *testing.T) {
	settled(t)
	c := newCluster(t, layersJob(ps.NoReplicas, 1, 100), saving(checkpoint.Folder(t.TempDir())))
	first := c.start("s1", c.node("host"))
	c.placed()
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	c.save(true)
	c.isolates(nothing, first)
	first.isolate()
	eventually(t, "s1 is down", func() bool { return !c.upServer("s1") })
	second := c.start("s1", c.node("another"))
	require.NoError(t, second.Close())
	require.NoError(t, second.host.Close())
	eventually(t, "s1 is down again", func() bool { return !c.upServer("s1") })
	c.start("s1", c.node("third"))
	goesOn := func() {
		require.Never(t, func() bool { return c.records()[0].Assignment.Epoch > 1 }, 1500*time.Millisecond, 50*time.Millisecond)
		require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)), "the first one serves those who know it")
	}
	goesOn()
	require.NoError(t, c.coord.Close())
	c.startCoordinator()
	eventually(t, "s1 is back", func() bool { return c.upServer("s1") })
	goesOn()
	first.back()
	eventually(t, "the first run is out", func() bool { return ps.IsOut(first.Server) })
	eventually(t, "the shard is filled", func() bool { return c.records()[0].Assignment.Epoch == 2 })
	c.has(w, 2)
	eventually(t, "that is told", func() bool {
		f := c.status().Failovers
		return len(f) > 0 && f[len(f)-1].Refilled == 1
	})
}

// TestMoveToARunThatLives: the target of a move has begun to serve when it is cut off, before
// the coordinator hears of it, and another run takes its place. That this one has no copy is
// no proof that nobody serves: the source goes on when the first one has heard that it is out.
func TestMoveToARunThatLives(t *testing.T) {
	together(t)
	s := &steps{}
	c := newCluster(t, layersJob(ps.NoReplicas, 1, 100), s.install)
	source := c.start("s1", c.node("s1"))
	c.placed()
	target := c.start("s2", c.node("host"))
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	var deaf atomic.Bool
	c.isolates(func(_ actor.Ref, msg any) bool { return deaf.Load() && fmt.Sprintf("%T", msg) == "ps.commandReply" }, target)
	s.once(shard.EffectActivate, func() { deaf.Store(true) })
	moved := make(chan ps.MoveReport, 1)
	go func() {
		r, _ := c.admin.Move(c.ctx, 0, "s2")
		moved <- r
	}()
	eventually(t, "s2 serves", func() bool { return ps.CopyOf(target.Server, 0).State == shard.Serving })
	target.isolate()
	deaf.Store(false)
	eventually(t, "s2 is down", func() bool { return !c.upServer("s2") })
	c.start("s2", c.node("another"))
	require.Never(t, func() bool { return len(moved) > 0 || ps.CopyOf(source.Server, 0).State == shard.Serving }, 3*time.Second, 20*time.Millisecond, "longer than an order to the first run takes")
	target.back()
	eventually(t, "s2 is out", func() bool { return ps.IsOut(target.Server) })
	eventually(t, "the move is undone", func() bool { return len(moved) > 0 })
	require.Equal(t, shard.Aborted, (<-moved).Outcome)
	c.has(w, 2) // without replicas, what s2 has acknowledged is gone with it
}
