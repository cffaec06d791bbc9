package elastic

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
)

// plant is a job in memory on which a controller acts. before, if set, runs ahead of
// every operator.
type plant struct {
	t      *testing.T
	mu     sync.Mutex
	world  *world
	before func(context.Context, Operator) error
	blind  error // what Observe fails with
	most   int   // greatest number of moves that ran at once
	moving int
}

func newPlant(t *testing.T, numShards, numServers int) *plant {
	return &plant{t: t, world: newWorld(t, Policy{}, numShards, numServers)}
}

func (p *plant) Observe(ctx context.Context) (Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.world
	return Snapshot{Servers: slices.Clone(w.servers), Shards: w.shards, Map: w.owners.Clone()}, p.blind
}

func (p *plant) Execute(ctx context.Context, o Operator) error {
	p.change(func(*world) {
		if o.Kind == MoveShard {
			p.moving++
			p.most = max(p.most, p.moving)
		}
	})
	defer p.change(func(*world) {
		if o.Kind == MoveShard {
			p.moving--
		}
	})
	if p.before != nil {
		if err := p.before(ctx, o); err != nil {
			return err
		}
	}
	p.change(func(w *world) { w.apply(p.t, o) })
	return nil
}

func (p *plant) change(f func(*world)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p.world)
}

func (p *plant) names() []shard.ServerID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []shard.ServerID
	for _, s := range p.world.servers {
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	return ids
}

func startController(t *testing.T, c Config) *Controller {
	t.Helper()
	node, err := actor.Start(deadline(t), actor.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	if c.Interval == 0 {
		c.Interval = 5 * time.Millisecond
	}
	controller, err := Start(deadline(t), node, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, controller.Close()) })
	return controller
}

func quick() Policy {
	return Policy{
		Dwell: 20 * ms, DwellDown: 40 * ms, Cooldown: 20 * ms, Backoff: 30 * ms, MaxMoves: 3,
		AddTimeout: 5 * time.Second, MoveTimeout: 5 * time.Second,
	}
}

func TestControllerConfig(t *testing.T) {
	_, err := Start(t.Context(), nil, Config{Interval: -1, ObserveTimeout: -1, MaxDecisions: -1, Policy: Policy{MaxMoves: -2}})
	for _, want := range []string{"no Cluster", "Interval -1ns", "ObserveTimeout -1ns", "MaxDecisions -1", "MaxMoves -2"} {
		require.ErrorContains(t, err, want)
	}
	_, err = Start(t.Context(), nil, Config{Cluster: NewCluster(nil, nil)})
	require.ErrorContains(t, err, "no Admin or no Provider")
}

func TestControllerFollowsTheLoadUpAndDown(t *testing.T) {
	p := newPlant(t, 24, 1)
	var out lockedBuffer
	var ended sync.Map
	c := startController(t, Config{
		Policy: quick(), Cluster: p, Logger: slog.New(slog.NewTextHandler(&out, nil)),
		Observe: Observer{
			Decision: func(d Decision) { p.change(func(w *world) { w.load(w.demand, time.Millisecond) }) },
			Operator: func(o Operator) {
				if o.Status.Final() {
					ended.Store(o.ID, o.Status)
				}
			},
		},
	})
	p.change(func(w *world) { w.demand = 1.9 })
	require.Eventually(t, func() bool { return len(p.names()) == 3 }, 10*time.Second, time.Millisecond)
	p.change(func(w *world) { w.demand = 0.1 })
	require.Eventually(t, func() bool { return len(p.names()) == 1 }, 10*time.Second, time.Millisecond)
	var counts []int
	for _, d := range c.Decisions() {
		if d.Scaled() {
			counts = append(counts, d.To)
		}
	}
	require.Equal(t, []int{2, 3, 2, 1}, counts)
	require.Contains(t, out.String(), "[ElasticController] Scaled PS: 1→2 Trigger: gpu_util=100% > threshold=85%")
	require.LessOrEqual(t, p.most, 3)
	ended.Range(func(id, status any) bool { require.Equal(t, Succeeded, status, "operator %v", id); return true })
}

func TestScale(t *testing.T) {
	p := newPlant(t, 24, 1)
	policy := quick()
	policy.Manual, policy.Max = true, 8
	c := startController(t, Config{Policy: policy, Cluster: p})
	ctx := deadline(t)
	require.NoError(t, c.Scale(ctx, 4))
	require.Len(t, p.names(), 4)
	for _, id := range p.names() {
		require.Len(t, p.world.owners.Of(id), 6, "balanced when Scale returns")
	}
	require.NoError(t, c.Scale(ctx, 2))
	require.Equal(t, []shard.ServerID{"ps-0", "ps-1"}, p.names())
	require.NoError(t, c.Scale(ctx, 2), "nothing to do")
	require.ErrorIs(t, c.Scale(ctx, 9), ErrBounds)
	require.ErrorIs(t, c.Scale(ctx, 0), ErrBounds)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Scale(ctx, 3), actor.ErrNoProcess)
}

func TestScaleToMoreServersThanShards(t *testing.T) {
	c := startController(t, Config{Policy: quick(), Cluster: newPlant(t, 3, 1)})
	err := c.Scale(deadline(t), 4)
	require.ErrorIs(t, err, ErrBounds)
	require.ErrorContains(t, err, "the job has 3 shards")
}

