package elastic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic/meter"
	"github.com/elasticps/elasticps/elastic/sched"
)

// SchedulerConfig is what a Scheduler needs. The zero value is an empty cluster with the
// default policy, in which nobody is asked before a task goes.
type SchedulerConfig struct {
	// Name is the name of the actor. Zero: "elastic.scheduler".
	Name string
	// Cluster is what there is at first, and the policy. Its Meter, if there is one, begins at 0 when
	// the scheduler starts, and is advanced before every change.
	Cluster sched.Config
	// Drain is called for a victim with Task.Drain before it goes: a parameter server hands
	// over its shards. Without it such a victim goes like any other.
	Drain func(context.Context, sched.Victim) error
	// Evicted is told of every task that had to go.
	Evicted func(sched.Task)
	// Migrate carries out a move: when it returns nil the task runs at its end. Without
	// it Defragment fails.
	Migrate func(context.Context, sched.Move) error
	// DrainTimeout bounds one call of Drain or Migrate. Zero: 60 s.
	DrainTimeout time.Duration
	// Logger gets a line for every preemption and move. Zero: nothing is logged.
	Logger *slog.Logger
}

func (c SchedulerConfig) withDefaults() SchedulerConfig {
	c.Name = cmp.Or(c.Name, "elastic.scheduler")
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 60*time.Second)
	if c.Drain == nil {
		c.Drain = func(context.Context, sched.Victim) error { return nil }
	}
	if c.Evicted == nil {
		c.Evicted = func(sched.Task) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Scheduler is the actor that owns a sched.Cluster. It holds no logic of its own: requests from
// any goroutine of its node, and from other nodes through a SchedulerClient, are answered one
// after the other, so each sees what those before it have reserved. What takes time, draining and
// migration, runs on the goroutine of the caller meanwhile.
type Scheduler struct {
	config SchedulerConfig
	node   *actor.Node
	ref    actor.Ref
	desk   *desk     // of its actor
	began  time.Time // the beginning of Config.Cluster.Meter

	ending context.Context // ends with Close
	end    context.CancelFunc
	beside sync.WaitGroup // preemptions that other nodes asked for
}

// StartScheduler starts a scheduler on a node and returns when its actor runs. The error
// names every fault of the configuration, or wraps the actor's.
func StartScheduler(ctx context.Context, node *actor.Node, c SchedulerConfig) (*Scheduler, error) {
	c = c.withDefaults()
	cluster, err := sched.New(c.Cluster)
	if c.DrainTimeout < time.Millisecond {
		err = errors.Join(err, fmt.Errorf("elastic: DrainTimeout %v: want at least 1ms", c.DrainTimeout))
	}
	if err != nil {
		return nil, err
	}
	if err := registerScheduler(node); err != nil {
		return nil, fmt.Errorf("elastic: start scheduler: %w", err)
	}
	s := &Scheduler{config: c, node: node, ref: actor.Ref{Node: node.Name(), Name: c.Name}, began: time.Now()}
	s.ending, s.end = context.WithCancel(context.Background())
	s.desk = &desk{s: s, cluster: cluster, errands: make(map[string]*errand)}
	_, err = node.Spawn(ctx, c.Name, actor.ActorFunc(func(c *actor.Context, msg any) error {
		s.advance()
		if f, ok := msg.(func(*sched.Cluster) any); ok {
			c.Reply(f(cluster))
			return nil
		}
		s.desk.answer(c, msg)
		return nil
	}), actor.Options{})
	if err != nil {
		s.end()
		return nil, fmt.Errorf("elastic: start scheduler: %w", err)
	}
	return s, nil
}

// Ref returns the address of the scheduler, for clients on other nodes.
func (s *Scheduler) Ref() actor.Ref { return s.ref }

// answer is what a request to the cluster gave.
type answer[T any] struct {
	value T
	err   error
}

// With calls f with the cluster, when it is its turn, on the actor's goroutine; f must not
// block nor keep the cluster. A request whose context has ended is not begun; of one whose
// context ends while it runs the outcome is not known, Placement tells.
func With[T any](ctx context.Context, s *Scheduler, f func(*sched.Cluster) (T, error)) (T, error) {
	a, err := actor.Call[answer[T]](ctx, s.node, s.ref, func(c *sched.Cluster) any {
		if err := ctx.Err(); err != nil {
			return answer[T]{err: err}
		}
		v, err := f(c)
		return answer[T]{v, err}
	})
	if err != nil {
		var zero T
		return zero, fmt.Errorf("elastic: scheduler: %w", err)
	}
	return a.value, a.err
}

// do is With for a request that gives nothing but an error.
func (s *Scheduler) do(ctx context.Context, f func(*sched.Cluster) error) error {
	_, err := With(ctx, s, func(c *sched.Cluster) (struct{}, error) { return struct{}{}, f(c) })
	return err
}

// Place puts a task where the policy wants it, or says why not: the error wraps
// sched.ErrNoRoom, sched.ErrInfeasible, sched.ErrExists, the context's or the actor's.
func (s *Scheduler) Place(ctx context.Context, t sched.Task) (sched.Placement, error) {
	return With(ctx, s, func(c *sched.Cluster) (sched.Placement, error) { return c.Place(t) })
}

// PlaceGang places a gang, or nothing; see sched.Cluster.
func (s *Scheduler) PlaceGang(ctx context.Context, g sched.Gang) ([]sched.Placement, error) {
	return With(ctx, s, func(c *sched.Cluster) ([]sched.Placement, error) { return c.PlaceGang(g) })
}

// Adopt notes tasks that run already: a scheduler that was started again knows of none until their
// owners tell it; see sched.Cluster. It may be asked twice.
func (s *Scheduler) Adopt(ctx context.Context, g sched.Gang, placements []sched.Placement) error {
	return s.do(ctx, func(c *sched.Cluster) error { return c.Adopt(g, placements) })
}

// Release ends a task; the error wraps sched.ErrUnknown.
func (s *Scheduler) Release(ctx context.Context, task string) error {
	return s.do(ctx, func(c *sched.Cluster) error { return c.Release(task) })
}

// Placement returns where a task is; the error wraps sched.ErrUnknown.
func (s *Scheduler) Placement(ctx context.Context, task string) (sched.Placement, error) {
	return With(ctx, s, func(c *sched.Cluster) (sched.Placement, error) { return c.Placement(task) })
}

// ClusterResources returns the resources of all nodes together.
func (s *Scheduler) ClusterResources(ctx context.Context) (sched.Resources, error) {
	return With(ctx, s, func(c *sched.Cluster) (sched.Resources, error) { return c.ClusterResources(), nil })
}

// AvailableResources returns those of ClusterResources that are not taken.
func (s *Scheduler) AvailableResources(ctx context.Context) (sched.Resources, error) {
	return With(ctx, s, func(c *sched.Cluster) (sched.Resources, error) { return c.AvailableResources(), nil })
}

// Preempt places a task, if need be in the place of others of lower priority: they are
// drained first, those that ask for it, then they go and are reported to Evicted. If one
// cannot be drained, or ctx ends first, nothing has changed and the error says why. Errors
// are those of Place.
func (s *Scheduler) Preempt(ctx context.Context, t sched.Task) (sched.Placement, error) {
	p, err := s.preempt(ctx, t.ID, func(c *sched.Cluster) (*sched.Preemption, error) { return c.Preempt(t) })
	return first(placeReply{p}, err)
}

// PreemptGang is Preempt for a gang. It returns where its tasks are, in the order of their ranks.
func (s *Scheduler) PreemptGang(ctx context.Context, g sched.Gang) ([]sched.Placement, error) {
	return s.preempt(ctx, g.ID, func(c *sched.Cluster) (*sched.Preemption, error) { return c.PreemptGang(g) })
}

// Bill ends the period of Config.Cluster.Meter and returns what each tenant had in it. It fails
// without a meter.
func (s *Scheduler) Bill(ctx context.Context) (meter.Statement, error) {
	if s.config.Cluster.Meter == nil {
		return meter.Statement{}, errors.New("elastic: SchedulerConfig.Cluster has no Meter")
	}
	return With(ctx, s, func(*sched.Cluster) (meter.Statement, error) { return s.config.Cluster.Meter.Close(), nil })
}

func (s *Scheduler) preempt(
	ctx context.Context, id string, plan func(*sched.Cluster) (*sched.Preemption, error),
) ([]sched.Placement, error) {
	begun := false // known to the actor alone
	p, err := With(ctx, s, func(c *sched.Cluster) (*sched.Preemption, error) {
		p, err := plan(c)
		if err == nil {
			err = c.Begin(p)
		}
		begun = err == nil
		return p, err
	})
	if err != nil {
		s.forget(ctx, func(c *sched.Cluster) error {
			if !begun {
				return nil // another one of that name may be under way
			}
			return c.Abandon(id)
		})
		return nil, err
	}
	for _, v := range p.Victims {
		if !v.Task.Drain {
			continue
		}
		if err := s.limited(ctx, func(ctx context.Context) error { return s.config.Drain(ctx, v) }); err != nil {
			err = fmt.Errorf("elastic: preemption for %q: drain %q: %w", id, v.Task.ID, err)
			return nil, errors.Join(err, s.settle(ctx, func(c *sched.Cluster) error { return c.Abandon(id) }))
		}
	}
	gone, err := With(context.WithoutCancel(ctx), s, func(c *sched.Cluster) ([]sched.Task, error) { return c.Complete(id) })
	if err != nil {
		return nil, err
	}
	s.config.Logger.Info("[Scheduler] Preempted", "for", id, "on", p.Placements[0].Node, "victims", len(gone))
	for _, task := range gone {
		s.config.Evicted(task)
	}
	return p.Placements, nil
}

// Defragment plans moves and carries them out one by one by Migrate, up to the first that
// fails; what was moved until then stays so. It returns the moves that were made.
func (s *Scheduler) Defragment(ctx context.Context, b sched.Budget) ([]sched.Move, error) {
	if s.config.Migrate == nil {
		return nil, errors.New("elastic: SchedulerConfig has no Migrate")
	}
	plan, err := With(ctx, s, func(c *sched.Cluster) ([]sched.Move, error) { return c.Defragment(b) })
	if err != nil {
		return nil, err
	}
	for i, m := range plan {
		if err := s.migrate(ctx, m); err != nil {
			return plan[:i], fmt.Errorf("elastic: move %d of %d: %w", i+1, len(plan), err)
		}
		s.config.Logger.Info("[Scheduler] Moved", "task", m.Task, "from", m.From.Node, "to", m.To.Node, "gain", m.Gain)
	}
	return plan, nil
}

// migrate carries out a move, with both places kept meanwhile.
func (s *Scheduler) migrate(ctx context.Context, m sched.Move) error {
	begun := false // known to the actor alone
	err := s.do(ctx, func(c *sched.Cluster) error {
		err := c.BeginMove(m)
		begun = err == nil
		return err
	})
	if err != nil {
		s.forget(ctx, func(c *sched.Cluster) error {
			if !begun {
				return nil
			}
			return c.AbandonMove(m.Task)
		})
		return err
	}
	if err := s.limited(ctx, func(ctx context.Context) error { return s.config.Migrate(ctx, m) }); err != nil {
		return errors.Join(err, s.settle(ctx, func(c *sched.Cluster) error { return c.AbandonMove(m.Task) }))
	}
	return s.settle(ctx, func(c *sched.Cluster) error { return c.FinishMove(m) })
}

// limited calls f with a context that ends in time.
func (s *Scheduler) limited(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.DrainTimeout)
	defer cancel()
	return f(ctx)
}

