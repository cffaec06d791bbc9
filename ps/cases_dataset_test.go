package ps_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard/store/boltstore"
)

// Record ranges that are handed out to workers which come and go.

func dataJob(c ps.Consistency, d ps.Dataset) ps.Job {
	job := smallJob(c)
	job.Datasets = []ps.Dataset{d}
	return job
}

// ledger has what was finished of a dataset: each record once in each epoch.
type ledger struct {
	mu    sync.Mutex
	data  ps.Dataset
	count []int // by epoch and record
	total int
}

func newLedger(d ps.Dataset) *ledger {
	return &ledger{data: d, count: make([]int, int(d.Records)*d.Epochs)}
}

func (l *ledger) finished(r ps.RecordRange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for record := range r.Records() {
		l.count[int64(r.Epoch)*l.data.Records+record]++
	}
	l.total++
}

func (l *ledger) ranges() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

func (l *ledger) requireEachOnce(t testing.TB) {
	t.Helper()
	for i, n := range l.count {
		if n != 1 {
			require.Equal(t, 1, n, "epoch %d, record %d", i/int(l.data.Records), i%int(l.data.Records))
		}
	}
}

// consume finishes ranges until there are no more, or more says so; then the worker has
// one that it has not finished.
func (l *ledger) consume(ctx context.Context, w *ps.Worker, more func() bool) error {
	for {
		r, err := w.NextRange(ctx, l.data.Name)
		if errors.Is(err, ps.ErrEndOfData) {
			return nil
		}
		if err != nil || !more() {
			return err
		}
		if err := w.FinishRange(ctx, r); err != nil {
			return err
		}
		l.finished(r)
	}
}

func always() bool { return true }

// TestDatasetWorkersComeAndGo: eight workers at a time take ranges; they leave or die with
// some that are not finished. In the end each record was finished once per epoch.
func TestDatasetWorkersComeAndGo(t *testing.T) {
	settled(t)
	d := ps.Dataset{Name: "clicks", Records: 997, RangeRecords: 10, Epochs: 3, Shuffle: true, Seed: 5}
	c := newCluster(t, dataJob(ps.Consistency{}, d))
	l := newLedger(d)
	ranges := 100 * d.Epochs
	parallel(t, 8, func(i int) error {
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		for life := 0; l.ranges() < ranges; life++ {
			name := fmt.Sprintf("w%d-%d", i, life)
			n := c.node(name)
			w, err := ps.StartWorker(c.ctx, ps.ClientConfig{Node: n, Name: name, Coordinator: c.ref(), Prefetch: rng.IntN(3) - 1})
			if err != nil {
				return err
			}
			left := 3 + rng.IntN(20)
			if err := l.consume(c.ctx, w, func() bool { left--; return left > 0 }); err != nil {
				return err
			}
			if rng.IntN(2) == 0 {
				_ = n.Close() // dies without a word
				_ = w.Close()
			} else if err := w.Close(); err != nil {
				return err
			}
		}
		return nil
	})
	l.requireEachOnce(t)
	st := c.status().Datasets
	require.Equal(t, []ps.DatasetStatus{{Name: "clicks", Epoch: 2, Ranges: int64(ranges), Finished: int64(ranges)}}, st)
}

// TestDatasetOfAKilledProcess: what a process had that was killed comes to others.
func TestDatasetOfAKilledProcess(t *testing.T) {
	settled(t)
	d := ps.Dataset{Name: "clicks", Records: 35, RangeRecords: 10, Epochs: 1}
	c := newCluster(t, dataJob(ps.Consistency{}, d))
	p := c.process("worker", "victim")
	require.Equal(t, "0 0 10", p.tell("take clicks"))
	require.Equal(t, "ok", p.tell("finish"))
	require.Equal(t, "0 10 20", p.tell("take clicks"))
	l := newLedger(d)
	l.finished(ps.RecordRange{Begin: 0, End: 10})
	w := c.worker("w")
	ended := make(chan error, 1)
	go func() { ended <- l.consume(c.ctx, w, always) }() // waits for the ranges of the other
	p.kill()
	require.NoError(t, <-ended)
	l.requireEachOnce(t)
}

