package ps_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// Embedding tables: what must hold of rows whatever servers do meanwhile.

// tableLayer is a table whose rows begin at normally distributed values.
func tableLayer(name string, rows, dim int) shard.Layer {
	return shard.Layer{Name: name, Sparse: true, Shape: []int{rows, dim}, Init: shard.Initializer{Kind: shard.Normal, Scale: 1, Seed: 9}}
}

// zeroTable is a table whose rows begin at zero.
func zeroTable(name string, rows, dim int) shard.Layer {
	return shard.Layer{Name: name, Sparse: true, Shape: []int{rows, dim}}
}

// oddIDs are ids that something may take for special, and hashed ones.
func oddIDs() []int64 {
	ids := []int64{0, 1, -1, 2, -2, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MinInt64 + 1, 1 << 32, -1 << 32, 1<<53 + 1}
	for i := range int64(500) {
		ids = append(ids, int64(shard.Hash(i)))
	}
	return ids
}

// rowsOf pulls rows.
func (c *cluster) rowsOf(w *ps.Client, table string, dim int, ids []int64) []float32 {
	c.t.Helper()
	dst := vector(len(ids)*dim, float32(math.NaN()))
	require.NoError(c.t, w.PullRows(c.ctx, table, ids, dst))
	return dst
}

// T30: any id goes through push and pull, over every way to a server.
func TestT30IDs(t *testing.T) {
	everywhere(t, func(t *testing.T, options ...option) {
		settled(t)
		c := newCluster(t, sgdJob(zeroTable("t", 100, 3), layer("dense", 5)), options...)
		c.servers(3)
		c.placed()
		w := c.worker("w")
		ids := oddIDs()
		require.Equal(t, vector(3*len(ids), 0), c.rowsOf(w.Client, "t", 3, ids))
		grads := make([]float32, 3*len(ids))
		for i := range grads {
			grads[i] = -float32(i)
		}
		require.NoError(t, w.PushRows(c.ctx, "t", ids, grads))
		for i := range grads {
			grads[i] = float32(i)
		}
		require.Equal(t, grads, c.rowsOf(w.Client, "t", 3, ids))
		slices.Reverse(ids)
		got := c.rowsOf(w.Client, "t", 3, ids)
		require.Equal(t, grads[:3], got[len(got)-3:], "order of the request")
	})
}

// T8: more servers than shards, one row, one element, no ids, equal ids, and more rows
// than fit a frame.
func TestT8DegenerateTables(t *testing.T) {
	everywhere(t, func(t *testing.T, options ...option) {
		settled(t)
		c := newCluster(t, sgdJob(zeroTable("one", 1, 1), zeroTable("wide", 2, 5000), zeroTable("many", 50_000, 1)), options...)
		c.servers(3)
		c.placed()
		w := c.worker("w")
		require.NoError(t, w.PushRows(c.ctx, "one", nil, nil))
		require.NoError(t, w.PullRows(c.ctx, "one", nil, nil))
		require.NoError(t, w.PushRows(c.ctx, "one", []int64{7, 7, 8, 7}, []float32{-1, -2, -4, -8}))
		require.Equal(t, []float32{11, 4, 11}, c.rowsOf(w.Client, "one", 1, []int64{7, 8, 7}))

		wide := make([]int64, 200) // four megabytes
		for i := range wide {
			wide[i] = int64(i / 2)
		}
		require.NoError(t, w.PushRows(c.ctx, "wide", wide, vector(len(wide)*5000, -1)))
		require.Equal(t, vector(len(wide)*5000, 2), c.rowsOf(w.Client, "wide", 5000, wide))

		many := make([]int64, 200_000)
		for i := range many {
			many[i] = int64(i)
		}
		require.NoError(t, w.PushRows(c.ctx, "many", many, vector(len(many), -1)))
		require.NoError(t, w.PushRows(c.ctx, "many", many[1000:], vector(len(many)-1000, -1)))
		got := c.rowsOf(w.Client, "many", 1, many)
		require.Equal(t, vector(1000, 1), got[:1000])
		require.Equal(t, vector(len(many)-1000, 2), got[1000:])
		require.EqualValues(t, 2+100+200_000, c.rows())
	})
}

