package ps_test

import (
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

// threeProcesses is a job with traffic on three servers that follow each other.
func threeProcesses(t *testing.T) (c *cluster, servers map[string]*process, tr *traffic) {
	t.Helper()
	settled(t)
	c, servers = newCluster(t, layersJob(2, 1, 100)), map[string]*process{}
	for _, id := range []string{"s1", "s2", "s3"} {
		servers[id] = c.process("server", id)
	}
	c.placed()
	c.protected()
	tr = c.traffic("l0", 100, c.worker("w"))
	tr.goesOn()
	return c, servers, tr
}

// TestLeasesOfAnOwnerTwoBefore: an owner hangs, and the follower that is to take its place
// dies before it is told so. It is dead for certain, but the first owner may live and serve
// reads under its leases: the next follower waits until they are over.
func TestLeasesOfAnOwnerTwoBefore(t *testing.T) {
	c, servers, tr := threeProcesses(t)
	var mu sync.Mutex
	var told []string
	sure := 0
	die := func(to actor.Ref, msg any) bool {
		if ps.OrderOf(msg) != shard.EffectActivate.String() {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		if len(told) == 0 || told[len(told)-1] != to.Node {
			told = append(told, to.Node)
		}
		if ps.IsSure(msg) {
			sure++
		}
		if len(told) > 1 {
			return false
		}
		servers[to.Node].signal(syscall.SIGKILL)
		return true
	}
	c.drop.Store(&die)
	owner := string(c.owner(0))
	servers[owner].signal(syscall.SIGSTOP)
	tr.goesOn()
	mu.Lock()
	require.Len(t, told, 2)
	require.NotContains(t, told, owner)
	require.Zero(t, sure, "the first owner may serve reads")
	mu.Unlock()
	servers[owner].kill()
	tr.goesOn()
	tr.exact()
}

// TestLeasesOfAnOwnerBeforeTheCoordinator: a coordinator writes down who takes the place of an
// owner that hangs, and ends before that one knows. The next coordinator cannot tell it either
// before it dies: it is dead for certain, but the first owner may live, and the next follower
// waits for its leases.
func TestLeasesOfAnOwnerBeforeTheCoordinator(t *testing.T) {
	c, servers, tr := threeProcesses(t)
	told := make(chan string, 1)
	var promoted atomic.Pointer[string]
	var sure, unsure atomic.Int64
	lose := func(to actor.Ref, msg any) bool {
		if ps.OrderOf(msg) != shard.EffectActivate.String() {
			return false
		}
		if p := promoted.Load(); p != nil && *p != to.Node {
			if ps.IsSure(msg) {
				sure.Add(1)
			} else {
				unsure.Add(1)
			}
			return false
		}
		select {
		case told <- to.Node:
		default:
		}
		return true
	}
	await := func() string {
		select {
		case node := <-told:
			return node
		case <-c.ctx.Done():
			require.Fail(t, "no follower is told to serve")
			return ""
		}
	}
	c.drop.Store(&lose)
	first := string(c.owner(0))
	servers[first].signal(syscall.SIGSTOP)
	second := await()
	require.NotEqual(t, first, second)
	promoted.Store(&second)
	require.NoError(t, c.coord.Close())
	c.startCoordinator()
	for began := time.Now(); time.Since(began) < ps.LeaseWait; { // else it would wait because it is new
		require.Equal(t, second, await())
	}
	servers[second].kill()
	tr.goesOn()
	require.Zero(t, sure.Load(), "the first owner may serve reads")
	require.NotZero(t, unsure.Load())
	servers[first].kill()
	tr.goesOn()
	tr.exact()
}
