package ps_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// Followers when more than one thing goes wrong, and what is left of them afterwards.

// records are those of the shards in the store.
func (c *cluster) records() (records []shard.Record) {
	c.t.Helper()
	entries, err := c.store.List(c.ctx, "")
	require.NoError(c.t, err)
	for _, e := range entries {
		if r, err := shard.DecodeRecord(e.Value); err == nil && r.Assignment.Epoch > 0 {
			records = append(records, r)
		}
	}
	slices.SortFunc(records, func(a, b shard.Record) int { return cmp.Compare(a.Assignment.Shard, b.Assignment.Shard) })
	return records
}

// sets are the numbers of the sets of followers, one per shard.
func (c *cluster) sets() (sets []uint64) {
	c.t.Helper()
	for _, r := range c.records() {
		sets = append(sets, r.Set)
	}
	return sets
}

// TestCoordinatorRestartKeepsFollowers: servers that come back to a new coordinator with
// their copies follow on; nothing is copied again. A follower that its owner has not heard
// for a second is dropped, rightly: where a machine is so slow, it is tried again.
func TestCoordinatorRestartKeepsFollowers(t *testing.T) {
	settled(t)
	c := newCluster(t, layersJob(1, 3, 100), patient)
	var lost atomic.Int64
	hear := func(_ actor.Ref, msg any) bool {
		lost.Add(int64(ps.LostFollowers(msg)))
		return false
	}
	c.drop.Store(&hear)
	for _, id := range []shard.ServerID{"s1", "s2", "s3"} {
		c.server(id)
	}
	c.placed()
	tr := c.traffic("l0", 100, c.worker("w"))
	for left := 5; ; left-- {
		c.protected()
		tr.goesOn()
		lost.Store(0)
		if c.restartKeeps(1500 * time.Millisecond) {
			break
		}
		require.NotZero(t, lost.Load(), "followers were dropped that nobody has missed: %+v", c.records())
		require.NotZero(t, left, "followers are lost whenever the coordinator starts anew")
	}
	tr.goesOn()
	tr.exact()
	require.Empty(t, c.status().Failovers)
}

// restartKeeps starts the coordinator anew, and reports whether every shard has the same
// followers some time after all servers have come back, and had them all the time.
func (c *cluster) restartKeeps(d time.Duration) bool {
	c.t.Helper()
	before := c.sets()
	require.NoError(c.t, c.coord.Close())
	c.startCoordinator()
	for _, id := range []shard.ServerID{"s1", "s2", "s3"} {
		eventually(c.t, "server is back", func() bool { return c.isUp(id) })
	}
	for end := time.Now().Add(d); time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		if c.status().Exposed > 0 || !slices.Equal(before, c.sets()) {
			return false
		}
	}
	return true
}

// TestStarvedOwnerKeepsFollowers: an owner that did not get the processor for longer than a
// follower may be silent finds in its sockets that the follower was not.
func TestStarvedOwnerKeepsFollowers(t *testing.T) {
	settled(t)
	c := newCluster(t, layersJob(1, 1, 100), patient) // nobody takes the owner's place meanwhile
	servers := map[shard.ServerID]*process{}
	for _, id := range []shard.ServerID{"s1", "s2"} {
		servers[id] = c.process("server", string(id))
	}
	c.placed()
	c.protected()
	w := c.worker("w")
	owner, before := servers[c.owner(0)], c.sets()
	for range 4 {
		owner.signal(syscall.SIGSTOP)
		<-time.After(1200 * time.Millisecond) // longer than an owner waits for a follower
		owner.signal(syscall.SIGCONT)
		require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1))) // not before the follower has it, or is dropped
		require.Equal(t, before, c.sets(), "no follower was dropped")
	}
}

