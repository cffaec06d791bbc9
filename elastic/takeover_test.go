package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

// leader is what one of two hosts runs: a coordinator when it is elected, the
// controller beside it, and the servers that the controller starts, which go on when
// the two end.
type leader struct {
	t        *testing.T
	job      takenOver
	node     *actor.Node
	provider *elastic.InProcess
	started  atomic.Int64 // servers

	coordinator *ps.Coordinator
	controller  *elastic.Controller
	dying       sync.Once
	dead        chan struct{}
	// before is called with every operator that begins, starting and stopping before
	// the provider does something.
	before             func(elastic.Operator)
	starting, stopping func() error
}

// takenOver is a job whose coordinator may be on either of two nodes.
type takenOver struct {
	store  store.Store
	secret string
	peers  map[string]string
	refs   []actor.Ref
}

func (j takenOver) start(ctx context.Context, t *testing.T, name string) *actor.Node {
	t.Helper()
	n, err := actor.Start(ctx, actor.Config{Name: name, Secret: j.secret, Peers: j.peers})
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// newLeader returns a host that does not lead yet.
func (j *takenOver) newLeader(ctx context.Context, t *testing.T, name string) *leader {
	l := &leader{t: t, node: j.start(ctx, t, name), dead: make(chan struct{})}
	l.before = func(elastic.Operator) {}
	l.starting = func() error { return nil }
	l.stopping = func() error { return nil }
	j.peers[name] = l.node.Addr()
	j.refs = append(j.refs, l.node.Ref(ps.CoordinatorProcess))
	l.provider = elastic.NewInProcess(func(ctx context.Context, id shard.ServerID) (io.Closer, error) {
		l.started.Add(1)
		node, err := actor.Start(ctx, actor.Config{Name: string(id), Secret: l.job.secret, Peers: l.job.peers})
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = node.Close() })
		return ps.StartServer(ctx, ps.ServerConfig{
			Node: node, ID: id, Coordinator: l.job.refs[0], Standbys: l.job.refs[1:], ReportInterval: 50 * time.Millisecond,
		})
	})
	t.Cleanup(func() { require.NoError(t, l.provider.Close()) })
	return l
}

// Start and Stop make the leader its own provider.
func (l *leader) Start(ctx context.Context, id shard.ServerID) error {
	if err := l.starting(); err != nil {
		return err
	}
	return l.provider.Start(ctx, id)
}

func (l *leader) Stop(ctx context.Context, id shard.ServerID) error {
	if err := l.stopping(); err != nil {
		return err
	}
	return l.provider.Stop(ctx, id)
}

// lead waits until the host is elected and starts the controller. A controller asks the
// coordinator beside it and no other.
func (l *leader) lead(ctx context.Context) error {
	var err error
	l.coordinator, err = ps.StandBy(ctx, ps.CoordinatorConfig{Node: l.node, Store: l.job.store, Job: ps.Job{
		Model:         shard.Model{Layers: []shard.Layer{{Name: "w", Shape: []int{numRows, rowElems}}}},
		Optimizer:     ps.SGD(1),
		MaxShardBytes: 4 * rowElems,
	}})
	if err != nil {
		return err
	}
	admin, err := ps.NewAdmin(l.node, l.coordinator.Ref())
	if err != nil {
		return err
	}
	l.controller, err = elastic.Start(ctx, l.node, elastic.Config{
		Cluster: elastic.NewCluster(admin, l), Interval: 20 * time.Millisecond, Policy: elastic.Policy{Manual: true},
		Observe: elastic.Observer{Operator: func(o elastic.Operator) {
			if o.Status == elastic.Started {
				l.before(o)
			}
		}},
	})
	return err
}

// die ends coordinator and controller in the middle of what they do, and returns when
// the coordinator does nothing more.
func (l *leader) die() {
	l.dying.Do(func() {
		go func() {
			defer close(l.dead)
			if err := errors.Join(l.coordinator.Close(), l.controller.Close()); err != nil {
				l.t.Errorf("end: %v", err)
			}
		}()
	})
	<-l.coordinator.Done()
}

