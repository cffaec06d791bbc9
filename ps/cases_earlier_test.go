package ps_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// TestEarlierRunIsFirstToRegister: another run of a server has taken its place on another host,
// and owns the shard again at a later epoch. Then that one seems to be down, and the earlier
// run, cut off all the time, is first to register. What it has is long over, and does
// not count as the shard: the follower takes over.
func TestEarlierRunIsFirstToRegister(t *testing.T) {
	settled(t)
	c := newCluster(t, layersJob(1, 2, 100))
	start := func(host *actor.Node) (s *ps.Server, run ps.ServerStatus, ref actor.Ref) {
		var err error
		s, err = ps.StartServer(c.ctx, ps.ServerConfig{Node: host, ID: "s1", Coordinator: c.ref(), Logger: c.log})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		run = c.status().Servers[0]
		return s, run, actor.Ref{Node: run.Node, Name: run.Process}
	}
	isolate := func(run string, ref actor.Ref) {
		cut := func(to actor.Ref, msg any) bool { return to == ref || ps.Reports(msg, run) }
		c.drop.Store(&cut)
		require.NoError(t, c.home.Cast(c.ctx, c.ref(), actor.Down{Ref: ref}))
	}
	host := c.node("host")
	_, first, firstRef := start(host)
	c.placed()
	c.server("s2")
	c.protected()
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	require.Equal(t, shard.ServerID("s1"), c.owner(0))
	isolate(c.coord.RunOf(first.ID), firstRef)
	eventually(t, "s2 owns", func() bool { return c.owner(0) == "s2" })
	later, second, secondRef := start(c.node("another"))
	require.NotEqual(t, firstRef, secondRef)
	c.protected()
	c.move(0, "s1")
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	isolate(c.coord.RunOf(second.ID), secondRef)
	require.NoError(t, host.Cast(c.ctx, firstRef, actor.Down{Ref: c.ref()}))
	eventually(t, "the earlier run is back", func() bool { return c.status().Servers[0].Node == firstRef.Node && c.upServer("s1") })
	require.NoError(t, later.Close())
	ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
	defer cancel()
	got := make([]float32, 100)
	require.NoError(t, w.Push(ctx, "l0", vector(100, -1)))
	require.NoError(t, w.Pull(ctx, "l0", got))
	require.Equal(t, vector(100, 3), got)
}
