package checkpoint_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

// slotElems are the values of a row in each slot: every other slot has one per row.
func (w *world) slotElems(dim int) []int {
	var elems []int
	for i := range w.slots {
		elems = append(elems, []int{dim, 1}[i%2])
	}
	return elems
}

// values are n random ones, NaN and infinities too.
func (w *world) values(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = math.Float32frombits(w.random.Uint32())
	}
	return x
}

func (w *world) addRow(id, b int, key int64) {
	live := &w.shards[id]
	rows := &live.table[b]
	rows.IDs = append(rows.IDs, key)
	rows.State = append(rows.State, w.random.Uint64())
	rows.Weights = append(rows.Weights, w.values(live.dim)...)
	for i, n := range w.slotElems(live.dim) {
		rows.Slots[i] = append(rows.Slots[i], w.values(n)...)
	}
}

// deleteRow removes a row and puts the last one of the block in its place.
func (w *world) deleteRow(id, b, row int) {
	live := &w.shards[id]
	rows := &live.table[b]
	last := len(rows.IDs) - 1
	rows.IDs[row], rows.State[row] = rows.IDs[last], rows.State[last]
	rows.IDs, rows.State = rows.IDs[:last], rows.State[:last]
	cut := func(values []float32, n int) []float32 {
		copy(values[row*n:], values[last*n:])
		return values[:last*n]
	}
	rows.Weights = cut(rows.Weights, live.dim)
	for i, n := range w.slotElems(live.dim) {
		rows.Slots[i] = cut(rows.Slots[i], n)
	}
}

// pushRows adds, changes and deletes rows of a block and what waits there.
func (w *world) pushRows(id, b int) {
	live := &w.shards[id]
	rows := &live.table[b]
	w.addRow(id, b, w.random.Int64()-w.random.Int64())
	for range w.random.IntN(3) {
		switch row := w.random.IntN(max(len(rows.IDs), 1)); {
		case len(rows.IDs) == 0:
			w.addRow(id, b, w.random.Int64())
		case w.random.IntN(2) == 0:
			w.deleteRow(id, b, row)
		default:
			copy(rows.Weights[row*live.dim:], w.values(live.dim))
			rows.State[row]++
		}
	}
	rows.Waiting = rows.Waiting[:0]
	for range w.random.IntN(12) {
		rows.Waiting = append(rows.Waiting, byte(w.random.Uint32()))
	}
}

// stateRows says what the blocks of a sparse shard hold.
func (w *world) stateRows(s *checkpoint.Shard) {
	live := &w.shards[s.ID]
	if live.dim == 0 {
		return
	}
	s.Dim, s.SlotElems = live.dim, w.slotElems(live.dim)
	for _, b := range s.Blocks {
		s.Rows = append(s.Rows, len(live.table[b].IDs))
		s.Waiting = append(s.Waiting, len(live.table[b].Waiting))
	}
}

// readRows fills one sparse shard from a checkpoint.
func (w *world) readRows(ctx context.Context, c *checkpoint.Checkpoint, id int) (checkpoint.Shard, error) {
	live := &w.shards[id]
	for b := range live.table {
		live.table[b] = checkpoint.Rows{}
	}
	next := 0
	s, err := c.ReadRows(ctx, shard.ID(id), live.dim, w.slots, w.slotElems(live.dim), func(b int, rows *checkpoint.Rows) error {
		if b != next {
			panic("blocks do not come one after the other")
		}
		next++
		live.table[b] = copyRows(rows)
		return nil
	})
	if err == nil && next != len(live.table) {
		panic("blocks are missing")
	}
	return s, err
}

func copyRows(r *checkpoint.Rows) checkpoint.Rows {
	c := checkpoint.Rows{
		IDs: slices.Clone(r.IDs), State: slices.Clone(r.State), Weights: slices.Clone(r.Weights), Waiting: slices.Clone(r.Waiting),
		Slots: make([][]float32, len(r.Slots)),
	}
	for i := range r.Slots {
		c.Slots[i] = slices.Clone(r.Slots[i])
	}
	return c
}

// requireEqualRows compares blocks to the bit.
func requireEqualRows(t testing.TB, want, got []checkpoint.Rows) {
	t.Helper()
	equal := func(x, y []float32) bool {
		return slices.EqualFunc(x, y, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
	}
	require.Len(t, got, len(want))
	for b := range want {
		w, g := &want[b], &got[b]
		require.True(t, slices.Equal(w.IDs, g.IDs), "ids of block %d: %d, must be %d", b, g.IDs, w.IDs)
		require.True(t, slices.Equal(w.State, g.State), "state of block %d", b)
		require.True(t, equal(w.Weights, g.Weights), "weights of block %d", b)
		require.True(t, slices.EqualFunc(w.Slots, g.Slots, equal), "slots of block %d", b)
		require.True(t, slices.Equal(w.Waiting, g.Waiting), "waiting of block %d", b)
	}
}
