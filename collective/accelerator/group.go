package accelerator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/internal/abi"
)

// Exchange brings the id of a group from rank 0 to all ranks. id has the same length
// everywhere; its value counts on rank 0. It returns the value of rank 0.
type Exchange func(ctx context.Context, id []byte) ([]byte, error)

// Through returns an Exchange over a group of package collective that has the same ranks.
func Through(g *collective.Group) Exchange {
	return func(ctx context.Context, id []byte) ([]byte, error) {
		b := collective.Of(id)
		return id, g.Broadcast(ctx, b, b, 0)
	}
}

// GroupConfig describes a rank's end of a group.
type GroupConfig struct {
	Rank, Size int
	// Exchange is needed on all ranks.
	Exchange Exchange
	// Stream is where calls are enqueued, behind what is there. Nil: one of the group's own.
	Stream *Stream
	// Elastic keeps the communicator when the group fails, so that Shrink can make the next
	// one of it where the library can (Capabilities.Shrink). A call that is stuck then stays
	// on the device until Shrink, Abort or Close; it returns to its caller in time anyway.
	Elastic bool
	// Timeout bounds calls whose context has no deadline. Zero: 30 seconds.
	Timeout time.Duration
}

func (c *GroupConfig) validate(d *Device) error {
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	switch {
	case c.Size < 1:
		return argument("group of %d ranks, must be at least 1", c.Size)
	case c.Rank < 0 || c.Rank >= c.Size:
		return argument("rank %d, must be 0 to %d", c.Rank, c.Size-1)
	case c.Exchange == nil:
		return argument("no exchange for the id of the group")
	case c.Stream != nil && c.Stream.d != d:
		return argument("stream on device %d, must be on %d", c.Stream.d.index, d.index)
	case c.Timeout < 0:
		return argument("timeout of %v, must not be negative", c.Timeout)
	}
	return nil
}

// Group is one rank's end of a communicator of the vendor's library. All methods are safe
// from any goroutine; calls are carried out in the order in which they were made, and those
// of different groups of a device are begun in the order in which they were made: make them
// in the same order on all ranks.
type Group struct {
	d    *Device
	cfg  GroupConfig
	own  bool // the stream
	left bool // the communicator is gone
	comm abi.Handle

	mu  sync.Mutex
	err error
	seq uint64

	closing sync.Once
	closed  error
	tick    *Memory        // one element, for Barrier
	scaled  map[Type]int   // operations that average
	mine    map[*task]bool // calls under way; of the thread
}

// Join makes a group of ranks, each on a device of its own. All ranks call it with the same
// size. It blocks until all have come, or ctx ends, or Timeout has passed; then nothing is
// left of the group here. A new attempt makes a new id.
func (d *Device) Join(ctx context.Context, c GroupConfig) (*Group, error) {
	if err := c.validate(d); err != nil {
		return nil, err
	}
	ctx, cancel := bound(ctx, c.Timeout)
	defer cancel()
	g := &Group{d: d, cfg: c, scaled: map[Type]int{}, mine: map[*task]bool{}}
	if err := g.join(ctx); err != nil {
		_ = g.Abort() // why it failed is the news
		return nil, fmt.Errorf("accelerator: rank %d of %d on device %d cannot join: %w", c.Rank, c.Size, d.index, err)
	}
	return g, nil
}

// bound gives a context a deadline that has none.
func bound(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}

func (g *Group) join(ctx context.Context) error {
	if err := g.equip(ctx); err != nil {
		return err
	}
	id, err := g.id(ctx)
	if err != nil {
		return err
	}
	if g.d.lib.vendor == Ascend {
		return g.initBlocking(ctx, id)
	}
	err = g.d.do(ctx, func() error {
		comm, code := g.d.lib.abi.Init(id, g.cfg.Size, g.cfg.Rank, g.d.lib.version)
		if g.d.lib.failed(code) {
			return g.d.lib.callError("init", code, 0)
		}
		g.comm = comm
		return nil
	})
	if err != nil {
		return err
	}
	return g.await(ctx, g.initialized)
}

