package ps_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// T10: 16 workers push 1.0 to one key 10,000 times each.
func TestT10ConcurrentAdd(t *testing.T) {
	everywhere(t, func(t *testing.T, options ...option) {
		const workers, pushes = 16, 10_000
		settled(t)
		c := newCluster(t, sgdJob(layer("key", 1)), append([]option{patient}, options...)...)
		c.within(3 * time.Minute)
		c.server("s1")
		node := c.nodeFor("workers")
		parallel(t, workers, func(i int) error {
			w := c.workerOn(node, "w")
			for range pushes {
				if err := w.Push(c.ctx, "key", []float32{-1}); err != nil {
					return err
				}
			}
			return nil
		})
		got := make([]float32, 1)
		require.NoError(t, c.client("reader").Pull(c.ctx, "key", got))
		require.Equal(t, float32(workers*pushes), got[0])
		require.Equal(t, uint64(workers*pushes), c.applied())
	})
}

// sgdJob is a job in which a push of -1 adds exactly 1.
func sgdJob(layers ...shard.Layer) ps.Job {
	return ps.Job{Model: shard.Model{Layers: layers}, Optimizer: ps.SGD(1)}
}

// lossy is workers that all go through one proxy to the only server.
type lossy struct {
	c       *cluster
	server  *ps.Server
	workers []*ps.Worker
}

func newLossy(t *testing.T, judge func(bool, *wire.Header) fate, workers int, layers ...shard.Layer) *lossy {
	job := sgdJob(layers...)
	job.MaxShardBytes = 64 << 20 // a layer is one shard
	l := &lossy{c: newCluster(t, job, patient)}
	l.c.within(5 * time.Minute)
	l.server = l.c.proxied("s1", newFrameProxy(t, judge))
	node := l.c.node("workers")
	l.workers = make([]*ps.Worker, workers)
	parallel(t, workers, func(i int) error {
		l.workers[i] = l.c.workerOn(node, "w")
		return nil
	})
	l.c.placed()
	return l
}

// add pushes +1 to each worker's own key and to the shared key, rounds times, with
// several pushes of one worker under way at once.
func (l *lossy) add(t *testing.T, rounds, concurrent int) {
	t.Helper()
	todo := make([]atomic.Int64, len(l.workers))
	parallel(t, len(l.workers)*concurrent, func(i int) error {
		w := i % len(l.workers)
		for todo[w].Add(1) <= int64(rounds) {
			if err := l.workers[w].PushRange(l.c.ctx, "own", w, []float32{-1}); err != nil {
				return err
			}
			if err := l.workers[w].Push(l.c.ctx, "shared", []float32{-1}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *lossy) requireSums(t *testing.T, rounds int) {
	t.Helper()
	n := len(l.workers)
	own, shared := make([]float32, n), make([]float32, 1)
	require.NoError(t, l.workers[0].Pull(l.c.ctx, "own", own))
	require.NoError(t, l.workers[0].Pull(l.c.ctx, "shared", shared))
	require.Equal(t, vector(n, float32(rounds)), own)
	require.Equal(t, float32(n*rounds), shared[0])
	require.Equal(t, uint64(2*n*rounds), l.c.applied(), "the servers' own count")
}

// lossyWorkers is how many workers T12 has.
func lossyWorkers() int {
	if underRace {
		return 50 // on whose thousands of goroutines the detector spends its time
	}
	return 300
}

// T12: a proxy drops, doubles and delays frames of both directions; every push
// counts once.
func TestT12LostDoubledReordered(t *testing.T) {
	const rounds = 20
	together(t)
	f, n := newFaulty(1), lossyWorkers()
	l := newLossy(t, f.judge, n, layer("own", n, 1), layer("shared", 1))
	l.add(t, rounds, 16)
	l.requireSums(t, rounds)
	for _, v := range []fate{drop, double, delay} {
		require.Greater(t, f.count(v), n*rounds*2/20, "the proxy did its worst")
	}
}

// T12: a million pushes, and neither the memory of what was seen nor any other grows
// with them.
func TestT12MillionPushes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	rounds := 1667 // two pushes each, of 300 workers: a million
	if underRace {
		rounds /= 20
	}
	settled(t)
	n, f := lossyWorkers(), newFaulty(2)
	var begun atomic.Bool
	judge := func(toServer bool, h *wire.Header) fate {
		if !begun.Load() { // nothing is lost while all workers make themselves known
			return pass
		}
		return f.judge(toServer, h)
	}
	l := newLossy(t, judge, n, layer("own", n, 1), layer("shared", 1))
	l.c.within(10 * time.Minute) // it needs a processor for a minute, and may get a tenth of one
	l.add(t, 8, 8)
	windows, heap := l.server.WindowBytes(), heapInUse()
	started := time.Now()
	begun.Store(true)
	l.add(t, rounds-8, 96)
	t.Logf("%d pushes in %v through a proxy that loses 10 %%", 2*n*rounds, time.Since(started))
	l.requireSums(t, rounds)
	require.Equal(t, windows, l.server.WindowBytes(), "push windows")
	require.Less(t, windows, 300*1024, "push windows of 300 workers at two shards")
	require.Less(t, heapInUse(), heap+128<<20, "half of it is the server's list of free buffers")
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // the second one frees what pools had kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// T12 for what is larger than a frame: gradients of many blocks, pulled again, while
// the same faults happen.
func TestT12LargeLayers(t *testing.T) {
	together(t)
	const n, rounds = 5*ps.BlockElems + 3, 3
	l := newLossy(t, newFaulty(3).judge, 4, layer("big", n))
	parallel(t, len(l.workers), func(i int) error {
		grad, got := vector(n, -1), make([]float32, n)
		for range rounds {
			if err := l.workers[i].PushPull(l.c.ctx, "big", grad, got); err != nil {
				return err
			}
		}
		return nil
	})
	got := make([]float32, n)
	require.NoError(t, l.workers[0].Pull(l.c.ctx, "big", got))
	require.Equal(t, vector(n, float32(len(l.workers)*rounds)), got)
}

// T12 over moves: the pushes are exact also while the shards change hands and the
// frames between the workers and both servers are lost, doubled and reordered.
func TestT12WhileMoving(t *testing.T) {
	together(t)
	f := newFaulty(4)
	l := newLossy(t, f.judge, 20, layer("own", 20, 1), layer("shared", 1))
	l.c.proxied("s2", newFrameProxy(t, f.judge))
	stop := l.c.swapping("s1", "s2", func() error { return nil })
	l.add(t, 50, 8)
	require.Greater(t, len(stop()), 4)
	l.requireSums(t, 50)
}
