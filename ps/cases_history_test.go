package ps_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
)

// saveRun runs a job of one shard, pushes ones to it, takes a checkpoint, and returns its name
// after it was compared with what the job had.
func saveRun(t *testing.T, folder checkpoint.Folder, restore string, pushes int) string {
	c := newCluster(t, layersJob(1, 1, 4), saving(folder, restoring(restore)))
	c.server("s1")
	w := c.client("w")
	c.placed()
	for range pushes {
		require.NoError(t, w.Push(c.ctx, "l0", vector(4, -1)))
	}
	live, saved := make([]float32, 4), make([]float32, 4)
	require.NoError(t, w.Pull(c.ctx, "l0", live))
	name := c.save(false).Name
	from, err := checkpoint.Open(c.ctx, folder, name)
	require.NoError(t, err)
	require.NoError(t, from.ReadWeights(c.ctx, "l0", 0, saved))
	require.Equal(t, live, saved, name)
	return name
}

// TestCheckpointOfAnotherHistory: a job uses the storage of jobs before it, of the same model,
// that it does not go on from. Its first checkpoint has all that it has, also of the blocks that
// had more changes in theirs.
func TestCheckpointOfAnotherHistory(t *testing.T) {
	folder := checkpoint.Folder(t.TempDir())
	first := saveRun(t, folder, "", 3)
	saveRun(t, folder, ps.RestoreLatest, 7)
	saveRun(t, folder, first, 4)
	saveRun(t, folder, "", 2)
}

// TestCheckpointAfterDamage: a checkpoint whose parent is damaged fails, and the next one, which
// needs none, is written.
func TestCheckpointAfterDamage(t *testing.T) {
	folder := t.TempDir()
	c := newCluster(t, layersJob(1, 1, 4), saving(checkpoint.Folder(folder)))
	c.server("s1")
	c.placed()
	c.save(false)
	require.NotEmpty(t, c.save(false).Parent)
	damaged := c.save(false).Name
	require.NoError(t, os.Truncate(filepath.Join(folder, damaged, "manifest.json"), 10))
	r, err := c.admin.Checkpoint(c.ctx, false)
	require.NoError(t, err)
	require.ErrorContains(t, r.Err(), damaged)
	r, err = c.admin.Checkpoint(c.ctx, false)
	require.NoError(t, err)
	require.NoError(t, r.Err())
	require.Empty(t, r.Parent, "it is full")
}
