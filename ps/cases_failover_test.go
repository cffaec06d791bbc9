package ps_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/starved"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

// Servers that die, hang, and come back, with followers and without.

// layersJob has n layers of elems elements, a shard each.
func layersJob(replicas, n, elems int) ps.Job {
	job := ps.Job{Optimizer: ps.SGD(1), Replicas: replicas, MaxShardBytes: 64 << 20}
	for i := range n {
		job.Model.Layers = append(job.Model.Layers, layer(fmt.Sprintf("l%d", i), elems))
	}
	return job
}

// protected waits until every shard has the followers that the job wants.
func (c *cluster) protected() {
	c.t.Helper()
	eventually(c.t, "every shard has its followers", func() bool {
		st := c.status()
		return st.Exposed == 0 && len(st.Map.Assignments) > 0
	})
}

// spread moves shards until the servers have about the same number each.
func (c *cluster) spread(servers ...shard.ServerID) {
	c.t.Helper()
	for i, a := range c.status().Map.Assignments {
		if to := servers[i%len(servers)]; a.Owner != to {
			c.move(a.Shard, to)
		}
	}
}

// recovery is the time from now until a push and a pull of every layer have succeeded.
func (c *cluster) recovery(w *ps.Worker, n, elems int) time.Duration {
	c.t.Helper()
	began := time.Now()
	parallel(c.t, n, func(i int) error {
		return w.PushPull(c.ctx, fmt.Sprintf("l%d", i), vector(elems, 0), make([]float32, elems))
	})
	return time.Since(began)
}

// TestT1KillServer kills one of three servers, and stops one, while workers push: every
// acknowledged push is there, none twice, and pushes and pulls of all layers go on in
// time. The deposed server that goes on after all finds that nobody takes its word.
func TestT1KillServer(t *testing.T) {
	for name, c := range map[string]struct {
		signal syscall.Signal
		within time.Duration
	}{
		"killed": {syscall.SIGKILL, time.Second},
		"hung":   {syscall.SIGSTOP, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) { testT1(t, c.signal, c.within) })
	}
}

func testT1(t *testing.T, signal syscall.Signal, within time.Duration) {
	settled(t)
	const layers = 6
	elems := 2*ps.BlockElems + 5
	c := newCluster(t, layersJob(1, layers, elems))
	servers := map[shard.ServerID]*process{}
	for _, id := range []shard.ServerID{"s1", "s2", "s3"} {
		servers[id] = c.process("server", string(id))
	}
	c.placed()
	c.spread("s1", "s2", "s3")
	c.protected()
	var all []*traffic
	for i := range layers {
		all = append(all, c.traffic(fmt.Sprintf("l%d", i), elems, c.worker(fmt.Sprintf("w%d", i))))
	}
	for _, tr := range all {
		tr.goesOn()
	}
	probe := c.worker("probe")
	c.recovery(probe, layers, elems)
	victim, m := servers["s2"], starved.Watch(t)
	if signal == syscall.SIGKILL {
		victim.kill()
	} else {
		victim.signal(signal)
	}
	took := c.recovery(probe, layers, elems)
	t.Log("first push and pull of every layer after", took, c.status().Failovers)
	if !underRace {
		m.Less(took, within)
	}
	for _, tr := range all {
		tr.goesOn()
	}
	if signal == syscall.SIGSTOP {
		victim.signal(syscall.SIGCONT)
		eventually(t, "the deposed server is back", func() bool { return c.isUp("s2") })
		eventually(t, "it knows that it is deposed", func() bool { return c.load("s2").Shards == c.owned("s2") })
	}
	c.protected()
	for _, tr := range all {
		tr.exact()
	}
	c.oneOwner()
	st := c.status()
	require.Len(t, st.Failovers, 1)
	require.Equal(t, 2, st.Failovers[0].Promoted)
	require.Zero(t, st.Failovers[0].Lost)
	require.Equal(t, signal == syscall.SIGKILL, st.Failovers[0].Sure)
}

// TestT1TwoKillsInARow kills the server that has just taken over, when the shards have
// followers again.
func TestT1TwoKillsInARow(t *testing.T) {
	settled(t)
	c := newCluster(t, layersJob(1, 2, 100))
	var servers []*process
	for i := range 4 {
		servers = append(servers, c.process("server", fmt.Sprintf("s%d", i)))
	}
	c.placed()
	tr := c.traffic("l0", 100, c.worker("w1"), c.worker("w2"))
	for range 3 {
		c.protected()
		tr.goesOn()
		var n int
		_, err := fmt.Sscanf(string(c.owner(0)), "s%d", &n)
		require.NoError(t, err)
		servers[n].kill()
		tr.goesOn()
	}
	tr.exact()
}

