package ps_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

// upServer reports whether a server takes part and is up.
func (c *cluster) upServer(id shard.ServerID) bool {
	for _, s := range c.status().Servers {
		if s.ID == id {
			return s.Up
		}
	}
	return false
}

// TestServerThatWasForgotten: the news that a server was away comes when it is back, and
// before its next report it is taken out of the job, as one that is down and empty. It
// hears of nothing, and takes part again all the same.
func TestServerThatWasForgotten(t *testing.T) {
	settled(t)
	everywhere(t, func(t *testing.T, options ...option) {
		c := newCluster(t, layersJob(ps.NoReplicas, 2, 100), options...)
		c.server("s1")
		c.placed()
		c.server("s2")
		eventually(t, "s2 is there", func() bool { return c.upServer("s2") })
		tr := c.traffic("l0", 100, c.worker("w"))
		s2 := c.status().Servers[1]
		away := actor.Down{Ref: actor.Ref{Node: s2.Node, Name: s2.Process}}
		dropped := c.lose("ps.registerAgain", 1) // it reports again, and is told again
		eventually(t, "s2 is taken out", func() bool {
			require.NoError(t, c.home.Cast(c.ctx, c.ref(), away))
			err := c.admin.Remove(c.ctx, "s2")
			if err != nil { // its report was faster
				require.ErrorIs(t, err, ps.ErrConflict)
			}
			return err == nil
		})
		eventually(t, "s2 takes part again", func() bool { return c.upServer("s2") })
		require.Positive(t, dropped.Load())
		c.move(0, "s2")
		tr.goesOn()
		tr.exact()
	})
}

// TestRemoveOfServerThatComesBack: a server is down and still follows when it is to be
// taken out, and is back before nobody counts on it any more. It stays.
func TestRemoveOfServerThatComesBack(t *testing.T) {
	settled(t)
	everywhere(t, func(t *testing.T, options ...option) {
		c := newCluster(t, layersJob(1, 2, 100), options...)
		c.server("s1")
		c.placed()
		c.server("s2")
		c.protected()
		s2 := c.status().Servers[1]
		away := actor.Down{Ref: actor.Ref{Node: s2.Node, Name: s2.Process}}
		require.NoError(t, c.home.Cast(c.ctx, c.ref(), away))
		require.ErrorIs(t, c.admin.Remove(c.ctx, "s2"), ps.ErrConflict, "it has reported meanwhile")
		c.protected()
		st := c.status()
		require.Len(t, st.Servers, 2)
		require.False(t, st.Servers[1].Draining)
	})
}

// TestRemoveOfServerThatIsUp is refused, and nothing has changed; once it is marked as
// draining it goes, and its reports do not bring it back.
func TestRemoveOfServerThatIsUp(t *testing.T) {
	together(t)
	everywhere(t, func(t *testing.T, options ...option) {
		t.Parallel()
		c := newCluster(t, layersJob(ps.NoReplicas, 2, 100), options...)
		c.server("s1")
		c.placed()
		c.server("s2")
		eventually(t, "s2 is there", func() bool { return c.upServer("s2") })
		require.ErrorIs(t, c.admin.Remove(c.ctx, "s2"), ps.ErrConflict)
		c.move(0, "s2")
		c.move(0, "s1")
		require.NoError(t, c.admin.Drain(c.ctx, "s2", true))
		reports := c.lose("ps.serverReport", 0)
		require.NoError(t, c.admin.Remove(c.ctx, "s2"))
		until := reports.Load() + 10 // of both
		require.Eventually(t, func() bool { return reports.Load() > until }, 10*time.Second, time.Millisecond)
		require.False(t, c.upServer("s2"))
	})
}

