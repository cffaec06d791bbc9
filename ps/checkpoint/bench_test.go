package checkpoint_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

// largeShards are n shards of 16 blocks with two slots, 12 MiB each, and the values of one block.
func largeShards(n int) (list []checkpoint.Shard, cut []shard.Shard, model shard.Model, values []float32) {
	return equalShards(n, 16*checkpoint.BlockElems)
}

func equalShards(n int, elems int64) (list []checkpoint.Shard, cut []shard.Shard, model shard.Model, values []float32) {
	blocks := int((elems + checkpoint.BlockElems - 1) / checkpoint.BlockElems)
	model = shard.Model{Layers: []shard.Layer{{Name: "w", Shape: []int{n, int(elems)}}}}
	for i := range int64(n) {
		s := checkpoint.Shard{ID: shard.ID(i), Layer: "w", Begin: i * elems, End: (i + 1) * elems, Slots: []string{"m", "v"}}
		s.BlockState = make([]byte, 24*blocks)
		for b := range blocks {
			s.Blocks = append(s.Blocks, b)
		}
		list = append(list, s)
		cut = append(cut, shard.Shard{ID: s.ID, Range: shard.Range{Begin: s.Begin, End: s.End}})
	}
	values = make([]float32, min(elems, checkpoint.BlockElems))
	for i := range values {
		values[i] = float32(i)
	}
	return list, cut, model, values
}

func writeLarge(b testing.TB, s checkpoint.Storage, name string, list []checkpoint.Shard, values []float32) checkpoint.File {
	b.Helper()
	f, err := checkpoint.WriteFile(b.Context(), s, name, "0.safetensors", list, func(w *checkpoint.Writer) error {
		for _, s := range list {
			for _, block := range s.Blocks {
				if err := w.WriteBlock(s.ID, block, values, values, values); err != nil {
					return err
				}
			}
		}
		return nil
	})
	require.NoError(b, err)
	return f
}

// BenchmarkWriteCheckpoint writes 384 MiB of shards to a file and forces them to the disk, in turns with
// a plain file of the same bytes written MiB by MiB and forced to the disk: the limit. "of-limit" is the
// ratio of the best times. Shards of 64 KiB are those of models below 8 MiB.
func BenchmarkWriteCheckpoint(b *testing.B) {
	b.Run("shard=4MiB", func(b *testing.B) { benchmarkWrite(b, 32, 16*checkpoint.BlockElems) })
	b.Run("shard=64KiB", func(b *testing.B) { benchmarkWrite(b, 2048, 16<<10) })
}

func benchmarkWrite(b *testing.B, shards int, elems int64) {
	list, _, _, values := equalShards(shards, elems)
	dir := b.TempDir()
	s := checkpoint.Folder(dir)
	mib := make([]byte, 1<<20)
	for i := range mib {
		mib[i] = byte(i)
	}
	ours, plain := newBest(), newBest()
	write := func(name string) (size int64) {
		ours.time(func() { size = writeLarge(b, s, name, list, values).Bytes })
		require.NoError(b, s.Remove(b.Context(), name+"/0.safetensors"))
		return size
	}
	size := write("ckpt-00000001")
	for n := 0; b.Loop(); n++ {
		if n%2 == 0 { // what comes second waits for the removal of what came first
			write("ckpt-00000001")
		}
		path := filepath.Join(dir, "plain")
		plain.time(func() { writePlain(b, path, mib, size) })
		require.NoError(b, os.Remove(path))
		if n%2 == 1 {
			write("ckpt-00000001")
		}
	}
	b.SetBytes(size)
	b.ReportMetric(plain.seconds()/ours.seconds(), "of-limit")
	b.ReportMetric(float64(size)/ours.seconds()/1e6, "best-MB/s")
}

func writePlain(b *testing.B, path string, piece []byte, size int64) {
	f, err := os.Create(path)
	require.NoError(b, err)
	for left := size; left > 0; left -= int64(len(piece)) {
		_, err := f.Write(piece[:min(left, int64(len(piece)))])
		require.NoError(b, err)
	}
	require.NoError(b, f.Sync())
	require.NoError(b, f.Close())
}

// BenchmarkReadShard reads shards of 12 MiB back, in turns with plain reads of the same file into memory
// that is reused: the limit.
func BenchmarkReadShard(b *testing.B) {
	list, cut, model, values := largeShards(8)
	s := checkpoint.Folder(b.TempDir())
	file := writeLarge(b, s, "ckpt-00000001", list, values)
	_, err := checkpoint.Commit(b.Context(), s, checkpoint.Manifest{Name: "ckpt-00000001", Model: model, Shards: cut, Files: []checkpoint.File{file}})
	require.NoError(b, err)
	c := open(b, s, "ckpt-00000001")
	var arrays [3][]float32
	for i := range arrays {
		arrays[i] = make([]float32, list[0].End)
	}
	f, err := os.Open(filepath.Join(string(s), "ckpt-00000001", "0.safetensors"))
	require.NoError(b, err)
	defer f.Close()
	ours, plain := newBest(), newBest()
	for b.Loop() {
		plain.time(func() {
			for i, a := range arrays {
				_, err := f.ReadAt(wire.Bytes(a), int64(i)*4*list[0].End)
				require.NoError(b, err)
			}
		})
		ours.time(func() {
			_, err := c.ReadShard(b.Context(), 3, arrays[0], list[0].Slots, arrays[1:]...)
			require.NoError(b, err)
		})
	}
	b.SetBytes(12 * list[0].End)
	b.ReportMetric(plain.seconds()/ours.seconds(), "of-limit")
	b.ReportMetric(12*float64(list[0].End)/ours.seconds()/1e6, "best-MB/s")
}

// requireAllocated checks that work allocates less than so many bytes.
func requireAllocated(t *testing.T, bytes uint64, what string, work func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	work()
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, bytes, what)
}

// TestMemory writes, reads, verifies and exports 96 MiB and more: what is allocated does not grow with
// the values.
func TestMemory(t *testing.T) {
	allocated := func(what string, work func()) {
		t.Helper()
		requireAllocated(t, 48<<20, what, work)
	}
	list, cut, model, values := largeShards(8)
	arrays := [3][]float32{make([]float32, list[0].End), make([]float32, list[0].End), make([]float32, list[0].End)}
	s := checkpoint.Folder(t.TempDir())
	var file checkpoint.File
	allocated("write", func() { file = writeLarge(t, s, "ckpt-00000001", list, values) })
	require.Greater(t, file.Bytes, int64(96<<20))
	_, err := checkpoint.Commit(t.Context(), s, checkpoint.Manifest{Name: "ckpt-00000001", Model: model, Shards: cut, Files: []checkpoint.File{file}})
	require.NoError(t, err)
	c, err := checkpoint.Open(t.Context(), s, "ckpt-00000001")
	require.NoError(t, err)
	allocated("read", func() {
		for _, sh := range list {
			_, err := c.ReadShard(t.Context(), sh.ID, arrays[0], sh.Slots, arrays[1:]...)
			require.NoError(t, err)
		}
	})
	require.Equal(t, values, arrays[2][5*checkpoint.BlockElems:6*checkpoint.BlockElems])
	allocated("verify", func() { require.NoError(t, c.Verify(t.Context())) })
	allocated("export", func() { require.NoError(t, c.Export(t.Context(), discard{s}, "model", shard.Float16)) })
}

// discard is a storage that forgets what is put.
type discard struct{ checkpoint.Storage }

func (discard) Put(_ context.Context, _ string, _ int64, write func(io.Writer) error) error {
	return write(io.Discard)
}
