package ps_test

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// pushAll is workers that push -1 to whole layers in turn, without a pause, and note
// how long each push took.
type pushAll struct {
	c       *cluster
	layers  []shard.Layer
	stop    atomic.Bool
	running sync.WaitGroup
	count   []atomic.Int64 // acknowledged, by layer

	mu        sync.Mutex
	err       error
	latencies []time.Duration
}

func (c *cluster) pushAll(layers []shard.Layer, workers int) *pushAll {
	p := &pushAll{c: c, layers: layers, count: make([]atomic.Int64, len(layers))}
	node := c.nodeFor("workers")
	for i := range workers {
		w := c.workerOn(node, "w")
		p.running.Go(func() { p.run(w, i) })
	}
	c.t.Cleanup(func() {
		p.stop.Store(true)
		p.running.Wait()
	})
	return p
}

func (p *pushAll) run(w *ps.Worker, first int) {
	var mine []time.Duration
	var err error
	for i := first; !p.stop.Load() && err == nil; i++ {
		l := p.layers[i%len(p.layers)]
		started := time.Now()
		if err = w.Push(p.c.ctx, l.Name, vector(int(l.Elems()), -1)); err == nil {
			p.count[i%len(p.layers)].Add(1)
			mine = append(mine, time.Since(started))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latencies = append(p.latencies, mine...)
	if p.err == nil {
		p.err = err
	}
}

func (p *pushAll) total() int64 {
	var n int64
	for i := range p.count {
		n += p.count[i].Load()
	}
	return n
}

// goesOn waits for some more pushes of every worker on average.
func (p *pushAll) goesOn() {
	p.c.t.Helper()
	before := p.total()
	eventually(p.c.t, "pushes go on", func() bool { return p.total() > before+50 || p.failed() != nil })
	require.NoError(p.c.t, p.failed())
}

func (p *pushAll) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// exact ends the load and requires that no push failed and every layer is the number
// of its acknowledged pushes. It returns how long each push took.
func (p *pushAll) exact() []time.Duration {
	p.c.t.Helper()
	p.stop.Store(true)
	p.running.Wait()
	require.NoError(p.c.t, p.err)
	reader := p.c.client("reader")
	for i, l := range p.layers {
		got := make([]float32, l.Elems())
		require.NoError(p.c.t, reader.Pull(p.c.ctx, l.Name, got))
		require.Equal(p.c.t, vector(len(got), float32(p.count[i].Load())), got, "layer %s", l.Name)
	}
	return p.latencies
}
