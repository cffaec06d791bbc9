package ps_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

// eventually waits for a condition.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, patience, 2*time.Millisecond, what)
}

// traffic is workers that push -1 to every element of a layer of a job with plain
// SGD of rate 1, without a pause: each acknowledged push is +1 in the layer.
type traffic struct {
	c       *cluster
	layer   string
	elems   int
	acked   atomic.Int64
	mu      sync.Mutex
	errs    []error
	stop    context.CancelFunc
	running sync.WaitGroup
}

func (c *cluster) traffic(layer string, elems int, workers ...*ps.Worker) *traffic {
	ctx, cancel := context.WithCancel(c.ctx)
	tr := &traffic{c: c, layer: layer, elems: elems, stop: cancel}
	for _, w := range workers {
		tr.running.Go(func() { tr.push(ctx, w) })
	}
	c.t.Cleanup(func() {
		cancel()
		tr.running.Wait()
	})
	return tr
}

func (tr *traffic) push(ctx context.Context, w *ps.Worker) {
	grad := vector(tr.elems, -1)
	for ctx.Err() == nil {
		if err := w.Push(tr.c.ctx, tr.layer, grad); err != nil {
			tr.mu.Lock()
			tr.errs = append(tr.errs, err)
			tr.mu.Unlock()
			return
		}
		tr.acked.Add(1)
	}
}

// goesOn waits until more pushes have been acknowledged than before.
func (tr *traffic) goesOn() {
	tr.c.t.Helper()
	before := tr.acked.Load()
	eventually(tr.c.t, "pushes of layer "+tr.layer+" go on", func() bool { return tr.acked.Load() > before+3 || tr.failed() != nil })
	require.NoError(tr.c.t, tr.failed())
}

// advance is goesOn on any goroutine: it requires nothing.
func (tr *traffic) advance() {
	before, end := tr.acked.Load(), time.Now().Add(patience)
	for tr.acked.Load() <= before+3 && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
	}
}

func (tr *traffic) failed() error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if len(tr.errs) > 0 {
		return tr.errs[0]
	}
	return nil
}

// exact ends the traffic and requires that the layer is the number of acknowledged
// pushes: none failed, none was lost, none applied twice.
func (tr *traffic) exact() {
	tr.c.t.Helper()
	tr.stop()
	tr.running.Wait()
	require.NoError(tr.c.t, tr.failed())
	w := tr.c.client("reader-of-" + tr.layer)
	got := make([]float32, tr.elems)
	require.NoError(tr.c.t, w.Pull(tr.c.ctx, tr.layer, got))
	require.Equal(tr.c.t, vector(tr.elems, float32(tr.acked.Load())), got)
}

// oneOwner requires that each of the shards is served by one of the servers and no
// more, and that it is the one that the coordinator names.
func (c *cluster) oneOwner() {
	c.t.Helper()
	st := c.status()
	total := 0
	for _, s := range st.Servers {
		if !s.Up {
			continue
		}
		load, err := c.admin.Load(c.ctx, s)
		require.NoError(c.t, err)
		require.Equal(c.t, s.Owned, load.Shards, "server %s", s.ID)
		total += load.Shards
	}
	require.Equal(c.t, st.Shards, total)
}

// owner is who owns a shard, as the coordinator knows it.
func (c *cluster) owner(id shard.ID) shard.ServerID {
	c.t.Helper()
	a, _ := c.status().Map.Owner(id)
	return a.Owner
}

// placed waits until every shard has an owner.
func (c *cluster) placed() {
	c.t.Helper()
	eventually(c.t, "all shards have an owner", func() bool {
		for _, a := range c.status().Map.Assignments {
			if a.Owner == "" {
				return false
			}
		}
		return true
	})
}