// rows is how many rows all servers have.
func (c *cluster) rows() int64 { return c.totals().Rows }

// Bad input: a typed error that names the thing, and nothing changes.
func TestTableBadInput(t *testing.T) {
	everywhere(t, func(t *testing.T, options ...option) {
		settled(t)
		c := newCluster(t, sgdJob(zeroTable("t", 10, 2), layer("dense", 4)), options...)
		c.server("s1")
		c.placed()
		w := c.worker("w")
		ids := []int64{1, 2}
		ended, cancel := context.WithCancel(c.ctx)
		cancel()
		for name, x := range map[string]struct {
			err  error
			want error
		}{
			"too few values":   {w.PushRows(c.ctx, "t", ids, make([]float32, 3)), ps.ErrLength},
			"too many values":  {w.PullRows(c.ctx, "t", ids, make([]float32, 5)), ps.ErrLength},
			"values, no ids":   {w.PullRows(c.ctx, "t", nil, make([]float32, 2)), ps.ErrLength},
			"too many ids":     {w.PullRows(c.ctx, "t", make([]int64, ps.MaxCallRows+1), make([]float32, 2*ps.MaxCallRows+2)), ps.ErrLength},
			"ended context":    {w.PullRows(ended, "t", ids, make([]float32, 4)), context.Canceled},
			"ended, dense":     {w.Push(ended, "dense", make([]float32, 4)), context.Canceled},
			"unknown table":    {w.PushRows(c.ctx, "no", ids, make([]float32, 4)), ps.ErrUnknownLayer},
			"rows of a dense":  {w.PushRows(c.ctx, "dense", ids, make([]float32, 4)), ps.ErrUnknownLayer},
			"push of a table":  {w.Push(c.ctx, "t", make([]float32, 20)), ps.ErrUnknownLayer},
			"range of a table": {w.PullRange(c.ctx, "t", 0, make([]float32, 2)), ps.ErrUnknownLayer},
			"assign a table":   {w.Assign(c.ctx, "t", make([]float32, 20)), ps.ErrConflict},
			"not a number":     {w.PushRows(c.ctx, "t", ids, []float32{1, 1, float32(math.NaN()), 1}), ps.ErrNotFinite},
			"infinite":         {w.PushRows(c.ctx, "t", ids, []float32{1, 1, 1, float32(math.Inf(-1))}), ps.ErrNotFinite},
		} {
			require.ErrorIs(t, x.err, x.want, name)
		}
		require.Equal(t, vector(4, 0), c.rowsOf(w.Client, "t", 2, ids))
		require.Zero(t, c.rows())
		require.NoError(t, w.PushRows(c.ctx, "t", ids, vector(4, -1)))
		require.Equal(t, vector(4, 1), c.rowsOf(w.Client, "t", 2, ids))
	})
}

// What is done about gradients that are not finite, as configured.
func TestTableNonFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, x := range map[string]struct {
		options ps.Table
		want    []float32
		skipped uint64
	}{
		"skip": {ps.Table{NonFinite: ps.SkipNonFinite}, []float32{100, 0, 0, 1}, 2},
		"clip": {ps.Table{NonFinite: ps.ClipNonFinite, Clip: 10}, []float32{10, 10, 0, 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			settled(t)
			job := sgdJob(zeroTable("t", 10, 1))
			job.Tables = map[string]ps.Table{"t": x.options}
			c := newCluster(t, job)
			servers := c.servers(2)
			c.placed()
			c.protected()
			w := c.worker("w")
			require.NoError(t, w.PushRows(c.ctx, "t", []int64{1, 2, 3, 4}, []float32{-100, -inf, nan, -1}))
			require.Equal(t, x.want, c.rowsOf(w.Client, "t", 1, []int64{1, 2, 3, 4}))
			require.NoError(t, w.PushRows(c.ctx, "t", []int64{5}, []float32{-100}))
			require.Equal(t, x.want[:1], c.rowsOf(w.Client, "t", 1, []int64{5}), "also where all is finite")
			require.Positive(t, ps.FollowersEqual(t, servers...))
			require.Equal(t, x.skipped, c.skipped(), "counted by the owner")
		})
	}
}