// TestFollowerDies: the owner goes on without a follower that dies or hangs, and the
// follower is replaced.
func TestFollowerDies(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "hung": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			settled(t)
			c := newCluster(t, layersJob(1, 1, 100))
			c.server("s1")
			c.placed()
			follower := c.process("server", "s2")
			c.protected()
			tr := c.traffic("l0", 100, c.worker("w"))
			tr.goesOn()
			if signal == syscall.SIGKILL {
				follower.kill()
			} else {
				follower.signal(signal)
			}
			m := starved.Watch(t)
			tr.goesOn()
			took := m.Took()
			t.Log("pushes go on after", took)
			if !underRace {
				m.Less(took, 2*time.Second)
			}
			c.server("s3")
			eventually(t, "s3 follows", func() bool { return c.follows("s3") == 1 })
			tr.goesOn()
			tr.exact()
			require.Equal(t, shard.ServerID("s1"), c.owner(0))
		})
	}
}

// follows is how many shards a server follows.
func (c *cluster) follows(id shard.ServerID) int {
	for _, s := range c.status().Servers {
		if s.ID == id {
			return s.Follows
		}
	}
	return 0
}

// TestFollowersAreBitEqual compares every follower with its owner, after pushes of all
// kinds, moves and switches.
func TestFollowersAreBitEqual(t *testing.T) {
	for name, consistency := range map[string]ps.Consistency{"ASP": {}, "BSP": {Mode: ps.BSP}} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, options ...option) {
				job := layersJob(2, 3, ps.BlockElems+77)
				job.Optimizer, job.Consistency = ps.Adam(1e-2), consistency
				job.Model.Layers[2].Init.Kind = shard.Assigned
				c := newCluster(t, job, options...)
				servers := []*ps.Server{c.server("s1"), c.server("s2"), c.server("s3"), c.server("s4")}
				c.placed()
				w := c.worker("w")
				require.NoError(t, w.Assign(c.ctx, "l2", vector(ps.BlockElems+77, 3)))
				for round := range 6 {
					for i := range 3 {
						require.NoError(t, w.Push(c.ctx, fmt.Sprintf("l%d", i), vector(ps.BlockElems+77, float32(round)-2.5)))
					}
					require.NoError(t, w.Tick(c.ctx))
					require.NoError(t, w.Pull(c.ctx, "l0", make([]float32, ps.BlockElems+77)))
					c.move(shard.ID(round%3), c.otherThan(c.owner(shard.ID(round%3)), round))
				}
				eventually(t, "two followers each, all equal", func() bool { return ps.FollowersEqual(t, servers...) == 6 })
			})
		})
	}
}

// otherThan is one of the four servers, another one.
func (c *cluster) otherThan(id shard.ServerID, n int) shard.ServerID {
	for ; ; n++ {
		if to := shard.ServerID(fmt.Sprintf("s%d", n%4+1)); to != id {
			return to
		}
	}
}

// TestMoveKeepsFollowers: a move does not leave the shard without its follower.
func TestMoveKeepsFollowers(t *testing.T) {
	c := newCluster(t, layersJob(1, 1, 100))
	for _, id := range []shard.ServerID{"s1", "s2", "s3"} {
		c.server(id)
	}
	c.placed()
	c.protected()
	tr := c.traffic("l0", 100, c.worker("w"))
	owner := c.owner(0)
	var third shard.ServerID
	for _, s := range c.status().Servers {
		if s.ID != owner && s.Follows == 0 {
			third = s.ID
		}
	}
	r := c.move(0, third)
	require.Equal(t, shard.KindMove, r.Kind)
	require.Zero(t, c.status().Exposed)
	tr.goesOn()
	require.Zero(t, c.status().Exposed)
	for _, s := range c.status().Servers {
		if s.Follows == 1 {
			require.Equal(t, shard.KindSwitch, c.move(0, s.ID).Kind)
			break
		}
	}
	tr.goesOn()
	require.Zero(t, c.status().Exposed, "the former owner follows")
	tr.exact()
}

