package checkpoint_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

// TestT24Increments takes a full checkpoint and then increments between random pushes, over changing
// numbers of servers. Each restores the state of its instant.
func TestT24Increments(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	for seed := range uint64(3) {
		w := newWorld(t, bigModel(), seed, "m", "v")
		var parent *checkpoint.Ref
		for step := range 6 {
			for range step {
				w.push()
			}
			ref := w.mustSave(t, s, parent, 1+step%3)
			parent = &ref
			c := open(t, s, ref.Name)
			require.Len(t, c.Chain(), step+1)
			require.Equal(t, ref, c.Ref())
			require.NoError(t, c.Match(w.model))
			requireEqual(t, w, load(t, c, "m", "v"))
		}
	}
}

// TestT24NothingChanged takes an increment without a single block.
func TestT24NothingChanged(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, bigModel(), 1, "m")
	full := w.mustSave(t, s, nil, 2)
	ref := w.mustSave(t, s, &full, 2)
	requireEqual(t, w, load(t, open(t, s, ref.Name), "m"))
	info, err := os.Stat(filepath.Join(string(s), ref.Name, "ps-0.safetensors"))
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(8<<10), "it holds state only")
}

// TestT24SameBytes saves, loads and saves again, from one checkpoint and from a chain: the files are
// equal to the byte.
func TestT24SameBytes(t *testing.T) {
	first, second := checkpoint.Folder(t.TempDir()), checkpoint.Folder(t.TempDir())
	w := newWorld(t, bigModel(), 1, "momentum")
	ref := w.mustSave(t, first, nil, 3)
	for range 4 {
		w.push()
		ref = w.mustSave(t, first, &ref, 2)
	}
	whole := w.mustSave(t, first, nil, 3)
	for _, name := range []string{ref.Name, whole.Name} {
		again := load(t, open(t, first, name), "momentum").mustSave(t, second, nil, 3)
		for _, file := range []string{"ps-0.safetensors", "ps-1.safetensors", "ps-2.safetensors"} {
			require.Equal(t, content(t, first, whole.Name, file), content(t, second, again.Name, file), file)
		}
	}
}

func content(t testing.TB, s checkpoint.Folder, name ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{string(s)}, name...)...))
	require.NoError(t, err)
	return string(b)
}

// TestT24ChainRefused takes one checkpoint of a chain away, changes places, or puts one of another job
// there. Whoever opens the newest is told which one is wrong; the ones before it stay good.
func TestT24ChainRefused(t *testing.T) {
	const one, two, three = "ckpt-00000001", "ckpt-00000002", "ckpt-00000003"
	rename := func(t *testing.T, from, to string) { require.NoError(t, os.Rename(from, to)) }
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir, foreign string)
		named  string // in the error of the newest
		good   string // what Latest falls back to
	}{
		"missing": {func(t *testing.T, dir, _ string) {
			require.NoError(t, os.RemoveAll(dir+two))
		}, two, one},
		"missing base": {func(t *testing.T, dir, _ string) {
			require.NoError(t, os.RemoveAll(dir+one))
		}, one, ""},
		"missing manifest of the base": {func(t *testing.T, dir, _ string) {
			require.NoError(t, os.Remove(dir+one+"/manifest.json"))
		}, one, ""},
		"reordered": {func(t *testing.T, dir, _ string) {
			rename(t, dir+two, dir+"x")
			rename(t, dir+three, dir+two)
			rename(t, dir+"x", dir+three)
		}, three, one},
		"foreign increment": {func(t *testing.T, dir, foreign string) {
			require.NoError(t, os.RemoveAll(dir+two))
			rename(t, foreign+two, dir+two)
		}, two, one},
		"foreign base": {func(t *testing.T, dir, foreign string) {
			require.NoError(t, os.RemoveAll(dir+one))
			rename(t, foreign+one, dir+one)
		}, one, one},
		"foreign file": {func(t *testing.T, dir, foreign string) {
			rename(t, foreign+two+"/ps-0.safetensors", dir+two+"/ps-0.safetensors")
		}, two + "/ps-0.safetensors", one},
		"swapped files": {func(t *testing.T, dir, _ string) {
			rename(t, dir+two+"/ps-0.safetensors", dir+"x")
			rename(t, dir+two+"/ps-1.safetensors", dir+two+"/ps-0.safetensors")
			rename(t, dir+"x", dir+two+"/ps-1.safetensors")
		}, two + "/ps-", one},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mine, other := checkpoint.Folder(t.TempDir()), checkpoint.Folder(t.TempDir())
			for i, s := range []checkpoint.Folder{mine, other} {
				w := newWorld(t, smallModel(), uint64(i), "m")
				ref := w.mustSave(t, s, nil, 2)
				for range 2 {
					for range 5 {
						w.push()
					}
					ref = w.mustSave(t, s, &ref, 2)
				}
			}
			c.damage(t, string(mine)+"/", string(other)+"/")
			err := openAll(t, mine, three)
			require.ErrorIs(t, err, checkpoint.ErrDamaged)
			require.NotErrorIs(t, err, checkpoint.ErrMismatch)
			require.ErrorContains(t, err, c.named)
			var where *checkpoint.Error
			require.ErrorAs(t, err, &where)
			require.Equal(t, c.good, latestGood(t, mine))
		})
	}
}

// openAll is what a restore does: open, and read everything.
func openAll(t testing.TB, s checkpoint.Storage, name string) error {
	t.Helper()
	c, err := checkpoint.Open(t.Context(), s, name)
	if err != nil {
		return err
	}
	return c.Verify(t.Context())
}

// latestGood is the newest checkpoint that can be read to the end, found as a restore finds it.
func latestGood(t testing.TB, s checkpoint.Storage) string {
	t.Helper()
	for before := ""; ; {
		c, _, err := checkpoint.Latest(t.Context(), s, before)
		if err != nil {
			require.ErrorIs(t, err, checkpoint.ErrNotFound)
			return ""
		}
		name := c.Ref().Name
		if err := c.Verify(t.Context()); err == nil {
			return name
		}
		before = name
	}
}

// TestCommitRefusesParents commits increments to what is not there any more or is of something else.
func TestCommitRefusesParents(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, smallModel(), 1)
	ref := w.mustSave(t, s, nil, 1)
	other := newWorld(t, shard.Model{Layers: []shard.Layer{{Name: "w", Shape: []int{3, 2}}, {Name: "b", Shape: []int{3}}}}, 1)
	_, err := other.save(t.Context(), s, &ref, 1)
	require.ErrorIs(t, err, checkpoint.ErrDamaged)
	require.ErrorContains(t, err, `layer "w" has shape [2 3], must be [3 2]`)
	wrong := ref
	wrong.SHA256 = "00"
	_, err = w.save(t.Context(), s, &wrong, 1)
	require.ErrorIs(t, err, checkpoint.ErrDamaged)
	_, err = w.save(t.Context(), s, &checkpoint.Ref{Name: "ckpt-00000077", SHA256: ref.SHA256}, 1)
	require.ErrorContains(t, err, "parent ckpt-00000077 of ckpt-00000004, must be an earlier one")
	require.NoError(t, os.RemoveAll(filepath.Join(string(s), ref.Name)))
	_, err = w.save(t.Context(), s, &ref, 1)
	require.ErrorIs(t, err, checkpoint.ErrNotFound)
	names, err := checkpoint.List(t.Context(), s)
	require.NoError(t, err)
	require.Empty(t, names, "none was committed")
}