// skipped is how many gradients of rows the servers have left out.
func (c *cluster) skipped() uint64 { return c.totals().RowsSkipped }

// T10: 16 workers push 1 to the same rows, and to rows of their own, while shards move.
func TestT10ConcurrentRows(t *testing.T) {
	everywhere(t, func(t *testing.T, options ...option) {
		settled(t)
		const workers, ids = 16, 40
		pushes := 1000
		if testing.Short() {
			pushes = 200
		}
		c := newCluster(t, sgdJob(zeroTable("t", 1000, 4)), append([]option{patient}, options...)...)
		c.within(3 * time.Minute)
		servers := c.servers(2)
		c.placed()
		moves := c.swapping("s1", "s2", c.letThrough)
		node := c.nodeFor("workers")
		parallel(t, workers, func(i int) error {
			w := c.workerOn(node, "w")
			batch := make([]int64, 0, 2*ids)
			for k := range int64(ids) {
				batch = append(batch, k, 1000+int64(i)*ids+k)
			}
			grads := vector(4*len(batch), -1)
			for range pushes {
				if err := w.PushRows(c.ctx, "t", batch, grads); err != nil {
					return err
				}
			}
			return nil
		})
		require.NotEmpty(t, moves())
		reader := c.client("reader")
		shared, own := make([]int64, ids), make([]int64, workers*ids)
		for k := range shared {
			shared[k] = int64(k)
		}
		for k := range own {
			own[k] = 1000 + int64(k)
		}
		require.Equal(t, vector(4*ids, float32(workers*pushes)), c.rowsOf(reader, "t", 4, shared))
		require.Equal(t, vector(4*len(own), float32(pushes)), c.rowsOf(reader, "t", 4, own))
		c.protected()
		require.Positive(t, ps.FollowersEqual(t, servers...))
	})
}

// T29: 64 goroutines touch the same 1000 ids first, each adds 1. What the rows began with
// is the same on any number of servers, after moves and after a restore.
func TestT29FirstTouchRace(t *testing.T) {
	settled(t)
	const touchers, dim = 64, 5
	ids := oddIDs()
	for len(ids) < 1000 {
		ids = append(ids, int64(len(ids))*1_000_003)
	}
	var initial []float32
	for _, n := range []int{1, 2, 5} {
		folder := checkpoint.Folder(t.TempDir())
		c := newCluster(t, sgdJob(tableLayer("t", 3000, dim)), saving(folder))
		c.servers(n)
		c.placed()
		reader := c.client("reader")
		before := c.rowsOf(reader, "t", dim, ids)
		if initial == nil {
			initial = before
			requireNormal(t, initial)
		}
		require.Equal(t, initial, before, "%d servers", n)
		require.Zero(t, c.rows(), "a pull stores nothing")
		workers := []*ps.Worker{c.worker("w1"), c.worker("w2")}
		parallel(t, touchers, func(i int) error {
			mine := slices.Clone(ids)
			rand.New(rand.NewPCG(uint64(i), 1)).Shuffle(len(mine), func(a, b int) { mine[a], mine[b] = mine[b], mine[a] })
			return workers[i%2].PushRows(c.ctx, "t", mine, vector(len(mine)*dim, -1))
		})
		want := slices.Clone(initial)
		for range touchers {
			for i := range want {
				want[i]++
			}
		}
		require.Equal(t, want, c.rowsOf(reader, "t", dim, ids))
		require.EqualValues(t, len(ids), c.rows())
		if n == 2 {
			_, err := c.swapOwners("s1", "s2")
			require.NoError(t, err)
			require.Equal(t, want, c.rowsOf(reader, "t", dim, ids), "after moves")
		}
		c.save(true)
		d := newCluster(t, sgdJob(tableLayer("t", 3000, dim)), saving(folder, restoring(ps.RestoreLatest)))
		d.servers(3)
		d.placed()
		other := d.client("reader")
		require.Equal(t, want, d.rowsOf(other, "t", dim, ids), "after a restore")
		fresh := []int64{123456789, -987654321}
		require.Equal(t, c.rowsOf(reader, "t", dim, fresh), d.rowsOf(other, "t", dim, fresh), "rows that nobody has touched")
	}
}

