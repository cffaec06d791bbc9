package shard_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

// vgg16 is configuration D of Simonyan and Zisserman, Very Deep Convolutional
// Networks for Large-Scale Image Recognition, ICLR 2015, table 1.
func vgg16() shard.Model {
	var m shard.Model
	in := 3
	for i, out := range []int{64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512} {
		m.Layers = append(m.Layers,
			shard.Layer{Name: fmt.Sprintf("conv%d.weight", i), Shape: []int{out, in, 3, 3}},
			shard.Layer{Name: fmt.Sprintf("conv%d.bias", i), Shape: []int{out}})
		in = out
	}
	in *= 7 * 7
	for i, out := range []int{4096, 4096, 1000} {
		m.Layers = append(m.Layers,
			shard.Layer{Name: fmt.Sprintf("fc%d.weight", i), Shape: []int{out, in}},
			shard.Layer{Name: fmt.Sprintf("fc%d.bias", i), Shape: []int{out}})
		in = out
	}
	return m
}

// oneGiant is one layer of 100 M elements, in one row, and 30 small ones.
func oneGiant(rows int) shard.Model {
	m := shard.Model{Layers: []shard.Layer{{Name: "giant", Shape: []int{rows, 100_000_000 / rows}}}}
	for i := range 30 {
		m.Layers = append(m.Layers, shard.Layer{Name: fmt.Sprintf("small%d", i), Shape: []int{10 + i, 7}})
	}
	return m
}

// requireCover checks that the shards cover every element once, in order.
func requireCover(t *testing.T, m shard.Model, shards []shard.Shard) {
	t.Helper()
	next := 0
	for i, l := range m.Layers {
		at := int64(0)
		for at < l.Elems() {
			require.Less(t, next, len(shards), "layer %d ends at %d of %d", i, at, l.Elems())
			s := shards[next]
			require.Equal(t, shard.ID(next), s.ID)
			require.Equal(t, i, s.Range.Layer)
			require.Equal(t, at, s.Range.Begin)
			require.Positive(t, s.Range.Elems())
			at = s.Range.End
			next++
		}
		require.Equal(t, l.Elems(), at)
	}
	require.Len(t, shards, next)
}

func servers(n int) []shard.Server {
	list := make([]shard.Server, n)
	for i := range list {
		list[i].ID = shard.ServerID(fmt.Sprintf("s%02d", i))
	}
	return list
}

func loads(m shard.Map, shards []shard.Shard, list []shard.Server) (maxLoad, total int64) {
	byServer := map[shard.ServerID]int64{}
	for _, a := range m.Assignments {
		byServer[a.Owner] += shards[a.Shard].Bytes()
		total += shards[a.Shard].Bytes()
	}
	for _, s := range list {
		maxLoad = max(maxLoad, byServer[s.ID])
	}
	return maxLoad, total
}

func imbalance(m shard.Map, shards []shard.Shard, list []shard.Server) float64 {
	maxLoad, total := loads(m, shards, list)
	return float64(maxLoad) * float64(len(list)) / float64(total)
}

func apply(t *testing.T, m shard.Map, moves []shard.Move) shard.Map {
	t.Helper()
	for _, mv := range moves {
		a, ok := m.Owner(mv.Shard)
		require.True(t, ok)
		require.Equal(t, mv.From, a.Owner)
		next, err := m.WithOwner(mv.Shard, mv.To)
		require.NoError(t, err)
		require.Greater(t, next.Version, m.Version)
		m = next
	}
	return m
}

func bytesOf(shards []shard.Shard, moves []shard.Move) (n int64) {
	for _, mv := range moves {
		n += shards[mv.Shard].Bytes()
	}
	return n
}