// settle ends what was begun, also when the caller's context has ended.
func (s *Scheduler) settle(ctx context.Context, f func(*sched.Cluster) error) error {
	return s.do(context.WithoutCancel(ctx), f)
}

// forget ends what may have been begun although its caller was not told, because ctx ended.
func (s *Scheduler) forget(ctx context.Context, f func(*sched.Cluster) error) {
	if ctx.Err() != nil {
		_ = s.settle(ctx, f) // mostly there is nothing to end
	}
}

// Close stops the scheduler and waits at most 10 s. Preemptions that other nodes asked for are
// abandoned, and waited for as long as Drain takes. Tasks go on where they are.
func (s *Scheduler) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s.end()
	// From the next message on no preemption begins.
	if err := s.settle(ctx, func(*sched.Cluster) error { return nil }); err == nil {
		s.beside.Wait()
	}
	err := s.node.Stop(ctx, s.ref)
	if err != nil && !errors.Is(err, actor.ErrNoProcess) && !errors.Is(err, actor.ErrClosed) {
		return fmt.Errorf("elastic: stop scheduler: %w", err)
	}
	return nil
}

// advance brings the meter up to date, on the actor's goroutine.
func (s *Scheduler) advance() {
	if m := s.config.Cluster.Meter; m != nil {
		m.Advance(time.Since(s.began))
	}
}
