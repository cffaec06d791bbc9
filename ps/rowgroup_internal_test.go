package ps

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/shard"
)

// parts is a table and its shards.
func parts(t testing.TB, rows, dim int, maxShardBytes int64) (shard.Layer, []shard.Shard) {
	m := shard.Model{Layers: []shard.Layer{{Name: "t", Sparse: true, Shape: []int{rows, dim}}}}
	shards, err := shard.Partition(m, shard.PartitionOptions{MaxShardBytes: maxShardBytes})
	require.NoError(t, err)
	return m.Layers[0], shards
}

// TestRowGroup compares groups of ids with a plain loop: each id once, with its shard, in
// the order of appearance, gradients of equal ids added; and values back where they belong.
func TestRowGroup(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var g rowGroup
	for _, c := range []struct{ rows, dim, bytes, ids, different int }{
		{1, 1, 0, 5, 3}, {10, 3, 64, 100, 50}, {7, 16, 64, 1000, 1e6}, {1 << 20, 17, 0, 4096, 1000}, {1000, 40, 0, 1, 1},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			l, shards := parts(t, c.rows, c.dim, int64(c.bytes))
			ids, grads := make([]int64, c.ids), make([]float32, c.ids*c.dim)
			for i := range ids {
				ids[i] = int64(shard.Hash(random.Int64N(int64(c.different))))
			}
			for i := range grads {
				grads[i] = float32(i)
			}
			order, sums := map[int64]int{}, map[int64][]float32{}
			for i, id := range ids {
				if sums[id] == nil {
					order[id], sums[id] = i, make([]float32, c.dim)
				}
				for k := range c.dim {
					sums[id][k] += grads[i*c.dim+k]
				}
			}
			g.gather(ids, c.dim, lowestHashes(l, shards))
			g.sum(grads)
			for s, of := range shards {
				last := -1
				for p := g.begins[s]; p < g.ends[s]; p++ {
					element := l.RowElement(g.ids[p])
					require.True(t, of.Range.Begin <= element && element < of.Range.End, "id %d in shard %d", g.ids[p], s)
					require.Equal(t, sums[g.ids[p]], g.values[p*c.dim:(p+1)*c.dim])
					require.Greater(t, order[g.ids[p]], last)
					last = order[g.ids[p]]
					delete(order, g.ids[p])
				}
			}
			require.Empty(t, order)
			dst := make([]float32, len(grads))
			g.spread(dst)
			for i, id := range ids {
				require.Equal(t, sums[id], dst[i*c.dim:(i+1)*c.dim])
			}
		})
	}
}

// BenchmarkRowGroup is what a client does with the ids of one pull besides sending them.
func BenchmarkRowGroup(b *testing.B) {
	const n, batches = 4096, 64
	for _, rows := range []int{10_000, 1e6} {
		for _, dim := range []int{16, 64} {
			b.Run(fmt.Sprintf("rows=%d/dim=%d", rows, dim), func(b *testing.B) {
				l, shards := parts(b, rows, dim, 0)
				random := rand.New(rand.NewPCG(1, 1))
				ids, dst := make([]int64, n*batches), make([]float32, n*dim)
				for i := range ids {
					ids[i] = random.Int64N(int64(rows))
				}
				var g rowGroup
				lowest, next := lowestHashes(l, shards), 0
				for b.Loop() {
					g.gather(ids[next*n:(next+1)*n], dim, lowest)
					g.spread(dst)
					next = (next + 1) % batches
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/id")
			})
		}
	}
}