func TestT18Balance(t *testing.T) {
	for name, model := range map[string]shard.Model{
		"vgg16": vgg16(), "one giant, one row": oneGiant(1), "one giant, rows": oneGiant(10_000),
		"mlp": {Layers: []shard.Layer{
			{Name: "w1", Shape: []int{784, 256}},
			{Name: "b1", Shape: []int{256}},
			{Name: "w2", Shape: []int{256, 10}},
			{Name: "b2", Shape: []int{10}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			shards, err := shard.Partition(model, shard.PartitionOptions{})
			require.NoError(t, err)
			requireCover(t, model, shards)
			grow := 8
			if name == "mlp" {
				grow = 5 // its shards of 33 KiB are too coarse for more
			}
			four := servers(4)
			m, err := shard.Place(shards, four)
			require.NoError(t, err)
			require.NoError(t, m.Validate(len(shards)))
			t.Logf("%d shards, max/mean %.4f", len(shards), imbalance(m, shards, four))
			require.LessOrEqual(t, imbalance(m, shards, four), 1.05)
			for n := 4; n < grow; n++ {
				more := servers(n + 1)
				moves, err := shard.Rebalance(m, shards, more)
				require.NoError(t, err)
				require.NoError(t, shard.ValidateMoves(m, shards, more, moves))
				_, total := loads(m, shards, more)
				moved := float64(bytesOf(shards, moves)) * float64(n+1) / float64(total)
				m = apply(t, m, moves)
				t.Logf("%d to %d servers: %d moves, %.3f of 1/(n+1) of the bytes, max/mean %.4f", n, n+1, len(moves), moved, imbalance(m, shards, more))
				require.LessOrEqual(t, moved, 1.2)
				require.LessOrEqual(t, imbalance(m, shards, more), 1.05)
				settled, err := shard.Rebalance(m, shards, more)
				require.NoError(t, err)
				require.Empty(t, settled, "a balanced map stays")
			}
		})
	}
}

func TestPartitionLimits(t *testing.T) {
	layer := func(shape ...int) shard.Model {
		return shard.Model{Layers: []shard.Layer{{Name: "w", Shape: shape}}}
	}
	for _, c := range []struct {
		name  string
		model shard.Model
		limit int64
		want  []int64 // elements per shard
	}{
		{"fits", layer(10, 10), 400, []int64{100}},
		{"whole rows", layer(10, 10), 399, []int64{50, 50}},
		{"uneven rows", layer(10, 10), 160, []int64{40, 30, 30}},
		{"row over the limit", layer(2, 100), 200, []int64{50, 50, 50, 50}},
		{"scalar", layer(), 64, []int64{1}},
		{"dimension 1", layer(1), 64, []int64{1}},
		{"ones", layer(1, 1, 1), 64, []int64{1}},
		{"no rows", layer(0, 5), 64, nil},
		{"no columns", layer(5, 0), 64, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			shards, err := shard.Partition(c.model, shard.PartitionOptions{MaxShardBytes: c.limit})
			require.NoError(t, err)
			requireCover(t, c.model, shards)
			var got []int64
			for _, s := range shards {
				got = append(got, s.Range.Elems())
				require.LessOrEqual(t, s.Bytes(), c.limit)
			}
			require.Equal(t, c.want, got)
		})
	}
	_, err := shard.Partition(layer(4), shard.PartitionOptions{MaxShardBytes: 63})
	require.ErrorIs(t, err, shard.ErrPartition)
	_, err = shard.Partition(layer(4), shard.PartitionOptions{MaxShardBytes: -1})
	require.ErrorIs(t, err, shard.ErrPartition)
	_, err = shard.Partition(layer(1<<28), shard.PartitionOptions{MaxShardBytes: 64})
	require.ErrorIs(t, err, shard.ErrPartition)
	require.ErrorContains(t, err, "1048576")
	_, err = shard.Partition(shard.Model{}, shard.PartitionOptions{})
	require.ErrorIs(t, err, shard.ErrInvalidModel)
}

