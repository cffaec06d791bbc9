package ps_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// saving configures checkpoints in a folder.
func saving(s checkpoint.Storage, change ...func(*ps.CheckpointConfig)) option {
	return func(c *cluster) {
		c.cfg.Checkpoints.Storage = s
		c.checkpoints = s
		for _, f := range change {
			f(&c.cfg.Checkpoints)
		}
	}
}

func restoring(name string) func(*ps.CheckpointConfig) {
	return func(c *ps.CheckpointConfig) { c.Restore = name }
}

// save takes a checkpoint and requires that it is there.
func (c *cluster) save(full bool) ps.CheckpointReport {
	c.t.Helper()
	r, err := c.admin.Checkpoint(c.ctx, full)
	require.NoError(c.t, err)
	require.NoError(c.t, r.Err())
	return r
}

// saveAfter trains one more step and takes a checkpoint behind it: under BSP one is taken
// when a clock ends.
func (c *cluster) saveAfter(w *ps.Worker, step int, full bool) (r ps.CheckpointReport) {
	c.t.Helper()
	if c.cfg.Job.Consistency.Mode != ps.BSP {
		c.train(w, step, step+1)
		return c.save(full)
	}
	r = c.saveAtEnd(full, func() { c.train(w, step, step+1) })
	require.EqualValues(c.t, step+1, r.Clock)
	for _, l := range w.Model().Layers { // the servers close the clock as well
		require.NoError(c.t, w.Pull(c.ctx, l.Name, make([]float32, l.Elems())))
	}
	return r
}

// saveAtEnd takes a checkpoint of the end of the clock which step finishes.
func (c *cluster) saveAtEnd(full bool, step func()) (r ps.CheckpointReport) {
	c.t.Helper()
	ended := make(chan error, 1)
	go func() {
		var err error
		r, err = c.admin.Checkpoint(c.ctx, full)
		ended <- err
	}()
	eventually(c.t, "the checkpoint waits for the clock to end", func() bool { return c.status().Held })
	step()
	require.NoError(c.t, <-ended)
	require.NoError(c.t, r.Err())
	return r
}

func (c *cluster) servers(n int) (all []*ps.Server) {
	c.t.Helper()
	for i := range n {
		all = append(all, c.server(shard.ServerID(fmt.Sprintf("s%d", i+1))))
	}
	return all
}

// mixedJob has layers under several optimizers, of several blocks.
func mixedJob(mode ps.Mode) ps.Job {
	job := ps.Job{
		Optimizer: ps.SGD(0.1), Consistency: ps.Consistency{Mode: mode}, MaxShardBytes: 1 << 20,
		Optimizers: map[string]ps.Optimizer{
			"momentum": ps.Momentum(0.1, 0.9), "nesterov": ps.Nesterov(0.1, 0.9), "adagrad": ps.Adagrad(0.1), "adam": ps.Adam(0.1), "adamw": ps.AdamW(0.1, 0.01),
		},
	}
	job.Optimizers["amsgrad"], job.Optimizers["ftrl"] = ps.AMSGrad(0.1), withAccumulator(ps.FTRL(0.1, 0.5, 0.1), 0.1)
	for _, name := range []string{"sgd", "momentum", "nesterov", "adagrad", "adam", "adamw", "amsgrad", "ftrl"} {
		l := layer(name, 3, ps.BlockElems)
		l.Init = shard.Initializer{Kind: shard.Normal, Scale: 1, Seed: 3}
		job.Model.Layers = append(job.Model.Layers, l)
	}
	job.Model.Layers = append(job.Model.Layers, layer("empty", 0, 4), layer("tiny", 3))
	return job
}

// train has a worker push gradients that differ by step and layer.
func (c *cluster) train(w *ps.Worker, from, to int) {
	c.t.Helper()
	for step := from; step < to; step++ {
		for i, l := range w.Model().Layers {
			grad := make([]float32, l.Elems())
			for j := range grad {
				grad[j] = float32((j+7*step+13*i)%11) - 5
			}
			require.NoError(c.t, w.Push(c.ctx, l.Name, grad))
		}
		require.NoError(c.t, w.Tick(c.ctx))
	}
}