func TestDatasetErrors(t *testing.T) {
	settled(t)
	everywhere(t, func(t *testing.T, options ...option) {
		job := smallJob(ps.Consistency{})
		job.Datasets = []ps.Dataset{{Name: "none"}, {Name: "one", Records: 1}, {Name: "three", Records: 25, RangeRecords: 10}}
		c := newCluster(t, job, options...)
		w, other := c.worker("w"), c.worker("other")
		_, err := w.NextRange(c.ctx, "unknown")
		require.ErrorIs(t, err, ps.ErrUnknownDataset)
		require.ErrorContains(t, err, `the job has ["none" "one" "three"]`)
		require.ErrorIs(t, w.FinishRange(c.ctx, ps.RecordRange{Dataset: "unknown"}), ps.ErrUnknownDataset)
		_, err = w.NextRange(c.ctx, "none")
		require.ErrorIs(t, err, ps.ErrEndOfData)
		require.ErrorIs(t, w.FinishRange(c.ctx, ps.RecordRange{Dataset: "none"}), ps.ErrConflict)
		one, err := w.NextRange(c.ctx, "one")
		require.NoError(t, err)
		require.Equal(t, ps.RecordRange{Dataset: "one", End: 1}, one)
		require.ErrorIs(t, other.FinishRange(c.ctx, one), ps.ErrConflict)
		changed := one
		changed.End = 2
		require.ErrorIs(t, w.FinishRange(c.ctx, changed), ps.ErrConflict)
		brief, cancel := context.WithTimeout(c.ctx, 50*time.Millisecond)
		_, err = other.NextRange(brief, "one")
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, "it may come back")
		require.Equal(t, []ps.DatasetStatus{{Name: "none"}, {Name: "one", Ranges: 1, Outstanding: 1}, {Name: "three", Ranges: 3}}, c.status().Datasets)
		require.NoError(t, w.FinishRange(c.ctx, one))
		require.NoError(t, w.FinishRange(c.ctx, one), "twice is fine")
		_, err = other.NextRange(c.ctx, "one")
		require.ErrorIs(t, err, ps.ErrEndOfData)
		require.NoError(t, w.Leave(c.ctx))
		_, err = w.NextRange(c.ctx, "three")
		require.ErrorIs(t, err, ps.ErrClosed)
		require.ErrorIs(t, w.FinishRange(c.ctx, one), ps.ErrClosed)
	})
}

// TestDatasetPrefetch: a worker has the next range before it asks for it, and no more than
// that.
func TestDatasetPrefetch(t *testing.T) {
	settled(t)
	c := newCluster(t, dataJob(ps.Consistency{}, ps.Dataset{Name: "d", Records: 100, RangeRecords: 10}))
	w := c.worker("w")
	first, err := w.NextRange(c.ctx, "d")
	require.NoError(t, err)
	eventually(t, "one is there in advance", func() bool { return c.status().Datasets[0].Outstanding == 2 })
	nothing := func(_ actor.Ref, msg any) bool { return fmt.Sprintf("%T", msg) == "ps.takeRequest" }
	c.drop.Store(&nothing)
	second, err := w.NextRange(c.ctx, "d")
	require.NoError(t, err)
	require.Equal(t, []int64{0, 1}, []int64{first.Position, second.Position})
	c.drop.Store(nil)
	none, err := ps.StartWorker(c.ctx, ps.ClientConfig{Node: c.node("none"), Name: "none", Coordinator: c.ref(), Prefetch: ps.NoPrefetch})
	require.NoError(t, err)
	defer none.Close()
	before := c.status().Datasets[0].Outstanding
	r, err := none.NextRange(c.ctx, "d")
	require.NoError(t, err)
	require.NoError(t, none.FinishRange(c.ctx, r))
	require.LessOrEqual(t, c.status().Datasets[0].Outstanding, before+1, "what the other asks for in advance")
	_, err = ps.StartWorker(c.ctx, ps.ClientConfig{Node: c.home, Name: "w", Coordinator: c.ref(), Prefetch: 17})
	require.ErrorContains(t, err, "Prefetch 17")
}

