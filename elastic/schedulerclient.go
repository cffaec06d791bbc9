package elastic

import (
	"context"
	"fmt"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic/sched"
)

// SchedulerClient asks a Scheduler on another node, or on this one. Its methods may be called
// from any goroutine, and end with their contexts, or after actor.DefaultCallTimeout without a
// deadline. What they ask is asked again over another connection when one is lost, and
// carried out once. Errors wrap those of package sched, or the actor's: after one that is
// actor.Retryable the same request may be made again.
type SchedulerClient struct {
	node *actor.Node
	ref  actor.Ref
}

// NewSchedulerClient returns a client of the scheduler at ref, as Scheduler.Ref tells it, on a node
// that is connected with the scheduler's. The error says what the node cannot register.
func NewSchedulerClient(node *actor.Node, ref actor.Ref) (*SchedulerClient, error) {
	if err := registerScheduler(node); err != nil {
		return nil, fmt.Errorf("elastic: client of a scheduler: %w", err)
	}
	return &SchedulerClient{node, ref}, nil
}

func callScheduler[R any](ctx context.Context, c *SchedulerClient, msg any) (R, error) {
	r, err := actor.Call[R](ctx, c.node, c.ref, msg, actor.WithRetry())
	if err != nil {
		return r, fmt.Errorf("elastic: scheduler: %w", err)
	}
	return r, nil
}

// Place is Scheduler.Place. A request of the same name as an earlier one is that request: it
// places nothing, and returns where the task is, or sched.ErrUnknown if it has gone since. The
// scheduler remembers the requests for the last 65,536 tasks.
func (c *SchedulerClient) Place(ctx context.Context, request string, t sched.Task) (sched.Placement, error) {
	return first(callScheduler[placeReply](ctx, c, placeRequest{Request: request, Gang: single(t), Single: true}))
}

// PlaceGang is Place for a gang, which with its tasks fits a message of 64 KiB, or the error
// wraps actor.ErrTooLarge.
func (c *SchedulerClient) PlaceGang(ctx context.Context, request string, g sched.Gang) ([]sched.Placement, error) {
	r, err := callScheduler[placeReply](ctx, c, placeRequest{Request: request, Gang: g})
	return r.Placements, err
}

// Preempt is Scheduler.Preempt, with requests as for Place. It may take as long as the victims take to
// drain; one that is still under way when it is asked for again is waited for.
func (c *SchedulerClient) Preempt(ctx context.Context, request string, t sched.Task) (sched.Placement, error) {
	return first(callScheduler[placeReply](ctx, c, placeRequest{Request: request, Gang: single(t), Single: true, Preempt: true}))
}

// PreemptGang is Preempt for a gang.
func (c *SchedulerClient) PreemptGang(ctx context.Context, request string, g sched.Gang) ([]sched.Placement, error) {
	r, err := callScheduler[placeReply](ctx, c, placeRequest{Request: request, Gang: g, Preempt: true})
	return r.Placements, err
}

// Adopt is Scheduler.Adopt. A scheduler that was started again has forgotten the requests, too: what
// was placed by one is adopted, not asked for again.
func (c *SchedulerClient) Adopt(ctx context.Context, g sched.Gang, placements []sched.Placement) error {
	_, err := callScheduler[any](ctx, c, adoptRequest{g, placements})
	return err
}

// Release ends a task. One that is not there is no error, for it may have been ended before.
func (c *SchedulerClient) Release(ctx context.Context, task string) error {
	_, err := callScheduler[any](ctx, c, releaseRequest{task})
	return err
}

// Placement returns where a task is; the error wraps sched.ErrUnknown.
func (c *SchedulerClient) Placement(ctx context.Context, task string) (sched.Placement, error) {
	return callScheduler[sched.Placement](ctx, c, placementRequest{task})
}

// Resources returns the resources of all nodes together, and those of them that are not taken.
func (c *SchedulerClient) Resources(ctx context.Context) (all, available sched.Resources, err error) {
	r, err := callScheduler[resourcesReply](ctx, c, resourcesRequest{})
	return r.All, r.Available, err
}

// single is a task as the only one of a gang.
func single(t sched.Task) sched.Gang { return sched.Gang{ID: t.ID, Tasks: []sched.Task{t}} }

func first(r placeReply, err error) (sched.Placement, error) {
	if err != nil || len(r.Placements) == 0 {
		return sched.Placement{}, err
	}
	return r.Placements[0], nil
}
