package ps_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
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
	s, err := ps.StartServer(c.ctx, ps.ServerConfig{Node: host, ID: id, Coordinator: c.ref(), Logger: c.log})
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
