package ps_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
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
	settled(t)
	everywhere(t, func(t *testing.T, options ...option) {
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
