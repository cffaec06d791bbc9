package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

func TestWriteFileRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		checkpoint, file string
		change           func(s *checkpoint.Shard)
		want             string
	}{
		"checkpoint":    {checkpoint: "x", want: `name "x"`},
		"other number":  {checkpoint: "ckpt-000000001", want: `name "ckpt-000000001"`},
		"file":          {file: "a/b", want: `file name "a/b"`},
		"hidden file":   {file: ".a", want: "byte '.' at 0"},
		"manifest":      {file: "manifest.json", want: "must be other than"},
		"no layer":      {change: func(s *checkpoint.Shard) { s.Layer = "" }, want: "shard 3: layer name \"\" of 0 bytes"},
		"not UTF-8":     {change: func(s *checkpoint.Shard) { s.Layer = "\xff" }, want: "must be UTF-8"},
		"no elements":   {change: func(s *checkpoint.Shard) { s.End = s.Begin }, want: "elements [5, 5), must not be empty"},
		"too far":       {change: func(s *checkpoint.Shard) { s.End = shard.MaxLayerElems + 1 }, want: "within [0, 1099511627776)"},
		"slots":         {change: func(s *checkpoint.Shard) { s.Slots = make([]string, 17) }, want: "17 slots, limit 16"},
		"slot name":     {change: func(s *checkpoint.Shard) { s.Slots = []string{"M"} }, want: `slot name "M"`},
		"same slots":    {change: func(s *checkpoint.Shard) { s.Slots = []string{"m", "m"} }, want: `two slots named "m"`},
		"block":         {change: func(s *checkpoint.Shard) { s.Blocks = []int{0, 1, 2} }, want: "block 2 after 1 of 2"},
		"no order":      {change: func(s *checkpoint.Shard) { s.Blocks = []int{1, 0} }, want: "block 0 after 1 of 2"},
		"windows":       {change: func(s *checkpoint.Shard) { s.Windows = make([]byte, shard.MaxWindowsBytes+1) }, want: "push windows of"},
		"block state":   {change: func(s *checkpoint.Shard) { s.BlockState = make([]byte, 129) }, want: "block state of 129 bytes, limit 128"},
		"nothing wrong": {want: "fill was called"},
	} {
		t.Run(name, func(t *testing.T) {
			s := checkpoint.Folder(t.TempDir())
			state := checkpoint.Shard{ID: 3, Layer: "w", Begin: 5, End: 5 + checkpoint.BlockElems + 1, Blocks: []int{0, 1}}
			if c.change != nil {
				c.change(&state)
			}
			if c.checkpoint == "" {
				c.checkpoint = "ckpt-00000001"
			}
			if c.file == "" {
				c.file = "a"
			}
			_, err := checkpoint.WriteFile(t.Context(), s, c.checkpoint, c.file, []checkpoint.Shard{state}, func(*checkpoint.Writer) error {
				return errors.New("fill was called")
			})
			require.ErrorContains(t, err, c.want)
			require.Empty(t, files(t, s))
		})
	}
}

func TestWriteFileRefusesLists(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	state := func(id shard.ID) checkpoint.Shard { return checkpoint.Shard{ID: id, Layer: "w", End: 1} }
	for want, list := range map[string][]checkpoint.Shard{
		"0 shards, must be 1 to":             nil,
		"shard 1 after shard 1, must ascend": {state(1), state(1)},
		"shard 1 after shard 2, must ascend": {state(2), state(1)},
	} {
		_, err := checkpoint.WriteFile(t.Context(), s, "ckpt-00000001", "a", list, func(*checkpoint.Writer) error { return nil })
		require.ErrorContains(t, err, want)
	}
}

