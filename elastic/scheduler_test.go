package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic/sched"
)

func startScheduler(t *testing.T, c SchedulerConfig) *Scheduler {
	t.Helper()
	node, err := actor.Start(deadline(t), actor.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	s, err := StartScheduler(deadline(t), node, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// hosts are nodes of eight devices.
func hosts(n int) []sched.Node {
	var nodes []sched.Node
	for i := range n {
		nodes = append(nodes, sched.Node{Name: fmt.Sprint("n", i), CPU: 96 * sched.Whole, MemoryBytes: 1 << 40, Devices: 8, Model: "G"})
	}
	return nodes
}

func half(id string) sched.Task {
	return sched.Task{ID: id, Request: sched.Request{Devices: 1, Share: 500}}
}

// TestCase19ConcurrentRequests: each request sees what the others have reserved.
func TestCase19ConcurrentRequests(t *testing.T) {
	s := startScheduler(t, SchedulerConfig{Cluster: sched.Config{Nodes: hosts(20)}})
	ctx := deadline(t)
	var (
		placed, refused atomic.Int64
		uses            sync.Map // device → how often
		wg              sync.WaitGroup
	)
	for i := range 1000 {
		wg.Go(func() {
			p, err := s.Place(ctx, half(fmt.Sprint(i)))
			if err != nil {
				refused.Add(1)
				if !errors.Is(err, sched.ErrNoRoom) {
					t.Error(err)
				}
				return
			}
			placed.Add(1)
			n, _ := uses.LoadOrStore(fmt.Sprint(p.Node, p.Devices.List()), new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
			if left, err := s.AvailableResources(ctx); err != nil || left.Accelerator() < 0 {
				t.Error(left, err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 320, placed.Load())
	require.EqualValues(t, 680, refused.Load())
	uses.Range(func(device, n any) bool {
		require.EqualValues(t, 2, n.(*atomic.Int64).Load(), "%v", device)
		return true
	})
	for i := range 1000 {
		wg.Go(func() { _ = s.Release(ctx, fmt.Sprint(i)) })
	}
	wg.Wait()
	all, err := s.ClusterResources(ctx)
	require.NoError(t, err)
	left, err := s.AvailableResources(ctx)
	require.NoError(t, err)
	require.Equal(t, all, left)
}

// TestSchedulerDrainsFirst: a parameter server is drained before it goes, others come
// and go meanwhile, and a drain that fails or takes too long changes nothing (I5).
func TestSchedulerDrainsFirst(t *testing.T) {
	stuck := errors.New("shard 7 has no place to go")
	var (
		s       *Scheduler
		during  func(context.Context) error
		evicted []string
	)
	s = startScheduler(t, SchedulerConfig{
		Cluster:      sched.Config{Nodes: hosts(1)},
		DrainTimeout: 200 * time.Millisecond,
		Drain:        func(ctx context.Context, _ sched.Victim) error { return during(ctx) },
		Evicted:      func(t sched.Task) { evicted = append(evicted, t.ID) },
	})
	ctx := deadline(t)
	server, err := sched.Like(sched.ParameterServer, "ps")
	require.NoError(t, err)
	_, err = s.Place(ctx, server)
	require.NoError(t, err)
	before, err := s.AvailableResources(ctx)
	require.NoError(t, err)
	large := sched.Task{ID: "large", Priority: 9, Request: sched.Request{CPU: 94 * sched.Whole}}
	unchanged := func(err, want error) {
		t.Helper()
		require.ErrorIs(t, err, want)
		now, err := s.AvailableResources(ctx)
		require.NoError(t, err)
		require.Equal(t, before, now)
		require.Empty(t, evicted)
	}
	during = func(context.Context) error { return stuck }
	_, err = s.Preempt(ctx, large)
	unchanged(err, stuck)
	during = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	_, err = s.Preempt(ctx, large)
	unchanged(err, context.DeadlineExceeded)
	short, cancel := context.WithCancel(ctx)
	during = func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() }
	_, err = s.Preempt(short, large)
	unchanged(err, context.Canceled)
	during = func(ctx context.Context) error {
		_, err := s.Preempt(ctx, large)
		if !errors.Is(err, sched.ErrExists) {
			return fmt.Errorf("a second one of the name: %w", err)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err = s.Preempt(ended, large) // which leaves the first alone
		if !errors.Is(err, context.Canceled) {
			return fmt.Errorf("one whose context has ended: %w", err)
		}
		_, err = s.Place(ctx, half("small")) // takes what is not kept
		return err
	}
	p, err := s.Preempt(ctx, large)
	require.NoError(t, err)
	require.Equal(t, "n0", p.Node)
	require.Equal(t, []string{"ps"}, evicted)
	_, err = s.Placement(ctx, "ps")
	require.ErrorIs(t, err, sched.ErrUnknown)
	members, err := s.PreemptGang(ctx, sched.Gang{ID: "gang", Tasks: []sched.Task{half("a"), half("b")}})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, []string{members[0].Task, members[1].Task})
	placed, err := s.PlaceGang(ctx, sched.Gang{ID: "other", Tasks: []sched.Task{half("c"), half("d")}})
	require.NoError(t, err)
	require.Len(t, placed, 2)
}

func TestSchedulerDefragments(t *testing.T) {
	var fail error
	moved := make(map[string]string)
	var s *Scheduler
	s = startScheduler(t, SchedulerConfig{
		Cluster: sched.Config{
			Nodes: hosts(4),
			Mix:   sched.Mix{{Request: sched.Request{Devices: 8}, Count: 1}, {Request: sched.Request{Devices: 1}, Count: 1}},
		},
		Migrate: func(ctx context.Context, m sched.Move) error {
			p, err := s.Placement(ctx, m.Task)
			if err == nil {
				require.Equal(t, m.From, p, "it is where it was until it has moved")
				moved[m.Task] = m.To.Node
			}
			return errors.Join(err, fail)
		},
	})
	ctx := deadline(t)
	for i := range 4 {
		_, err := s.Place(ctx, sched.Task{
			ID: fmt.Sprint(i), Request: sched.Request{Devices: 8, Share: 200}, Near: []string{fmt.Sprint("n", i)}, Movable: true,
		})
		require.NoError(t, err)
	}
	fail = errors.New("link is down")
	made, err := s.Defragment(ctx, sched.Budget{Moves: 10})
	require.ErrorIs(t, err, fail)
	require.Empty(t, made)
	p, err := s.Placement(ctx, "0")
	require.NoError(t, err)
	require.Equal(t, "n0", p.Node)
	fail = nil
	made, err = s.Defragment(ctx, sched.Budget{Moves: 10})
	require.NoError(t, err)
	require.Len(t, made, 3)
	for task, node := range moved {
		p, err := s.Placement(ctx, task)
		require.NoError(t, err)
		require.Equal(t, node, p.Node)
	}
	_, err = startScheduler(t, SchedulerConfig{}).Defragment(ctx, sched.Budget{Moves: 1})
	require.ErrorContains(t, err, "Migrate")
}

func TestSchedulerFaults(t *testing.T) {
	node, err := actor.Start(deadline(t), actor.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	_, err = StartScheduler(deadline(t), node, SchedulerConfig{
		DrainTimeout: -1, Cluster: sched.Config{Policy: 77, Levels: []string{""}},
	})
	for _, want := range []string{"DrainTimeout", "Policy 77", "Levels[0]"} {
		require.ErrorContains(t, err, want)
	}
	s, err := StartScheduler(deadline(t), node, SchedulerConfig{})
	require.NoError(t, err)
	ended, cancel := context.WithCancel(deadline(t))
	cancel()
	_, err = s.Place(ended, half("x"))
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "twice is fine")
	_, err = s.Place(deadline(t), half("x"))
	require.ErrorIs(t, err, actor.ErrNoProcess)
}
