package ps_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
)

// What becomes of rows is counted once each, by table, and stays counted when shards move.
func TestTableStatus(t *testing.T) {
	settled(t)
	job := sgdJob(
		zeroTable("admit", 100, 1), zeroTable("full", 100, 1), zeroTable("evict", 100, 1), zeroTable("finite", 100, 1),
		zeroTable("expire", 100, 1), zeroTable("plain", 100, 2), layer("dense", 4))
	job.Tables = map[string]ps.Table{
		"admit":  {AdmitAfter: 3},
		"full":   {MaxRows: 10},
		"evict":  {MaxRows: 10, Evict: ps.EvictOldest},
		"finite": {NonFinite: ps.SkipNonFinite},
		"expire": {ExpireClocks: 3},
	}
	c := newCluster(t, job)
	servers := c.servers(2)
	c.placed()
	c.protected()
	w := c.worker("w")
	push := func(table string, ids ...int64) {
		require.NoError(t, w.PushRows(c.ctx, table, ids, vector(len(ids), -1)))
	}
	push("expire", 1, 2)
	for range 4 {
		require.NoError(t, w.Tick(c.ctx))
	}
	push("expire", 3)
	push("admit", 1)
	push("admit", 1)
	push("admit", 1, 2)
	push("full", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	require.ErrorIs(t, w.PushRows(c.ctx, "full", []int64{10, 11, 12}, vector(3, -1)), ps.ErrTableFull)
	for id := range int64(25) {
		push("evict", id)
	}
	nan := float32(math.NaN())
	require.NoError(t, w.PushRows(c.ctx, "finite", []int64{1, 2, 3}, []float32{nan, -1, nan}))
	require.NoError(t, w.PushRows(c.ctx, "plain", []int64{1, 2, 3, 4}, vector(8, -1)))
	require.NoError(t, w.DeleteRows(c.ctx, "plain", []int64{2, 3, 4, 5}))

	want := []ps.TableStatus{
		{Table: "admit", Rows: 1, Waiting: 3},
		{Table: "full", Rows: 10, Refused: 3},
		{Table: "evict", Rows: 10, Evicted: 15},
		{Table: "finite", Rows: 1, NotFinite: 2},
		{Table: "expire", Rows: 1, Expired: 2},
		{Table: "plain", Rows: 1, Deleted: 3},
	}
	arrives := func(what string) {
		t.Helper()
		var got []ps.TableStatus
		ok := func() bool {
			got = c.status().Tables
			for i := range got {
				if got[i].StateBytes <= 0 {
					return false
				}
				got[i].StateBytes = 0
			}
			return slices.Equal(got, want)
		}
		defer func() {
			if t.Failed() {
				t.Logf("%s: %+v instead of %+v", what, got, want)
			}
		}()
		eventually(t, what, ok)
	}
	arrives("at first")
	require.EqualValues(t, 3+2, c.skipped())
	_, err := c.swapOwners("s1", "s2")
	require.NoError(t, err)
	arrives("after moves")
	require.Positive(t, ps.FollowersEqual(t, servers...))
	for _, s := range c.status().Servers {
		require.Empty(t, s.Load.Tables)
		load, err := c.admin.Load(c.ctx, s)
		require.NoError(t, err)
		require.Len(t, load.Tables, len(want))
	}
}
