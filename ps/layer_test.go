package ps_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// A model of more layers than one page of the description, with an optimizer of its
// own for some of them, reaches servers and workers whole.
func TestManyLayersAndOptimizers(t *testing.T) {
	job := ps.Job{Optimizer: ps.Momentum(1, 0.5), Optimizers: map[string]ps.Optimizer{}}
	for i := range 300 {
		name := fmt.Sprintf("layer%d", i)
		job.Model.Layers = append(job.Model.Layers, layer(name, 2))
		if i%2 == 1 {
			job.Optimizers[name] = ps.SGD(0.5)
		}
	}
	everywhere(t, func(t *testing.T, options ...option) {
		c := newCluster(t, job, options...)
		c.server("s1")
		w := c.worker("w")
		got := make([]float32, 2)
		for i := range 300 {
			name := fmt.Sprintf("layer%d", i)
			require.NoError(t, w.Push(c.ctx, name, vector(2, -1)))
			require.NoError(t, w.Push(c.ctx, name, vector(2, -1)))
			require.NoError(t, w.Pull(c.ctx, name, got))
			want := float32(2.5) // 1 + 1.5
			if i%2 == 1 {
				want = 1
			}
			require.Equal(t, vector(2, want), got, name)
		}
	})
	_, err := ps.StartCoordinator(t.Context(), ps.CoordinatorConfig{
		Node: nil, Job: ps.Job{Model: shard.Model{Layers: []shard.Layer{layer("x", 1)}}, Optimizer: ps.SGD(1), Optimizers: map[string]ps.Optimizer{"y": ps.SGD(1)}},
	})
	require.ErrorIs(t, err, ps.ErrUnknownLayer)
}
