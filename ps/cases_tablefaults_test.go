package ps_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// Tables at their bounds, and beside checkpoints.

// A client that is no worker pushes whenever it likes, also under BSP when a checkpoint is
// taken between two clocks: the checkpoint has its rows or has them not, and is whole.
func TestObserverPushesRowsBesideCheckpoints(t *testing.T) {
	settled(t)
	folder := checkpoint.Folder(t.TempDir())
	job := sgdJob(zeroTable("t", 200_000, 1), layer("dense", 1))
	job.Consistency.Mode = ps.BSP
	c := newCluster(t, job, saving(folder), patient)
	c.servers(2)
	c.placed()
	w, o := c.worker("w"), c.client("o")
	var stop atomic.Bool
	var running sync.WaitGroup
	var errs [2]error
	running.Go(func() {
		ids := make([]int64, 100)
		for next := int64(0); errs[0] == nil && !stop.Load(); {
			for i := range ids {
				ids[i] = next
				next++
			}
			errs[0] = o.PushRows(c.ctx, "t", ids, vector(len(ids), -1))
		}
	})
	running.Go(func() {
		for errs[1] == nil && !stop.Load() {
			errs[1] = w.Tick(c.ctx)
		}
	})
	for i := range 20 {
		r := c.save(i%4 == 0)
		from, err := checkpoint.Open(c.ctx, folder, r.Name)
		require.NoError(t, err)
		require.NoError(t, from.Verify(c.ctx))
	}
	stop.Store(true)
	running.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	require.Positive(t, c.rows())
}

// A limit that is less than one row for each shard, or block, is refused; the least is kept.
func TestTableLeastLimits(t *testing.T) {
	for evict, least := range map[ps.Eviction]int64{ps.RefuseRows: 3, ps.EvictOldest: 6} {
		t.Run(fmt.Sprint(evict), func(t *testing.T) {
			settled(t)
			job := sgdJob(zeroTable("t", 6000, 64))
			job.MaxShardBytes = 2000 * 64 * 4 // three shards of two blocks
			job.Tables = map[string]ps.Table{"t": {MaxRows: least - 1, Evict: evict}}
			c := newCluster(t, sgdJob(layer("dense", 1)))
			cfg := c.cfg
			cfg.Node, cfg.Job = c.node("refused"), job
			_, err := ps.StartCoordinator(c.ctx, cfg)
			require.ErrorContains(t, err, "MaxRows")

			job.Tables["t"] = ps.Table{MaxRows: least, Evict: evict}
			c = newCluster(t, job)
			c.servers(2)
			c.placed()
			w := c.worker("w")
			for id := range int64(100) {
				if err := w.PushRows(c.ctx, "t", []int64{id}, vector(64, -1)); err != nil {
					require.ErrorIs(t, err, ps.ErrTableFull)
				}
			}
			require.Equal(t, least, c.rows())
		})
	}
}

// Rows that expire after some clocks go on doing so after a restore of a job that had run
// for long: its clock goes on.
func TestClocksGoOnAfterRestore(t *testing.T) {
	settled(t)
	folder := checkpoint.Folder(t.TempDir())
	job := sgdJob(zeroTable("t", 500, 1))
	job.Tables = map[string]ps.Table{"t": {ExpireClocks: 5}}
	c := newCluster(t, job, saving(folder))
	c.server("s1")
	c.placed()
	w := c.worker("w")
	for range 100 {
		require.NoError(t, w.Tick(c.ctx))
	}
	require.NoError(t, w.PushRows(c.ctx, "t", []int64{7}, []float32{-1}))
	require.EqualValues(t, 100, c.save(true).Clock)

	d := newCluster(t, job, saving(folder, restoring(ps.RestoreLatest)))
	d.server("s1")
	d.placed()
	x := d.worker("x")
	for range 5 {
		require.EqualValues(t, 1, d.rows())
		require.NoError(t, x.Tick(d.ctx))
	}
	require.NoError(t, x.PushRows(d.ctx, "t", []int64{8}, []float32{-1}))
	eventually(t, "row 7 has expired", func() bool { return d.rows() == 1 })
}