// requireNormal requires that values look like draws of a standard normal distribution.
func requireNormal(t *testing.T, x []float32) {
	t.Helper()
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	n := float64(len(x))
	require.InDelta(t, 0, sum/n, 6/math.Sqrt(n))
	require.InDelta(t, 1, squares/n, 6*math.Sqrt(2/n))
}

// Rows are what their owner has, bit by bit, at the follower, also when it was filled
// while workers pushed new.rows.
func TestTableFollowersAreBitEqual(t *testing.T) {
	for _, mode := range []ps.Mode{ps.ASP, ps.BSP} {
		t.Run(mode.String(), func(t *testing.T) {
			settled(t)
			job := tablesJob(mode)
			c := newCluster(t, job, patient)
			s1 := c.server("s1")
			c.placed()
			w := c.worker("w")
			var writing sync.WaitGroup
			stop := make(chan struct{})
			writing.Go(func() {
				for step := 0; ; step++ {
					select {
					case <-stop:
						return
					default:
						c.trainRows(w, step, step+1)
					}
				}
			})
			s2 := c.server("s2")
			c.protected()
			_, err := c.swapOwners("s1", "s2")
			require.NoError(t, err)
			close(stop)
			writing.Wait()
			c.protected()
			require.Positive(t, ps.FollowersEqual(t, s1, s2))
		})
	}
}

// tablesJob has tables under several optimizers beside a dense layer.
func tablesJob(mode ps.Mode) ps.Job {
	job := ps.Job{
		Optimizer: ps.SGD(0.1), Consistency: ps.Consistency{Mode: mode},
		Optimizers: map[string]ps.Optimizer{
			"momentum": ps.Momentum(0.1, 0.9), "adagrad": ps.Adagrad(0.1), "rowwise": ps.AdagradRow(0.1), "adam": ps.Adam(0.1), "ftrl": ps.FTRL(0.1, 0.001, 0.001),
		},
	}
	for i, name := range []string{"sgd", "momentum", "adagrad", "rowwise", "adam", "ftrl"} {
		job.Model.Layers = append(job.Model.Layers, tableLayer(name, 20_000, 1+7*i))
	}
	job.Model.Layers = append(job.Model.Layers, layer("dense", 30))
	return job
}

// trainRows has a worker push gradients that differ by step, to rows that differ too, most
// of them often.
func (c *cluster) trainRows(w *ps.Worker, from, to int) {
	c.t.Helper()
	for step := from; step < to; step++ {
		r := rand.New(rand.NewPCG(uint64(step), 7))
		for _, l := range w.Model().Layers {
			ids := make([]int64, 300)
			for i := range ids {
				ids[i] = int64(1/(r.Float64()+1e-5)) - 3
			}
			n := len(ids) * l.RowElems()
			if !l.Sparse {
				n = int(l.Elems())
			}
			grads := make([]float32, n)
			for i := range grads {
				grads[i] = float32(r.IntN(11)) - 5
			}
			if l.Sparse {
				require.NoError(c.t, w.PushRows(c.ctx, l.Name, ids, grads))
			} else {
				require.NoError(c.t, w.Push(c.ctx, l.Name, grads))
			}
		}
		require.NoError(c.t, w.Tick(c.ctx))
	}
}

