package ps_test

import (
	"context"
	"hash/fnv"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// The test that defines the product (I8): the same pushes of integer gradients under
// BSP with plain SGD give the same bits, whatever the servers and workers did
// meanwhile.

const (
	bitsClocks = 24
	lateFrom   = 8  // the clock in which the late worker begins to push
	earlyUntil = 16 // the clock in which the early leaver does not push any more
)

func bitsJob() ps.Job {
	initial := shard.Initializer{Kind: shard.Normal, Scale: 0.3, Seed: 5}
	return ps.Job{
		Model: shard.Model{Layers: []shard.Layer{
			{Name: "a", Shape: []int{100, 30}, Init: initial},
			{Name: "b", Shape: []int{7}, Init: initial},
			{Name: "big", Shape: []int{ps.BlockElems + 517}, Init: initial},
			{Name: "table", Sparse: true, Shape: []int{30_000, 3}, Init: initial},
		}},
		// A rate that is no power of two: each step rounds, so their number and order
		// matter and not only their sum.
		Optimizer:   ps.SGD(0.013),
		Consistency: ps.Consistency{Mode: ps.BSP},
	}
}

// rowsOfClock are the rows of a table that a worker pushes in a clock: some of them in
// each, some hardly ever, some by several workers.
func rowsOfClock(worker string, clock int) []int64 {
	ids := make([]int64, 0, 300)
	for i := range int64(100) {
		ids = append(ids, i, i*i*int64(clock), -i*int64(len(worker)))
	}
	return ids
}

// bitsIDs has all rows that are pushed, and more.
func bitsIDs() []int64 {
	ids := make([]int64, 0, 3000)
	for i := range int64(3000) {
		ids = append(ids, i-700, i*i*bitsClocks/2)
	}
	return ids
}

// gradient is n integers that depend on worker, clock and layer.
func gradient(worker string, clock int, layer string, n int64) []float32 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(worker + layer)) // a hash never fails
	x := h.Sum64() + uint64(clock)*0x9e3779b97f4a7c15
	g := make([]float32, n)
	for i := range g {
		x = x*6364136223846793005 + 1442695040888963407
		g[i] = float32(int64(x>>58) - 32)
	}
	return g
}

// training is a job whose workers go through the clocks together.
type training struct {
	*cluster
	workers map[string]*ps.Worker
}

func (tr *training) join(name string, clock int) {
	tr.t.Helper()
	w := tr.worker(name)
	require.Equal(tr.t, uint32(clock), w.Clock(), "clock of %s", name)
	tr.workers[name] = w
}

func (tr *training) leave(name string) {
	tr.t.Helper()
	require.NoError(tr.t, tr.workers[name].Leave(tr.ctx))
	delete(tr.workers, name)
}

// pushes says whether a worker has something to push in a clock; it is the same in
// every run, whether the worker is a member then or not.
func pushes(name string, clock int) bool {
	return (name != "late" || clock >= lateFrom) && (name != "early" || clock < earlyUntil)
}

// clock makes every member push and tick.
func (tr *training) clock(clock int) {
	tr.t.Helper()
	var names []string
	for name := range tr.workers {
		names = append(names, name)
	}
	parallel(tr.t, len(names), func(i int) error {
		w := tr.workers[names[i]]
		for _, l := range tr.cfg.Job.Model.Layers {
			if !pushes(names[i], clock) {
				break
			}
			if err := pushGradient(tr.ctx, w, names[i], clock, l); err != nil {
				return err
			}
		}
		return w.Tick(tr.ctx)
	})
}

func pushGradient(ctx context.Context, w *ps.Worker, name string, clock int, l shard.Layer) error {
	if !l.Sparse {
		return w.Push(ctx, l.Name, gradient(name, clock, l.Name, l.Elems()))
	}
	ids := rowsOfClock(name, clock)
	return w.PushRows(ctx, l.Name, ids, gradient(name, clock, l.Name, int64(len(ids)*l.RowElems())))
}

// bits is all parameters as a member sees them, bit by bit.
func (tr *training) bits() map[string][]uint32 {
	tr.t.Helper()
	out := map[string][]uint32{}
	for _, l := range tr.cfg.Job.Model.Layers {
		got := make([]float32, l.Elems())
		if l.Sparse {
			ids := bitsIDs()
			got = make([]float32, len(ids)*l.RowElems())
			require.NoError(tr.t, tr.workers["steady"].PullRows(tr.ctx, l.Name, ids, got))
		} else {
			require.NoError(tr.t, tr.workers["steady"].Pull(tr.ctx, l.Name, got))
		}
		for _, v := range got {
			out[l.Name] = append(out[l.Name], math.Float32bits(v))
		}
	}
	return out
}

