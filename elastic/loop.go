package elastic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
)

// Messages of the controller to itself; they never leave its node.
type (
	// tick asks for a sample.
	tick struct{}
	// observed is a sample. Operators that had ended when it was begun are
	// numbered up to ends.
	observed struct {
		snapshot Snapshot
		ends     uint64
		err      error
	}
	// ended is the outcome of an operator.
	ended struct {
		operator Operator
		err      error
	}
	// scaleRequest asks for a number of servers.
	scaleRequest struct {
		servers int
		givenUp <-chan struct{} // closed when the caller waits no longer
		done    chan error      // has room for one
	}
)

// job is an operator that the loop has started. One that has ended stays until a
// sample was begun after its end: an older sample does not show its effect.
type job struct {
	operator Operator
	end      uint64 // its place in the order of ends, 0 while it runs
}

// loop is the controller's actor. Everything but config, history and running belongs
// to the actor's goroutine.
type loop struct {
	config  Config
	log     *slog.Logger
	history *history
	running sync.WaitGroup // goroutines that observe and execute

	node      *actor.Node
	self      actor.Ref
	ctx       context.Context // ends with the actor
	cancel    context.CancelFunc
	stopTimer func() bool
	began     time.Time
	state     State
	jobs      []job
	numEnds   uint64
	observing bool
	again     bool // a sample is wanted as soon as the present one is there
	failing   bool // the last sample failed
	request   *scaleRequest
}

var (
	_ actor.Actor   = (*loop)(nil)
	_ actor.Starter = (*loop)(nil)
	_ actor.Stopper = (*loop)(nil)
)

// Started begins to sample.
func (l *loop) Started(c *actor.Context) error {
	l.node, l.self, l.began = c.Node(), c.Self(), time.Now()
	l.ctx, l.cancel = context.WithCancel(c.Context())
	l.sample()
	l.stopTimer = c.SendAfter(l.config.Interval, tick{})
	return nil
}

// Stopped cancels what runs.
func (l *loop) Stopped(_ *actor.Context, reason error) {
	l.cancel()
	l.stopTimer()
	if l.request != nil {
		l.request.done <- fmt.Errorf("elastic: controller stopped: %w", errors.Join(actor.ErrClosed, reason))
		l.request = nil
	}
}

// Receive handles one message.
func (l *loop) Receive(c *actor.Context, msg any) error {
	switch m := msg.(type) {
	case tick:
		l.sample()
		l.stopTimer = c.SendAfter(l.config.Interval, tick{})
	case observed:
		l.observed(m)
	case ended:
		l.ended(m)
	case *scaleRequest:
		if l.request != nil {
			l.request.done <- fmt.Errorf("%w: scale to %d servers", ErrSuperseded, l.request.servers)
		}
		l.request = m
		l.sample()
	}
	return nil
}

// sample begins to observe, or notes that it is wanted again.
func (l *loop) sample() {
	if l.observing {
		l.again = true
		return
	}
	l.observing, l.again = true, false
	ends := l.numEnds
	l.spawn(func() any {
		ctx, cancel := context.WithTimeout(l.ctx, l.config.ObserveTimeout)
		defer cancel()
		var s Snapshot
		err := guarded(func() (err error) { s, err = l.config.Cluster.Observe(ctx); return err })
		return observed{s, ends, err}
	})
}

// spawn runs f on a goroutine and sends its result to the loop.
func (l *loop) spawn(f func() any) {
	l.running.Add(1)
	go func() {
		defer l.running.Done()
		msg := f()
		// It fails when the actor has ended, which then needs no results.
		_ = l.node.Cast(l.ctx, l.self, msg)
	}()
}

// guarded turns a panic of f into an error: the operator fails, the controller goes on.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("elastic: panic: %v", p)
		}
	}()
	return f()
}

func (l *loop) observed(m observed) {
	l.observing = false
	if m.err != nil {
		l.unobserved(m.err)
	} else {
		l.failing = false
		l.plan(m.snapshot, m.ends)
	}
	if l.again {
		l.sample()
	}
}

// unobserved reports the first of a row of failures to sample.
func (l *loop) unobserved(err error) {
	l.history.failed("job cannot be observed: " + err.Error())
	if f := l.config.Observe.Failed; f != nil {
		f(err)
	}
	if !l.failing {
		l.log.Warn("elastic: job cannot be observed", "error", err.Error())
	}
	l.failing = true
}

