package ps_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// Histories of pushes and pulls of real runs, checked for linearizability: there is an
// order in which each took effect at one moment between its begin and its end.

// addition is one step of a history: a push of 1, or a pull with what it has read.
type addition struct {
	layer int
	pull  bool
}

// adding is a number per layer to which every push adds 1.
var adding = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := map[int][]porcupine.Operation{}
		for _, o := range history {
			layer := o.Input.(addition).layer
			parts[layer] = append(parts[layer], o)
		}
		var all [][]porcupine.Operation
		for _, p := range parts {
			all = append(all, p)
		}
		return all
	},
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		if input.(addition).pull {
			return output.(int) == state.(int), state
		}
		return true, state.(int) + 1
	},
}

// history is what several clients have done.
type history struct {
	began time.Time
	mu    sync.Mutex
	all   []porcupine.Operation
}

// run pushes to a layer and pulls from it until ctx ends. A push is never given up; a
// pull that fails has no effect, and is no part of the history.
func (h *history) run(ctx context.Context, c *cluster, client int, w *ps.Worker, r *rand.Rand, layers int) error {
	for ctx.Err() == nil {
		in := addition{r.IntN(layers), r.IntN(2) == 0}
		name, got := fmt.Sprintf("l%d", in.layer), []float32{0}
		call := time.Since(h.began)
		if in.pull {
			short, cancel := context.WithTimeout(c.ctx, 300*time.Millisecond)
			err := w.Pull(short, name, got)
			cancel()
			if err != nil {
				continue
			}
		} else if err := w.Push(c.ctx, name, []float32{-1}); err != nil {
			return err
		}
		h.mu.Lock()
		h.all = append(h.all, porcupine.Operation{
			ClientId: client, Input: in, Output: int(got[0]), Call: int64(call), Return: int64(time.Since(h.began)),
		})
		h.mu.Unlock()
		<-time.After(time.Duration(r.IntN(2000)) * time.Microsecond)
	}
	return nil
}

// TestLinearizability: servers are killed and started again, stopped and continued, and
// shards are moved, while workers push and pull. With followers no run may show a pull
// that misses a push, or sees it and then does not.
func TestLinearizability(t *testing.T) {
	settled(t)
	const layers, clients = 2, 6
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed) // which faults and operations; not when they meet
	c := newCluster(t, layersJob(1, layers, 1))
	servers := map[shard.ServerID]*process{}
	ids := []shard.ServerID{"s1", "s2", "s3"}
	for _, id := range ids {
		servers[id] = c.process("server", string(id))
	}
	c.placed()
	c.protected()
	h := &history{began: time.Now()}
	var running sync.WaitGroup
	errs := make([]error, clients)
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	for i := range clients {
		w := c.worker(fmt.Sprintf("w%d", i))
		running.Go(func() { errs[i] = h.run(ctx, c, i, w, rand.New(rand.NewPCG(seed, uint64(i))), layers) })
	}
	r := rand.New(rand.NewPCG(seed, clients))
	for range 12 {
		c.protected() // one loss at a time: with one follower no second one is allowed
		id := ids[r.IntN(len(ids))]
		switch r.IntN(4) {
		case 0:
			servers[id].kill()
			servers[id] = c.process("server", string(id))
		case 1:
			servers[id].signal(syscall.SIGSTOP)
			<-time.After(time.Duration(r.IntN(1500)) * time.Millisecond)
			servers[id].signal(syscall.SIGCONT)
		default:
			_, _ = c.admin.Move(c.ctx, shard.ID(r.IntN(layers)), id) // it has the shard already, perhaps
		}
		<-time.After(time.Duration(r.IntN(100)) * time.Millisecond)
	}
	c.protected()
	cancel()
	running.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	t.Logf("%d operations, failovers %v", len(h.all), c.status().Failovers)
	require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(adding, h.all, patience))
	sums := make([]int, layers)
	for _, o := range h.all {
		if in := o.Input.(addition); !in.pull {
			sums[in.layer]++
		}
	}
	reader := c.client("reader")
	for i, want := range sums {
		got := []float32{0}
		require.NoError(t, reader.Pull(c.ctx, fmt.Sprintf("l%d", i), got))
		require.Equal(t, float32(want), got[0])
	}
}

// TestLinearizabilityModel: the model takes what is linearizable and refuses what is not.
func TestLinearizabilityModel(t *testing.T) {
	push := func(client int, begin, end int64) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: addition{}, Output: 0, Call: begin, Return: end}
	}
	pull := func(client, got int, begin, end int64) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: addition{pull: true}, Output: got, Call: begin, Return: end}
	}
	require.True(t, porcupine.CheckOperations(adding, []porcupine.Operation{push(0, 0, 10), pull(1, 1, 1, 2), pull(1, 1, 3, 4)}))
	require.False(t, porcupine.CheckOperations(adding, []porcupine.Operation{push(0, 0, 10), pull(1, 1, 1, 2), pull(1, 0, 3, 4)}), "a push that was seen is not any more")
	require.False(t, porcupine.CheckOperations(adding, []porcupine.Operation{push(0, 0, 1), pull(1, 0, 2, 3)}), "an old value")
}
