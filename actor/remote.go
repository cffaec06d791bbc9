package actor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Pauses between repetitions of a call made WithRetry.
const (
	retryPauseMin = 2 * time.Millisecond
	retryPauseMax = 50 * time.Millisecond
)

func (n *Node) callRemote(ctx context.Context, from, to Ref, msg any, deadline time.Time, o callOptions) (any, error) {
	if err := to.validate(); err != nil {
		return nil, err
	}
	info, err := n.typeOf(msg)
	if err != nil {
		return nil, err
	}
	call := outgoingCall{n: n, from: from, to: to, msg: msg, info: info, deadline: deadline}
	if o.retry {
		return call.retry(ctx)
	}
	c, err := n.peer(ctx, to.Node)
	if err != nil {
		return nil, err
	}
	id, pc := n.calls.add(c)
	defer n.calls.drop(id, pc)
	if err := call.send(c, id); err != nil {
		return nil, err
	}
	return pc.wait(ctx)
}

// outgoingCall is a call to another node.
type outgoingCall struct {
	n        *Node
	from, to Ref
	msg      any
	info     *typeInfo
	deadline time.Time
	flags    uint64
}

func (o *outgoingCall) send(c *conn, id uint64) error {
	e := o.n.encs.get()
	defer o.n.encs.put(e)
	e.begin(kindCall)
	e.uint(id)
	e.uint(o.flags)
	e.uint(uint64(max(0, time.Until(o.deadline).Microseconds())))
	e.name(o.to.Name)
	e.name(o.from.Name)
	if err := e.message(o.info, o.msg); err != nil {
		return err
	}
	if err := c.send(e.finish()); err != nil {
		return err
	}
	return c.failed() // it may have failed before the call was entered
}

// message appends the type's name and the payload.
func (e *encoder) message(info *typeInfo, v any) error {
	if info == nil {
		e.name("")
		return nil
	}
	e.name(info.name)
	return e.value(info, v)
}

// retry sends the call until it is answered, under one number.
func (o *outgoingCall) retry(ctx context.Context) (any, error) {
	o.flags = flagRemember
	id, pc := o.n.calls.add(nil)
	defer o.n.calls.drop(id, pc)
	var incarnation uint64
	pause := retryPauseMin
	for {
		c, err := o.n.peer(ctx, o.to.Node)
		if err == nil {
			if incarnation != 0 && incarnation != c.incarnation {
				return nil, fmt.Errorf("%w: %s was restarted while the call was under way", ErrNodeDown, o.to.Node)
			}
			incarnation = c.incarnation
			o.n.calls.rebind(id, pc, c)
			var v any
			if err = o.send(c, id); err == nil {
				v, err = pc.wait(ctx)
			}
			if !o.again(c, err) {
				return v, err
			}
			o.n.calls.reset(id, pc)
		} else if !errors.Is(err, ErrNodeDown) {
			return nil, err
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, retryPauseMax)
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: the last attempt: %w", deadlineError(ctx.Err()), err)
		case <-o.n.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// again reports whether a failure was that of the way to the actor. An ErrNodeDown of
// the actor's own comes over a connection that lives.
func (o *outgoingCall) again(c *conn, err error) bool {
	return errors.Is(err, ErrNodeDown) && c.failed() != nil || errors.Is(err, ErrMailboxFull)
}

// answerRemote sends the answer to a call from another node.
func (n *Node) answerRemote(r *Request, res result) {
	e := n.encs.get()
	defer n.encs.put(e)
	err := res.err
	if err == nil {
		err = e.reply(n, r.id, res.value)
	}
	if err != nil {
		e.begin(kindFail)
		e.failure(n, r.id, err)
	}
	frame := e.finish()
	c := r.conn
	if r.memo != nil {
		if c = n.memos.answer(r.memo, frame); c == nil {
			return
		}
	}
	_ = c.send(frame) // a broken connection has told the caller already
}

func (e *encoder) reply(n *Node, id uint64, v any) error {
	info, err := n.typeOf(v)
	if err != nil {
		return err
	}
	e.begin(kindReply)
	e.uint(id)
	return e.message(info, v)
}

func (n *Node) castRemote(ctx context.Context, from, to Ref, msg any) error {
	if c := n.livePeer(to.Node); c != nil {
		// The common case needs no deadline of its own.
		err := n.castOver(ctx, c, from, to, msg, hurried)
		if err != ErrMailboxFull {
			return err
		}
	}
	if err := to.validate(); err != nil {
		return err
	}
	ctx, cancel := withDefaultDeadline(ctx)
	defer cancel()
	c, err := n.peer(ctx, to.Node)
	if err != nil {
		return err
	}
	return n.castOver(ctx, c, from, to, msg, patient)
}

func (n *Node) tryCastRemote(from, to Ref, msg any) error {
	c := n.livePeer(to.Node)
	if c == nil {
		return n.unreachable(to.Node)
	}
	if err := to.validate(); err != nil {
		return err
	}
	return n.castOver(context.Background(), c, from, to, msg, trying)
}

func (n *Node) castOver(ctx context.Context, c *conn, from, to Ref, msg any, how patience) error {
	info, err := n.typeOf(msg)
	if err != nil {
		return err
	}
	e := n.encs.get()
	defer n.encs.put(e)
	e.begin(kindCast)
	e.name(to.Name)
	e.name(from.Name)
	if err := e.message(info, msg); err != nil {
		return err
	}
	if err := c.flows.acquire(ctx, to.Name, how); err != nil {
		return err
	}
	return c.send(e.finish())
}