// TestDatasetEpochBarrier: the second epoch begins when the first has ended, and then at
// once; without a barrier it does not wait.
func TestDatasetEpochBarrier(t *testing.T) {
	settled(t)
	for _, barrier := range []bool{false, true} {
		c := newCluster(t, dataJob(ps.Consistency{}, ps.Dataset{Name: "d", Records: 2, RangeRecords: 1, Epochs: 2, EpochBarrier: barrier}))
		a, b := c.worker("a"), c.worker("b")
		first, err := a.NextRange(c.ctx, "d")
		require.NoError(t, err)
		if !barrier { // the second was asked for in advance by the first worker, or is here
			r, err := b.NextRange(c.ctx, "d")
			require.NoError(t, err)
			require.NotEqual(t, first, r)
			continue
		}
		second, err := a.NextRange(c.ctx, "d")
		require.NoError(t, err)
		got := make(chan ps.RecordRange, 1)
		go func() {
			r, _ := b.NextRange(c.ctx, "d")
			got <- r
		}()
		require.NoError(t, a.FinishRange(c.ctx, first))
		select {
		case r := <-got:
			require.Fail(t, "too early", "%+v", r)
		case <-time.After(50 * time.Millisecond):
		}
		require.NoError(t, a.FinishRange(c.ctx, second))
		require.Equal(t, 1, (<-got).Epoch)
	}
}

// stumble consumes with several workers while a coordinator after another ends.
func (c *cluster) stumble(l *ledger, workers []*ps.Worker, times int, fall func()) {
	c.t.Helper()
	ranges := int(l.data.Records/l.data.RangeRecords) * l.data.Epochs
	errs := make([]error, len(workers))
	var all sync.WaitGroup
	for i, w := range workers {
		all.Go(func() { errs[i] = l.consume(c.ctx, w, always) })
	}
	for i := range times {
		eventually(c.t, "some more are finished", func() bool { return l.ranges() > ranges*(i+1)/(times+2) })
		fall()
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(c.t, err)
	}
	l.requireEachOnce(c.t)
	st := c.status().Datasets[0]
	require.EqualValues(c.t, ranges, st.Finished)
	require.Zero(c.t, st.Outstanding+st.Returned)
}

// TestT16DatasetCoordinatorKilled: the coordinator's process is killed with a store in a
// file; no range is finished twice, and none is lost.
func TestT16DatasetCoordinatorKilled(t *testing.T) {
	together(t)
	d := ps.Dataset{Name: "clicks", Records: 3000, RangeRecords: 10, Epochs: 2, Shuffle: true}
	f := newFarm(t)
	f.role.Job = dataJob(ps.Consistency{}, d)
	home := f.run(0)
	workers := []*ps.Worker{f.worker("w1"), f.worker("w2"), f.worker("w3")}
	f.stumble(newLedger(d), workers, 2, func() {
		home.kill()
		home = f.run(0)
	})
}

// TestT16DatasetWorkerDiesWithTheCoordinator: what the worker had is handed out when it is
// certain that it does not come back.
func TestT16DatasetWorkerDiesWithTheCoordinator(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a worker that does not come back")
	}
	together(t)
	d := ps.Dataset{Name: "clicks", Records: 100, RangeRecords: 10, Epochs: 1}
	f := newFarm(t)
	f.role.Job = dataJob(ps.Consistency{}, d)
	home := f.run(0)
	n := f.node("victim")
	_, err := f.workerOn(n, "victim").NextRange(f.ctx, d.Name)
	require.NoError(t, err)
	w := f.worker("w")
	home.kill()
	require.NoError(t, n.Close())
	f.run(0)
	l := newLedger(d)
	require.NoError(t, l.consume(f.ctx, w, always))
	l.requireEachOnce(t)
}

