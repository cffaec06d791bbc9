package actor

import (
	"context"
	"fmt"
	"time"
)

// Actor is the code of one process. Receive gets one message at a time, always on
// the process's own goroutine, in the order in which each sender sent them. A
// non-nil error ends the actor with that error as its reason, ErrStop with none. A
// panic ends it with ErrPanic. c is valid during the call only; the Request of a
// call, and msg, may be kept.
//
// Besides what others send, an actor gets Down and Exit messages when it asked for them.
type Actor interface {
	Receive(c *Context, msg any) error
}

// ActorFunc makes a function an Actor.
type ActorFunc func(c *Context, msg any) error

// Receive calls f.
func (f ActorFunc) Receive(c *Context, msg any) error { return f(c, msg) }

// Starter is an Actor that wants to be called once before the first message. An
// error ends the actor; Spawn returns it.
type Starter interface {
	Started(c *Context) error
}

// Stopper is an Actor that wants to be called once after the last message. reason
// is nil after a normal end. The name is free and watchers are told only after it
// returns.
type Stopper interface {
	Stopped(c *Context, reason error)
}

// Options shape one actor. The zero value has the defaults.
type Options struct {
	// MailboxSize bounds the messages that wait. Zero: Config.MailboxSize.
	MailboxSize int
	// TrapExit turns the end of a linked process into an Exit message instead of
	// the end of this actor.
	TrapExit bool
}

func (o Options) validate() error {
	if o.MailboxSize < 0 || o.MailboxSize > maxMailboxSize {
		return fmt.Errorf("actor: MailboxSize is %d, want 0 to %d", o.MailboxSize, maxMailboxSize)
	}
	return nil
}

// Down is the message to an actor that monitors Ref: that process ended, or was not
// there. Err is nil after a normal end, wraps ErrNoProcess when there was none,
// ErrNodeDown when the connection to its node broke (the process may live on), and
// otherwise is the reason. A Down ends the monitor.
type Down struct {
	Ref Ref
	Err error
}

// Exit is the message to an actor with TrapExit that is linked to Ref, with Err as
// in Down.
type Exit struct {
	Ref Ref
	Err error
}

// Context is what an actor sees of the world while it handles a message. It belongs
// to the actor's goroutine.
type Context struct {
	p    *process
	from Ref
	req  *Request
}

// Node returns the node that the actor runs on. It may be kept.
func (c *Context) Node() *Node { return c.p.n }

// Self returns the actor's own address.
func (c *Context) Self() Ref { return c.p.ref }

// From returns the sender of the message: an actor, or the zero Ref when it was
// sent from outside an actor.
func (c *Context) From() Ref { return c.from }

// Request returns the call that is being handled, nil when the message is a cast.
// It may be kept and answered later from any goroutine. When the actor ends, its
// unanswered requests fail with ErrNoProcess.
func (c *Context) Request() *Request { return c.req }

// Reply answers the call that is being handled; it does nothing for a cast.
func (c *Context) Reply(v any) { c.req.Reply(v) }

// Fail answers the call that is being handled with an error; it does nothing for a cast.
func (c *Context) Fail(err error) { c.req.Fail(err) }

// Context returns a context that is cancelled when the actor ends or is killed.
func (c *Context) Context() context.Context { return c.p.ctx }

// Call is Node.Call with the actor as the sender. It blocks the actor; a call to
// itself fails at once.
func (c *Context) Call(ctx context.Context, to Ref, msg any, opts ...CallOption) (any, error) {
	if to == c.p.ref {
		return nil, opError("call", to, fmt.Errorf("an actor that calls itself would wait for itself"))
	}
	return c.p.n.call(ctx, c.p.ref, to, msg, opts)
}

// TryCast is Node.TryCast with the actor as the sender.
func (c *Context) TryCast(to Ref, msg any) error {
	return c.p.n.tryCast(c.p.ref, to, msg)
}

// SendAfter delivers msg to the actor itself after d, as a cast from itself. It
// does not block. The returned function cancels it and reports whether it was in time.
func (c *Context) SendAfter(d time.Duration, msg any) (cancel func() bool) {
	p := c.p
	return time.AfterFunc(d, func() {
		// An actor that has ended needs no alarm.
		_ = p.box.put(envelope{msg: msg, from: p.ref}, true)
	}).Stop
}

// Monitor asks for one Down message when the process at ref ends or its node goes
// down; at once when it is not there. To monitor it twice is to monitor it once.
// When the node is not connected but its address is known, Monitor dials it, at most
// for the suspicion time. The error tells a malformed ref.
func (c *Context) Monitor(ref Ref) error {
	if err := ref.validate(); err != nil {
		return opError("monitor", ref, err)
	}
	c.p.watch(ref, watchMonitor)
	return nil
}

// Demonitor ends the monitor of ref. A Down that is in the mailbox already still
// arrives.
func (c *Context) Demonitor(ref Ref) { c.p.unwatch(ref, watchMonitor) }

// Link ties the actor and the process at ref: when one ends with an error, or its
// node goes down, the other ends too, or gets an Exit message if it traps exits. A
// normal end does not propagate. Link waits for the other node to confirm, until
// ctx ends.
func (c *Context) Link(ctx context.Context, ref Ref) error {
	if err := ref.validate(); err != nil {
		return opError("link", ref, err)
	}
	if ref == c.p.ref {
		return opError("link", ref, fmt.Errorf("an actor cannot be linked to itself"))
	}
	c.p.watch(ref, watchLink)
	_, err := c.p.n.call(ctx, c.p.ref, ref, linkRequest{From: c.p.ref}, nil)
	if err != nil {
		c.p.unwatch(ref, watchLink)
	}
	return err
}

// Unlink undoes Link, waiting for the other side until ctx ends.
func (c *Context) Unlink(ctx context.Context, ref Ref) error {
	c.p.unwatch(ref, watchLink)
	_, err := c.p.n.call(ctx, c.p.ref, ref, linkRequest{From: c.p.ref, Undo: true}, nil)
	return err
}
