package checkpoint_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

// TestEmptyStorage has no checkpoint, also when the folder does not exist.
func TestEmptyStorage(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "not", "there")} {
		s := checkpoint.Folder(dir)
		name, err := checkpoint.Next(t.Context(), s)
		require.NoError(t, err)
		require.Equal(t, "ckpt-00000001", name)
		names, err := checkpoint.List(t.Context(), s)
		require.NoError(t, err)
		require.Empty(t, names)
		_, skipped, err := checkpoint.Latest(t.Context(), s, "")
		require.ErrorIs(t, err, checkpoint.ErrNotFound)
		require.Empty(t, skipped)
		removed, err := checkpoint.Prune(t.Context(), s, 1)
		require.NoError(t, err)
		require.Empty(t, removed)
		_, err = checkpoint.Open(t.Context(), s, "ckpt-00000001")
		require.ErrorIs(t, err, checkpoint.ErrNotFound)
	}
}

// TestLatestSays why it passed over newer checkpoints.
func TestLatestSays(t *testing.T) {
	s, _ := threeSmall(t, smallTables())
	require.NoError(t, os.Truncate(filepath.Join(string(s), "ckpt-00000003/ps-1.safetensors"), 0))
	require.NoError(t, os.Remove(filepath.Join(string(s), "ckpt-00000002/ps-0.safetensors")))
	c, skipped, err := checkpoint.Latest(t.Context(), s, "")
	require.NoError(t, err)
	require.Equal(t, "ckpt-00000001", c.Ref().Name)
	require.Len(t, skipped, 2)
	require.ErrorContains(t, skipped[0], "ckpt-00000003/ps-1.safetensors: damaged: 0 bytes, must be")
	require.ErrorContains(t, skipped[1], "ckpt-00000002/ps-0.safetensors: damaged: the file is missing")
	require.NoError(t, os.RemoveAll(filepath.Join(string(s), "ckpt-00000001")))
	_, skipped, err = checkpoint.Latest(t.Context(), s, "")
	require.ErrorIs(t, err, checkpoint.ErrNotFound)
	require.ErrorContains(t, err, "the file is missing", "with the reasons")
	require.Len(t, skipped, 2)
	_, _, err = checkpoint.Latest(t.Context(), s, "../x")
	require.ErrorContains(t, err, `name "../x"`)
}

// TestPrune keeps the newest and what they need.
func TestPrune(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, smallModel(), 5, "m")
	var last checkpoint.Ref
	save := func(parent *checkpoint.Ref) {
		t.Helper()
		w.push()
		last = w.mustSave(t, s, parent, 2)
	}
	save(nil)   // 1
	save(nil)   // 2
	save(&last) // 3, to 2
	save(nil)   // 4
	save(nil)   // 5
	save(&last) // 6, to 5
	save(&last) // 7, to 6
	damage := func(name string) { require.NoError(t, os.Truncate(filepath.Join(string(s), name), 3)) }
	damage("ckpt-00000004/manifest.json")
	write := func(name string) {
		path := filepath.Join(string(s), name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	write("ckpt-00000006/ps-0.safetensors.x7" + checkpoint.PartialSuffix) // left by a crash
	write("ckpt-00000008/ps-0.safetensors")                               // being written
	write("model.safetensors")                                            // exported
	write("ckpt-9/ps-0.safetensors")                                      // of somebody else

	_, err := checkpoint.Prune(t.Context(), s, 0)
	require.ErrorContains(t, err, "0 checkpoints to keep, at least 1")
	removed, err := checkpoint.Prune(t.Context(), s, 4) // 7, 6, 5, 3
	require.NoError(t, err)
	require.Equal(t, []string{"ckpt-00000004", "ckpt-00000001"}, removed)
	requireEqual(t, w, load(t, open(t, s, "ckpt-00000007"), "m"))
	open(t, s, "ckpt-00000003")

	removed, err = checkpoint.Prune(t.Context(), s, 1)
	require.NoError(t, err)
	require.Equal(t, []string{"ckpt-00000003", "ckpt-00000002"}, removed)
	requireEqual(t, w, load(t, open(t, s, "ckpt-00000007"), "m"))
	for name := range files(t, s) {
		require.False(t, strings.HasSuffix(name, checkpoint.PartialSuffix), name)
	}
	require.FileExists(t, filepath.Join(string(s), "ckpt-00000008/ps-0.safetensors"))
	require.FileExists(t, filepath.Join(string(s), "model.safetensors"))
	require.FileExists(t, filepath.Join(string(s), "ckpt-9/ps-0.safetensors"))
	name, err := checkpoint.Next(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, "ckpt-00000009", name)

	damage("ckpt-00000005/ps-1.safetensors")
	removed, err = checkpoint.Prune(t.Context(), s, 1)
	require.NoError(t, err)
	require.Empty(t, removed, "none is whole")
}

// TestCommitOnce refuses a second checkpoint of one name, and one whose files are not there.
func TestCommitOnce(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, smallModel(), 5)
	ref := w.mustSave(t, s, nil, 2)
	m := open(t, s, ref.Name).Manifest()
	_, err := checkpoint.Commit(t.Context(), s, m)
	require.ErrorContains(t, err, "exists already")
	m.Name = "ckpt-00000002"
	_, err = checkpoint.Commit(t.Context(), s, m)
	require.ErrorIs(t, err, checkpoint.ErrDamaged)
	require.ErrorContains(t, err, "ckpt-00000002/ps-0.safetensors: damaged: 0 bytes (found: false), must be")
}

