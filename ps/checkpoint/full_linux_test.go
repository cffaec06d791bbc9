package checkpoint_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/stretchr/testify/require"
)

// TestT27FullDisk saves to a file system with room for one checkpoint and a half.
func TestT27FullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=9m"); err != nil {
		t.Skipf("mounting a small file system needs more rights: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	s := checkpoint.Folder(filepath.Join(dir, "job"))
	w := newWorld(t, bigModel(), 1, "m", "v") // 4 MiB of values with its slots
	first := w.mustSave(t, s, nil, 2)
	w.mustSave(t, s, nil, 2)
	_, err := w.save(t.Context(), s, nil, 2)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NotErrorIs(t, err, checkpoint.ErrDamaged)
	for name := range files(t, s) {
		require.False(t, strings.HasSuffix(name, checkpoint.PartialSuffix), name)
	}
	require.Equal(t, "ckpt-00000002", latestGood(t, s))
	_, err = checkpoint.Prune(t.Context(), s, 1)
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Join(string(s), first.Name))
	next := w.mustSave(t, s, nil, 2)
	requireEqual(t, w, load(t, open(t, s, next.Name), "m", "v"))
}

// TestUnwritable saves to a file system that is mounted read-only, and under a path that is a file.
func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(t, smallModel(), 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	_, err := w.save(t.Context(), checkpoint.Folder(filepath.Join(dir, "file")), nil, 1)
	require.ErrorIs(t, err, syscall.ENOTDIR)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_RDONLY, ""); err != nil {
		t.Skipf("mounting a read-only file system needs more rights: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	_, err = w.save(t.Context(), checkpoint.Folder(filepath.Join(dir, "job")), nil, 1)
	require.ErrorIs(t, err, syscall.EROFS)
}
