package ps_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// lateOrder is an order that nobody waits for any more when it comes.
type lateOrder struct {
	first   atomic.Pointer[func() error] // has it come
	hasCome atomic.Bool
}

// holdUp keeps the orders of a kind to a node from coming. What f says is lost besides.
func (c *cluster) holdUp(order, to string, f func(to actor.Ref, msg any) bool) *lateOrder {
	l := &lateOrder{}
	drop := func(ref actor.Ref, msg any) bool {
		if ps.OrderOf(msg) != order || ref.Node != to || l.hasCome.Load() {
			return f(ref, msg)
		}
		come := func() error {
			l.hasCome.Store(true)
			_, err := c.home.Call(c.ctx, ref, msg)
			return err
		}
		l.first.CompareAndSwap(nil, &come)
		return true
	}
	c.drop.Store(&drop)
	return l
}

// TestLateOrderToFill: the order to fill a lost shard comes when the coordinator has given
// the shard to another server. A client that still has the route to the first one is not
// answered there.
func TestLateOrderToFill(t *testing.T) {
	together(t)
	c, w, having := bereftIn(t, &heldStorage{Folder: checkpoint.Folder(t.TempDir())}, func(c *cluster) { c.cfg.CopyTimeout = time.Second }, "s1")
	var knows, hears, silent atomic.Bool
	behind := func(_ actor.Ref, msg any) bool { return ps.IsRoute(msg) && knows.Load() && !hears.Load() }
	l := c.holdUp("host", "s2", func(to actor.Ref, msg any) bool {
		if ps.RoutesTo(msg, 0, "s2") {
			knows.Store(true)
		}
		return to.Node == "stale" && behind(to, msg) || silent.Load() && ps.OrderOf(msg) == "report"
	})
	n, err := actor.Start(c.ctx, actor.Config{Name: "stale", Secret: c.secret, Drop: behind})
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.Close() })
	for !c.connected(n) {
		require.NoError(t, c.ctx.Err())
	}
	stale, err := ps.Dial(c.ctx, ps.ClientConfig{Node: n, Name: "stale", Coordinator: c.ref()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = stale.Close() })

	having["owner"].kill()
	c.server("s2")
	pushed := make(chan error, 1)
	go func() { pushed <- stale.Push(c.ctx, "l0", vector(100, -1)) }()
	eventually(t, "the client has the route to s2", knows.Load)
	c.server("s0") // the first that the shard would be given to
	eventually(t, "another server has the shard", func() bool { return c.owner(0) == "s0" })
	pushOften(c, w, 3)

	silent.Store(true) // else the coordinator hears after a second what s2 has
	late := (*l.first.Load())()
	select {
	case err := <-pushed:
		pushed <- err
		t.Error("the push was acknowledged by a server that does not own the shard")
	case <-time.After(3 * time.Second): // longer than it takes to ask again
	}
	hears.Store(true)
	require.NoError(t, <-pushed)
	hasPushes(c, w, 9)
	require.ErrorIs(t, late, shard.ErrRefused)
}

// TestLateOrderToCreate: the order to create a shard comes when another server has it. It was
// no copy that a client knew: when the shard is lost, it is filled from the checkpoint also there.
func TestLateOrderToCreate(t *testing.T) {
	settled(t)
	folder := checkpoint.Folder(t.TempDir())
	c := newCluster(t, layersJob(ps.NoReplicas, 1, 100), saving(folder), func(c *cluster) { c.cfg.CopyTimeout = time.Second })
	var silent, filled atomic.Bool
	silent.Store(true) // else the copy is dropped before
	l := c.holdUp("host", "s1", func(_ actor.Ref, msg any) bool {
		if ps.OrderOf(msg) == "host" {
			filled.Store(true)
		}
		return silent.Load() && ps.OrderOf(msg) == "report"
	})
	c.server("s1")
	eventually(t, "s1 is to create the shard", func() bool { return l.first.Load() != nil })
	owner := c.process("server", "s0") // the first that the shard would be given to
	c.placed()
	w := c.client("w")
	pushOften(c, w, 5)
	c.save(false)
	require.NoError(t, (*l.first.Load())())
	filled.Store(false)
	owner.kill()
	eventually(t, "s1 is to fill the shard", filled.Load)
	silent.Store(false)
	goesBack(c, w)
}

// badFiles is a storage in which the states of shards are damaged while isBad.
type badFiles struct {
	checkpoint.Storage
	isBad atomic.Bool
}

func (s *badFiles) Read(ctx context.Context, name string, offset int64, p []byte) error {
	err := s.Storage.Read(ctx, name, offset, p)
	if strings.HasSuffix(name, ".safetensors") && s.isBad.Load() {
		p[len(p)-1]++
	}
	return err
}

// TestLateOrderToFillFromADamaged: a server finds the checkpoint damaged from which it is to
// fill a shard, and another one gets the shard and an older checkpoint. The order comes twice,
// when the storage is sound.
func TestLateOrderToFillFromADamaged(t *testing.T) {
	settled(t)
	c, w, having := bereft(t, "s1")
	c.save(true) // has all 12
	slow := &heldFiles{Storage: c.checkpoints, asked: make(chan struct{}, 1), open: make(chan struct{})}
	bad := &badFiles{Storage: slow}
	bad.isBad.Store(true)
	c.checkpoints = bad
	var again atomic.Pointer[func() error]
	hear := func(to actor.Ref, msg any) bool {
		if ps.OrderOf(msg) == "host" && to.Node == "s2" {
			call := func() error {
				_, err := c.home.Call(c.ctx, to, msg)
				return err
			}
			again.CompareAndSwap(nil, &call)
		}
		return false
	}
	c.drop.Store(&hear)
	having["owner"].kill()
	c.server("s2")
	select {
	case <-slow.asked:
	case <-c.ctx.Done():
		t.Fatal("s2 reads no checkpoint")
	}
	c.checkpoints = slow.Storage
	c.server("s0") // the first that the shard would be given to
	close(slow.open)
	goesBack(c, w)
	require.Equal(t, shard.ServerID("s0"), c.owner(0))
	bad.isBad.Store(false)
	require.ErrorIs(t, (*again.Load())(), shard.ErrRefused)
}

// TestOnlyCheckpointIsDamaged: nothing is left that a lost shard could be filled from. Who asks
// for it is told.
func TestOnlyCheckpointIsDamaged(t *testing.T) {
	settled(t)
	c, w, having := bereft(t, "s1")
	bad := &badFiles{Storage: c.checkpoints}
	bad.isBad.Store(true)
	c.checkpoints = bad
	having["owner"].kill()
	c.server("s2")
	require.ErrorIs(t, w.Push(c.ctx, "l0", vector(100, -1)), ps.ErrShardLost)
}