// TestManifestRefused commits manifests with one fault each.
func TestManifestRefused(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, smallModel(), 5)
	ref := w.mustSave(t, s, nil, 2)
	require.NoError(t, os.Rename(filepath.Join(string(s), ref.Name), filepath.Join(string(s), "ckpt-00000002")))
	require.NoError(t, os.Remove(filepath.Join(string(s), "ckpt-00000002/manifest.json")))
	files := func(t *testing.T) (list []checkpoint.File) {
		for _, name := range []string{"ps-0.safetensors", "ps-1.safetensors"} {
			f, err := checkpoint.Describe(t.Context(), s, "ckpt-00000002", name)
			require.NoError(t, err)
			list = append(list, f)
		}
		return list
	}
	for name, c := range map[string]struct {
		change func(m *checkpoint.Manifest)
		want   string
	}{
		"name":            {func(m *checkpoint.Manifest) { m.Name = "ckpt-1" }, `name "ckpt-1", must be "ckpt-" and a number of 8 digits or more`},
		"no name":         {func(m *checkpoint.Manifest) { m.Name = "" }, `name ""`},
		"own parent":      {func(m *checkpoint.Manifest) { m.Parent = &checkpoint.Ref{Name: m.Name} }, "must be an earlier one"},
		"job":             {func(m *checkpoint.Manifest) { m.Job = []byte("{") }, "JSON"},
		"long job":        {func(m *checkpoint.Manifest) { m.Job = make([]byte, checkpoint.MaxJobBytes+1) }, "job of 1048577 bytes, limit 1048576"},
		"long datasets":   {func(m *checkpoint.Manifest) { m.Datasets = make([]byte, checkpoint.MaxDatasetsBytes+1) }, "datasets of 16777217 bytes, limit 16777216"},
		"no layers":       {func(m *checkpoint.Manifest) { m.Model.Layers = nil }, "0 layers"},
		"layer not UTF-8": {func(m *checkpoint.Manifest) { m.Model.Layers[0].Name = "\xff" }, "not UTF-8"},
		"no shards":       {func(m *checkpoint.Manifest) { m.Shards = nil }, `no shard has element 0 of layer "w"`},
		"gap":             {func(m *checkpoint.Manifest) { m.Shards[0].Range.End-- }, "must begin with element 5 of layer 0"},
		"too long":        {func(m *checkpoint.Manifest) { m.Shards[1].Range.End++ }, "which has 3"},
		"one too many":    {func(m *checkpoint.Manifest) { m.Shards = append(m.Shards, shard.Shard{ID: 2}) }, "3 shards, the layers end with the first 2"},
		"in no file":      {func(m *checkpoint.Manifest) { m.Files = m.Files[:1] }, "shard 1 is in no file"},
		"in two files":    {func(m *checkpoint.Manifest) { m.Files[1].Shards = []shard.ID{0, 1} }, "shard 0, as does another"},
		"unknown shard":   {func(m *checkpoint.Manifest) { m.Files[1].Shards = []shard.ID{2} }, "shard 2 of 2"},
		"no order":        {func(m *checkpoint.Manifest) { m.Files = m.Files[:1]; m.Files[0].Shards = []shard.ID{1, 0} }, "do not ascend"},
		"same file":       {func(m *checkpoint.Manifest) { m.Files[1].Name = m.Files[0].Name }, "two files named"},
		"file name":       {func(m *checkpoint.Manifest) { m.Files[1].Name = "../x" }, `file name "../x"`},
		"manifest file":   {func(m *checkpoint.Manifest) { m.Files[1].Name = "manifest.json" }, `must be other than "manifest.json"`},
		"negative":        {func(m *checkpoint.Manifest) { m.Files[1].Bytes = -1 }, "-1 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			m := checkpoint.Manifest{Name: "ckpt-00000002", Model: smallModel(), Shards: slices.Clone(w.cut), Files: files(t)}
			c.change(&m)
			_, err := checkpoint.Commit(t.Context(), s, m)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := checkpoint.Commit(t.Context(), s, checkpoint.Manifest{Name: "ckpt-00000002", Model: w.model, Shards: w.cut, Files: files(t)})
	require.NoError(t, err, "without a fault")
}
