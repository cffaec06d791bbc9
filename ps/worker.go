package ps

import (
	"context"
	"fmt"
)

// Worker is a client that is a member of the job: its clock counts for BSP and SSP.
// Its actor is watched by the coordinator, so that a worker that dies does not hold
// the others.
type Worker struct{ *Client }

// StartWorker joins a job and returns when the worker is a member. It starts at the
// clock that the others are working on.
func StartWorker(ctx context.Context, cfg ClientConfig) (*Worker, error) {
	c, err := dialJob(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	return &Worker{c}, nil
}

// Clock returns the clock that the worker is working on.
func (w *Worker) Clock() uint32 { return w.clock.Load() }

// Tick finishes the worker's clock and returns when it may begin the next one: at
// once under ASP, when the slowest member is near enough under SSP, when all have
// finished under BSP. All pushes must have returned; Tick and pushes of one worker
// must not overlap. Errors: ErrNotMember, or the context's with the last cause;
// then the clock has not advanced here and Tick may be called again.
func (w *Worker) Tick(ctx context.Context) error {
	if err := w.ctx.Err(); err != nil {
		return fmt.Errorf("%w: worker %q", ErrClosed, w.cfg.Name)
	}
	ctx, cancel := bounded(ctx, w.cfg.Timeout)
	defer cancel()
	clock := w.clock.Load()
	r, err := ask[tickReply](ctx, w.cfg.Node, w.coordinator, tickRequest{Incarnation: w.incarnation.Load(), Clock: clock})
	if err != nil {
		return fmt.Errorf("ps: worker %q at clock %d: %w", w.cfg.Name, clock, err)
	}
	w.clock.Store(r.Clock)
	return nil
}

// Leave ends the membership; the others go on without this worker at once.
func (w *Worker) Leave(ctx context.Context) error { return w.leave(ctx) }