// allRows pulls every row that trainRows may have touched, and the dense layers: their bits.
func (c *cluster) allRows(w *ps.Client) map[string][]byte {
	c.t.Helper()
	out := map[string][]byte{}
	ids := make([]int64, 0, 100_010)
	for id := range int64(100_010) {
		ids = append(ids, id-4)
	}
	for _, l := range w.Model().Layers {
		if l.Sparse {
			out[l.Name] = wire.Bytes(c.rowsOf(w, l.Name, l.RowElems(), ids))
			continue
		}
		dense := make([]float32, l.Elems())
		require.NoError(c.t, w.Pull(c.ctx, l.Name, dense))
		out[l.Name] = wire.Bytes(dense)
	}
	return out
}

// TestT26RowsAcrossMovesAndRestore: training of tables that goes on after moves, a full
// checkpoint and increments ends in the bits of training that was not disturbed.
func TestT26RowsAcrossMovesAndRestore(t *testing.T) {
	for _, mode := range []ps.Mode{ps.ASP, ps.BSP} {
		t.Run(mode.String(), func(t *testing.T) {
			settled(t)
			quiet := newCluster(t, tablesJob(mode), oneNode)
			quiet.server("s1")
			quiet.placed()
			undisturbed := quiet.worker("w")
			quiet.trainRows(undisturbed, 0, 12)

			folder := checkpoint.Folder(t.TempDir())
			c := newCluster(t, tablesJob(mode), saving(folder), patient)
			c.servers(2)
			c.placed()
			w := c.worker("w")
			c.trainRows(w, 0, 2)
			_, err := c.swapOwners("s1", "s2")
			require.NoError(t, err)
			first := c.saveRowsAfter(w, 2)
			require.Empty(t, first.Parent)
			c.trainRows(w, 3, 6)
			second := c.saveRowsAfter(w, 6)
			require.Equal(t, first.Name, second.Parent, "an increment")

			d := newCluster(t, tablesJob(mode), saving(folder, restoring(ps.RestoreLatest)))
			d.servers(3)
			d.placed()
			x := d.worker("w")
			d.trainRows(x, 7, 12)
			require.Equal(t, quiet.allRows(undisturbed.Client), d.allRows(x.Client))
		})
	}
}

// saveRowsAfter trains one more step and takes a checkpoint behind it.
func (c *cluster) saveRowsAfter(w *ps.Worker, step int) (r ps.CheckpointReport) {
	c.t.Helper()
	if c.cfg.Job.Consistency.Mode != ps.BSP {
		c.trainRows(w, step, step+1)
		return c.save(false)
	}
	return c.saveAtEnd(false, func() { c.trainRows(w, step, step+1) })
}

// TestT17ReshardTablesOnRestore: a checkpoint of three servers is restored on 1, 2 and 5,
// all state of the tables bit by bit, and saved again it is the same (T24).
func TestT17ReshardTablesOnRestore(t *testing.T) {
	together(t)
	folder := checkpoint.Folder(t.TempDir())
	c := newCluster(t, tablesJob(ps.ASP), saving(folder), patient)
	servers := c.servers(3)
	c.placed()
	c.spread("s1", "s2", "s3")
	w := c.worker("w")
	for step := range 6 { // rows come in each of the increments
		c.trainRows(w, step, step+1)
		c.save(step == 0)
	}
	want := ps.States(true, servers...)
	for _, n := range []int{1, 2, 5} {
		d := newCluster(t, tablesJob(ps.ASP), saving(folder, restoring(ps.RestoreLatest)))
		servers := d.servers(n)
		d.placed()
		require.Equal(t, want, ps.States(true, servers...), "%d servers", n)
		d.save(true)
	}
}

