package actor

import (
	"context"
	"fmt"
	"reflect"
	"time"
)

// stopRequest asks a node to stop one of its processes.
type stopRequest struct{}

// linkRequest asks a node to link, or unlink, one of its processes to From.
type linkRequest struct {
	From Ref
	Undo bool
}

// CallOption changes how one call is made.
type CallOption func(*callOptions)

type callOptions struct {
	retry bool
}

// WithRetry makes a call to another node survive a lost connection: until the
// deadline the node is dialled again and the call is sent again under the same
// request number. The receiver remembers the number until the deadline and answers a
// repetition from memory, so the actor handles the call once. When the receiving node
// was restarted meanwhile the call fails with ErrNodeDown, because its memory is gone.
// An overloaded mailbox, or a memory of 4,096 such calls, is tried again likewise.
func WithRetry() CallOption { return func(o *callOptions) { o.retry = true } }

// Call sends msg to the process and waits for its answer until ctx ends, at most
// DefaultCallTimeout when ctx has no deadline. The deadline travels: a call that has
// waited too long is not handled at all. On the same node msg and the answer are
// passed as they are, so whoever sends a pointer gives up what it points to; between
// nodes both must be registered types.
//
// The error, an *Error, wraps ErrNoProcess when the process is not there or ended
// before it answered, ErrNodeDown when its node is or goes down, ErrMailboxFull,
// ErrTimeout together with context.DeadlineExceeded, ErrTooLarge, ErrUnknownType, or
// what the actor failed the request with.
func (n *Node) Call(ctx context.Context, to Ref, msg any, opts ...CallOption) (any, error) {
	return n.call(ctx, Ref{}, to, msg, opts)
}

// Call is Node.Call for an answer of type R; another type is ErrUnknownType. An answer
// T is also taken as *T and the other way round, and nil as the zero R.
func Call[R any](ctx context.Context, n *Node, to Ref, msg any, opts ...CallOption) (R, error) {
	v, err := n.call(ctx, Ref{}, to, msg, opts)
	if err != nil {
		var zero R
		return zero, err
	}
	return As[R](v)
}

// As turns an answer, or a message, into an R as Call does.
func As[R any](v any) (R, error) {
	switch v := v.(type) {
	case R:
		return v, nil
	case *R:
		if v != nil {
			return *v, nil
		}
	case nil:
		var zero R
		return zero, nil
	}
	want := reflect.TypeFor[R]()
	if got := reflect.ValueOf(v); want.Kind() == reflect.Pointer && got.Type() == want.Elem() {
		p := reflect.New(got.Type())
		p.Elem().Set(got)
		return p.Interface().(R), nil
	}
	var zero R
	return zero, fmt.Errorf("%w: got a %T, want a %v", ErrUnknownType, v, want)
}

func (n *Node) call(ctx context.Context, from, to Ref, msg any, opts []CallOption) (any, error) {
	ctx, cancel := withDefaultDeadline(ctx)
	defer cancel()
	deadline, _ := ctx.Deadline()
	var v any
	var err error
	switch {
	case n.drops(to, msg):
		<-ctx.Done()
		err = deadlineError(ctx.Err())
	case to.Node == n.name:
		v, err = n.callLocal(ctx, from, to, msg, deadline)
	default:
		var o callOptions
		for _, opt := range opts {
			opt(&o)
		}
		v, err = n.callRemote(ctx, from, to, msg, deadline, o)
	}
	return v, opError("call", to, err)
}

// drops reports whether a test wants msg to be lost.
func (n *Node) drops(to Ref, msg any) bool { return n.cfg.Drop != nil && n.cfg.Drop(to, msg) }

func (n *Node) callLocal(ctx context.Context, from, to Ref, msg any, deadline time.Time) (any, error) {
	p := n.process(to.Name)
	if p == nil {
		return nil, n.absent()
	}
	req := &Request{n: n, from: from, to: to, deadline: deadline, local: make(chan result, 1)}
	if !n.control(p, msg, req) {
		if err := n.putWait(ctx, p, envelope{msg: msg, from: from, req: req}); err != nil {
			return nil, err
		}
	}
	select {
	case res := <-req.local:
		return res.value, res.err
	case <-ctx.Done():
		return nil, deadlineError(ctx.Err())
	}
}

