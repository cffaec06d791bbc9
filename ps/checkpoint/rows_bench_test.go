package checkpoint_test

import (
	"testing"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

// largeTable is a table of n shards of 32 blocks, each of as many rows of 16 values as are expected in a
// block, with one slot: 18 MiB to a shard. All blocks hold the same rows.
func largeTable(n int) (list []checkpoint.Shard, cut []shard.Shard, model shard.Model, rows *checkpoint.Rows) {
	const dim, blocks, perBlock = 16, 32, checkpoint.BlockElems / 16
	model = shard.Model{Layers: []shard.Layer{{Name: "t", Shape: []int{n * blocks * perBlock, dim}, Sparse: true}}}
	elems := int64(blocks * checkpoint.BlockElems)
	for i := range int64(n) {
		s := checkpoint.Shard{
			ID: shard.ID(i), Layer: "t", Begin: i * elems, End: (i + 1) * elems, Slots: []string{"h"},
			Dim: dim, SlotElems: []int{dim},
		}
		for b := range blocks {
			s.Blocks, s.Rows, s.Waiting = append(s.Blocks, b), append(s.Rows, perBlock), append(s.Waiting, 100)
		}
		list = append(list, s)
		cut = append(cut, shard.Shard{ID: s.ID, Range: shard.Range{Begin: s.Begin, End: s.End}})
	}
	rows = &checkpoint.Rows{
		IDs: make([]int64, perBlock), State: make([]uint64, perBlock), Weights: make([]float32, perBlock*dim),
		Slots: [][]float32{make([]float32, perBlock*dim)}, Waiting: make([]byte, 100),
	}
	for i := range rows.Weights {
		rows.IDs[i/dim], rows.Weights[i] = int64(i/dim), float32(i)
	}
	return list, cut, model, rows
}

func writeTable(b testing.TB, s checkpoint.Storage, list []checkpoint.Shard, rows *checkpoint.Rows) checkpoint.File {
	b.Helper()
	f, err := checkpoint.WriteFile(b.Context(), s, "ckpt-00000001", "0.safetensors", list, func(w *checkpoint.Writer) error {
		for _, s := range list {
			for _, block := range s.Blocks {
				if err := w.WriteRows(s.ID, block, rows); err != nil {
					return err
				}
			}
		}
		return nil
	})
	require.NoError(b, err)
	return f
}

// savedTable writes and commits a large table.
func savedTable(t testing.TB, s checkpoint.Storage, n int) (*checkpoint.Checkpoint, []checkpoint.Shard, checkpoint.File) {
	t.Helper()
	list, cut, model, rows := largeTable(n)
	file := writeTable(t, s, list, rows)
	_, err := checkpoint.Commit(t.Context(), s, checkpoint.Manifest{Name: "ckpt-00000001", Model: model, Shards: cut, Files: []checkpoint.File{file}})
	require.NoError(t, err)
	c, err := checkpoint.Open(t.Context(), s, "ckpt-00000001")
	require.NoError(t, err)
	return c, list, file
}

// TestMemoryOfRows writes, reads, verifies and exports a table of more than 96 MiB: what is allocated does
// not grow with its rows.
func TestMemoryOfRows(t *testing.T) {
	allocated := func(what string, work func()) {
		t.Helper()
		requireAllocated(t, 48<<20, what, work)
	}
	s := checkpoint.Folder(t.TempDir())
	list, _, _, rows := largeTable(6)
	allocated("write", func() { writeTable(t, s, list, rows) })
	c, list, file := savedTable(t, s, 6)
	require.Greater(t, file.Bytes, int64(96<<20))
	blocks := 0
	allocated("read", func() {
		for _, sh := range list {
			_, err := c.ReadRows(t.Context(), sh.ID, 16, sh.Slots, sh.SlotElems, func(_ int, got *checkpoint.Rows) error {
				blocks++
				require.Equal(t, rows.IDs[1000], got.IDs[1000])
				return nil
			})
			require.NoError(t, err)
		}
	})
	require.Equal(t, 6*32, blocks)
	allocated("verify", func() { require.NoError(t, c.Verify(t.Context())) })
	allocated("export", func() { require.NoError(t, c.Export(t.Context(), discard{s}, "model", shard.Float16)) })
}

// BenchmarkRows writes a table of 18 MiB to nowhere and reads one from a file, in turns with dense shards of
// about as many bytes. "of-dense" is the ratio of the bytes per second at the best times.
func BenchmarkRows(b *testing.B) {
	s, dense := checkpoint.Folder(b.TempDir()), checkpoint.Folder(b.TempDir())
	c, list, file := savedTable(b, s, 1)
	_, _, _, rows := largeTable(1)
	shards, cut, model, values := equalShards(1, 24*checkpoint.BlockElems)
	f := writeLarge(b, dense, "ckpt-00000001", shards, values)
	_, err := checkpoint.Commit(b.Context(), dense, checkpoint.Manifest{Name: "ckpt-00000001", Model: model, Shards: cut, Files: []checkpoint.File{f}})
	require.NoError(b, err)
	d := open(b, dense, "ckpt-00000001")
	var arrays [3][]float32
	for i := range arrays {
		arrays[i] = make([]float32, shards[0].End)
	}
	compare := func(b *testing.B, table, plain func()) {
		ours, theirs := newBest(), newBest()
		for b.Loop() {
			ours.time(table)
			theirs.time(plain)
		}
		b.SetBytes(file.Bytes)
		rate := float64(file.Bytes) / ours.seconds()
		b.ReportMetric(rate/1e6, "best-MB/s")
		b.ReportMetric(rate/(float64(f.Bytes)/theirs.seconds()), "of-dense")
	}
	b.Run("write", func(b *testing.B) {
		compare(b, func() { writeTable(b, discard{s}, list, rows) }, func() { writeLarge(b, discard{s}, "ckpt-00000001", shards, values) })
	})
	b.Run("read", func(b *testing.B) {
		compare(b, func() {
			_, err := c.ReadRows(b.Context(), 0, 16, list[0].Slots, list[0].SlotElems, func(int, *checkpoint.Rows) error { return nil })
			require.NoError(b, err)
		}, func() {
			_, err := d.ReadShard(b.Context(), 0, arrays[0], shards[0].Slots, arrays[1:]...)
			require.NoError(b, err)
		})
	})
}