// TestT1KillServerWithoutReplica: the others do not notice; what was on the dead server
// gives a typed error in time, and no hang.
func TestT1KillServerWithoutReplica(t *testing.T) {
	settled(t)
	c := newCluster(t, layersJob(ps.NoReplicas, 2, 100))
	c.server("s1")
	c.placed()
	victim := c.process("server", "s2")
	c.move(1, "s2")
	tr := c.traffic("l0", 100, c.worker("w"))
	w := c.worker("w2")
	require.NoError(t, w.Push(c.ctx, "l1", vector(100, -1)))
	victim.kill()
	tr.goesOn()
	ctx, cancel := context.WithTimeout(c.ctx, 500*time.Millisecond)
	defer cancel()
	err := w.Push(ctx, "l1", vector(100, -1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, ps.ErrUnavailable)
	c.process("server", "s2")
	eventually(t, "the loss is reported", func() bool {
		return w.Push(c.ctx, "l1", vector(100, -1)) != nil
	})
	require.ErrorIs(t, w.Push(c.ctx, "l1", vector(100, -1)), ps.ErrShardLost)
	tr.goesOn()
	tr.exact()
}

// TestRemoveServerThatFollows: its followers are made elsewhere first, and nothing of them
// is left on it.
func TestRemoveServerThatFollows(t *testing.T) {
	everywhere(t, func(t *testing.T, options ...option) {
		c := newCluster(t, layersJob(1, 6, 100), options...)
		leaving := c.server("s1")
		c.server("s2")
		c.server("s3")
		c.placed()
		c.spread("s1", "s2", "s3")
		c.protected()
		tr := c.traffic("l0", 100, c.worker("w"))
		require.NoError(t, c.admin.Drain(c.ctx, "s1", true))
		for _, a := range c.status().Map.Assignments {
			if a.Owner == "s1" {
				c.move(a.Shard, "s2")
			}
		}
		require.NoError(t, c.admin.Remove(c.ctx, "s1"))
		st := c.status()
		require.Zero(t, st.Exposed)
		require.Len(t, st.Servers, 2)
		tr.goesOn()
		eventually(t, "nothing is left on it", func() bool { return ps.StateBytes(leaving) == 0 })
		tr.exact()
	})
}

// heldStore is a store whose changes of some keys wait.
type heldStore struct {
	store.Store
	hold func(key string)
}

func (h *heldStore) CompareAndSwap(ctx context.Context, key string, old store.Revision, value []byte) (store.Revision, error) {
	h.hold(key)
	return h.Store.CompareAndSwap(ctx, key, old, value)
}

// TestOwnerRegistersWhileItIsReplaced: an owner that was silent comes back when its follower
// is about to be promoted. It is told that it was replaced, and follows.
func TestOwnerRegistersWhileItIsReplaced(t *testing.T) {
	settled(t)
	var armed atomic.Bool
	proceed := make(chan struct{})
	release := sync.OnceFunc(func() { close(proceed) })
	t.Cleanup(release)
	c := newCluster(t, layersJob(1, 1, 100), func(c *cluster) {
		c.cfg.Store = &heldStore{c.store, func(key string) {
			if key == "elasticps/job/shard/00000000" && armed.CompareAndSwap(true, false) {
				<-proceed
			}
		}}
	})
	owner := c.process("server", "s1")
	c.placed()
	c.server("s2")
	c.protected()
	tr := c.traffic("l0", 100, c.worker("w"))
	tr.goesOn()
	armed.Store(true)
	owner.signal(syscall.SIGSTOP)
	eventually(t, "the promotion is about to be written", func() bool { return !armed.Load() })
	owner.signal(syscall.SIGCONT)
	eventually(t, "the owner is back", func() bool { return c.isUp("s1") })
	release()
	eventually(t, "s2 owns", func() bool { return c.owner(0) == "s2" })
	eventually(t, "s1 follows", func() bool { return c.follows("s1") == 1 })
	tr.goesOn()
	tr.exact()
}

// TestStoreIsSlowToTakeAServerIn: while the coordination store has no answer about a server that
// registers, clocks go on and another server is replaced; nothing is done with the new one.
func TestStoreIsSlowToTakeAServerIn(t *testing.T) {
	settled(t)
	asked, proceed := make(chan struct{}, 1), make(chan struct{})
	release := sync.OnceFunc(func() { close(proceed) })
	t.Cleanup(release)
	job := layersJob(1, 2, smallElems)
	job.Consistency = ps.Consistency{Mode: ps.BSP}
	c := newCluster(t, job, func(c *cluster) {
		c.cfg.Store = &heldStore{c.store, func(key string) {
			if key == "elasticps/job/server/s3" {
				select {
				case asked <- struct{}{}:
				default:
				}
				<-proceed
			}
		}}
	})
	s1 := c.server("s1")
	c.server("s2")
	c.placed()
	c.protected()
	w := c.worker("w")
	c.step("l0", smallElems, w)
	n, registered := c.node("s3"), make(chan error, 1)
	var s3 *ps.Server
	go func() {
		var err error
		s3, err = ps.StartServer(c.ctx, ps.ServerConfig{Node: n, ID: "s3", Coordinator: c.ref()})
		registered <- err
	}()
	<-asked
	c.step("l0", smallElems, w)
	require.NoError(t, s1.Close())
	eventually(t, "s1 is replaced", func() bool { return len(c.status().Failovers) == 1 })
	for _, layer := range []string{"l0", "l1"} {
		c.step(layer, smallElems, w)
	}
	ctx, cancel := context.WithTimeout(c.ctx, 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.admin.Remove(ctx, "s3"), context.DeadlineExceeded)
	require.Len(t, c.status().Servers, 2)
	require.Empty(t, registered)
	release()
	require.NoError(t, <-registered)
	t.Cleanup(func() { _ = s3.Close() })
	c.protected()
	require.Equal(t, 2, c.follows("s3"))
	c.step("l0", smallElems, w)
}
