package ps_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// Rows that are deleted are as if nobody had pushed to them, with their optimizer state, in
// every mode and over every way to a server.
func TestDeleteRows(t *testing.T) {
	for _, mode := range []ps.Mode{ps.ASP, ps.SSP, ps.BSP} {
		t.Run(mode.String(), func(t *testing.T) {
			everywhere(t, func(t *testing.T, options ...option) {
				settled(t)
				const dim = 2
				n := 100_000
				if testing.Short() {
					n = 20_000 // still more than one frame
				}
				job := sgdJob(tableLayer("t", n, dim), layer("dense", 4))
				job.Optimizer, job.Consistency.Mode = ps.Adagrad(0.1), mode
				c := newCluster(t, job, append([]option{patient}, options...)...)
				servers := c.servers(2)
				c.placed()
				c.protected()
				w := c.worker("w")
				ids := make([]int64, n)
				for i := range ids {
					ids[i] = int64(shard.Hash(int64(i)))
				}
				push := func() {
					require.NoError(t, w.PushRows(c.ctx, "t", ids, vector(n*dim, 1)))
					require.NoError(t, w.Tick(c.ctx))
				}
				initial := c.rowsOf(w.Client, "t", dim, ids)
				push()
				once := c.rowsOf(w.Client, "t", dim, ids)
				require.NotEqual(t, initial, once)
				push()
				twice := c.rowsOf(w.Client, "t", dim, ids)
				require.NoError(t, w.DeleteRows(c.ctx, "t", append(append([]int64{12345, ids[0]}, ids[:n/2]...), ids[1])))
				require.NoError(t, w.DeleteRows(c.ctx, "t", nil))
				got := c.rowsOf(w.Client, "t", dim, ids)
				require.Equal(t, initial[:n/2*dim], got[:n/2*dim])
				require.Equal(t, twice[n/2*dim:], got[n/2*dim:])
				require.EqualValues(t, n/2, c.rows())
				require.NoError(t, w.Tick(c.ctx))
				push()
				require.Equal(t, once[:n/2*dim], c.rowsOf(w.Client, "t", dim, ids)[:n/2*dim], "the state is new as well")
				require.Positive(t, ps.FollowersEqual(t, servers...))

				ended, cancel := context.WithCancel(c.ctx)
				cancel()
				require.ErrorIs(t, w.DeleteRows(c.ctx, "no", ids), ps.ErrUnknownLayer)
				require.ErrorIs(t, w.DeleteRows(c.ctx, "dense", ids), ps.ErrUnknownLayer)
				require.ErrorIs(t, w.DeleteRows(ended, "t", ids), context.Canceled)
				err := w.DeleteRows(c.ctx, "t", make([]int64, ps.MaxCallRows+1))
				require.ErrorIs(t, err, ps.ErrLength)
				require.ErrorContains(t, err, fmt.Sprint(ps.MaxCallRows))
				require.EqualValues(t, n, c.rows())
			})
		})
	}
}

// Rows are pushed to and deleted while their shards move to and fro and a checkpoint is
// written: each deletion has happened once, at its place among the pushes of its worker.
func TestDeleteRowsWhileShardsMove(t *testing.T) {
	settled(t)
	const workers, each, dim = 3, 40, 3
	folder := checkpoint.Folder(t.TempDir())
	c := newCluster(t, sgdJob(zeroTable("t", 5000, dim)), saving(folder), patient)
	servers := c.servers(2)
	c.placed()
	c.protected()
	stop := c.swapping("s1", "s2", c.letThrough)
	all := make([]*ps.Worker, workers)
	for i := range all {
		all[i] = c.worker(fmt.Sprintf("w%d", i))
	}
	wants := make([]map[int64]float32, workers)
	parallel(t, workers, func(i int) error {
		rng, want := rand.New(rand.NewPCG(uint64(i), 7)), map[int64]float32{}
		wants[i] = want
		for range 150 {
			var ids []int64
			for range 1 + rng.IntN(each) {
				ids = append(ids, int64(rng.IntN(each)*workers+i))
			}
			if rng.IntN(3) == 0 {
				if err := all[i].DeleteRows(c.ctx, "t", ids); err != nil {
					return err
				}
				for _, id := range ids {
					delete(want, id)
				}
				continue
			}
			if err := all[i].PushRows(c.ctx, "t", ids, vector(len(ids)*dim, -1)); err != nil {
				return err
			}
			for _, id := range ids {
				want[id]++
			}
		}
		return nil
	})
	require.NotEmpty(t, stop())
	saved := c.save(true)
	total := 0
	var gone []int64
	for i, want := range wants {
		for k := range int64(each) {
			id := k*workers + int64(i)
			require.Equal(t, vector(dim, want[id]), c.rowsOf(all[i].Client, "t", dim, []int64{id}), "row %d of worker %d", id, i)
			gone = append(gone, id)
		}
		total += len(want)
	}
	require.EqualValues(t, total, c.rows())
	require.Positive(t, ps.FollowersEqual(t, servers...))

	// An increment after a deletion has no row that is gone.
	require.NoError(t, all[0].DeleteRows(c.ctx, "t", gone[1:]))
	increment := c.save(false)
	require.Equal(t, saved.Name, increment.Parent)
	left := c.rows()
	d := newCluster(t, sgdJob(zeroTable("t", 5000, dim)), saving(folder, restoring(increment.Name)))
	other := d.servers(1)
	d.placed()
	require.Equal(t, left, d.rows())
	require.Equal(t, ps.States(true, servers...), ps.States(true, other...))
}
