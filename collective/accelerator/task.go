package accelerator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/internal/abi"
)

// grace is how long a caller whose time is over waits for the thread of the device to end
// what it has begun.
const grace = 50 * time.Millisecond

// task is something that a device does in the background. All of it but done belongs to
// the thread of the device.
type task struct {
	ctx      context.Context
	deadline time.Time // when ctx has none
	group    *Group    // nil for one without
	stream   *Stream   // nil for one that is not enqueued

	// begin enqueues it and reports whether the library is still busy with that.
	begin func() (busy bool, err error)
	// ready reports whether it has ended, for one without a stream.
	ready func() (bool, error)
	// settle makes the error of the caller of the cause, which may be nil.
	settle func(cause error) error

	event abi.Handle
	ended bool
	// dropped says that its stream was emptied.
	dropped bool
	err     error         // when done
	done    chan struct{} // closed at the end
}

// over is the error of a task whose time is over, else nil.
func (t *task) over(now time.Time) error {
	if t.ctx.Err() != nil {
		return fmt.Errorf("accelerator: rank gave up: %w", context.Cause(t.ctx))
	}
	if !t.deadline.IsZero() && now.After(t.deadline) {
		return fmt.Errorf("accelerator: no end in time: %w", context.DeadlineExceeded)
	}
	return nil
}

// end ends a task for its caller. What it has enqueued may go on.
func (t *task) end(cause error) {
	if t.ended {
		return
	}
	t.ended = true
	if t.err = cause; t.settle != nil {
		t.err = t.settle(cause)
	}
	close(t.done)
}

// Handle stands for something that is under way on a device.
type Handle struct {
	t *task
	d *Device
}

// Done returns a channel that is closed at the end.
func (h *Handle) Done() <-chan struct{} { return h.t.done }

// Wait waits for the end and returns the error. When ctx ends before it, it goes on: what
// bounds it is the context that it was started with.
func (h *Handle) Wait(ctx context.Context) error {
	select {
	case <-h.t.done:
		return h.t.err
	case <-h.d.gone:
		return h.left()
	case <-ctx.Done():
		return fmt.Errorf("accelerator: waiting for device %d: %w", h.d.index, context.Cause(ctx))
	}
}

// finish waits for the end of a task, and not much longer than its time.
func (h *Handle) finish() error {
	timer := time.NewTimer(time.Until(h.t.deadline))
	defer timer.Stop()
	over := timer.C
	if h.t.deadline.IsZero() {
		over = nil // ctx has the deadline, or nothing
	}
	select {
	case <-h.t.done:
		return h.t.err
	case <-h.d.gone:
		return h.left()
	case <-h.t.ctx.Done():
	case <-over:
	}
	timer.Reset(grace)
	select {
	case <-h.t.done:
		return h.t.err
	case <-timer.C:
		cause := context.Cause(h.t.ctx)
		if cause == nil {
			cause = context.DeadlineExceeded
		}
		return fmt.Errorf("%w: device %d: %w", ErrHung, h.d.index, cause)
	}
}

// left is the error of a task whose device has been closed.
func (h *Handle) left() error {
	select {
	case <-h.t.done:
		return h.t.err
	default:
		return errClosed("device")
	}
}

func errClosed(what string) error {
	return fmt.Errorf("accelerator: %s: %w", what, collective.ErrClosed)
}

// fatal reports whether an error of a call ends its group: all do but that of arguments,
// which the library has not begun to work on.
func fatal(err error) bool { return !errors.Is(err, collective.ErrArgument) }