// TestControllerEndsAtEachStep ends the leading coordinator and its controller at every
// step of every operator: those of another host finish or undo what they have left,
// while workers push.
func TestControllerEndsAtEachStep(t *testing.T) {
	if testing.Short() {
		t.Skip("its bounds are too short for the race detector")
	}
	errEnded := errors.New("the controller has ended")
	at := func(kind elastic.Kind) func(l *leader) {
		return func(l *leader) {
			l.before = func(o elastic.Operator) {
				if o.Kind == kind {
					l.die()
				}
			}
		}
	}
	for _, c := range []struct {
		step     string
		from, to int // servers
		arm      func(*leader)
		started  int64 // by the next controller, at most
	}{
		{"add_server/before start", 1, 2, at(elastic.AddServer), 1},
		{"add_server/start", 1, 2, func(l *leader) { l.starting = func() error { l.die(); return errEnded } }, 1},
		{"add_server/register", 1, 2, func(l *leader) { l.starting = func() error { l.die(); return nil } }, 1}, // it joins later
		{"move_shard/migrate", 1, 2, at(elastic.MoveShard), 0},
		{"drain_server/drain", 3, 2, at(elastic.DrainServer), 0},
		{"remove_server/remove", 3, 2, at(elastic.RemoveServer), 0},
		{"remove_server/stop", 3, 2, func(l *leader) { l.stopping = func() error { l.die(); return errEnded } }, 0},
	} {
		t.Run(c.step, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			job := takenOver{secret: "secret of the test", peers: map[string]string{}}
			memory, err := store.NewMemory(store.Config{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, memory.Close()) })
			job.store = memory
			first, second := job.newLeader(ctx, t, "first"), job.newLeader(ctx, t, "second")
			first.job, second.job = job, job
			require.NoError(t, first.lead(ctx))
			elected := make(chan error, 1)
			go func() { elected <- second.lead(ctx) }()
			require.NoError(t, first.controller.Scale(ctx, c.from))
			w, err := ps.StartWorker(ctx, ps.ClientConfig{Node: job.start(ctx, t, "worker"), Name: "worker", Coordinator: job.refs[0], Standbys: job.refs[1:]})
			require.NoError(t, err)
			pushed, stop := keepPushing(ctx, t, w)

			c.arm(first)
			scale, giveUp := context.WithCancel(ctx)
			scaled := make(chan error, 1)
			go func() { scaled <- first.controller.Scale(scale, c.to) }()
			select {
			case <-first.coordinator.Done():
			case <-ctx.Done():
				require.FailNow(t, "the operator does not come to the step")
			}
			giveUp()
			require.Error(t, <-scaled)
			require.NoError(t, <-elected)
			before := pushed.Load()
			require.Eventually(t, func() bool { return pushed.Load() > before+2 }, 20*time.Second, time.Millisecond)
			require.NoError(t, second.controller.Scale(ctx, c.to))
			<-first.dead // it has undone what it could
			require.NoError(t, second.controller.Scale(ctx, c.to))
			require.LessOrEqual(t, second.started.Load(), c.started)
			second.requireSettled(ctx, c.to)
			stop()
			got := make([]float32, numRows*rowElems)
			require.NoError(t, w.Pull(ctx, "w", got))
			for i, v := range got {
				require.Equal(t, float32(-pushed.Load()), v, "element %d", i)
			}
			require.NoError(t, w.Close())
			require.NoError(t, errors.Join(second.controller.Close(), second.coordinator.Close()))
		})
	}
}

// requireSettled waits until so many servers have all shards, about as many each, and
// none is on its way out: one that was removed and not stopped comes back once more, and
// may do so after the controller has got to the number.
func (l *leader) requireSettled(ctx context.Context, servers int) {
	l.t.Helper()
	admin, err := ps.NewAdmin(l.node, l.coordinator.Ref())
	require.NoError(l.t, err)
	require.EventuallyWithT(l.t, func(t *assert.CollectT) {
		require.NoError(t, l.controller.Scale(ctx, servers))
		status, err := admin.Status(ctx)
		require.NoError(t, err)
		require.Len(t, status.Servers, servers)
		for _, s := range status.Servers {
			require.True(t, s.Up && !s.Draining)
			require.InDelta(t, numRows/servers, s.Owned, 1)
		}
	}, 20*time.Second, 20*time.Millisecond)
}

// keepPushing pushes ones until it is stopped. It counts what was acknowledged.
func keepPushing(ctx context.Context, t *testing.T, w *ps.Worker) (pushed *atomic.Int64, stop func()) {
	pushed = new(atomic.Int64)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		grad := make([]float32, numRows*rowElems)
		for i := range grad {
			grad[i] = 1
		}
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := w.Push(ctx, "w", grad); err != nil {
				t.Error(fmt.Errorf("push %d: %w", pushed.Load(), err))
				return
			}
			pushed.Add(1)
		}
	}()
	stop = sync.OnceFunc(func() { close(done); <-ended })
	t.Cleanup(stop)
	return pushed, stop
}
