package table_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/table"
	"github.com/elasticps/elasticps/shard"
)

// The last block of a shard may be short: ids whose buckets lie behind it are another
// shard's.
func TestShortLastBlock(t *testing.T) {
	c := table.Config{Name: "x", Rows: 100, Dim: 1000, Rule: sgdRule(), Admit: table.Admission{Touches: 2}}
	c.End = 80 * 1000 // of block 1, which has 20 rows more
	piece := newTable(t, c)
	layer := shard.Layer{Sparse: true, Shape: []int{100, 1000}}
	beyond := int64(0)
	for layer.RowElement(beyond) < c.End || layer.RowElement(beyond) >= 2*table.BlockElems {
		beyond++
	}
	require.False(t, piece.Holds([]int64{beyond}))
	require.Equal(t, -1, piece.BlockOf(beyond))
	row := table.Columns{IDs: []int64{beyond}, State: []uint64{0}, Weights: make([]float32, 1000)}
	require.ErrorContains(t, piece.Append(1, &row), "another block")
	counter := append(binary.LittleEndian.AppendUint64(nil, uint64(beyond)), 1, 0, 0, 0, 0, 0, 0, 0)
	require.ErrorContains(t, piece.SetWaiting(1, counter), "another block")
}

// A push that would give a block more rows than it may have is refused before it changes
// anything, whatever MaxRows says; with eviction the block keeps to its limit.
func TestBlockRows(t *testing.T) {
	const limit = 100
	ids, grads := make([]int64, limit+1), make([]float32, limit+1)
	for i := range ids {
		ids[i] = int64(i)
	}
	for _, maxRows := range []int64{0, 1000} {
		tab := newTable(t, table.Config{Name: "x", Rows: 10, Dim: 1, Rule: sgdRule(), MaxRows: maxRows, BlockRows: limit})
		require.True(t, tab.Refuses(ids))
		require.False(t, tab.Refuses(ids[:limit]))
		tab.Push(ids[:limit], grads[:limit], 1)
		require.False(t, tab.Refuses(ids[:limit]), "rows that exist")
		require.True(t, tab.Refuses(ids[limit:]))
	}
	tab := newTable(t, table.Config{Name: "x", Rows: 10, Dim: 1, Rule: sgdRule(), MaxRows: 1000, BlockRows: limit, Evict: table.LowestNorm})
	for range 3 {
		require.False(t, tab.Refuses(ids))
		tab.Push(ids, grads, 1)
		require.LessOrEqual(t, tab.Rows(), int64(limit))
	}
}

// A copy that has some of the blocks only makes the same rows of a push that comes near
// MaxRows, also when ids raise each other's counters.
func TestRefusalDoesNotDependOnOtherBlocks(t *testing.T) {
	c := table.Config{
		Name: "x", Rows: 1 << 15, Dim: 4, Rule: sgdRule(), MaxRows: 100,
		Admit: table.Admission{Touches: 3, FilterBytes: 1}, // filters of the least size
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		whole, part := newTable(t, c), newTable(t, c)
		for pushes := 0; pushes < 200; pushes++ {
			var ids, first []int64
			seen := map[int64]bool{}
			for range 20 {
				if id := rng.Int64N(2000); !seen[id] {
					seen[id] = true
					ids = append(ids, id)
				}
			}
			if whole.Refuses(ids) {
				continue
			}
			for _, id := range ids {
				if whole.BlockOf(id) == 0 {
					first = append(first, id)
				}
			}
			require.Zero(t, whole.Push(ids, make([]float32, 4*len(ids)), 1).Refused)
			part.Push(first, make([]float32, 4*len(first)), 1)
		}
		var want, got table.Columns
		whole.Copy(0, &want)
		part.Copy(0, &got)
		require.Equal(t, want, got)
		require.Equal(t, whole.AppendWaiting(0, nil), part.AppendWaiting(0, nil))
	}
}
