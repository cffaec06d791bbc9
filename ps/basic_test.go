package ps_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// everywhere runs a test with all parties on one node and with a node each.
func everywhere(t *testing.T, f func(t *testing.T, options ...option)) {
	t.Run("one node", func(t *testing.T) { f(t, oneNode) })
	t.Run("node each", func(t *testing.T) { f(t) })
}

func TestPushPullMove(t *testing.T) {
	everywhere(t, func(t *testing.T, options ...option) {
		job := ps.Job{
			Model:     shard.Model{Layers: []shard.Layer{layer("a", 100, 30), layer("b", 7), layer("big", 3*ps.BlockElems+17)}},
			Optimizer: ps.SGD(1),
		}
		c := newCluster(t, job, options...)
		c.server("s1")
		w := c.worker("w1")
		sizes := map[string]int{"a": 3000, "b": 7, "big": 3*ps.BlockElems + 17}
		push := func() {
			for name, n := range sizes {
				require.NoError(t, w.Push(c.ctx, name, vector(n, -1)))
			}
		}
		check := func(want float32) {
			t.Helper()
			for name, n := range sizes {
				got := make([]float32, n)
				require.NoError(t, w.Pull(c.ctx, name, got))
				require.Equal(t, vector(n, want), got, name)
			}
		}
		push()
		check(1)
		c.server("s2")
		shards, err := c.admin.Shards(c.ctx)
		require.NoError(t, err)
		for _, s := range shards {
			c.move(s.ID, "s2")
		}
		check(1)
		push()
		check(2)
		for _, s := range shards {
			c.move(s.ID, "s1")
		}
		push()
		check(3)
	})
}