// Rows survive the death of their owner, and that it hangs, under every mode: every
// acknowledged push is there once, also those that made rows.
func TestT1KillServerWithTables(t *testing.T) {
	for name, x := range map[string]struct {
		mode   ps.Mode
		signal syscall.Signal
	}{
		"killed": {ps.ASP, syscall.SIGKILL}, "hung": {ps.ASP, syscall.SIGSTOP},
		"killed under BSP": {ps.BSP, syscall.SIGKILL}, "hung under BSP": {ps.BSP, syscall.SIGSTOP},
	} {
		t.Run(name, func(t *testing.T) { testT1Tables(t, x.mode, x.signal) })
	}
}

func testT1Tables(t *testing.T, mode ps.Mode, signal syscall.Signal) {
	settled(t)
	job := sgdJob(zeroTable("t", 2000, 8))
	job.Consistency.Mode = mode
	c := newCluster(t, job)
	servers := map[shard.ServerID]*process{}
	for _, id := range []shard.ServerID{"s1", "s2", "s3"} {
		servers[id] = c.process("server", string(id))
	}
	c.placed()
	c.protected()
	w := c.worker("w")
	ids := make([]int64, 3000)
	for i := range ids {
		ids[i] = int64(i) * 77
	}
	grads, fresh := vector(8*len(ids), -1), []int64{}
	for i := range 60 {
		if i == 20 {
			servers[c.owner(0)].signal(signal)
		}
		require.NoError(t, w.PushRows(c.ctx, "t", ids, grads))
		fresh = append(fresh, -int64(i)-1)
		require.NoError(t, w.PushRows(c.ctx, "t", fresh[i:], grads[:8]))
		require.NoError(t, w.Tick(c.ctx))
	}
	require.Equal(t, vector(8*len(ids), 60), c.rowsOf(w.Client, "t", 8, ids))
	require.Equal(t, vector(8*len(fresh), 1), c.rowsOf(w.Client, "t", 8, fresh))
	require.NotEmpty(t, c.status().Failovers)
}

// T25: an id has been pushed twice before a checkpoint, three pushes admit it: one more
// after the restore does; and a row that was not touched expires as if nothing had happened.
func TestT25Counters(t *testing.T) {
	for name, filter := range map[string]int64{"exact": 0, "filter": 1 << 16} {
		t.Run(name, func(t *testing.T) {
			settled(t)
			folder := checkpoint.Folder(t.TempDir())
			job := sgdJob(zeroTable("t", 500, 1))
			job.Tables = map[string]ps.Table{"t": {AdmitAfter: 3, FilterBytes: filter, ExpireClocks: 5}}
			c := newCluster(t, job, saving(folder))
			servers := c.servers(2)
			c.placed()
			w := c.worker("w")
			push := func(c *cluster, w *ps.Worker, ids ...int64) {
				require.NoError(t, w.PushRows(c.ctx, "t", ids, vector(len(ids), -1)))
			}
			for range 3 {
				push(c, w, 7) // admitted with the third
			}
			push(c, w, 8)
			push(c, w, 8)
			require.Equal(t, []float32{1, 0}, c.rowsOf(w.Client, "t", 1, []int64{7, 8}))
			require.EqualValues(t, 1, c.rows())
			_, err := c.swapOwners("s1", "s2")
			require.NoError(t, err)
			require.Positive(t, ps.FollowersEqual(t, servers...))
			c.save(true)

			d := newCluster(t, job, saving(folder, restoring(ps.RestoreLatest)))
			d.servers(1)
			d.placed()
			x := d.worker("x")
			push(d, x, 8)
			require.Equal(t, []float32{1, 1}, d.rowsOf(x.Client, "t", 1, []int64{7, 8}))
			for range 4 {
				require.NoError(t, x.Tick(d.ctx))
			}
			push(d, x, 8)
			require.EqualValues(t, 2, d.rows(), "not yet")
			require.NoError(t, x.Tick(d.ctx))
			push(d, x, 8)
			eventually(t, "row 7 has expired", func() bool { return d.rows() == 1 })
			require.Equal(t, []float32{0, 3}, d.rowsOf(x.Client, "t", 1, []int64{7, 8}))
		})
	}
}