// TestT17ReshardOnRestore saves from three servers, a full checkpoint and increments, and
// loads on 1, 2 and 5: weights, slots, counters, clocks and push windows are the same bits.
func TestT17ReshardOnRestore(t *testing.T) {
	for _, mode := range []ps.Mode{ps.ASP, ps.BSP} {
		t.Run(mode.String(), func(t *testing.T) {
			folder := checkpoint.Folder(t.TempDir())
			c := newCluster(t, mixedJob(mode), saving(folder))
			servers := c.servers(3)
			w := c.worker("w")
			c.placed()
			c.spread("s1", "s2", "s3")
			c.train(w, 0, 1)
			require.Empty(t, c.saveAfter(w, 1, false).Parent)
			full := c.saveAfter(w, 2, false)
			require.NotEmpty(t, full.Parent)
			last := full
			if mode == ps.ASP {
				require.NoError(t, w.Push(c.ctx, "tiny", vector(3, 1)))
				last = c.save(false)
				require.Equal(t, full.Name, last.Parent)
				require.Less(t, last.Bytes, full.Bytes/4, "only what has changed is written")
			}
			want := ps.States(mode == ps.ASP, servers...)
			for _, n := range []int{1, 2, 5} {
				c := newCluster(t, mixedJob(mode), saving(folder, restoring(ps.RestoreLatest)))
				servers := c.servers(n)
				c.placed()
				require.Equal(t, want, ps.States(mode == ps.ASP, servers...), "%d servers", n)
			}
		})
	}
}

// TestT26AcrossRestore: training that goes on from a checkpoint ends in the bits of
// training that was not interrupted, for every optimizer.
func TestT26AcrossRestore(t *testing.T) {
	for _, mode := range []ps.Mode{ps.ASP, ps.BSP} {
		t.Run(mode.String(), func(t *testing.T) {
			folder := checkpoint.Folder(t.TempDir())
			c := newCluster(t, mixedJob(mode), saving(folder))
			c.servers(2)
			w := c.worker("w")
			c.train(w, 0, 2)
			c.saveAfter(w, 2, true)
			c.train(w, 3, 7)
			d := newCluster(t, mixedJob(mode), saving(folder, restoring(ps.RestoreLatest)))
			d.servers(1)
			x := d.worker("w")
			if mode == ps.BSP {
				require.EqualValues(t, 3, x.Clock())
			}
			d.train(x, 3, 7)
			for _, l := range w.Model().Layers {
				a, b := make([]float32, l.Elems()), make([]float32, l.Elems())
				require.NoError(t, w.Pull(c.ctx, l.Name, a))
				require.NoError(t, x.Pull(d.ctx, l.Name, b))
				require.Equal(t, wire.Bytes(a), wire.Bytes(b), l.Name)
			}
		})
	}
}

// TestCheckpointIsOneCut takes checkpoints while workers push and shards move. Under BSP
// every shard is of the same clock; otherwise each shard is what its counter says.
func TestCheckpointIsOneCut(t *testing.T) {
	for _, mode := range []ps.Mode{ps.ASP, ps.BSP} {
		t.Run(mode.String(), func(t *testing.T) {
			const layers, elems = 4, 500
			folder := checkpoint.Folder(t.TempDir())
			job := layersJob(1, layers, elems)
			job.Consistency.Mode = mode
			c := newCluster(t, job, saving(folder, func(c *ps.CheckpointConfig) { c.FullEvery = 3 }))
			c.servers(3)
			c.placed()
			ctx, stop := context.WithCancel(c.ctx)
			workers := []*ps.Worker{c.worker("w1"), c.worker("w2"), c.worker("w3")}
			ended := make(chan error, len(workers))
			for _, w := range workers {
				go func() { ended <- pushOnes(ctx, w, layers, elems) }()
			}
			for i := range 6 {
				c.move(shard.ID(i%layers), c.otherOf(c.owner(shard.ID(i%layers)), i))
				c.requireCut(folder, c.save(false), layers, elems, mode, len(workers))
			}
			stop()
			for range workers {
				require.NoError(t, <-ended)
			}
		})
	}
}

