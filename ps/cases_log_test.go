package ps_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// lines keeps what is logged: the attributes of each record, by its message.
type lines struct {
	slog.Handler
	mu   sync.Mutex
	kept map[string][]map[string]any
}

func (l *lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	attrs := map[string]any{}
	r.Attrs(func(a slog.Attr) bool {
		attrs[a.Key] = a.Value.Any()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept[r.Message] = append(l.kept[r.Message], attrs)
	return nil
}

func (l *lines) of(message string) []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.kept[message])
}

// logged starts a job whose coordinator's log is kept.
func logged(t *testing.T, job ps.Job) (*cluster, *lines) {
	l := &lines{Handler: slog.DiscardHandler, kept: map[string][]map[string]any{}}
	return newCluster(t, job, func(c *cluster) { c.cfg.Logger = slog.New(l) }), l
}

// TestLostFollowersAreSaidOnce: the failover of a server and its owners' reports find the same
// followers lost.
func TestLostFollowersAreSaidOnce(t *testing.T) {
	together(t)
	const layers = 60
	c, log := logged(t, layersJob(1, layers, 1))
	c.server("s1")
	c.placed()
	dies := c.process("server", "s2")
	c.protected()
	dies.kill()
	eventually(t, "the owner goes on alone", func() bool {
		for _, s := range c.status().Servers {
			if s.Follows > 0 {
				return false
			}
		}
		return true
	})
	require.NoError(t, c.coord.Close()) // nothing is under way any more
	said := map[any]int{}
	for _, l := range log.of("follower is dropped") {
		said[l["shard"]]++
	}
	require.Len(t, said, layers)
	for id, n := range said {
		require.Equal(t, 1, n, "shard %v", id)
	}
}

// TestNewFollowersAreSaidTogether: shards that get their followers at the same time are one
// line of the log or a few, a move is one.
func TestNewFollowersAreSaidTogether(t *testing.T) {
	together(t)
	const layers = 60
	c, log := logged(t, layersJob(1, layers, 1))
	c.server("s1")
	c.server("s2")
	c.placed()
	c.protected()
	total := func() (n int64) {
		for _, l := range log.of("followers are there") {
			n += l["shards"].(int64)
		}
		return n
	}
	eventually(t, "all are told", func() bool { return total() == layers })
	require.Less(t, len(log.of("followers are there")), layers/4)
	require.Empty(t, log.of("move ended"))
	a := c.status().Map.Assignments[0]
	to := shard.ServerID("s1")
	if a.Owner == to {
		to = "s2"
	}
	c.move(a.Shard, to)
	require.Len(t, log.of("move ended"), 1)
}