// TestStandbyGoesOnWithDatasets: the leader is killed, and another one takes its place.
func TestStandbyGoesOnWithDatasets(t *testing.T) {
	together(t)
	d := ps.Dataset{Name: "clicks", Records: 3000, RangeRecords: 10, Epochs: 1}
	l := newLeague(t, dataJob(ps.Consistency{}, d))
	first, second := l.both(0, false)
	l.stumble(newLedger(d), []*ps.Worker{l.worker("w1"), l.worker("w2")}, 1, func() {
		first.kill()
		second.expect("leads")
	})
}

// TestDatasetWaitsForTheStore: a range is finished when the store has that, and not before.
func TestDatasetWaitsForTheStore(t *testing.T) {
	settled(t)
	away := &flaky{}
	c := newCluster(t, dataJob(ps.Consistency{}, ps.Dataset{Name: "d", Records: 20, RangeRecords: 10}), func(c *cluster) {
		away.Store = c.store
		c.cfg.Store = away
	})
	w := c.worker("w")
	r, err := w.NextRange(c.ctx, "d")
	require.NoError(t, err)
	away.set(true)
	brief, cancel := context.WithTimeout(c.ctx, 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, w.FinishRange(brief, r), context.DeadlineExceeded)
	ended := make(chan error, 1)
	go func() { ended <- w.FinishRange(c.ctx, r) }()
	select {
	case err := <-ended:
		require.Fail(t, "the store does not have it", "%v", err)
	case <-time.After(100 * time.Millisecond):
	}
	away.set(false)
	require.NoError(t, <-ended)
}

// lesson trains a job whose layer b counts the records: each range is one clock.
func (c *cluster) lesson(w *ps.Worker, more func() bool) error {
	for more() {
		r, err := w.NextRange(c.ctx, "clicks")
		switch {
		case errors.Is(err, ps.ErrEndOfData):
			return w.Leave(c.ctx)
		case errors.Is(err, ps.ErrNoRange): // others have the last ones, and wait for this clock
		case err != nil:
			return err
		default:
			if err := w.Push(c.ctx, "b", vector(10, -float32(r.End-r.Begin))); err != nil {
				return err
			}
			if err := w.FinishRange(c.ctx, r); err != nil {
				return err
			}
		}
		if err := w.Tick(c.ctx); err != nil {
			return err
		}
	}
	return w.Leave(c.ctx)
}

// counted is how many records layer b has counted.
func (c *cluster) counted() int64 {
	c.t.Helper()
	got := make([]float32, 10)
	reader, err := ps.Dial(c.ctx, ps.ClientConfig{Node: c.home, Name: "reader", Coordinator: c.ref()})
	require.NoError(c.t, err)
	defer reader.Close()
	require.NoError(c.t, reader.Pull(c.ctx, "b", got))
	return int64(got[0])
}

