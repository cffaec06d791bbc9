package elastic_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

const (
	numRows, rowElems = 16, 4096
	linkSpeed         = 20e6 // bytes per second
)

// realJob is a job of real servers, each behind a simulated device.
type realJob struct {
	node     *actor.Node
	ref      actor.Ref // of the coordinator
	admin    *ps.Admin
	provider *elastic.InProcess
}

// startJob starts a job with one server. open, if set, may return something else in
// the place of a server.
func startJob(ctx context.Context, t *testing.T, open func(realJob, shard.ServerID) io.Closer) realJob {
	t.Helper()
	node, err := actor.Start(ctx, actor.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	coordinator, err := ps.StartCoordinator(ctx, ps.CoordinatorConfig{Node: node, Job: ps.Job{
		Model:         shard.Model{Layers: []shard.Layer{{Name: "w", Shape: []int{numRows, rowElems}}}},
		Optimizer:     ps.SGD(1),
		MaxShardBytes: 4 * rowElems,
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, coordinator.Close()) })
	job := realJob{node: node, ref: coordinator.Ref()}
	job.provider = elastic.NewInProcess(func(ctx context.Context, id shard.ServerID) (io.Closer, error) {
		if open != nil {
			if c := open(job, id); c != nil {
				return c, nil
			}
		}
		return job.startServer(ctx, id)
	})
	t.Cleanup(func() { require.NoError(t, job.provider.Close()) })
	job.admin, err = ps.NewAdmin(node, coordinator.Ref())
	require.NoError(t, err)
	require.NoError(t, job.provider.Start(ctx, "ps-0"))
	return job
}

// startServer starts a server behind a device of its own.
func (j realJob) startServer(ctx context.Context, id shard.ServerID) (*ps.Server, error) {
	return j.startServerBehind(ctx, id, func() {})
}

// fuse is a device that calls burn at its first transfer.
type fuse struct {
	*device.SimLink
	once sync.Once
	burn func()
}

func (f *fuse) Use(ctx context.Context, bytes int64) error {
	f.once.Do(f.burn)
	return f.SimLink.Use(ctx, bytes)
}

func (j realJob) startServerBehind(ctx context.Context, id shard.ServerID, burn func()) (*ps.Server, error) {
	sim, err := device.NewSimLink(device.SimLinkConfig{Name: string(id), BytesPerSecond: linkSpeed, BurstBytes: linkSpeed / 1000})
	if err != nil {
		return nil, err
	}
	return ps.StartServer(ctx, ps.ServerConfig{
		Node: j.node, ID: id, Coordinator: j.ref, Listen: ps.ListenNone, Device: &fuse{SimLink: sim, burn: burn}, ReportInterval: 50 * time.Millisecond,
	})
}

// push lets a worker push ones until stop is closed, and returns how often it did.
func (j realJob) push(ctx context.Context, t *testing.T, stop <-chan struct{}) int {
	w, err := ps.StartWorker(ctx, ps.ClientConfig{Node: j.node, Coordinator: j.ref, Name: "worker"})
	if err != nil {
		t.Errorf("start worker: %v", err)
		return 0
	}
	defer w.Close()
	grad := make([]float32, numRows*rowElems)
	for i := range grad {
		grad[i] = 1
	}
	for n := 0; ; n++ {
		select {
		case <-stop:
			return n
		default:
		}
		if err := w.Push(ctx, "w", grad); err != nil {
			t.Errorf("push %d: %v", n, err)
			return n
		}
	}
}

// work lets n workers push until the function that it returns, or the end of the
// test, stops them; the function returns how often they pushed together.
func (j realJob) work(ctx context.Context, t *testing.T, n int) (stop func() int64) {
	done := make(chan struct{})
	var pushed atomic.Int64
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() { pushed.Add(int64(j.push(ctx, t, done))) })
	}
	var once sync.Once
	stop = func() int64 {
		once.Do(func() { close(done) })
		workers.Wait()
		return pushed.Load()
	}
	t.Cleanup(func() { stop() })
	return stop
}

func (j realJob) numServers(ctx context.Context, t *testing.T) int {
	status, err := j.admin.Status(ctx)
	require.NoError(t, err)
	return len(status.Servers)
}