// TestFailoverOfAnEarlierTime: a server is found dead, and by the time that somebody acts
// on it, it is back and owns the shard again, at a later epoch. Nothing is taken from it.
func TestFailoverOfAnEarlierTime(t *testing.T) {
	settled(t)
	c := newCluster(t, layersJob(1, 1, 100))
	c.server("s1")
	c.server("s2")
	c.placed()
	c.protected()
	before := c.records()[0]
	was := before.Assignment.Owner
	c.move(0, before.Followers[0])
	c.move(0, was)
	after := c.records()[0]
	require.Greater(t, after.Assignment.Epoch, before.Assignment.Epoch)
	c.coord.FailOver(was, before)
	require.Equal(t, after, c.records()[0])
	c.coord.FailOver(was, after) // also not if it was there all the time
	require.Equal(t, after, c.records()[0])
}

// TestT1OwnerAndFollowerTogether: the owner dies while one of its two followers hangs,
// which nobody has noticed: the other one has every acknowledged push, and takes over.
func TestT1OwnerAndFollowerTogether(t *testing.T) {
	together(t)
	c := newCluster(t, layersJob(2, 1, 100))
	servers := map[shard.ServerID]*process{}
	for _, id := range []shard.ServerID{"s1", "s2", "s3"} {
		servers[id] = c.process("server", string(id))
	}
	c.placed()
	c.protected()
	tr := c.traffic("l0", 100, c.worker("w1"), c.worker("w2"))
	tr.goesOn()
	owner := c.owner(0)
	hung := shard.ServerID("s1") // the first that is asked
	if owner == hung {
		hung = "s2"
	}
	servers[hung].signal(syscall.SIGSTOP)
	servers[owner].kill()
	began := time.Now()
	tr.goesOn()
	t.Log("pushes go on after", time.Since(began), c.status().Failovers)
	tr.exact()
	require.NotContains(t, []shard.ServerID{owner, hung}, c.owner(0))
}

// TestDroppedFollowerHoldsNothing: a follower that is replaced while it lives frees its
// copy, also one that owned the shard before.
func TestDroppedFollowerHoldsNothing(t *testing.T) {
	settled(t)
	c := newCluster(t, layersJob(1, 1, 100))
	servers := map[shard.ServerID]*ps.Server{}
	for _, id := range []shard.ServerID{"s1", "s2"} {
		servers[id] = c.server(id)
	}
	c.placed()
	c.protected()
	former, owner := c.owner(0), shard.ServerID("s1")
	if former == owner {
		owner = "s2"
	}
	require.Equal(t, shard.KindSwitch, c.move(0, owner).Kind)
	c.protected()
	require.Equal(t, 1, c.follows(former))
	c.server("s3")
	require.NoError(t, c.admin.Drain(c.ctx, former, true))
	eventually(t, "s3 follows instead", func() bool { return c.follows("s3") == 1 && c.follows(former) == 0 })
	c.holdsNothing(former)
}

// holdsNothing waits until a server has given all memory back.
func (c *cluster) holdsNothing(id shard.ServerID) {
	c.t.Helper()
	eventually(c.t, "the copies on "+string(id)+" are gone", func() bool {
		for _, s := range c.status().Servers {
			if s.ID == id {
				load, err := c.admin.Load(c.ctx, s)
				return err == nil && load.StateBytes == 0
			}
		}
		return false
	})
}

// TestPromotionKeepsTheOtherFollower: of two followers one takes over, and the other one
// follows it without being filled anew: it has the same state.
func TestPromotionKeepsTheOtherFollower(t *testing.T) {
	settled(t)
	c := newCluster(t, layersJob(2, 1, 100))
	servers := map[shard.ServerID]*process{}
	for _, id := range []shard.ServerID{"s1", "s2", "s3"} {
		servers[id] = c.process("server", string(id))
	}
	c.placed()
	c.protected()
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1))) // both have it, and nothing more comes
	before := c.sets()
	var once sync.Once
	servers[c.owner(0)].kill()
	eventually(t, "a follower has taken over", func() bool {
		once.Do(func() { _ = w.Push(c.ctx, "l0", vector(100, -1)) })
		return len(c.status().Failovers) == 1
	})
	c.protected()
	require.Equal(t, before[0]+1, c.sets()[0], "the other one has followed on, without being copied anew")
	got := make([]float32, 100)
	require.NoError(t, w.Pull(c.ctx, "l0", got))
	require.Equal(t, vector(100, 2), got)
}