// equip makes what a group has of its own.
func (g *Group) equip(ctx context.Context) error {
	var err error
	if g.cfg.Stream == nil {
		if g.cfg.Stream, err = g.d.NewStream(ctx); err != nil {
			return err
		}
		g.own = true
	}
	if g.tick, err = g.d.Alloc(ctx, 4); err != nil {
		return err
	}
	return g.d.do(ctx, func() error {
		g.d.groups[g] = true
		return nil
	})
}

// id returns the id of the group. Where rank 0 cannot make one, it sends zeros, so that
// nobody waits for it.
func (g *Group) id(ctx context.Context) ([]byte, error) {
	id := make([]byte, abi.Vendor(g.d.lib.vendor).IDBytes())
	var failed error
	if g.cfg.Rank == 0 {
		failed = g.d.do(ctx, func() error {
			if code := g.d.lib.abi.UniqueID(id); code != success {
				clear(id)
				return g.d.lib.callError("unique id", code, 0)
			}
			return nil
		})
	}
	all, err := g.cfg.Exchange(ctx, id)
	switch {
	case failed != nil:
		return nil, failed
	case err != nil:
		return nil, fmt.Errorf("exchange of the id: %w", err)
	case len(all) != len(id):
		return nil, argument("exchange has returned an id of %d bytes, must be %d", len(all), len(id))
	}
	for _, b := range all {
		if b != 0 {
			return all, nil
		}
	}
	return nil, fmt.Errorf("%w: rank 0 has no id for the group", collective.ErrMissing)
}

// await waits until something is ready that the library does in the background.
func (g *Group) await(ctx context.Context, ready func() (bool, error)) error {
	h, err := g.d.submit(&task{ctx: ctx, group: g, ready: ready})
	if err != nil {
		return err
	}
	return h.finish()
}

// initialized reports whether all ranks have come.
func (g *Group) initialized() (bool, error) {
	if err := g.failure(); err != nil {
		return false, err
	}
	state, err := g.state()
	switch {
	case err != nil:
		return false, err
	case g.d.lib.failed(state):
		return false, g.d.lib.callError("init", state, g.comm)
	}
	return !g.d.lib.busy(state), nil
}

// state asks the library for the state of the communicator; of the thread.
func (g *Group) state() (int, error) {
	state, code := g.d.lib.abi.AsyncError(g.comm)
	if g.d.lib.failed(code) {
		return state, g.d.lib.callError("asynchronous error", code, g.comm)
	}
	return state, nil
}

// working reports whether calls are under way; of the thread.
func (g *Group) working() bool {
	return g.comm != 0 && !g.left && len(g.mine) > 0 && g.failure() == nil
}

func (g *Group) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// fail ends the group on this rank: what is under way returns the cause, and all calls to
// come; of the thread.
func (g *Group) fail(cause error) {
	g.mu.Lock()
	first := g.err == nil
	if first {
		g.err = cause
	}
	g.mu.Unlock()
	if !first {
		return
	}
	g.d.lib.log.Warn("accelerator group failed", "rank", g.cfg.Rank, "device", g.d.index, "cause", cause)
	switch {
	case !g.shrinkable():
		g.discard()
	case g.comm != 0 && g.d.lib.abi.Has()&abi.Revoke != 0:
		_ = g.d.lib.abi.Revoke(g.comm) // where it does not help, Shrink ends what is under way
	}
	for t := range g.mine {
		t.end(cause)
	}
	clear(g.mine)
}

// shrinkable reports whether the library can make the next group of this one.
func (g *Group) shrinkable() bool { return g.cfg.Elastic && g.d.lib.capabilities.Shrink }