// TestDatasetIsRestored: a checkpoint has the parameters and the progress of one instant.
// A job that goes on from it trains on what is missing: under BSP on nothing else.
func TestDatasetIsRestored(t *testing.T) {
	for _, mode := range []ps.Mode{ps.BSP, ps.ASP} {
		t.Run(mode.String(), func(t *testing.T) {
			together(t)
			d := ps.Dataset{Name: "clicks", Records: 500, RangeRecords: 10, Epochs: 2, Shuffle: true, Seed: 3}
			folder := checkpoint.Folder(t.TempDir())
			job := dataJob(ps.Consistency{Mode: mode}, d)
			c := newCluster(t, job, saving(folder))
			c.servers(2)
			workers := []*ps.Worker{c.worker("w1"), c.worker("w2"), c.worker("w3")}
			ended := make(chan error, len(workers))
			for _, w := range workers {
				go func() { ended <- c.lesson(w, always) }()
			}
			eventually(t, "a part is done", func() bool { return c.status().Datasets[0].Finished > 20 })
			c.save(true)
			for range workers {
				require.NoError(t, <-ended)
			}
			require.EqualValues(t, 1000, c.counted())

			again := newCluster(t, job, saving(folder, restoring(ps.RestoreLatest)))
			again.servers(1)
			again.placed()
			done := again.status().Datasets[0]
			require.Zero(t, done.Outstanding, "nobody has a range of the other job")
			if mode == ps.BSP {
				require.Equal(t, 10*done.Finished, again.counted())
			} else {
				require.LessOrEqual(t, 10*done.Finished, again.counted())
			}
			w := again.worker("w")
			again.startAgain()
			require.Equal(t, done.Finished, again.status().Datasets[0].Finished, "the next coordinator goes on from there too")
			require.NoError(t, again.lesson(w, always))
			require.EqualValues(t, 100, again.status().Datasets[0].Finished)
			if mode == ps.BSP {
				require.EqualValues(t, 1000, again.counted())
			}
			other := job
			other.Datasets = []ps.Dataset{d}
			other.Datasets[0].Seed = 4
			cfg := again.cfg
			cfg.Job, cfg.Store = other, nil
			cfg.Node = again.node("other")
			_, err := ps.StartCoordinator(c.ctx, cfg)
			require.ErrorIs(t, err, checkpoint.ErrMismatch)
			require.ErrorContains(t, err, "Seed:4")
		})
	}
}

// startAgain ends the coordinator and starts another one on the same store.
func (c *cluster) startAgain() {
	c.t.Helper()
	require.NoError(c.t, c.coord.Close())
	c.startCoordinator()
}

// TestT6DatasetUnevenFinish: under every mode workers that are done with the data leave
// while others go on, and nobody waits for ever.
func TestT6DatasetUnevenFinish(t *testing.T) {
	for _, mode := range []ps.Consistency{{Mode: ps.BSP}, {Mode: ps.SSP, Staleness: 2}, {Mode: ps.ASP}} {
		t.Run(mode.Mode.String(), func(t *testing.T) {
			together(t)
			d := ps.Dataset{Name: "clicks", Records: 300, RangeRecords: 10, Epochs: 2, EpochBarrier: true}
			c := newCluster(t, dataJob(mode, d), oneNode)
			c.server("s1")
			workers := []*ps.Worker{c.worker("w1"), c.worker("w7"), c.worker("all")}
			parallel(t, len(workers), func(i int) error {
				left := []int{1, 7, 1 << 30}[i]
				return c.lesson(workers[i], func() bool { left--; return left >= 0 })
			})
			require.EqualValues(t, 600, c.counted())
		})
	}
}

// BenchmarkRanges is the rate at which workers take and finish ranges, one after the other
// each: what the round trips and the store take.
func BenchmarkRanges(b *testing.B) {
	inFile := func(c *cluster) {
		s, err := boltstore.Open(boltstore.Config{Path: filepath.Join(b.TempDir(), "store.bolt")})
		require.NoError(b, err)
		c.t.Cleanup(func() { _ = s.Close() })
		c.cfg.Store = s
	}
	for name, where := range map[string]option{"memory": func(*cluster) {}, "bolt": inFile} {
		for _, workers := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/%d workers", name, workers), func(b *testing.B) { benchmarkRanges(b, workers, where) })
		}
	}
}

func benchmarkRanges(b *testing.B, workers int, where option) {
	c := newCluster(b, dataJob(ps.Consistency{}, ps.Dataset{Name: "d", Records: 1 << 40, RangeRecords: 1}), where)
	var all []*ps.Worker
	for i := range workers {
		all = append(all, c.worker(fmt.Sprintf("w%d", i)))
	}
	b.ResetTimer()
	parallel(b, workers, func(i int) error {
		for range b.N/workers + 1 {
			r, err := all[i].NextRange(c.ctx, "d")
			if err != nil {
				return err
			}
			if err := all[i].FinishRange(c.ctx, r); err != nil {
				return err
			}
		}
		return nil
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ranges/s")
}