// A full table refuses, or makes room, as configured; memory is bounded.
func TestTableLimits(t *testing.T) {
	for _, evict := range []ps.Eviction{ps.RefuseRows, ps.EvictOldest, ps.EvictSmallest} {
		t.Run(fmt.Sprint(evict), func(t *testing.T) {
			together(t)
			const limit = 1000
			job := sgdJob(zeroTable("t", limit, 2))
			job.MaxShardBytes = 1 << 20 // one shard
			job.Tables = map[string]ps.Table{"t": {MaxRows: limit, Evict: evict}}
			c := newCluster(t, job, patient)
			servers := c.servers(2)
			c.placed()
			c.protected()
			w := c.worker("w")
			push := func(id int64, by float32) error { return w.PushRows(c.ctx, "t", []int64{id}, vector(2, -by)) }
			for id := range int64(limit) {
				require.NoError(t, push(id, float32(1+id)))
			}
			err := push(limit, 5000)
			switch evict {
			case ps.RefuseRows:
				require.ErrorIs(t, err, ps.ErrTableFull)
				require.EqualValues(t, limit, c.rows())
				require.NoError(t, push(0, 1), "rows that exist")
			default:
				require.NoError(t, err)
				require.LessOrEqual(t, c.rows(), int64(limit))
				got := c.rowsOf(w.Client, "t", 2, []int64{0, limit - 1, limit})
				require.Equal(t, []float32{0, 0, limit, limit, 5000, 5000}, got, "the first was the oldest and the smallest")
			}
			require.Positive(t, ps.FollowersEqual(t, servers...))
		})
	}
}

// Staleness of a table holds a worker that is too far ahead when it pulls rows, and only then.
func TestTableStaleness(t *testing.T) {
	together(t)
	job := sgdJob(zeroTable("strict", 10, 1), zeroTable("free", 10, 1))
	job.Tables = map[string]ps.Table{"strict": {Staleness: 2}}
	c := newCluster(t, job)
	c.server("s1")
	c.placed()
	fast, slow := c.worker("fast"), c.worker("slow")
	ids, one := []int64{1}, make([]float32, 1)
	for range 2 {
		require.NoError(t, fast.Tick(c.ctx))
	}
	require.NoError(t, fast.PullRows(c.ctx, "strict", ids, one))
	require.NoError(t, fast.Tick(c.ctx))
	require.NoError(t, fast.PullRows(c.ctx, "free", ids, one))
	require.NoError(t, fast.PushRows(c.ctx, "strict", ids, one))
	pulled := make(chan error, 1)
	go func() { pulled <- fast.PullRows(c.ctx, "strict", ids, one) }()
	require.NoError(t, slow.PushRows(c.ctx, "strict", ids, []float32{-1}))
	select {
	case err := <-pulled:
		t.Fatal("three clocks ahead, and yet pulled: ", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, slow.Tick(c.ctx))
	require.NoError(t, <-pulled)
	require.Equal(t, float32(1), one[0])
	for _, message := range []string{"ps.staleRequest", "ps.staleReply"} { // T5: it asks again
		dropped := c.lose(message, 1)
		require.NoError(t, slow.Tick(c.ctx))
		require.NoError(t, fast.Tick(c.ctx))
		require.NoError(t, fast.PullRows(c.ctx, "strict", ids, one))
		require.Positive(t, dropped.Load(), message)
	}
	require.NoError(t, fast.Tick(c.ctx))
	go func() { pulled <- fast.PullRows(c.ctx, "strict", ids, one) }()
	require.NoError(t, slow.Leave(c.ctx), "who leaves holds nobody")
	require.NoError(t, <-pulled)
}