// TestWriteBlockRefuses writes blocks of the wrong length, number or order.
func TestWriteBlockRefuses(t *testing.T) {
	block := func(n int) []float32 { return make([]float32, n) }
	full, rest := block(checkpoint.BlockElems), block(3)
	for name, c := range map[string]struct {
		fill func(w *checkpoint.Writer) error
		want string
	}{
		"nothing":       {func(*checkpoint.Writer) error { return nil }, "not all blocks were written, block 1 of shard 2 is next"},
		"too few":       {func(w *checkpoint.Writer) error { return w.WriteBlock(2, 1, rest, rest) }, "not all blocks were written, block 0 of shard 4 is next"},
		"first block":   {func(w *checkpoint.Writer) error { return w.WriteBlock(2, 0, full, full) }, "block 0 of shard 2 is out of turn, block 1 of shard 2 is next"},
		"first shard":   {func(w *checkpoint.Writer) error { return w.WriteBlock(4, 0, rest) }, "block 0 of shard 4 is out of turn"},
		"unknown shard": {func(w *checkpoint.Writer) error { return w.WriteBlock(3, 1, rest) }, "block 1 of shard 3 is out of turn"},
		"no slot":       {func(w *checkpoint.Writer) error { return w.WriteBlock(2, 1, rest) }, "with 0 slots, must be 1"},
		"two slots":     {func(w *checkpoint.Writer) error { return w.WriteBlock(2, 1, rest, rest, rest) }, "with 2 slots, must be 1"},
		"long":          {func(w *checkpoint.Writer) error { return w.WriteBlock(2, 1, full, rest) }, "array 0 of block 1 of shard 2 has 65536 elements, must be 3"},
		"short slot":    {func(w *checkpoint.Writer) error { return w.WriteBlock(2, 1, rest, rest[:2]) }, "array 1 of block 1 of shard 2 has 2 elements, must be 3"},
		"one more": {func(w *checkpoint.Writer) error {
			return errors.Join(w.WriteBlock(2, 1, rest, rest), w.WriteBlock(4, 0, rest), w.WriteBlock(4, 0, rest))
		}, "block 0 of shard 4 is out of turn, all have been written"},
		"error dropped": {func(w *checkpoint.Writer) error {
			_ = w.WriteBlock(2, 1, full, full)
			return errors.Join(w.WriteBlock(2, 1, rest, rest), w.WriteBlock(4, 0, rest))
		}, "array 0 of block 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := checkpoint.Folder(t.TempDir())
			_, err := checkpoint.WriteFile(t.Context(), s, "ckpt-00000001", "a", []checkpoint.Shard{
				{ID: 1, Layer: "w", End: checkpoint.BlockElems},
				{ID: 2, Layer: "w", Begin: 9, End: 9 + checkpoint.BlockElems + 3, Slots: []string{"m"}, Blocks: []int{1}},
				{ID: 4, Layer: "v", End: 3, Blocks: []int{0}},
			}, c.fill)
			require.ErrorContains(t, err, c.want)
			require.Empty(t, files(t, s))
		})
	}
}

// TestMismatch reads what the checkpoint is not of.
func TestMismatch(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, smallModel(), 1, "momentum")
	c := open(t, s, w.mustSave(t, s, nil, 1).Name)
	two, three := make([]float32, 6), make([]float32, 6)
	read := func(id shard.ID, weights []float32, names []string, slots ...[]float32) error {
		_, err := c.ReadShard(t.Context(), id, weights, names, slots...)
		return err
	}
	require.NoError(t, read(0, two, []string{"momentum"}, three))
	for want, err := range map[string]error{
		`slots ["momentum"], ["h"] wanted`:           read(0, two, []string{"h"}, three),
		`slots ["momentum"], [] wanted for 0 arrays`: read(0, two, nil),
		`wanted for 0 arrays`:                        read(0, two, []string{"momentum"}),
		"6 elements, array 0 has room for 5":         read(0, two[:5], []string{"momentum"}, three),
		"6 elements, array 1 has room for 0":         read(0, two, []string{"momentum"}, nil),
		`layer "x": does not match: no such layer`:   c.ReadWeights(t.Context(), "x", 0, two),
		"elements [1, 7), it has 6":                  c.ReadWeights(t.Context(), "w", 1, two),
		"elements [-1, 5), it has 6":                 c.ReadWeights(t.Context(), "w", -1, two),
		`layer "w" has shape [2 3], must be [6]`:     c.Match(shard.Model{Layers: []shard.Layer{{Name: "w", Shape: []int{6}}, {Name: "b", Shape: []int{3}}}}),
		`layer 1 is "b", must be "c"`:                c.Match(shard.Model{Layers: []shard.Layer{{Name: "w", Shape: []int{2, 3}}, {Name: "c", Shape: []int{3}}}}),
		"2 layers, must be 1":                        c.Match(shard.Model{Layers: []shard.Layer{{Name: "w", Shape: []int{2, 3}}}}),
		"has elements of float32, must be float64":   c.Match(shard.Model{Layers: []shard.Layer{{Name: "w", Shape: []int{2, 3}, DType: shard.Float64}, {Name: "b", Shape: []int{3}}}}),
	} {
		require.ErrorIs(t, err, checkpoint.ErrMismatch, want)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "ckpt-00000001")
	}
	require.ErrorIs(t, read(2, two, []string{"momentum"}, three), checkpoint.ErrNotFound)
}

