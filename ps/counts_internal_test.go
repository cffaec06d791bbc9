package ps

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/shard"
)

// TestCounts: reports go round all shards that a server owns, in their order.
func TestCounts(t *testing.T) {
	const shards = 2*maxCounts + 7
	s := &Server{job: Job{Optimizer: SGD(1)}, replicas: map[shard.ID]*replica{}}
	for i := range shards {
		s.job.Model.Layers = append(s.job.Model.Layers, shard.Layer{Name: fmt.Sprint(i), Shape: []int{1}})
	}
	all, err := s.job.partition()
	require.NoError(t, err)
	for i, spec := range all {
		r := newReplica(s.job, spec)
		r.copy = shard.ServeFirst(shard.Assignment{Epoch: 1})
		if r.applied = uint64(i); i%5 == 0 {
			r.copy = shard.Copy{} // not here
		}
		s.replicas[spec.ID] = r
	}
	for range 2 {
		var seen []uint32
		reports := 0
		for next := shard.ID(0); ; {
			var counts []shardCount
			counts, next = s.counts(next)
			require.LessOrEqual(t, len(counts), maxCounts)
			for _, n := range counts {
				require.Equal(t, uint64(n.Shard), n.Applied)
				seen = append(seen, n.Shard)
			}
			if reports++; next == 0 {
				break
			}
		}
		require.Equal(t, 2, reports)
		require.Len(t, seen, shards-shards/5-1)
		require.True(t, slices.IsSorted(seen))
		require.Equal(t, len(seen), len(slices.Compact(slices.Clone(seen))))
	}
}
