package checkpoint_test

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/golden anew")

// TestGolden compares the bytes of a checkpoint, an increment and exports with those that were written
// when version 1 of the format was fixed, and reads those: old checkpoints stay readable. The files of
// shards and the exports, here and of TestGoldenSparse, were read with the safetensors package for
// Python when they were made.
func TestGolden(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, shard.Model{Layers: []shard.Layer{
		{Name: "fc.weight", Shape: []int{2, 3}, Init: shard.Initializer{Kind: shard.Uniform, Scale: 0.5, Seed: 1 << 63}},
		{Name: "none", Shape: []int{0, 4}},
		{Name: `"<é>`, Shape: []int{3}, Wire: shard.Float16},
		{Name: "scale"},
	}}, 1, "m", "v")
	for id := range w.shards {
		for i, a := range w.shards[id].arrays {
			for j := range a {
				a[j] = float32(100*id + 10*i + j)
			}
		}
		w.shards[id].windows.Admit(uint64(id), 1, 0)
		w.shards[id].steps[0] = uint64(id)
	}
	requireGolden(t, "golden", s, w, func() { w.shards[1].arrays[0][2], w.shards[1].dirty[0] = 1.0/3, true })
}

// TestGoldenSparse does the same with version 2, which has tables: one of two blocks, one
// without rows, and a dense layer of an odd number of elements in front of them.
func TestGoldenSparse(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, shard.Model{Layers: []shard.Layer{
		{Name: "bias", Shape: []int{3}},
		{Name: "<é>", Shape: []int{20_000, 4}, Sparse: true, Init: shard.Initializer{Kind: shard.Normal, Scale: 0.5, Seed: 9}},
		{Name: "none", Shape: []int{1, 1}, Sparse: true},
	}}, 1, "m", "v")
	for i := range w.shards[0].arrays[0] {
		w.shards[0].arrays[0][i] = float32(i)
	}
	table := w.shards[1].table
	for b := range table {
		table[b] = checkpoint.Rows{Slots: make([][]float32, 2)}
		for row, id := range [][]int64{{0, -1, 1 << 62}, {math.MinInt64, 7}}[b] {
			w.addRow(1, b, id)
			table[b].State[row] = uint64(row)<<40 | 1
			for j := range 4 {
				table[b].Weights[4*row+j] = float32(100*row + j)
				table[b].Slots[0][4*row+j] = float32(j) / 8
			}
			table[b].Slots[1][row] = -1
		}
	}
	table[1].Waiting = []byte("waiting")
	requireGolden(t, "golden-sparse", s, w, func() {
		w.deleteRow(1, 0, 0)
		table[0].Waiting = []byte{255}
		w.shards[1].dirty[0] = true
	})
}

// requireGolden saves, changes and saves again, exports, and compares with testdata.
func requireGolden(t *testing.T, dir string, s checkpoint.Folder, w *world, change func()) {
	t.Helper()
	full := w.mustSave(t, s, nil, 2)
	change()
	ref := w.mustSave(t, s, &full, 1)
	c := open(t, s, ref.Name)
	for name, dtype := range map[string]shard.DType{"f32": shard.Float32, "f16": shard.Float16, "bf16": shard.BFloat16} {
		require.NoError(t, c.Export(t.Context(), s, name+".safetensors", dtype))
	}
	golden := checkpoint.Folder(filepath.Join("testdata", dir))
	if *update {
		require.NoError(t, os.RemoveAll(string(golden)))
		require.NoError(t, os.CopyFS(string(golden), os.DirFS(string(s))))
	}
	want, got := files(t, golden), files(t, s)
	require.Len(t, got, len(want))
	for name := range want {
		require.Equal(t, want[name], got[name], name)
	}
	requireEqual(t, w, load(t, open(t, golden, ref.Name), "m", "v"))
}

// TestNewer opens a checkpoint that says that it is of a later version. It is refused, and not passed
// over for an older one.
func TestNewer(t *testing.T) {
	s, _ := threeSmall(t, smallModel())
	path := filepath.Join(string(s), "ckpt-00000003/manifest.json")
	text := content(t, s, "ckpt-00000003", "manifest.json")
	text = strings.Replace(text, `"version":1`, `"version":3,"more":true`, 1)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.ErrorIs(t, openAll(t, s, "ckpt-00000003"), checkpoint.ErrDamaged, "the digest is the old one")
	require.NoError(t, os.WriteFile(path, checkpoint.Sealed(text), 0o600))
	require.ErrorIs(t, openAll(t, s, "ckpt-00000003"), checkpoint.ErrNewer)
	_, _, err := checkpoint.Latest(t.Context(), s, "")
	require.ErrorIs(t, err, checkpoint.ErrNewer)
	require.ErrorContains(t, err, "ckpt-00000003/manifest.json: newer format: version 3, this is 2")
	_, err = checkpoint.Prune(t.Context(), s, 1)
	require.ErrorIs(t, err, checkpoint.ErrNewer)
	c, _, err := checkpoint.Latest(t.Context(), s, "ckpt-00000003")
	require.NoError(t, err, "asked for in so many words")
	require.Equal(t, "ckpt-00000002", c.Ref().Name)
}

// TestVersions takes a manifest for the version that it says alone: one of tables is not read as of the
// first, by which older versions of this module go, nor the other way round.
func TestVersions(t *testing.T) {
	for model, c := range map[*shard.Model]struct{ right, wrong string }{
		{Layers: smallModel().Layers}:  {`"version":1`, `"version":2`},
		{Layers: smallTables().Layers}: {`"version":2`, `"version":1`},
	} {
		s, _ := threeSmall(t, *model)
		for _, name := range []string{"ps-0.safetensors", "ps-1.safetensors"} {
			file := content(t, s, "ckpt-00000003", name)
			require.Equal(t, strings.Contains(file, `\"dim\":3`), strings.Contains(file, `"version":"2"`), name)
		}
		text := content(t, s, "ckpt-00000003", "manifest.json")
		require.Contains(t, text, c.right)
		for _, version := range []string{c.wrong, `"version":0`, `"version":-1`} {
			changed := checkpoint.Sealed(strings.Replace(text, c.right, version, 1))
			require.NoError(t, os.WriteFile(filepath.Join(string(s), "ckpt-00000003/manifest.json"), changed, 0o600))
			err := openAll(t, s, "ckpt-00000003")
			require.ErrorIs(t, err, checkpoint.ErrDamaged)
			require.ErrorContains(t, err, "with what it holds it must be")
		}
	}
}