// plan asks the policy what to do about a sample, and does it.
func (l *loop) plan(s Snapshot, ends uint64) {
	s.At = time.Since(l.began)
	l.jobs = slices.DeleteFunc(l.jobs, func(j job) bool {
		if j.end == 0 || j.end > ends {
			s.InFlight = append(s.InFlight, j.operator)
			return false
		}
		s.Finished = append(s.Finished, j.operator)
		return true
	})
	s.Target = l.target(s)
	plan, next := l.config.Policy.Plan(s, l.state)
	l.state = next
	l.decided(plan.Decision)
	for _, o := range plan.Operators {
		l.start(o)
	}
	l.fulfilled(s, plan)
}

// target is the number of servers that somebody waits for. A caller that has given
// up, or asks for more servers than there are shards, waits for nothing.
func (l *loop) target(s Snapshot) int {
	if l.request == nil {
		return 0
	}
	n := l.request.servers
	most := max(l.config.Policy.Min, len(s.Shards))
	select {
	case <-l.request.givenUp:
		l.request = nil
		return 0
	default:
	}
	if len(s.Shards) > 0 && n > most {
		l.request.done <- fmt.Errorf("%w: scale to %d: the job has %d shards", ErrBounds, n, len(s.Shards))
		l.request = nil
		return 0
	}
	return n
}

// fulfilled answers the caller who waits when there is nothing left to do.
func (l *loop) fulfilled(s Snapshot, plan Plan) {
	d := plan.Decision
	if l.request == nil || len(s.InFlight) > 0 || len(plan.Operators) > 0 || len(d.Rejected) > 0 {
		return
	}
	unplaced := slices.ContainsFunc(s.Map.Assignments, func(a shard.Assignment) bool { return a.Owner == "" })
	if d.Reason == Steady && d.From == l.request.servers && !unplaced {
		l.history.failed("")
		l.request.done <- nil
		l.request = nil
	}
}

// decided logs a decision.
func (l *loop) decided(d Decision) {
	news := l.history.add(d)
	if f := l.config.Observe.Decision; f != nil {
		f(d)
	}
	if !news {
		return
	}
	level := slog.LevelDebug
	if d.Scaled() {
		level = slog.LevelInfo
	}
	l.log.Log(l.ctx, level, d.String(), "reason", d.Reason.String())
}

// start begins to carry an operator out.
func (l *loop) start(o Operator) {
	o, err := o.Advance(Started)
	if err != nil {
		l.log.Error("elastic: operator not started", "error", err.Error())
		return
	}
	l.jobs = append(l.jobs, job{operator: o})
	l.report(o)
	l.spawn(func() any {
		ctx, cancel := context.WithTimeout(l.ctx, o.Timeout)
		defer cancel()
		err := guarded(func() error { return l.config.Cluster.Execute(ctx, o) })
		if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = errors.Join(err, ctx.Err())
		}
		return ended{o, err}
	})
}

// outcome is the status after an operator returned err.
func outcome(err error) Status {
	switch {
	case err == nil:
		return Succeeded
	case errors.Is(err, context.DeadlineExceeded):
		return TimedOut
	case errors.Is(err, context.Canceled):
		return Cancelled
	}
	return Failed
}

// ended notes the outcome and samples at once: what waits for it can go on.
func (l *loop) ended(m ended) {
	i := slices.IndexFunc(l.jobs, func(j job) bool { return j.operator.ID == m.operator.ID })
	if i < 0 {
		return
	}
	o, err := l.jobs[i].operator.Advance(outcome(m.err))
	if err != nil {
		l.log.Error("elastic: operator ended twice", "error", err.Error())
		return
	}
	if m.err != nil {
		o.Failure = m.err.Error()
		l.history.failed(o.String() + ": " + o.Failure)
	}
	l.numEnds++
	l.jobs[i] = job{operator: o, end: l.numEnds}
	l.report(o)
	l.sample()
}

// report tells of an operator that started or ended.
func (l *loop) report(o Operator) {
	if f := l.config.Observe.Operator; f != nil {
		f(o)
	}
	level := slog.LevelDebug
	switch {
	case o.Status == Failed || o.Status == TimedOut:
		level = slog.LevelWarn
	case o.Kind != MoveShard:
		level = slog.LevelInfo
	}
	args := []any{"operator", o.String(), "status", o.Status.String(), "reason", o.Reason}
	if o.Failure != "" {
		args = append(args, "error", o.Failure)
	}
	l.log.Log(l.ctx, level, "elastic: operator", args...)
}