// TestRealJobScalesWithItsLoad lets workers push more than one simulated link takes:
// servers come, shards move meanwhile; the workers stop, servers go; and every
// acknowledged push is in the parameters once.
func TestRealJobScalesWithItsLoad(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	job := startJob(ctx, t, nil)
	var log lockedLog
	var moved atomic.Int64
	controller, err := elastic.Start(ctx, job.node, elastic.Config{
		Cluster: elastic.NewCluster(job.admin, job.provider), Interval: 50 * time.Millisecond,
		Policy: elastic.Policy{
			Dwell: 200 * time.Millisecond, DwellDown: 500 * time.Millisecond, Cooldown: 300 * time.Millisecond, Max: 4,
			// On a busy machine the waiting time says more about the machine than
			// about the job: the devices decide here.
			Thresholds: elastic.Thresholds{LatencyUp: 10 * time.Second, LatencyDown: 9 * time.Second},
		},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Observe: elastic.Observer{Operator: func(o elastic.Operator) {
			if o.Kind == elastic.MoveShard && o.Status == elastic.Succeeded {
				moved.Add(1)
			}
		}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, controller.Close()) })

	stopWorkers := job.work(ctx, t, 4)
	require.Eventually(t, func() bool { return job.numServers(ctx, t) >= 2 && moved.Load() > 0 }, 20*time.Second, 20*time.Millisecond, "%v", &log)
	pushed := stopWorkers()
	require.Eventually(t, func() bool { return job.numServers(ctx, t) == 1 }, 30*time.Second, 20*time.Millisecond, "%v", &log)
	require.Contains(t, log.String(), "[ElasticController] Scaled PS: 1→2 Trigger: gpu_util=")
	requirePushesOnce(ctx, t, job, pushed)
}

func requirePushesOnce(ctx context.Context, t *testing.T, job realJob, pushed int64) {
	t.Helper()
	reader, err := ps.Dial(ctx, ps.ClientConfig{Node: job.node, Coordinator: job.ref, Name: "reader"})
	require.NoError(t, err)
	defer reader.Close()
	w := make([]float32, numRows*rowElems)
	require.NoError(t, reader.Pull(ctx, "w", w))
	require.Positive(t, pushed)
	for i, v := range w {
		require.Equal(t, float32(-pushed), v, "element %d", i)
	}
}

// TestRealJobScaledByHand goes up and down while workers push.
func TestRealJobScaledByHand(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	job := startJob(ctx, t, nil)
	controller, err := elastic.Start(ctx, job.node, elastic.Config{
		Cluster: elastic.NewCluster(job.admin, job.provider), Interval: 20 * time.Millisecond, Policy: elastic.Policy{Manual: true},
		Observe: elastic.Observer{Operator: func(o elastic.Operator) {
			if o.Failure != "" {
				t.Errorf("%v failed: %s", o, o.Failure)
			}
		}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, controller.Close()) })
	stopWorkers := job.work(ctx, t, 2)
	for _, n := range []int{3, 2, 4, 1} {
		require.NoError(t, controller.Scale(ctx, n))
		status, err := job.admin.Status(ctx)
		require.NoError(t, err)
		require.Len(t, status.Servers, n)
		for _, s := range status.Servers {
			require.InDelta(t, numRows/n, s.Owned, 1)
		}
	}
	requirePushesOnce(ctx, t, job, stopWorkers())
}

// TestRealJobOutlivesBadServers gets one server that never joins and one that dies as
// soon as it has its first shard to take; a third makes up for them.
func TestRealJobOutlivesBadServers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	ghost := new(closed)
	running, dead := make(chan *ps.Server, 1), make(chan struct{})
	job := startJob(ctx, t, func(j realJob, id shard.ServerID) io.Closer {
		switch id {
		case "ps-1":
			return ghost
		case "ps-2":
			s, err := j.startServerBehind(ctx, id, func() {
				go func() { (<-running).Close(); close(dead) }()
			})
			if err != nil {
				t.Errorf("start: %v", err)
			}
			running <- s
			return s
		}
		return nil
	})
	var failures lockedLog
	controller, err := elastic.Start(ctx, job.node, elastic.Config{
		Cluster: elastic.NewCluster(job.admin, job.provider), Interval: 20 * time.Millisecond,
		Policy: elastic.Policy{Manual: true, AddTimeout: 300 * time.Millisecond, MoveTimeout: 5 * time.Second, Backoff: 50 * time.Millisecond},
		Observe: elastic.Observer{Operator: func(o elastic.Operator) {
			if o.Failure != "" {
				_, _ = io.WriteString(&failures, o.Failure+"\n")
			}
		}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, controller.Close()) })
	stopWorkers := job.work(ctx, t, 1)
	require.NoError(t, controller.Scale(ctx, 2), "%v", &failures)
	<-dead
	require.True(t, ghost.Load(), "what started and did not join is stopped")
	require.Contains(t, failures.String(), `elastic: add_server: step register: elastic: server "ps-1" started and was not seen to register: `)
	require.Contains(t, failures.String(), "elastic: move_shard: step migrate:")
	pushed := stopWorkers()
	status, err := job.admin.Status(ctx)
	require.NoError(t, err)
	require.Len(t, status.Servers, 2, "%+v", status.Servers)
	require.Equal(t, shard.ServerID("ps-3"), status.Servers[1].ID)
	requirePushesOnce(ctx, t, job, pushed)
}

// closed is something to close that notes that it was.
type closed struct{ atomic.Bool }

func (c *closed) Close() error {
	c.Store(true)
	return nil
}

// lockedLog is a log that a test reads while others write.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
