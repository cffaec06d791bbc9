package ps_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// Layers get the first values that they were declared with, over all their shards.
func TestFirstValues(t *testing.T) {
	const rows, elems = 300, 50
	layers := []shard.Layer{
		{Name: "t", Shape: []int{rows, elems}, Init: shard.Initializer{Kind: shard.TruncatedNormal, Scale: 0.1, Seed: 3}},
		{Name: "x", Shape: []int{rows, elems}, Init: shard.Initializer{Kind: shard.Xavier, Seed: 3}},
		{Name: "y", Shape: []int{rows, elems}, Init: shard.Initializer{Kind: shard.Xavier, Scale: 2, Seed: 3}},
	}
	c := newCluster(t, ps.Job{Model: shard.Model{Layers: layers}, Optimizer: ps.SGD(1), MaxShardBytes: 10_000}, oneNode)
	c.server("s1")
	w := c.worker("w")
	limit := math.Sqrt(6.0 / (rows + elems))
	for name, bound := range map[string]float64{"t": 0.2, "x": limit, "y": 2 * limit} {
		got, want := make([]float32, rows*elems), make([]float32, rows*elems)
		require.NoError(t, w.Pull(c.ctx, name, got))
		if name == "t" {
			kernel.TruncatedNormal(want, 3, kernel.Stream(name), 0, 0.1)
		} else {
			kernel.Uniform(want, 3, kernel.Stream(name), 0, float32(bound))
		}
		require.Equal(t, want, got)
		require.InEpsilon(t, bound, kernel.MaxAbs(got), 0.01)
	}
}