// The same when a coordinator takes over while no worker is there that knows the clock.
func TestClocksGoOnWithAnotherCoordinator(t *testing.T) {
	settled(t)
	job := sgdJob(zeroTable("t", 500, 1))
	job.Tables = map[string]ps.Table{"t": {ExpireClocks: 5}}
	c := newCluster(t, job)
	c.server("s1")
	c.placed()
	w := c.worker("w")
	for range 100 {
		require.NoError(t, w.Tick(c.ctx))
	}
	require.NoError(t, w.PushRows(c.ctx, "t", []int64{7}, []float32{-1}))
	require.NoError(t, w.Leave(c.ctx))
	c.startAgain()
	eventually(t, "the server is back", func() bool { return c.isUp("s1") })
	x := c.worker("x")
	for range 5 {
		require.NoError(t, x.Tick(c.ctx))
	}
	require.NoError(t, x.PushRows(c.ctx, "t", []int64{8}, []float32{-1}))
	eventually(t, "row 7 has expired", func() bool { return c.rows() == 1 })
}

// A checkpoint of a table that counts ids in another way is refused, one of a table that
// counted them where the job does not any more is taken.
func TestRestoreOtherAdmission(t *testing.T) {
	settled(t)
	folder := checkpoint.Folder(t.TempDir())
	job := func(o ps.Table) ps.Job {
		job := sgdJob(zeroTable("t", 500, 1))
		job.Tables = map[string]ps.Table{"t": o}
		return job
	}
	c := newCluster(t, job(ps.Table{AdmitAfter: 3}), saving(folder))
	c.server("s1")
	c.placed()
	w := c.worker("w")
	for range 3 {
		require.NoError(t, w.PushRows(c.ctx, "t", []int64{7}, []float32{-1}))
	}
	require.NoError(t, w.PushRows(c.ctx, "t", []int64{8}, []float32{-1}))
	c.save(true)

	cfg := ps.CoordinatorConfig{Node: c.node("refused"), Job: job(ps.Table{AdmitAfter: 3, FilterBytes: 1 << 12}), Logger: c.log}
	cfg.Checkpoints = ps.CheckpointConfig{Storage: folder, Restore: ps.RestoreLatest}
	_, err := ps.StartCoordinator(c.ctx, cfg)
	require.ErrorIs(t, err, checkpoint.ErrMismatch)
	require.ErrorContains(t, err, `"t"`)

	d := newCluster(t, job(ps.Table{}), saving(folder, restoring(ps.RestoreLatest)))
	d.server("s1")
	d.placed()
	require.Equal(t, []float32{1, 0}, d.rowsOf(d.client("r"), "t", 1, []int64{7, 8}))
	require.NoError(t, d.worker("x").PushRows(d.ctx, "t", []int64{8}, []float32{-1}))
	require.EqualValues(t, 2, d.rows())
}

// T9: pushes and pulls of many rows that are given up in the middle. Nothing reads from or
// writes to the caller's slices or the memory of the operation afterwards, which the next
// one uses again: what it pushes and pulls is exact.
func TestT9CancelledRows(t *testing.T) {
	everywhere(t, func(t *testing.T, options ...option) {
		settled(t)
		const n, dim = 60_000, 4
		c := newCluster(t, sgdJob(zeroTable("t", n, dim), zeroTable("other", n, dim)), append([]option{patient}, options...)...)
		c.servers(2)
		c.placed()
		c.protected()
		w := c.worker("w")
		ids := make([]int64, n)
		for i := range ids {
			ids[i] = int64(i) * 7
		}
		cancelled := 0
		rounds := 40
		if testing.Short() {
			rounds = 12
		}
		for round := range rounds {
			ctx, cancel := context.WithCancel(c.ctx)
			running := make(chan error, 1)
			go func() {
				if round%2 == 0 {
					running <- w.PushRows(ctx, "other", ids, vector(n*dim, float32(round)))
				} else {
					running <- w.PullRows(ctx, "other", ids, make([]float32, n*dim))
				}
			}()
			for range round * 1600 / rounds {
				_ = w.PullRows(ctx, "t", ids[:1], make([]float32, dim)) // lets it get somewhere
				if len(running) > 0 {
					break
				}
			}
			cancel()
			if err := <-running; err != nil {
				require.ErrorIs(t, err, context.Canceled)
				cancelled++
			}
			require.NoError(t, w.PushRows(c.ctx, "t", ids, vector(n*dim, -1)))
			require.Equal(t, vector(n*dim, float32(round+1)), c.rowsOf(w.Client, "t", dim, ids))
		}
		require.Positive(t, cancelled)
	})
}