func TestModelFaults(t *testing.T) {
	require.NoError(t, vgg16().Validate())
	require.Equal(t, int64(138_357_544*4), vgg16().Bytes())
	bad := shard.Model{Layers: []shard.Layer{
		{Name: ""},
		{Name: "twice"},
		{Name: "twice", Shape: []int{-1}},
		{Name: strings.Repeat("n", 256)},
		{Name: "big", Shape: []int{1 << 20, 1 << 20, 2}},
		{Name: "hidden", Shape: []int{0, math.MaxInt, math.MaxInt}},
		{Name: "deep", Shape: make([]int, 9)},
		{Name: "half", DType: shard.Float16},
		{Name: "odd", DType: 99},
		{Name: "rows", Sparse: true},
		{Name: "no rows", Shape: []int{0, 4}, Sparse: true},
		{Name: "wide", Shape: []int{5, shard.MaxSparseRowElems + 1}, Sparse: true},
		{Name: "given", Shape: []int{5, 4}, Sparse: true, Init: shard.Initializer{Kind: shard.Assigned}},
		{Name: "nan", Init: shard.Initializer{Kind: shard.Uniform, Scale: float32(math.NaN())}},
		{Name: "kind", Init: shard.Initializer{Kind: 99, Scale: -1}},
	}}
	err := bad.Validate()
	require.ErrorIs(t, err, shard.ErrInvalidModel)
	for _, want := range []string{
		"empty name", `layers 1 and 2 are both named "twice"`, "dimension 0 is -1", "name of 256 bytes, limit 255",
		"shape [1048576 1048576 2] has more than 1099511627776", `"hidden": shape`, "9 dimensions, limit 8",
		"float16 is not served", "dtype(99) is not served", "0 dimensions of a sparse layer, must be 2",
		"shape [0 4] of a sparse layer", "shape [5 65001] of a sparse layer", "at most 65000", "initializer assigned of a sparse layer",
		"scale NaN", "kind 99", "scale -1",
	} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, shard.Model{}.Validate(), "0 layers")
	require.ErrorContains(t, shard.Model{Layers: make([]shard.Layer, shard.MaxLayers+1)}.Validate(), "65537 layers, limit 65536")
}

// TestPartitionSparse cuts a table between rows, also when one row is over the limit.
func TestPartitionSparse(t *testing.T) {
	m := shard.Model{Layers: []shard.Layer{{Name: "rows", Shape: []int{10, 33}, Sparse: true}}}
	for limit, want := range map[int64]int{shard.MinShardBytes: 10, 131: 10, 132: 10, 264: 5, 400: 4, 0: 1} {
		shards, err := shard.Partition(m, shard.PartitionOptions{MaxShardBytes: limit})
		require.NoError(t, err)
		require.Len(t, shards, want)
		for _, s := range shards {
			require.Zero(t, s.Range.Begin%33)
			require.Zero(t, s.Range.End%33)
		}
	}
}

// TestT8Degenerate places a model with an empty layer, a scalar and layers of
// dimension 1 on more servers than it has shards.
func TestT8Degenerate(t *testing.T) {
	m := shard.Model{Layers: []shard.Layer{
		{Name: "empty", Shape: []int{0}},
		{Name: "scalar"},
		{Name: "one", Shape: []int{1}},
		{Name: "flat", Shape: []int{3, 0, 2}},
	}}
	shards, err := shard.Partition(m, shard.PartitionOptions{})
	require.NoError(t, err)
	require.Len(t, shards, 2)
	many := servers(5)
	placed, err := shard.Place(shards, many)
	require.NoError(t, err)
	require.Equal(t, []shard.Assignment{{Shard: 0, Epoch: 1, Owner: "s00"}, {Shard: 1, Epoch: 1, Owner: "s01"}}, placed.Assignments)
	moves, err := shard.Rebalance(placed, shards, many)
	require.NoError(t, err)
	require.Empty(t, moves)

	none, err := shard.Partition(shard.Model{Layers: m.Layers[:1]}, shard.PartitionOptions{})
	require.NoError(t, err)
	require.Empty(t, none)
	placed, err = shard.Place(none, many)
	require.NoError(t, err)
	require.Empty(t, placed.Assignments)
	_, err = shard.Rebalance(placed, none, many)
	require.NoError(t, err)
}
