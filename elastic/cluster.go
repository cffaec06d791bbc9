package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// Cluster is the job that a Controller scales. Both methods may be called from any
// goroutine and return by the end of ctx.
type Cluster interface {
	// Observe returns Servers, Shards and Map; the controller fills in the rest.
	Observe(ctx context.Context) (Snapshot, error)
	// Execute carries an operator out. When it fails the job serves as before,
	// and the error says at which step it failed.
	Execute(ctx context.Context, o Operator) error
}

// StepError says at which step an operator failed. Unwrap gives the cause.
type StepError struct {
	Kind Kind
	Step string // one of Kind.Steps
	Err  error
}

// Error names the operator's kind, the step and the cause.
func (e *StepError) Error() string {
	return fmt.Sprintf("elastic: %v: step %s: %v", e.Kind, e.Step, e.Err)
}

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }

const (
	// registerPoll is how often a new server is looked for.
	registerPoll = 20 * time.Millisecond
	// undoTimeout bounds the stop of a server that started and did not register.
	undoTimeout = 15 * time.Second
	// removeTimeout bounds how long a coordinator is looked for that may be gone.
	removeTimeout = 2 * time.Second
)

// jobCluster is a job of package ps on servers of a provider.
type jobCluster struct {
	admin    *ps.Admin
	provider Provider
	shards   atomic.Pointer[[]shard.Shard] // as asked for once: they do not change during a job
}

// NewCluster returns the job that admin speaks for, with servers that provider
// starts and stops. Servers that somebody else started are drained and removed like
// others, but not stopped. Start refuses one without admin or provider.
func NewCluster(admin *ps.Admin, provider Provider) Cluster {
	return &jobCluster{admin: admin, provider: provider}
}

// Observe asks the coordinator.
func (c *jobCluster) Observe(ctx context.Context) (Snapshot, error) {
	shards, err := c.jobShards(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	status, err := c.admin.Status(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	if status.Returning > 0 { // whoever planned now would replace them
		return Snapshot{}, fmt.Errorf("elastic: the coordinator has just taken over, and %d servers have not come back to it yet", status.Returning)
	}
	s := Snapshot{Shards: shards, Map: status.Map, Servers: make([]ServerSample, len(status.Servers))}
	for i, server := range status.Servers {
		s.Servers[i] = sampleOf(server)
	}
	return s, nil
}

func (c *jobCluster) jobShards(ctx context.Context) ([]shard.Shard, error) {
	if known := c.shards.Load(); known != nil {
		return *known, nil
	}
	shards, err := c.admin.Shards(ctx)
	if err == nil && len(shards) > 0 {
		c.shards.Store(&shards)
	}
	return shards, err
}

func sampleOf(s ps.ServerStatus) ServerSample {
	sample := ServerSample{
		ID: s.ID, Up: s.Up, Draining: s.Draining, RTT: s.RTT, Utilization: s.Load.Utilization,
		BytesPerSecond: s.Load.PushBytesPerSecond + s.Load.PullBytesPerSecond,
	}
	if s.Latency.Count > 0 {
		sample.GradientLatency = s.Latency.P99
	}
	return sample
}

// Execute carries an operator out, step by step.
func (c *jobCluster) Execute(ctx context.Context, o Operator) error {
	fail := func(step int, err error) error {
		if err == nil {
			return nil
		}
		return &StepError{Kind: o.Kind, Step: o.Kind.Steps()[step], Err: err}
	}
	switch o.Kind {
	case AddServer:
		if err := c.provider.Start(ctx, o.Server); err != nil {
			return fail(0, err)
		}
		err := c.awaitServer(ctx, o.Server)
		if err != nil {
			err = errors.Join(err, c.undoStart(ctx, o.Server))
		}
		return fail(1, err)
	case DrainServer, KeepServer:
		return fail(0, c.admin.Drain(ctx, o.Server, o.Kind == DrainServer))
	case MoveShard:
		report, err := c.admin.Move(ctx, o.Move.Shard, o.Move.To)
		if err == nil {
			err = report.Err()
		}
		return fail(0, err)
	case RemoveServer:
		if err := c.admin.Remove(ctx, o.Server); err != nil {
			return fail(0, err)
		}
		err := c.provider.Stop(ctx, o.Server)
		if errors.Is(err, ErrUnknownServer) {
			return nil // somebody else started it, and may stop it now
		}
		return fail(1, err)
	}
	return fmt.Errorf("elastic: cannot execute %v", o)
}

// awaitServer returns when the server is registered and up.
func (c *jobCluster) awaitServer(ctx context.Context, id shard.ServerID) error {
	poll := time.NewTicker(registerPoll)
	defer poll.Stop()
	for {
		status, err := c.admin.Status(ctx)
		if err != nil {
			return fmt.Errorf("elastic: server %q started and was not seen to register: %w", id, err)
		}
		for _, s := range status.Servers {
			if s.ID == id && s.Up {
				return nil
			}
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("elastic: server %q started and was not seen to register: %w", id, ctx.Err())
		}
	}
}

// undoStart makes the coordinator forget a server whose start is not going to succeed,
// if it registered after all, and stops it. A coordinator that is gone cannot say
// whether the server has shards by now, from another one: then it is left to whoever
// leads. ctx may have ended already.
func (c *jobCluster) undoStart(ctx context.Context, id shard.ServerID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	remove, end := context.WithTimeout(ctx, removeTimeout)
	_ = c.admin.Drain(remove, id, true) // one that has not registered is unknown; Remove says what else there is
	err := c.admin.Remove(remove, id)
	end()
	if err != nil {
		return fmt.Errorf("elastic: server %q is not stopped: %w", id, err)
	}
	return c.provider.Stop(ctx, id)
}