// TestReplacedServerMayLive: a server is started anew while its earlier run hangs. That
// one may serve reads for as long as its leases last, and is not taken for dead.
func TestReplacedServerMayLive(t *testing.T) {
	settled(t)
	c := newCluster(t, layersJob(1, 1, 100))
	servers := map[shard.ServerID]*process{}
	for _, id := range []shard.ServerID{"s1", "s2"} {
		servers[id] = c.process("server", string(id))
	}
	c.placed()
	c.protected()
	tr := c.traffic("l0", 100, c.worker("w"))
	tr.goesOn()
	owner := c.owner(0)
	servers[owner].signal(syscall.SIGSTOP)
	c.process("server", string(owner))
	tr.goesOn()
	eventually(t, "the shard has another owner", func() bool { return len(c.status().Failovers) == 1 })
	require.False(t, c.status().Failovers[0].Sure)
	servers[owner].kill()
	c.protected()
	tr.goesOn()
	tr.exact()
}

// TestEndedConnectionIsForgotten: an owner keeps nothing of a follower that has ended.
func TestEndedConnectionIsForgotten(t *testing.T) {
	settled(t)
	c := newCluster(t, layersJob(1, 1, 100))
	servers := map[shard.ServerID]*ps.Server{"s1": c.server("s1"), "s2": c.server("s2")}
	c.placed()
	c.protected()
	owner := c.owner(0)
	require.Equal(t, 1, servers[owner].Peers())
	for id, s := range servers {
		if id != owner {
			require.NoError(t, s.Close())
		}
	}
	eventually(t, "the connection is forgotten", func() bool { return servers[owner].Peers() == 0 })
}

// load is the load of a server as it says itself, zero if it does not answer.
func (c *cluster) load(id shard.ServerID) ps.ServerLoad {
	for _, s := range c.status().Servers {
		if s.ID == id {
			load, _ := c.admin.Load(c.ctx, s)
			return load
		}
	}
	return ps.ServerLoad{}
}

// owned is how many shards a server owns, as the coordinator knows it.
func (c *cluster) owned(id shard.ServerID) int { return len(c.status().Map.Of(id)) }

// TestFollowersAcknowledgeAtOnce: one push of several shards of a server, which follow on
// different servers, goes to each follower in frames behind which nothing comes. None of them
// keeps its confirmation until the owner asks for it, every 50 ms.
func TestFollowersAcknowledgeAtOnce(t *testing.T) {
	settled(t)
	job := sgdJob(layer("l", 96, 16))
	job.MaxShardBytes = 512
	c := newCluster(t, job, patient)
	for _, id := range []shard.ServerID{"s1", "s2", "s3"} {
		c.server(id)
	}
	c.placed()
	c.protected()
	w := c.worker("w")
	fastest := time.Hour
	for i := range 20 {
		began := time.Now()
		require.NoError(t, w.Push(c.ctx, "l", vector(96*16, -1)))
		if i > 0 { // the first one may come just before the question
			fastest = min(fastest, time.Since(began))
		}
	}
	require.Less(t, fastest, 25*time.Millisecond)
}

// TestDrainWithMostFollowers: a shard that has as many followers as it may have gets another
// one in place of one that is on a server that is taken out.
func TestDrainWithMostFollowers(t *testing.T) {
	settled(t)
	c := newCluster(t, layersJob(shard.MaxFollowers, 1, 100))
	for i := range shard.MaxFollowers + 2 {
		c.server(shard.ServerID(fmt.Sprint("s", i)))
	}
	c.placed()
	c.protected()
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	follower := c.records()[0].Followers.IDs()[0]
	require.NoError(t, c.admin.Drain(c.ctx, follower, true))
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	require.NoError(t, c.admin.Remove(ctx, follower), "it follows until there is another one")
	c.protected()
	require.Equal(t, shard.MaxFollowers, c.records()[0].Followers.Len())
	c.has(w, 2)
}
