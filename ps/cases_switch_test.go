package ps_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// switching is a job of two servers, shard 0 on s1 and followed by s2, under traffic.
func switching(t *testing.T, s *steps) (c *cluster, s2 *ps.Server, tr *traffic) {
	c = newCluster(t, layersJob(1, 2, 100), s.install)
	c.server("s1")
	c.placed()
	s2 = c.server("s2")
	c.protected()
	return c, s2, c.traffic("l0", 100, c.worker("w"))
}

// TestSwitchToFollowerThatIsDropped: just before a switch is committed its target is taken
// from the followers, and drops its copy. It does not become the owner without one.
func TestSwitchToFollowerThatIsDropped(t *testing.T) {
	settled(t)
	s := &steps{}
	c, s2, tr := switching(t, s)
	s.once(shard.EffectCommit, func() {
		c.coord.DropFollower(0, "s2")
		eventually(t, "s2 has dropped its copy", func() bool {
			return ps.CopyOf(s2, 0).State == shard.Absent
		})
	})
	require.Equal(t, shard.Moved, c.try("s2").Outcome, "it is begun again, as a copy")
	require.Equal(t, shard.ServerID("s2"), c.owner(0))
	tr.goesOn()
	c.protected()
	tr.exact()
}

// TestQueuedSwitchToFollowerThatIsDropped: the same of a switch that has been asked for while
// its target was made a follower.
func TestQueuedSwitchToFollowerThatIsDropped(t *testing.T) {
	settled(t)
	s := &steps{}
	var follows atomic.Bool // but its replication has not ended
	proceed := make(chan struct{})
	release := sync.OnceFunc(func() { close(proceed) })
	c := newCluster(t, layersJob(1, 2, 100), s.install)
	t.Cleanup(release) // before the coordinator closes
	replicating := func(e shard.Effect) {
		if e.Shard == 0 && e.Kind == shard.EffectSettle && follows.CompareAndSwap(false, true) {
			<-proceed
		}
	}
	s.hook.Store(&replicating)
	c.server("s1")
	c.placed()
	s2 := c.server("s2")
	eventually(t, "s2 follows", follows.Load)
	tr := c.traffic("l0", 100, c.worker("w"))
	moved := make(chan error, 1)
	go func() {
		r, err := c.admin.Move(c.ctx, 0, "s2")
		moved <- errors.Join(err, r.Err())
	}()
	eventually(t, "the move waits", func() bool { return c.coord.Queued(0) })
	s.once(shard.EffectCommit, func() {
		c.coord.DropFollower(0, "s2")
		eventually(t, "s2 has dropped its copy", func() bool {
			return ps.CopyOf(s2, 0).State == shard.Absent
		})
	})
	release()
	require.NoError(t, <-moved, "it is begun again, as a copy")
	require.Equal(t, shard.ServerID("s2"), c.owner(0))
	tr.goesOn()
	c.protected()
	tr.exact()
}

// TestSwitchToFollowerWithoutCopy: the new owner has lost its copy when it is told to
// serve. The former one, which follows by then, takes the shard back with all there is.
func TestSwitchToFollowerWithoutCopy(t *testing.T) {
	settled(t)
	s := &steps{}
	c, s2, tr := switching(t, s)
	s.once(shard.EffectActivate, func() { s2.LoseCopy(0) })
	var activated, sure atomic.Int64
	look := func(to actor.Ref, msg any) bool {
		if to.Node == "s1" && ps.OrderOf(msg) == shard.EffectActivate.String() {
			activated.Add(1)
			if ps.IsSure(msg) {
				sure.Add(1)
			}
		}
		return false
	}
	c.drop.Store(&look)
	require.NotEqual(t, shard.Moved, c.try("s2").Outcome)
	require.Equal(t, shard.ServerID("s1"), c.owner(0))
	tr.goesOn()
	c.protected()
	tr.exact()
	require.Positive(t, activated.Load())
	require.Zero(t, sure.Load(), "s2 may be another run, and the one before answer pulls still")
}

// TestFollowerIsLostToTheOwnerBefore: the follower of a shard that moves goes on with the new
// owner. What the one before says then, that it has lost it, is no reason to drop it: for a
// moment there would be one copy.
func TestFollowerIsLostToTheOwnerBefore(t *testing.T) {
	settled(t)
	s := &steps{}
	c := newCluster(t, layersJob(1, 1, 100), s.install)
	c.server("s1")
	c.placed()
	c.server("s2")
	c.protected()
	c.server("s3")
	tr := c.traffic("l0", 100, c.worker("w"))
	var said atomic.Int64
	hear := func(_ actor.Ref, msg any) bool {
		if ps.ReportsLost(msg, "s1", "s2") {
			said.Add(1)
		}
		return false
	}
	c.drop.Store(&hear)
	s.once(shard.EffectRelease, func() {
		eventually(t, "s1 says again and again that s2 does not follow it", func() bool { return said.Load() > 2 })
		assert.Equal(t, []shard.ServerID{"s2"}, c.records()[0].Followers.IDs())
	})
	require.Equal(t, shard.Moved, c.try("s3").Outcome)
	require.Equal(t, shard.ServerID("s3"), c.owner(0))
	require.Equal(t, []shard.ServerID{"s2"}, c.records()[0].Followers.IDs())
	tr.goesOn()
	tr.exact()
}
