package ps_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// Nothing is allocated for a push or a pull once it has been done a few times, at the
// client or at the server, which are one process here: whatever the size, the way and
// the type on the wire.
func TestBudgetNoAllocations(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates")
	}
	sizes := map[string]int{"64 B": 16, "4 KiB": 1 << 10, "1 MiB": 1 << 18}
	for _, network := range []string{"local", "unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			settled(t)
			var layers []shard.Layer
			for name, n := range sizes {
				for _, as := range []shard.DType{shard.Float32, shard.Float16, shard.BFloat16} {
					layers = append(layers, wired(fmt.Sprint(as, " ", name), as, n))
				}
			}
			c := newCluster(t, sgdJob(layers...), append(where(network), quiet)...)
			c.serverOver("s1", network)
			w := c.quietWorker("w")
			for _, l := range layers {
				x := make([]float32, l.Elems())
				requireNoAllocations(t, "push of "+l.Name, func() error { return w.Push(c.ctx, l.Name, x) })
				requireNoAllocations(t, "pull of "+l.Name, func() error { return w.Pull(c.ctx, l.Name, x) })
			}
		})
	}
}

// Nor for rows, also if ids are equal: of one frame, of several frames or shards, and in sixteen
// bits.
func TestBudgetNoAllocationsOfRows(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates")
	}
	for _, network := range []string{"local", "unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			settled(t)
			short := zeroTable("float16", 10_000, 16)
			short.Wire = shard.Float16
			job := sgdJob(zeroTable("wide", 16, 256), zeroTable("adam", 10_000, 3), short)
			job.Optimizers = map[string]ps.Optimizer{"adam": ps.Adam(0.1)}
			c := newCluster(t, job, append(where(network), quiet)...)
			c.serverOver("s1", network)
			w := c.quietWorker("w")
			for _, n := range []int{1, 600} {
				ids := make([]int64, n)
				for i := range ids {
					ids[i] = int64(i % 550)
				}
				for _, l := range job.Model.Layers {
					x, what := make([]float32, n*l.RowElems()), fmt.Sprint(n, " rows of ", l.Name)
					requireNoAllocations(t, "push of "+what, func() error { return w.PushRows(c.ctx, l.Name, ids, x) })
					requireNoAllocations(t, "pull of "+what, func() error { return w.PullRows(c.ctx, l.Name, ids, x) })
				}
			}
		})
	}
}

// where are the options of a cluster whose server is reached that way.
func where(network string) []option {
	if network == "local" {
		return []option{oneNode}
	}
	return nil
}

// quiet keeps the parties from talking while something is measured.
func quiet(c *cluster) { c.suspicion = time.Minute }

// quietWorker is a worker that reports seldom.
func (c *cluster) quietWorker(name string) *ps.Worker {
	c.t.Helper()
	w, err := ps.StartWorker(c.ctx, ps.ClientConfig{
		Node: c.nodeFor(name), Name: name, Coordinator: c.ref(), Logger: c.log, ReportInterval: time.Minute,
	})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = w.Close() })
	return w
}