// TestServerThatIsOutStaysOut: one that was draining when it was taken out is out for good,
// also if it seems to be down at that moment, its connection breaks afterwards, or another
// coordinator comes, which knows nothing of it.
func TestServerThatIsOutStaysOut(t *testing.T) {
	together(t)
	for name, then := range map[string]func(c *cluster, out *ps.Server, its *actor.Node, s2 actor.Ref){
		"down at that moment": func(*cluster, *ps.Server, *actor.Node, actor.Ref) {},
		"its connection breaks": func(c *cluster, _ *ps.Server, its *actor.Node, s2 actor.Ref) {
			require.NoError(c.t, its.Cast(c.ctx, s2, actor.Down{Ref: c.ref()}))
		},
		"another coordinator": func(c *cluster, out *ps.Server, _ *actor.Node, _ actor.Ref) {
			eventually(c.t, "s2 knows that it is out", func() bool { return ps.IsOut(out) })
			require.NoError(c.t, c.coord.Close())
			c.startCoordinator()
			eventually(c.t, "s1 is there", func() bool { return c.upServer("s1") })
		},
		"another coordinator at once": func(c *cluster, out *ps.Server, _ *actor.Node, _ actor.Ref) {
			require.NoError(c.t, c.coord.Close())
			c.startCoordinator()
			eventually(c.t, "s1 is there", func() bool { return c.upServer("s1") })
			eventually(c.t, "s2 knows that it is out", func() bool { return ps.IsOut(out) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everywhere(t, func(t *testing.T, options ...option) {
				t.Parallel()
				c := newCluster(t, layersJob(ps.NoReplicas, 2, 100), options...)
				c.server("s1")
				c.placed()
				var its *actor.Node
				out := c.serverWith("s2", func(cfg *ps.ServerConfig) { its = cfg.Node })
				eventually(t, "s2 is there", func() bool { return c.upServer("s2") })
				require.NoError(t, c.admin.Drain(c.ctx, "s2", true))
				s2 := actor.Ref{Node: c.status().Servers[1].Node, Name: c.status().Servers[1].Process}
				c.lose("ps.serverReport", math.MaxInt64)
				require.NoError(t, c.home.Cast(c.ctx, c.ref(), actor.Down{Ref: s2}))
				eventually(t, "s2 is down", func() bool { return !c.upServer("s2") })
				require.NoError(t, c.admin.Remove(c.ctx, "s2"))
				var reports atomic.Int64
				count := func(_ actor.Ref, msg any) bool {
					if fmt.Sprintf("%T", msg) == "ps.serverReport" {
						reports.Add(1)
					}
					return false
				}
				c.drop.Store(&count)
				then(c, out, its, s2)
				until := reports.Load() + 10
				eventually(t, "reports", func() bool { return reports.Load() > until })
				require.Len(t, c.status().Servers, 1)
			})
		})
	}
}

// deafStore is a store that does not do what it is told about servers, as long as it is deaf.
type deafStore struct {
	store.Store
	deaf  atomic.Bool
	asked atomic.Int64 // while it was deaf
}

func (d *deafStore) CompareAndSwap(ctx context.Context, key string, old store.Revision, value []byte) (store.Revision, error) {
	if d.deaf.Load() && strings.Contains(key, "/server/") {
		d.asked.Add(1)
		return 0, store.ErrUnavailable
	}
	return d.Store.CompareAndSwap(ctx, key, old, value)
}

// TestRemoveIsWritten: a removal is answered when the store has it, not before. Meanwhile the
// server neither gets shards nor goes back, and who asks again waits with the first; a
// coordinator that dies before the store has it has promised nothing.
func TestRemoveIsWritten(t *testing.T) {
	settled(t)
	for name, dies := range map[string]bool{"the store comes back": false, "the coordinator dies": true} {
		t.Run(name, func(t *testing.T) {
			deaf := &deafStore{}
			c := newCluster(t, layersJob(ps.NoReplicas, 2, 100), func(c *cluster) {
				deaf.Store = c.store
				c.cfg.Store = deaf
			})
			c.server("s1")
			c.placed()
			out := c.server("s2")
			eventually(t, "s2 is there", func() bool { return c.upServer("s2") })
			require.NoError(t, c.admin.Drain(c.ctx, "s2", true))
			deaf.deaf.Store(true)
			ended := make(chan error, 2)
			for range cap(ended) {
				go func() { ended <- c.admin.Remove(c.ctx, "s2") }()
			}
			eventually(t, "the store is asked", func() bool { return deaf.asked.Load() > 3 })
			require.Empty(t, ended)
			require.ErrorIs(t, c.admin.Drain(c.ctx, "s2", false), ps.ErrConflict)
			_, err := c.admin.Move(c.ctx, 0, "s2")
			require.ErrorIs(t, err, shard.ErrMoveRefused)
			if dies {
				require.NoError(t, c.coord.Close())
				require.Empty(t, ended)
				deaf.deaf.Store(false)
				c.startCoordinator()
				eventually(t, "s2 is back", func() bool { return c.upServer("s2") })
				for range cap(ended) { // they have asked this one as well
					require.ErrorIs(t, <-ended, ps.ErrConflict)
				}
				require.False(t, ps.IsOut(out))
				return
			}
			deaf.deaf.Store(false)
			for range cap(ended) {
				require.NoError(t, <-ended)
			}
			require.Len(t, c.status().Servers, 1)
			eventually(t, "s2 knows that it is out", func() bool { return ps.IsOut(out) })
		})
	}
}

// heldRecords is a store whose writes of records wait as long as it is held.
type heldRecords struct {
	store.Store
	held  chan struct{}
	asked atomic.Int64
}

func (h *heldRecords) CompareAndSwap(ctx context.Context, key string, old store.Revision, value []byte) (store.Revision, error) {
	if strings.Contains(key, "/shard/") {
		h.asked.Add(1)
		select {
		case <-h.held:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return h.Store.CompareAndSwap(ctx, key, old, value)
}

// TestRemoveWhileShardsAreCreated: a server that has new shards, whose records are not written
// yet, is not taken out: the records would name a server that is not there.
func TestRemoveWhileShardsAreCreated(t *testing.T) {
	settled(t)
	held := &heldRecords{held: make(chan struct{})}
	job := layersJob(ps.NoReplicas, 2, 100)
	job.MinServers = 2
	c := newCluster(t, job, func(c *cluster) {
		held.Store = c.store
		c.cfg.Store = held
	})
	c.servers(2)
	eventually(t, "records are being written", func() bool { return held.asked.Load() == 2 })
	require.NoError(t, c.admin.Drain(c.ctx, "s2", true))
	require.ErrorIs(t, c.admin.Remove(c.ctx, "s2"), ps.ErrConflict)
	close(held.held)
	c.placed()
	require.ErrorIs(t, c.admin.Remove(c.ctx, "s2"), ps.ErrConflict, "it owns a shard")
	c.move(1, "s1")
	require.NoError(t, c.admin.Remove(c.ctx, "s2"))
	tr := c.traffic("l1", 100, c.worker("w"))
	tr.goesOn()
	tr.exact()
}