// TestReadWeights reads ranges that begin and end anywhere in blocks and shards.
func TestReadWeights(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, bigModel(), 1, "m")
	full := w.mustSave(t, s, nil, 2)
	for range 3 {
		w.push()
	}
	c := open(t, s, w.mustSave(t, s, &full, 3).Name)
	for layer, l := range w.model.Layers {
		if l.Sparse {
			require.ErrorIs(t, c.ReadWeights(t.Context(), l.Name, 0, nil), checkpoint.ErrMismatch)
			continue
		}
		var whole []float32
		for id, sh := range w.cut {
			if sh.Range.Layer == layer {
				whole = append(whole, w.shards[id].arrays[0]...)
			}
		}
		require.Len(t, whole, int(l.Elems()))
		for range 20 {
			begin := w.random.IntN(len(whole) + 1)
			dst := make([]float32, w.random.IntN(len(whole)-begin+1))
			require.NoError(t, c.ReadWeights(t.Context(), l.Name, int64(begin), dst))
			require.True(t, slices.EqualFunc(whole[begin:begin+len(dst)], dst, func(x, y float32) bool {
				return math.Float32bits(x) == math.Float32bits(y)
			}), "layer %q [%d, +%d)", l.Name, begin, len(dst))
		}
	}
}

// TestContextEnds stops writing and reading when the context has ended.
func TestContextEnds(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, bigModel(), 1, "m")
	c := open(t, s, w.mustSave(t, s, nil, 1).Name)
	ctx, cancel := context.WithCancel(t.Context())
	state := w.state(0, true)
	_, err := checkpoint.WriteFile(ctx, s, "ckpt-00000002", "a", []checkpoint.Shard{state}, func(out *checkpoint.Writer) error {
		cancel()
		return w.write([]checkpoint.Shard{state})(out)
	})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, c.Verify(ctx), context.Canceled)
	require.ErrorIs(t, c.ReadWeights(ctx, "scalar", 0, make([]float32, 1)), context.Canceled)
	_, _, err = checkpoint.Latest(ctx, s, "")
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, checkpoint.ErrNotFound)
}

// TestConcurrentReads reads all shards of a chain from many goroutines at once.
func TestConcurrentReads(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, bigModel(), 1, "m")
	full := w.mustSave(t, s, nil, 2)
	w.push()
	ref := w.mustSave(t, s, &full, 3)
	c, err := checkpoint.Open(t.Context(), s, ref.Name)
	require.NoError(t, err)
	for i := range 4 {
		t.Run(fmt.Sprint("load ", i), func(t *testing.T) {
			t.Parallel()
			requireEqual(t, w, load(t, c, "m"))
		})
		t.Run(fmt.Sprint("verify ", i), func(t *testing.T) {
			t.Parallel()
			require.NoError(t, c.Verify(t.Context()))
		})
	}
}