// plain is the run with one server and nothing else happening.
func plain(t *testing.T) map[string][]uint32 {
	t.Helper()
	tr := &training{newCluster(t, bitsJob(), patient, oneNode), map[string]*ps.Worker{}}
	tr.server("s1")
	tr.placed()
	for _, name := range []string{"steady", "early", "late"} {
		tr.join(name, 0)
	}
	for c := range bitsClocks {
		tr.clock(c)
	}
	return tr.bits()
}

// elastic is the run in which servers come and go and shards move all the time,
// while workers join late and leave early. start starts a server and returns how to
// stop it.
func (tr *training) elastic(start func(shard.ServerID) (stop func())) map[string][]uint32 {
	tr.t.Helper()
	start("s1")
	tr.placed()
	tr.join("steady", 0)
	tr.join("early", 0)
	var moving *rotation
	stop3 := func() {}
	for c := range bitsClocks {
		switch c {
		case 3:
			start("s2")
			moving = tr.rotate("s1", "s2")
		case lateFrom:
			tr.join("late", c)
		case 10:
			moving.stop()
			stop3 = start("s3")
			moving = tr.rotate("s1", "s2", "s3")
		case earlyUntil:
			tr.leave("early")
		case 20:
			moving.stop()
			require.NoError(tr.t, tr.admin.Drain(tr.ctx, "s3", true))
			require.NotEmpty(tr.t, moving.moves)
			tr.moveFrom("s3", "s1")
			require.NoError(tr.t, tr.admin.Remove(tr.ctx, "s3"))
			stop3()
			moving = tr.rotate("s2", "s1")
		}
		tr.clock(c)
	}
	moving.stop()
	return tr.bits()
}

// rotation moves shards round and round.
type rotation struct {
	t     testing.TB
	end   chan struct{}
	once  sync.Once
	ended sync.WaitGroup
	moves []ps.MoveReport
	err   error
}

func (c *cluster) rotate(servers ...shard.ServerID) *rotation {
	r := &rotation{t: c.t, end: make(chan struct{})}
	r.ended.Go(func() {
		for i := 0; r.err == nil; i++ {
			select {
			case <-r.end:
				return
			default:
			}
			r.err = r.step(c, i, servers)
		}
	})
	c.t.Cleanup(func() {
		r.once.Do(func() { close(r.end) })
		r.ended.Wait()
	})
	return r
}

// step moves one shard to the server after its own.
func (r *rotation) step(c *cluster, i int, servers []shard.ServerID) error {
	st, err := c.admin.Status(c.ctx)
	if err != nil {
		return err
	}
	a := st.Map.Assignments[i%len(st.Map.Assignments)]
	to := servers[0]
	for j, s := range servers {
		if s == a.Owner {
			to = servers[(j+1)%len(servers)]
		}
	}
	if to == a.Owner {
		return nil
	}
	m, err := c.admin.Move(c.ctx, a.Shard, to)
	if err != nil {
		return err
	}
	r.moves = append(r.moves, m)
	return m.Err()
}

func (r *rotation) stop() {
	r.t.Helper()
	r.once.Do(func() { close(r.end) })
	r.ended.Wait()
	require.NoError(r.t, r.err)
}

func TestI8SameBits(t *testing.T) {
	want := plain(t)
	everywhere(t, func(t *testing.T, options ...option) {
		settled(t)
		tr := &training{newCluster(t, bitsJob(), append([]option{patient}, options...)...), map[string]*ps.Worker{}}
		tr.within(2 * time.Minute)
		got := tr.elastic(func(id shard.ServerID) func() {
			s := tr.server(id)
			return func() { require.NoError(t, s.Shutdown(tr.ctx)) }
		})
		requireSameBits(t, want, got)
	})
}

// I8 with every server a process of its own.
func TestI8SameBitsAcrossProcesses(t *testing.T) {
	settled(t)
	want := plain(t)
	tr := &training{newCluster(t, bitsJob(), patient), map[string]*ps.Worker{}}
	tr.within(2 * time.Minute)
	got := tr.elastic(func(id shard.ServerID) func() { return tr.process("server", string(id)).kill })
	requireSameBits(t, want, got)
}

func requireSameBits(t *testing.T, want, got map[string][]uint32) {
	t.Helper()
	require.Len(t, got, len(want))
	for name, w := range want {
		for i := range w {
			if w[i] != got[name][i] {
				t.Fatalf("layer %s differs at %d of %d: %x, want %x", name, i, len(w), got[name][i], w[i])
			}
		}
	}
}