// discard ends what the communicator does, and the communicator; of the thread. Of Ascend a
// communicator that works cannot be ended unless its stream can be emptied: then it stays.
func (g *Group) discard() {
	if g.left {
		return
	}
	lib := g.d.lib.abi
	if g.d.lib.vendor == Ascend && g.enqueued() {
		if lib.Has()&abi.StreamAbort == 0 {
			return
		}
		_ = lib.StreamAbort(g.cfg.Stream.handle) // the group has failed already
		for _, t := range g.d.running {
			t.dropped = t.dropped || t.stream == g.cfg.Stream
		}
	}
	g.left = true
	delete(g.d.groups, g)
	switch {
	case g.comm == 0:
	case g.d.lib.vendor == Ascend:
		_ = lib.Destroy(g.comm)
	default:
		_ = lib.Abort(g.comm)
	}
}

// enqueued reports whether calls of the group are on the device; of the thread.
func (g *Group) enqueued() bool {
	return slices.ContainsFunc(g.d.running, func(t *task) bool { return t.group == g && !t.dropped })
}

// Rank returns the place of this rank in the group, 0 to Size-1.
func (g *Group) Rank() int { return g.cfg.Rank }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.cfg.Size }

// Device returns the device that has the group's buffers.
func (g *Group) Device() *Device { return g.d }

// Err returns the reason why the group cannot be used any more, nil while it can.
func (g *Group) Err() error { return g.failure() }

// Abort ends the group on this rank at once. Calls under way return an error that wraps
// collective.ErrAborted; other ranks get an error from the library, or none: they have to
// abort as well. Calling it again, or after Close, does nothing.
func (g *Group) Abort() error {
	return g.leave(fmt.Errorf("accelerator: %w", collective.ErrAborted), false)
}

// Close ends the group on this rank, in order where nothing is under way: then it waits
// some seconds for the other ranks to do the same, and aborts. Calls under way return an
// error that wraps collective.ErrClosed. Calling it again, or after Abort, does nothing.
func (g *Group) Close() error { return g.leave(errClosed("group"), true) }

func (g *Group) leave(cause error, orderly bool) error {
	g.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if orderly && g.d.lib.vendor != Ascend {
			orderly = g.finalize(ctx)
		}
		g.closed = g.d.do(ctx, func() error { return g.end(cause, orderly) })
		select {
		case <-g.d.quit: // it does all of that
			g.closed = nil
		default:
		}
	})
	return g.closed
}

// finalize waits until all ranks are done, and reports whether that has worked out.
func (g *Group) finalize(ctx context.Context) bool {
	lib := g.d.lib
	begun := false
	err := g.d.do(ctx, func() error {
		if g.comm == 0 || g.left || len(g.mine) > 0 || g.failure() != nil || lib.abi.Has()&abi.Finalize == 0 {
			return nil
		}
		for _, op := range g.scaled {
			_ = lib.abi.OpDestroy(g.comm, op) // goes with the communicator at the latest
		}
		clear(g.scaled)
		code := lib.abi.Finalize(g.comm)
		begun = !lib.failed(code)
		return nil
	})
	if err != nil || !begun {
		return err == nil
	}
	return g.await(ctx, g.initialized) == nil
}

// end is of the thread.
func (g *Group) end(cause error, orderly bool) error {
	g.d.idle = append(g.d.idle, g.disband)
	if !orderly || g.comm == 0 || g.left || len(g.mine) > 0 || g.failure() != nil {
		g.fail(cause)
		if g.discard(); !g.left {
			return fmt.Errorf("%w: communicator cannot be ended while it works", ErrHung)
		}
		return nil
	}
	g.mu.Lock()
	g.err = cause
	g.mu.Unlock()
	g.left = true
	delete(g.d.groups, g)
	if code := g.d.lib.abi.Destroy(g.comm); g.d.lib.failed(code) {
		return g.d.lib.callError("destroy", code, 0)
	}
	return nil
}

// disband gives back what the group had of its own; of the thread, when nothing is under
// way.
func (g *Group) disband() {
	var errs []error
	if g.tick != nil {
		errs = append(errs, g.tick.free())
	}
	if g.own {
		errs = append(errs, g.cfg.Stream.destroy())
	}
	if err := errors.Join(errs...); err != nil {
		g.d.lib.log.Warn("accelerator group", "rank", g.cfg.Rank, "device", g.d.index, "cause", err)
	}
}
