package ps_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

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

// TestWorkersOfARestoredJobAreNew: a job is restored on a host whose clock shows the time at
// which the job before began, so that its numbers would be the same. Its pushes are not taken
// for those of that job.
func TestWorkersOfARestoredJobAreNew(t *testing.T) {
	const key = "elasticps/job/incarnation"
	folder, first := checkpoint.Folder(t.TempDir()), strconv.FormatInt(time.Now().UnixMicro(), 10)
	var last uint64
	for run := 1; run <= 3; run++ {
		c := newCluster(t, layersJob(1, 1, 4), saving(folder, restoring(ps.RestoreLatest)), func(c *cluster) { c.put(key, first) })
		c.server("s1")
		w := c.client("w")
		c.placed()
		got := make([]float32, 4)
		require.NoError(t, w.PushPull(c.ctx, "l0", vector(4, -1), got))
		require.Equal(t, vector(4, float32(run)), got)
		c.save(false)
		e, err := c.store.Get(c.ctx, key)
		require.NoError(t, err)
		next, err := strconv.ParseUint(string(e.Value), 10, 64)
		require.NoError(t, err)
		require.Greater(t, next, last)
		last = next
	}
}