// Rows of a table whose blocks have a hundred times as many as expected move, are saved and
// restored bit by bit.
func TestTableFarBeyondItsHint(t *testing.T) {
	together(t)
	const rows, dim, hint = 100_000, 8, 1000
	job := sgdJob(tableLayer("t", hint, dim))
	job.Optimizer = ps.Adagrad(0.1)
	folder := checkpoint.Folder(t.TempDir())
	c := newCluster(t, job, saving(folder), patient)
	servers := c.servers(2)
	c.placed()
	w := c.worker("w")
	ids := make([]int64, rows)
	for i := range ids {
		ids[i] = int64(i)
	}
	require.NoError(t, w.PushRows(c.ctx, "t", ids, vector(rows*dim, 1)))
	want := c.rowsOf(w.Client, "t", dim, ids)
	c.protected()
	_, err := c.swapOwners("s1", "s2")
	require.NoError(t, err)
	require.Positive(t, ps.FollowersEqual(t, servers...))
	c.save(true)
	d := newCluster(t, job, saving(folder, restoring(ps.RestoreLatest)), patient)
	other := d.servers(1)
	d.placed()
	require.Equal(t, ps.States(true, servers...), ps.States(true, other...))
	require.Equal(t, want, d.rowsOf(d.client("r"), "t", dim, ids))
}

// Requests for rows that fit neither the shard nor themselves get an error and change
// nothing; the server lives.
func TestHostileRows(t *testing.T) {
	together(t)
	job := sgdJob(layer("dense", 4), zeroTable("t", 3000, 64))
	job.MaxShardBytes = 1000 * 64 * 4 // three shards, whose last blocks are short
	c := newCluster(t, job)
	s := c.server("s1")
	c.placed()
	table := job.Model.Layers[1]
	here, next := int64(0), int64(0)
	for table.RowElement(here) >= 64_000 {
		here++
	}
	for e := table.RowElement(next); e < 64_000 || e >= ps.BlockElems; e = table.RowElement(next) {
		next++
	}
	peer := friend(t, s)
	seq := uint64(0)
	send := func(kind wire.Kind, of uint32, offset uint64, count int, ids ...int64) uint8 {
		seq++
		h := wire.Header{Kind: kind, Shard: of, Epoch: 1, Request: seq, Incarnation: ghost, Seq: seq, Floor: seq, Offset: offset, Count: uint32(count)}
		payload := wire.Bytes(ids)
		if kind == wire.PushRows || kind == wire.Push {
			payload = append(slices.Clone(payload), wire.Bytes(make([]float32, count))...)
		}
		peer.write(frame(h, payload))
		r, _ := peer.read()
		require.Equal(t, seq, r.Request)
		return r.Code
	}
	for _, kind := range []wire.Kind{wire.PushRows, wire.PullRows} {
		require.NotZero(t, send(kind, 0, 0, 4, here, here), "rows of a dense shard")
		require.NotZero(t, send(kind, 0, 0, 4), "no rows of a dense shard")
		require.NotZero(t, send(kind, 1, 0, 0), "no rows")
		require.NotZero(t, send(kind, 1, 0, 63, here), "too few values")
		require.NotZero(t, send(kind, 1, 0, 128, here), "too many values")
		require.NotZero(t, send(kind, 1, 64, 64, here), "an offset")
		require.NotZero(t, send(kind, 1, 0, 64, next), "an id of the next shard")
		require.NotZero(t, send(kind, 3, 0, 64, here), "an id of another shard")
		require.NotZero(t, send(kind, 9, 0, 64, here), "no shard")
		require.Zero(t, send(kind, 1, 0, 64, here))
	}
	require.NotZero(t, send(wire.DeleteRows, 0, 0, 0, here), "rows of a dense shard")
	require.NotZero(t, send(wire.DeleteRows, 1, 0, 0), "no rows")
	require.NotZero(t, send(wire.DeleteRows, 1, 0, 64, here), "a deletion that says it has values")
	require.NotZero(t, send(wire.DeleteRows, 1, 64, 0, here), "an offset")
	require.NotZero(t, send(wire.DeleteRows, 1, 0, 0, here, next), "an id of the next shard")
	require.NotZero(t, send(wire.DeleteRows, 9, 0, 0, here), "no shard")
	require.NotZero(t, send(wire.Push, 1, 0, 64), "a range of a table")
	require.NotZero(t, send(wire.Pull, 1, 0, 64), "a range of a table")
	require.EqualValues(t, 1, c.rows())
	require.Zero(t, send(wire.DeleteRows, 1, 0, 0, here))
	require.Zero(t, c.rows())
	require.NoError(t, c.worker("w").Push(c.ctx, "dense", vector(4, -1)))
}