// otherOf is one of three servers, another one.
func (c *cluster) otherOf(id shard.ServerID, n int) shard.ServerID {
	for ; ; n++ {
		if to := shard.ServerID(fmt.Sprintf("s%d", n%3+1)); to != id {
			return to
		}
	}
}

// pushOnes has a worker add one to every layer in each clock.
func pushOnes(ctx context.Context, w *ps.Worker, layers, elems int) error {
	for {
		for i := range layers {
			if err := w.Push(ctx, fmt.Sprintf("l%d", i), vector(elems, -1)); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
		}
		if err := w.Tick(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

func (c *cluster) requireCut(s checkpoint.Storage, r ps.CheckpointReport, layers, elems int, mode ps.Mode, workers int) {
	c.t.Helper()
	saved, err := checkpoint.Open(c.ctx, s, r.Name)
	require.NoError(c.t, err)
	for id := range layers {
		got := make([]float32, elems)
		state, err := saved.ReadShard(c.ctx, shard.ID(id), got, nil)
		require.NoError(c.t, err)
		want := float32(state.Applied)
		if mode == ps.BSP {
			want = float32(int(r.Clock) * workers)
			require.EqualValues(c.t, want, state.Applied)
		}
		require.Equal(c.t, vector(elems, want), got, "shard %d of %s", id, r.Name)
	}
}

// TestT27TornCheckpointIsPassedOver: the last good one is used, and the damaged one named.
func TestT27TornCheckpointIsPassedOver(t *testing.T) {
	dir := t.TempDir()
	folder := checkpoint.Folder(dir)
	c := newCluster(t, layersJob(ps.NoReplicas, 2, 100), saving(folder))
	c.servers(1)
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	c.save(true)
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	torn := c.save(true)
	files, err := filepath.Glob(filepath.Join(dir, torn.Name, "*.safetensors"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	text[len(text)/2] ^= 1
	require.NoError(t, os.WriteFile(files[0], text, 0o600))

	d := newCluster(t, layersJob(ps.NoReplicas, 2, 100), saving(folder, restoring(ps.RestoreLatest)))
	d.servers(1)
	got := make([]float32, 100)
	require.NoError(t, d.client("reader").Pull(d.ctx, "l0", got))
	require.Equal(t, vector(100, 1), got)

	cfg := c.cfg
	cfg.Node, cfg.Store, cfg.Checkpoints.Restore = c.node("other"), nil, torn.Name
	_, err = ps.StartCoordinator(c.ctx, cfg)
	require.ErrorIs(t, err, checkpoint.ErrDamaged)
	require.ErrorContains(t, err, torn.Name)
}

// TestRestoreRefused: a checkpoint of something else, or onto a job that runs.
func TestRestoreRefused(t *testing.T) {
	folder := checkpoint.Folder(t.TempDir())
	c := newCluster(t, layersJob(ps.NoReplicas, 2, 100), saving(folder))
	c.servers(1)
	c.placed()
	name := c.save(true).Name
	refused := 0
	for what, change := range map[string]func(*ps.Job){
		"another shape":     func(j *ps.Job) { j.Model.Layers[1].Shape = []int{101} },
		"another name":      func(j *ps.Job) { j.Model.Layers[1].Name = "x" },
		"another optimizer": func(j *ps.Job) { j.Optimizer = ps.Adam(1) },
		"another cut":       func(j *ps.Job) { j.MaxShardBytes = 64 },
		"fewer layers":      func(j *ps.Job) { j.Model.Layers = j.Model.Layers[:1] },
	} {
		cfg := c.cfg
		cfg.Job = layersJob(ps.NoReplicas, 2, 100)
		change(&cfg.Job)
		cfg.Node, cfg.Store, cfg.Checkpoints.Restore = c.node(fmt.Sprintf("refused-%d", refused)), nil, name
		refused++
		_, err := ps.StartCoordinator(c.ctx, cfg)
		require.ErrorIs(t, err, checkpoint.ErrMismatch, what)
	}
	cfg := c.cfg
	cfg.Node, cfg.Checkpoints.Restore = c.node("again"), name
	_, err := ps.StartCoordinator(c.ctx, cfg)
	require.ErrorIs(t, err, ps.ErrConflict)
	require.ErrorContains(t, err, "the job has 2 shards on servers already")
	cfg.Checkpoints.Restore = "ckpt-00000099"
	cfg.Store, cfg.Node = nil, c.node("unknown")
	_, err = ps.StartCoordinator(c.ctx, cfg)
	require.ErrorIs(t, err, checkpoint.ErrNotFound)
}

// TestPeriodicCheckpoints: they come by themselves, and only the last few are kept.
func TestPeriodicCheckpoints(t *testing.T) {
	folder := checkpoint.Folder(t.TempDir())
	c := newCluster(t, layersJob(1, 2, 100), saving(folder, func(c *ps.CheckpointConfig) {
		c.Interval, c.Keep, c.FullEvery = 50*time.Millisecond, 2, 2
	}))
	c.servers(2)
	tr := c.traffic("l0", 100, c.worker("w"))
	eventually(t, "the fifth checkpoint", func() bool {
		names, err := checkpoint.List(c.ctx, folder)
		return err == nil && len(names) > 0 && names[len(names)-1] >= "ckpt-00000005"
	})
	tr.exact()
	names, err := checkpoint.List(c.ctx, folder)
	require.NoError(t, err)
	require.LessOrEqual(t, len(names), 4, "two kept, what they need, and one that is being written: %v", names)
}

// TestT1LostShardGoesBackToCheckpoint kills a server whose shard nobody else has: the shard
// goes back to the last checkpoint, it alone, and the loss is reported in numbers.
func TestT1LostShardGoesBackToCheckpoint(t *testing.T) {
	settled(t)
	c := newCluster(t, layersJob(ps.NoReplicas, 2, 100), saving(checkpoint.Folder(t.TempDir())))
	c.server("s1")
	c.placed()
	victim := c.process("server", "s2")
	c.move(1, "s2")
	tr := c.traffic("l0", 100, c.worker("w"))
	w := c.worker("w2")
	push := func(n int) {
		for range n {
			require.NoError(t, w.Push(c.ctx, "l1", vector(100, -1)))
		}
	}
	push(5)
	c.save(false)
	push(7)
	eventually(t, "the server has reported them", func() bool {
		for _, s := range c.status().Servers {
			if s.ID == "s2" {
				return s.Load.PushesApplied == 12
			}
		}
		return false
	})
	var filled, reports atomic.Int64
	late := func(_ actor.Ref, msg any) bool { // the next owner reports before it is known to have the shard
		switch fmt.Sprintf("%T", msg) {
		case "ps.commandReply":
			filled.Add(1)
			return reports.Load() < 3
		case "ps.serverReport":
			reports.Add(min(filled.Load(), 1))
		}
		return false
	}
	c.drop.Store(&late)
	victim.kill()
	push(3)
	got := make([]float32, 100)
	require.NoError(t, w.Pull(c.ctx, "l1", got))
	require.Equal(t, vector(100, 8), got)
	eventually(t, "the loss is reported", func() bool { return len(c.status().Failovers) == 1 })
	f := c.status().Failovers[0]
	require.Equal(t, 1, f.Refilled)
	require.EqualValues(t, 7, f.LostPushes)
	require.Zero(t, f.Lost)
	tr.goesOn()
	tr.exact()
}

// brokenStorage is a storage that fails to write while it is told to.
type brokenStorage struct {
	checkpoint.Storage
	broken atomic.Bool
}

var errDiskFull = errors.New("no space left on device")

func (s *brokenStorage) Put(ctx context.Context, name string, size int64, write func(io.Writer) error) error {
	if s.broken.Load() {
		return errDiskFull
	}
	return s.Storage.Put(ctx, name, size, write)
}

// TestCheckpointFails: a storage that fails disturbs nothing, its error is told, and the
// next checkpoint is written.
func TestCheckpointFails(t *testing.T) {
	for _, mode := range []ps.Mode{ps.ASP, ps.BSP} {
		t.Run(mode.String(), func(t *testing.T) {
			storage := &brokenStorage{Storage: checkpoint.Folder(t.TempDir())}
			job := layersJob(1, 2, 100)
			job.Consistency.Mode = mode
			c := newCluster(t, job, saving(storage), oneNode)
			c.servers(2)
			c.placed()
			ctx, stop := context.WithCancel(c.ctx)
			ended := make(chan error, 1)
			w := c.worker("w")
			go func() { ended <- pushOnes(ctx, w, 2, 100) }()
			c.save(false)
			storage.broken.Store(true)
			r, err := c.admin.Checkpoint(c.ctx, false)
			require.NoError(t, err)
			require.ErrorContains(t, r.Err(), errDiskFull.Error())
			storage.broken.Store(false)
			c.requireCut(storage, c.save(false), 2, 100, mode, 1)
			stop()
			require.NoError(t, <-ended)
		})
	}
}

// TestCheckpointBeforeServers: a checkpoint of a job without servers waits for them, and says
// so when its time is over.
func TestCheckpointBeforeServers(t *testing.T) {
	settled(t)
	storage := checkpoint.Folder(t.TempDir())
	c := newCluster(t, layersJob(1, 2, 100), saving(storage))
	ctx, cancel := context.WithTimeout(c.ctx, 100*time.Millisecond)
	defer cancel()
	_, err := c.admin.Checkpoint(ctx, true)
	require.ErrorIs(t, err, ps.ErrNotPlaced)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	saved := make(chan ps.CheckpointReport, 1)
	go func() {
		r, _ := c.admin.Checkpoint(c.ctx, true)
		saved <- r
	}()
	c.servers(1)
	r := <-saved
	require.NoError(t, r.Err())
	_, err = checkpoint.Open(c.ctx, storage, r.Name)
	require.NoError(t, err)
}

// TestServerWithoutStorage: a server that no checkpoint can be written with is refused at its
// start, and one that another coordinator has checkpoints for says so.
func TestServerWithoutStorage(t *testing.T) {
	settled(t)
	folder := checkpoint.Folder(t.TempDir())
	c := newCluster(t, layersJob(1, 2, 100), saving(folder))
	n := c.node("s1")
	_, err := ps.StartServer(c.ctx, ps.ServerConfig{Node: n, ID: "s1", Coordinator: c.ref()})
	require.ErrorIs(t, err, ps.ErrConflict)
	require.EqualError(t, err, `ps: start server "s1": ps: conflict: the job has checkpoints, and ServerConfig.Checkpoints is nil`)
	require.Empty(t, c.status().Servers)

	require.NoError(t, c.coord.Close())
	c.cfg.Checkpoints = ps.CheckpointConfig{}
	c.startCoordinator()
	said := &countingLog{Handler: slog.DiscardHandler}
	s, err := ps.StartServer(c.ctx, ps.ServerConfig{Node: n, ID: "s1", Coordinator: c.ref(), Logger: slog.New(said)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	c.placed()
	require.Zero(t, said.errors.Load())
	require.NoError(t, c.coord.Close())
	c.cfg.Checkpoints.Storage = folder
	c.startCoordinator()
	eventually(t, "the server is back and says so", func() bool { return len(c.status().Servers) == 1 && said.errors.Load() == 1 })
}

// TestServerDiesDuringCheckpoint: what it owned is saved by the follower that takes over.
func TestServerDiesDuringCheckpoint(t *testing.T) {
	storage := &slowStorage{Storage: checkpoint.Folder(t.TempDir()), begun: make(chan string, 100), release: make(chan struct{})}
	c := newCluster(t, layersJob(1, 2, 100), saving(storage))
	servers := c.servers(3)
	c.placed()
	c.protected()
	tr := c.traffic("l0", 100, c.worker("w"))
	tr.goesOn()
	result := make(chan ps.CheckpointReport, 1)
	go func() {
		r, _ := c.admin.Checkpoint(c.ctx, false)
		result <- r
	}()
	file := <-storage.begun // a server writes
	for _, s := range servers {
		if strings.Contains(file, string(s.ID())) {
			require.NoError(t, s.Close())
		}
	}
	close(storage.release)
	r := <-result
	require.NoError(t, r.Err())
	tr.goesOn()
	tr.exact()
	saved, err := checkpoint.Open(c.ctx, storage, r.Name)
	require.NoError(t, err)
	require.NoError(t, saved.Verify(c.ctx))
}

// slowStorage holds every write back until it is released.
type slowStorage struct {
	checkpoint.Storage
	begun   chan string
	release chan struct{}
}

func (s *slowStorage) Put(ctx context.Context, name string, size int64, write func(io.Writer) error) error {
	select {
	case s.begun <- name:
	default:
	}
	select {
	case <-s.release:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return s.Storage.Put(ctx, name, size, write)
}

// TestT20MemoryIsFlat saves and restores layers and a table a hundred times.
func TestT20MemoryIsFlat(t *testing.T) {
	cycles := 100
	if underRace || testing.Short() {
		cycles = 20
	}
	folder := checkpoint.Folder(t.TempDir())
	job := layersJob(ps.NoReplicas, 4, 64<<10)
	job.Model.Layers = append(job.Model.Layers, zeroTable("rows", 10_000, 16))
	node, err := actor.Start(t.Context(), actor.Config{})
	require.NoError(t, err)
	defer node.Close()
	var early uint64
	for i := range cycles {
		cycle(t, node, job, folder, i)
		if i == cycles/4 {
			early = heapInUse()
		}
	}
	late := heapInUse()
	t.Logf("heap after a quarter of %d cycles %d KiB, at the end %d KiB", cycles, early>>10, late>>10)
	require.Less(t, late, early+early/4+2<<20)
}

// cycle restores a job, pushes once, and saves it.
func cycle(t *testing.T, node *actor.Node, job ps.Job, folder checkpoint.Folder, i int) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	coord, err := ps.StartCoordinator(ctx, ps.CoordinatorConfig{
		Node: node, Job: job, Checkpoints: ps.CheckpointConfig{Storage: folder, Restore: ps.RestoreLatest, FullEvery: 1, Keep: 1},
	})
	require.NoError(t, err)
	defer coord.Close()
	s, err := ps.StartServer(ctx, ps.ServerConfig{Node: node, ID: "s", Coordinator: coord.Ref(), Listen: ps.ListenNone, Checkpoints: folder})
	require.NoError(t, err)
	defer s.Close()
	w, err := ps.StartWorker(ctx, ps.ClientConfig{Node: node, Name: "w", Coordinator: coord.Ref()})
	require.NoError(t, err)
	defer w.Close()
	got := make([]float32, 64<<10)
	require.NoError(t, w.PushPull(ctx, "l0", vector(64<<10, -1), got))
	require.Equal(t, float32(i+1), got[0])
	ids, rows := make([]int64, 10_000), make([]float32, 160_000)
	for k := range ids {
		ids[k] = int64(k)
	}
	require.NoError(t, w.PushRows(ctx, "rows", ids, vector(len(rows), -1)))
	require.NoError(t, w.PullRows(ctx, "rows", ids, rows))
	require.Equal(t, wire.Bytes(vector(len(rows), float32(i+1))), wire.Bytes(rows))
	admin, err := ps.NewAdmin(node, coord.Ref())
	require.NoError(t, err)
	r, err := admin.Checkpoint(ctx, true)
	require.NoError(t, err)
	require.NoError(t, r.Err())
}