func (n *Node) absent() error {
	if n.closing.Load() {
		return ErrClosed
	}
	return ErrNoProcess
}

// putWait puts e in p's mailbox, waiting for room.
func (n *Node) putWait(ctx context.Context, p *process, e envelope) error {
	err := p.box.put(e, false)
	if err != ErrMailboxFull {
		return err
	}
	n.mailboxFull(p.ref)
	return p.box.putWait(ctx, e)
}

func (n *Node) mailboxFull(to Ref) {
	if f := n.cfg.Observe.MailboxFull; f != nil {
		f(to)
	}
}

// control carries out requests that the node answers for a process. It reports
// whether msg was one.
func (n *Node) control(p *process, msg any, req *Request) bool {
	var work func()
	switch m := msg.(type) {
	case stopRequest:
		work = func() { n.answerStop(p, req) }
	case linkRequest:
		work = func() {
			if m.Undo {
				p.unwatch(m.From, watchLink)
			} else {
				p.watch(m.From, watchLink)
			}
			req.Reply(nil)
		}
	default:
		return false
	}
	if !n.background(work) {
		req.Fail(ErrClosed)
	}
	return true
}

func (n *Node) answerStop(p *process, req *Request) {
	p.requestStop(nil)
	timer := time.NewTimer(time.Until(req.deadline))
	defer timer.Stop()
	select {
	case <-p.gone:
		req.Reply(nil)
	case <-timer.C:
		req.Fail(ErrTimeout)
	case <-n.ctx.Done():
		req.Fail(ErrClosed)
	}
}

// Cast sends msg to the process without waiting for an answer. It blocks only while
// the receiver's mailbox has no room, until ctx ends, at most DefaultCallTimeout when
// ctx has no deadline; the first cast to a process on another node also waits for
// that node's consent. Casts of one goroutine to one process arrive in order, and
// none is dropped on the way: an error means that msg may not have arrived, nil that
// it will be handled unless the receiver or its node ends first, which Monitor and
// Observer.CastLost tell. Ownership of msg and errors are as in Call.
func (n *Node) Cast(ctx context.Context, to Ref, msg any) error {
	return n.cast(ctx, Ref{}, to, msg)
}

// TryCast is Cast that never waits for room: it fails with ErrMailboxFull instead. To
// a node that is not connected it fails with ErrNodeDown.
func (n *Node) TryCast(to Ref, msg any) error { return n.tryCast(Ref{}, to, msg) }

func (n *Node) cast(ctx context.Context, from, to Ref, msg any) error {
	if n.drops(to, msg) {
		return nil
	}
	if to.Node != n.name {
		return opError("cast", to, n.castRemote(ctx, from, to, msg))
	}
	p := n.process(to.Name)
	if p == nil {
		return opError("cast", to, n.absent())
	}
	err := p.box.put(envelope{msg: msg, from: from}, false)
	if err == nil {
		return nil
	}
	if err == ErrMailboxFull {
		n.mailboxFull(to)
		ctx, cancel := withDefaultDeadline(ctx)
		defer cancel()
		err = p.box.putWait(ctx, envelope{msg: msg, from: from})
	}
	return opError("cast", to, err)
}

func (n *Node) tryCast(from, to Ref, msg any) error {
	if n.drops(to, msg) {
		return nil
	}
	if to.Node != n.name {
		return opError("cast", to, n.tryCastRemote(from, to, msg))
	}
	p := n.process(to.Name)
	if p == nil {
		return opError("cast", to, n.absent())
	}
	err := p.box.put(envelope{msg: msg, from: from}, false)
	if err == ErrMailboxFull {
		n.mailboxFull(to)
	}
	return opError("cast", to, err)
}

func withDefaultDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, DefaultCallTimeout)
}
