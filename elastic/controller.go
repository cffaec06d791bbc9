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
)

// Errors of the controller; test with errors.Is.
var (
	// ErrBounds means that a number of servers was asked for that the policy, or
	// the number of shards, does not allow.
	ErrBounds = errors.New("elastic: number of servers out of bounds")
	// ErrSuperseded means that a later call of Scale took the place of this one.
	ErrSuperseded = errors.New("elastic: superseded by a later request")
)

// Config is what a Controller needs. Cluster is required.
type Config struct {
	// Name is the name of the actor. Zero: "elastic.controller".
	Name string
	// Policy decides. The zero value has the default thresholds.
	Policy Policy
	// Cluster is the job that is scaled; see NewCluster.
	Cluster Cluster
	// Interval is the time between two samples. Zero: 1 s.
	Interval time.Duration
	// ObserveTimeout bounds one sample. Zero: 5 s.
	ObserveTimeout time.Duration
	// MaxDecisions bounds the history of Decisions. Zero: 1,024.
	MaxDecisions int
	// Logger gets the line of every decision that changes the number of servers, and
	// what became of every operator. Zero: nothing is logged.
	Logger *slog.Logger
	// Observe is told what happens.
	Observe Observer
}

// Observer is a set of optional functions that a Controller calls. They run on its
// own goroutine and must return quickly.
type Observer struct {
	// Decision is called with every decision, also those that change nothing.
	Decision func(Decision)
	// Operator is called with every operator that starts and ends.
	Operator func(Operator)
	// Failed is called when the job could not be observed.
	Failed func(error)
}

func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, "elastic.controller")
	c.Policy = c.Policy.withDefaults()
	c.Interval = cmp.Or(c.Interval, time.Second)
	c.ObserveTimeout = cmp.Or(c.ObserveTimeout, 5*time.Second)
	c.MaxDecisions = cmp.Or(c.MaxDecisions, 1024)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	errs := []error{c.Policy.Validate()}
	if c.Cluster == nil {
		errs = append(errs, errors.New("elastic: Config has no Cluster"))
	}
	if job, ok := c.Cluster.(*jobCluster); ok && (job.admin == nil || job.provider == nil) {
		errs = append(errs, errors.New("elastic: NewCluster was given no Admin or no Provider"))
	}
	if c.Interval < time.Millisecond {
		errs = append(errs, fmt.Errorf("elastic: Interval %v: want at least 1ms", c.Interval))
	}
	if c.ObserveTimeout < time.Millisecond {
		errs = append(errs, fmt.Errorf("elastic: ObserveTimeout %v: want at least 1ms", c.ObserveTimeout))
	}
	if c.MaxDecisions < 1 {
		errs = append(errs, fmt.Errorf("elastic: MaxDecisions %d: want >= 1", c.MaxDecisions))
	}
	return errors.Join(errs...)
}

// Controller is the actor that keeps the number of servers and the places of the
// shards as the policy wants them. It holds no logic of its own: it samples, plans,
// carries out, and plans again.
type Controller struct {
	node *actor.Node
	ref  actor.Ref
	loop *loop
}

// Start starts a controller on a node and returns when its actor runs. The error
// names every fault of the configuration, or wraps the actor's.
func Start(ctx context.Context, node *actor.Node, c Config) (*Controller, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	l := &loop{config: c, log: c.Logger, history: &history{limit: c.MaxDecisions}}
	ref, err := node.Spawn(ctx, c.Name, l, actor.Options{})
	if err != nil {
		return nil, fmt.Errorf("elastic: start controller: %w", err)
	}
	return &Controller{node: node, ref: ref, loop: l}, nil
}

// Scale asks for n servers and waits until n servers take shards, the shards are
// balanced over them, those that leave are gone and no operator runs. The load has no
// say meanwhile; after that it has, so keep the number with Policy.Min and Max, or set
// Policy.Manual. It fails with ErrBounds, with ErrSuperseded when another Scale comes,
// and with the context's error, the last decision and the last failure when ctx ends
// first; servers that are on their way then still come or go, but no more are started
// or drained.
func (c *Controller) Scale(ctx context.Context, n int) error {
	if least, most := c.loop.config.Policy.Min, c.loop.config.Policy.Max; n < least || n > most {
		return fmt.Errorf("%w: scale to %d: want %d to %d", ErrBounds, n, least, most)
	}
	request := &scaleRequest{servers: n, givenUp: ctx.Done(), done: make(chan error, 1)}
	if err := c.node.Cast(ctx, c.ref, request); err != nil {
		return fmt.Errorf("elastic: scale to %d servers: %w", n, err)
	}
	select {
	case err := <-request.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("elastic: scale to %d servers: %w; %s", n, ctx.Err(), c.loop.history.why())
	}
}

// Decisions returns the decisions that changed the number of servers, or the reason
// why it stays, the oldest first, the last MaxDecisions of them. The slice is the
// caller's. It does not block.
func (c *Controller) Decisions() []Decision { return c.loop.history.all() }

// Close stops the controller as Shutdown does and waits at most 10 s.
func (c *Controller) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c.Shutdown(ctx)
}

// Shutdown stops the controller, cancels the operators that run and waits for them
// until ctx ends. The servers go on. A second Shutdown does nothing.
func (c *Controller) Shutdown(ctx context.Context) error {
	err := c.node.Stop(ctx, c.ref)
	if err != nil && !errors.Is(err, actor.ErrNoProcess) && !errors.Is(err, actor.ErrClosed) {
		return fmt.Errorf("elastic: stop controller: %w", err)
	}
	done := make(chan struct{})
	go func() { c.loop.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("elastic: stop controller: operators still run: %w", ctx.Err())
	}
}

// history is the decisions that are kept, for readers on other goroutines.
type history struct {
	mu        sync.Mutex
	limit     int
	decisions []Decision
	last      Decision
	failure   string // of an operator or a sample, the last one since a call of Scale succeeded
}

// add keeps a decision if it scales or if its reason is news, and reports whether it did.
func (h *history) add(d Decision) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	news := d.Scaled() || d.Reason != h.last.Reason || d.From != h.last.To
	h.last = d
	if !news {
		return false
	}
	if len(h.decisions) >= h.limit {
		n := copy(h.decisions, h.decisions[1:])
		h.decisions = h.decisions[:n]
	}
	h.decisions = append(h.decisions, d)
	return true
}

func (h *history) all() []Decision {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Decision(nil), h.decisions...)
}

// why is the last decision and the last failure in words.
func (h *history) why() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := "last decision: " + h.last.String()
	if h.failure != "" {
		text += "; last failure: " + h.failure
	}
	return text
}

func (h *history) failed(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failure = what
}