func TestLaterScaleTakesOver(t *testing.T) {
	p := newPlant(t, 24, 1)
	release, waiting := make(chan struct{}), make(chan struct{}, 8)
	p.before = func(ctx context.Context, o Operator) error {
		if o.Kind == AddServer {
			waiting <- struct{}{}
			select {
			case <-release:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	c := startController(t, Config{Policy: quick(), Cluster: p})
	first := make(chan error, 1)
	go func() { first <- c.Scale(deadline(t), 3) }()
	<-waiting
	second := make(chan error, 1)
	go func() { second <- c.Scale(deadline(t), 2) }()
	require.ErrorIs(t, <-first, ErrSuperseded)
	close(release)
	require.NoError(t, <-second)
	require.Len(t, p.names(), 2)
}

func TestScaleThatCannotBeDoneSaysWhy(t *testing.T) {
	p := newPlant(t, 24, 1)
	var quota atomic.Bool
	p.before = func(_ context.Context, o Operator) error {
		if o.Kind == AddServer && !quota.Load() {
			return errors.New("quota exceeded")
		}
		return nil
	}
	var out lockedBuffer
	c := startController(t, Config{Policy: quick(), Cluster: p, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
	defer cancel()
	err := c.Scale(ctx, 2)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "last decision")
	require.ErrorContains(t, err, "quota exceeded")
	require.Contains(t, out.String(), "quota exceeded")
	quota.Store(true)
	require.NoError(t, c.Scale(deadline(t), 2), "the next one is not blocked")
}

// TestEveryWayForAnOperatorToEndBadly lets each kind of operator fail, hang and panic
// once each, and checks that the job gets where it should nevertheless.
func TestEveryWayForAnOperatorToEndBadly(t *testing.T) {
	for _, kind := range []Kind{AddServer, DrainServer, MoveShard, RemoveServer} {
		for _, way := range []string{"fail", "hang", "panic"} {
			t.Run(kind.String()+"/"+way, func(t *testing.T) {
				p := newPlant(t, 12, 2)
				policy := quick()
				policy.Manual = true
				policy.AddTimeout, policy.DrainTimeout, policy.MoveTimeout, policy.RemoveTimeout = 20*ms, 20*ms, 20*ms, 20*ms
				var once sync.Once
				p.before = func(ctx context.Context, o Operator) (err error) {
					if o.Kind != kind {
						return nil
					}
					once.Do(func() {
						switch way {
						case "fail":
							err = errors.New("bad luck")
						case "hang":
							<-ctx.Done()
							err = ctx.Err()
						case "panic":
							panic("bug")
						}
					})
					return err
				}
				bad := make(chan Operator, 100)
				c := startController(t, Config{Policy: policy, Cluster: p, Observe: Observer{Operator: func(o Operator) {
					if o.Status.Final() && o.Status != Succeeded {
						bad <- o
					}
				}}})
				require.NoError(t, c.Scale(deadline(t), 3))
				require.NoError(t, c.Scale(deadline(t), 2))
				require.Eventually(t, func() bool { return len(p.names()) == 2 }, 10*time.Second, time.Millisecond)
				o := <-bad
				require.Equal(t, kind, o.Kind)
				require.Equal(t, map[string]Status{"fail": Failed, "hang": TimedOut, "panic": Failed}[way], o.Status)
				require.NotEmpty(t, o.Failure)
			})
		}
	}
}

func TestControllerOutlivesABlindSpell(t *testing.T) {
	p := newPlant(t, 12, 1)
	p.blind = errors.New("coordinator away")
	failed := make(chan error, 1000)
	var out bytes.Buffer
	c := startController(t, Config{
		Policy: quick(), Cluster: p, Logger: slog.New(slog.NewTextHandler(&out, nil)),
		Observe: Observer{Failed: func(err error) { failed <- err }},
	})
	for range 3 {
		require.ErrorContains(t, <-failed, "coordinator away")
	}
	p.change(func(*world) { p.blind = nil })
	require.NoError(t, c.Scale(deadline(t), 2))
	require.NoError(t, c.Close())
	require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("coordinator away")), "a row of failures is one line")
}

func TestCloseCancelsWhatRuns(t *testing.T) {
	p := newPlant(t, 12, 1)
	started, cancelled := make(chan struct{}), make(chan struct{})
	p.before = func(ctx context.Context, o Operator) error {
		close(started)
		<-ctx.Done()
		close(cancelled)
		return ctx.Err()
	}
	c := startController(t, Config{Policy: quick(), Cluster: p})
	result := make(chan error, 1)
	go func() { result <- c.Scale(deadline(t), 2) }()
	<-started
	require.NoError(t, c.Close())
	<-cancelled
	require.ErrorIs(t, <-result, actor.ErrClosed)
}

func TestNoGoroutineIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 3 {
		node, err := actor.Start(deadline(t), actor.Config{})
		require.NoError(t, err)
		c, err := Start(deadline(t), node, Config{Policy: quick(), Cluster: newPlant(t, 12, 1), Interval: ms})
		require.NoError(t, err)
		require.NoError(t, c.Scale(deadline(t), 3))
		require.NoError(t, c.Close())
		require.NoError(t, node.Close())
	}
	// The condition itself runs on a goroutine.
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 5*time.Second, 5*time.Millisecond)
}

func TestDecisionsAreBounded(t *testing.T) {
	h := history{limit: 3}
	for i := range 10 {
		require.True(t, h.add(Decision{From: i, To: i + 1}))
	}
	require.LessOrEqual(t, len(h.all()), 3)
	require.Equal(t, 10, h.last.To)
}