// requireNoAllocations calls f often. The heartbeats of the control plane and the
// collector, which empties pools, are in the same process: what is less than one
// allocation in ten calls is theirs, and the best of some tries counts, of more and shorter
// ones on a machine so busy that calls are sent again.
func requireNoAllocations(t *testing.T, what string, f func() error) {
	t.Helper()
	for range 20 {
		require.NoError(t, f(), what)
	}
	calls, least := 200, math.Inf(1)
	for tries := 0; tries < 10 || tries < 50 && least >= 0.1; tries++ {
		if tries == 10 {
			calls = 20
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var err error
		for range calls {
			if e := f(); e != nil {
				err = e
			}
		}
		runtime.ReadMemStats(&after)
		require.NoError(t, err, what)
		least = min(least, float64(after.Mallocs-before.Mallocs)/float64(calls))
		if least < 0.02 {
			break
		}
	}
	t.Logf("%s: %.3f allocations", what, least)
	require.Less(t, least, 0.1, what)
}

// The memory of a server process: parameters and slots, the blocks that are under way
// on its connections, and no more than 0.3 of all that besides, while four workers push
// and pull layers of 64 MiB.
func TestBudgetServerMemory(t *testing.T) {
	if underRace {
		t.Skip("the race detector takes memory of its own")
	}
	const elems, layers, workers = 16 << 20, 4, 4 // 256 MiB of parameters
	for _, o := range []struct {
		name   string
		opt    ps.Optimizer
		arrays int
	}{{"sgd", ps.SGD(1), 1}, {"momentum", ps.Momentum(1, 0.5), 2}} {
		t.Run(o.name, func(t *testing.T) {
			settled(t)
			job := ps.Job{Optimizer: o.opt}
			for i := range layers {
				job.Model.Layers = append(job.Model.Layers, layer(fmt.Sprint("x", i), elems))
			}
			c := newCluster(t, job, patient)
			p := c.process("server", "s1")
			c.placed()
			node := c.node("workers")
			parallel(t, workers, func(i int) error {
				w := c.workerOn(node, fmt.Sprint("w", i))
				x := make([]float32, elems)
				for round := range layers {
					if err := w.PushPull(c.ctx, fmt.Sprint("x", (i+round)%layers), x, x); err != nil {
						return err
					}
				}
				return nil
			})
			state := int64(4 * elems * layers * o.arrays)
			window := int64(workers * 64 * wire.MaxPayload)
			got := residentBytes(t, p)
			t.Logf("resident %d MiB: state %d MiB, window %d MiB, ratio %.3f of both, %.3f of the state", got>>20, state>>20, window>>20,
				float64(got)/float64(state+window), float64(got)/float64(state))
			require.Less(t, float64(got), 1.3*float64(state+window))
			require.Greater(t, got, state*9/10, "every parameter has been touched")
		})
	}
}

// TestT20BytesPerRow: a server process with a million rows takes no more than twice what their
// weights and slots take, whatever it needs besides.
func TestT20BytesPerRow(t *testing.T) {
	if underRace {
		t.Skip("the race detector takes memory of its own")
	}
	const rows, dim, batch = 1_000_000, 16, 50_000
	for _, o := range []struct {
		opt   ps.Optimizer
		slots int // bytes
	}{{ps.SGD(1), 0}, {ps.Adagrad(1), 64}, {ps.AdagradRow(1), 4}, {ps.Adam(1), 128}, {ps.FTRL(1, 0, 0), 128}} {
		t.Run(o.opt.Kind.String(), func(t *testing.T) {
			settled(t)
			job := ps.Job{Optimizer: o.opt, Replicas: ps.NoReplicas, Model: shard.Model{Layers: []shard.Layer{zeroTable("t", rows, dim)}}}
			c := newCluster(t, job, patient)
			p := c.process("server", "s1")
			c.placed()
			w := c.worker("w")
			ids, grads := make([]int64, batch), vector(batch*dim, 1)
			for first := 0; first < rows; first += batch {
				for i := range ids {
					ids[i] = int64(shard.Hash(int64(first + i)))
				}
				require.NoError(t, w.PushRows(c.ctx, "t", ids, grads))
			}
			require.EqualValues(t, rows, c.rows())
			got, payload := float64(residentBytes(t, p))/rows, float64(4*dim+o.slots)
			t.Logf("%.1f bytes for each row of %.0f", got, payload)
			require.Less(t, got, 2*payload)
		})
		if testing.Short() {
			break
		}
	}
}

// residentBytes is the memory of a process that is in use now.
func residentBytes(t *testing.T, p *process) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if os.IsNotExist(err) {
		t.Skip("the system does not say what a process takes")
	}
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			require.NoError(t, err)
			return kib << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// A peer that asks for megabytes of parameters and reads nothing holds what one write
// of the server carries and the room for its own requests, not what it has asked for;
// nor do many small answers hold more than few large ones.
func TestBudgetSlowReader(t *testing.T) {
	const readers, bound = 16, 3 << 20
	for _, most := range []uint32{16, 4096, ps.BlockElems} {
		t.Run(fmt.Sprint(most, " elements"), func(t *testing.T) {
			b := newBesieged(t, func(cfg *ps.ServerConfig) { cfg.WriteTimeout = 10 * time.Second })
			h := b.pullOf("large", most)
			before := heapInUse()
			var peers []*rawPeer
			for range readers {
				p := friend(t, b.server)
				go flood(p, frame(h, nil))
				peers = append(peers, p)
			}
			grown := int64(0)
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for range 20 {
				b.undisturbed()
				grown = max(grown, int64(heapInUse())-int64(before))
				<-tick.C
			}
			t.Logf("%d peers that read nothing: %.2f MiB each", readers, float64(grown)/readers/(1<<20))
			require.Less(t, grown, int64(readers*bound))
			for _, p := range peers {
				_ = p.nc.Close()
			}
			b.undisturbed()
		})
	}
}

// flood writes a frame again and again until the connection ends.
func flood(p *rawPeer, f []byte) {
	batch := bytes.Repeat(f, 100)
	for {
		if _, err := p.nc.Write(batch); err != nil {
			return
		}
	}
}

// pullOf is a request for the first parameters of a layer, which the server answers.
func (b *besieged) pullOf(layer string, most uint32) wire.Header {
	b.t.Helper()
	shards, err := b.admin.Shards(b.ctx)
	require.NoError(b.t, err)
	id := b.shardOf(layer)
	count := uint32(min(shards[id].Range.Elems(), int64(most)))
	h := wire.Header{Kind: wire.Pull, Shard: id, Request: 1, Epoch: 1, Count: count}
	p := friend(b.t, b.server)
	p.write(frame(h, nil))
	r, values := p.read()
	require.Zero(b.t, r.Code, "%s", values)
	require.Len(b.t, values, int(4*count))
	_ = p.nc.Close()
	return h
}

// Many small pulls of several clients at once cost the server no memory for each: its
// buffers are reused, however many answers gather.
func TestBudgetManySmallPulls(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates")
	}
	const clients, concurrent, rounds = 8, 32, 200
	settled(t)
	c := newCluster(t, sgdJob(layer("x", 16)), patient)
	c.serverOver("s1", "unix")
	node := c.node("workers")
	var workers []*ps.Worker
	for range clients {
		workers = append(workers, c.workerOn(node, "w"))
	}
	pulls := func() {
		parallel(t, clients*concurrent, func(i int) error {
			x := make([]float32, 16)
			for range rounds {
				if err := workers[i%clients].Pull(c.ctx, "x", x); err != nil {
					return err
				}
			}
			return nil
		})
	}
	pulls()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	pulls()
	runtime.ReadMemStats(&after)
	each := float64(after.TotalAlloc-before.TotalAlloc) / (clients * concurrent * rounds)
	t.Logf("%.1f bytes allocated for each pull of 64", each)
	require.Less(t, each, 64.0)
}