// Rows of the largest legal size move, and are saved and restored; one value more, or a
// larger state, is refused.
func TestLargestRows(t *testing.T) {
	settled(t)
	job := sgdJob(zeroTable("t", 3, shard.MaxSparseRowElems))
	cfg := ps.CoordinatorConfig{Node: newCluster(t, job).node("refused"), Job: job}
	cfg.Job.Consistency.Mode = ps.BSP // has sums
	_, err := ps.StartCoordinator(t.Context(), cfg)
	require.ErrorContains(t, err, `"t"`)
	cfg.Job = sgdJob(zeroTable("t", 3, shard.MaxSparseRowElems+1))
	_, err = ps.StartCoordinator(t.Context(), cfg)
	require.ErrorContains(t, err, "65001")

	folder := checkpoint.Folder(t.TempDir())
	c := newCluster(t, job, saving(folder), patient)
	servers := c.servers(2)
	c.placed()
	w := c.worker("w")
	ids := []int64{1, -1, 2, 1}
	grads := make([]float32, len(ids)*shard.MaxSparseRowElems)
	for i := range grads {
		grads[i] = float32(i % 1000)
	}
	require.NoError(t, w.PushRows(c.ctx, "t", ids, grads))
	want := c.rowsOf(w.Client, "t", shard.MaxSparseRowElems, ids)
	c.protected()
	_, err = c.swapOwners("s1", "s2")
	require.NoError(t, err)
	require.Positive(t, ps.FollowersEqual(t, servers...))
	c.save(true)
	d := newCluster(t, job, saving(folder, restoring(ps.RestoreLatest)), patient)
	d.servers(1)
	d.placed()
	require.Equal(t, want, d.rowsOf(d.client("r"), "t", shard.MaxSparseRowElems, ids))
}

// T12: a proxy drops, doubles and delays frames; each push of rows counts once.
func TestT12LossyRows(t *testing.T) {
	together(t)
	const workers, dim, each = 16, 3, 50
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	l := newLossy(t, newFaulty(12).judge, workers, zeroTable("own", 4000, dim), zeroTable("shared", 10, 1))
	own := func(w int) []int64 {
		ids := make([]int64, each)
		for k := range ids {
			ids[k] = int64(w*each + k)
		}
		return ids
	}
	parallel(t, 2*workers, func(i int) error {
		w := l.workers[i%workers]
		for range rounds {
			if err := w.PushRows(l.c.ctx, "own", own(i%workers), vector(each*dim, -1)); err != nil {
				return err
			}
			if err := w.PushRows(l.c.ctx, "shared", []int64{-1, 5, -1}, vector(3, -1)); err != nil {
				return err
			}
		}
		return nil
	})
	for w := range workers {
		require.Equal(t, vector(each*dim, float32(2*rounds)), l.c.rowsOf(l.workers[0].Client, "own", dim, own(w)))
	}
	n := float32(2 * rounds * workers)
	require.Equal(t, []float32{2 * n, n}, l.c.rowsOf(l.workers[0].Client, "shared", 1, []int64{-1, 5}))
}

// Under BSP no row can go that was pushed to in the open clock: what finds no room is left
// out, and counted.
func TestEvictionWithoutRoomIsCounted(t *testing.T) {
	settled(t)
	job := sgdJob(zeroTable("t", 100, 1))
	job.Consistency.Mode = ps.BSP
	job.Tables = map[string]ps.Table{"t": {MaxRows: 10, Evict: ps.EvictOldest}}
	c := newCluster(t, job)
	c.server("s1")
	c.placed()
	w := c.worker("w")
	for id := range int64(25) {
		require.NoError(t, w.PushRows(c.ctx, "t", []int64{id}, []float32{-1}))
	}
	require.EqualValues(t, 10, c.rows())
	require.EqualValues(t, 15, c.skipped())
	require.NoError(t, w.Tick(c.ctx))
	require.NoError(t, w.PushRows(c.ctx, "t", []int64{99}, []float32{-1}))
	require.NoError(t, w.Tick(c.ctx))
	require.Equal(t, []float32{1}, c.rowsOf(w.Client, "t", 1, []int64{99}))
	require.EqualValues(t, 15, c.skipped())
}
