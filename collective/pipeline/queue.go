package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/collective"
)

// Errors that callers branch on; test with errors.Is.
var (
	// ErrOrder means that a tensor came that is not the one that is due.
	ErrOrder = errors.New("pipeline: out of order")
	// ErrClosed means that this end of the queue was closed.
	ErrClosed = errors.New("pipeline: closed")
)

// MaxDepth bounds the buffers of a queue.
const MaxDepth = MaxStages + 1

// DefaultTimeout bounds Put, Take and Run where their context has no deadline.
const DefaultTimeout = 30 * time.Second

const closeTimeout = 5 * time.Second

// bound gives a context without a deadline that of DefaultTimeout.
func bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}

// Error says which end of which queue failed. Unwrap gives the cause.
type Error struct {
	Op    string // "put" or "take"
	Queue actor.Ref
	Micro int // that was put, or -1
	Err   error
}

// Error names the queue, the micro-batch and the cause.
func (e *Error) Error() string {
	return fmt.Sprintf("pipeline: %s, queue %v, micro-batch %d: %v", e.Op, e.Queue, e.Micro, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// token announces a tensor: a call to the actor of the inlet, answered when the memory of
// the tensor is free again. Calls overtake each other, so tokens have numbers.
type token struct {
	Seq          uint64
	Micro, Elems int
}

const tokenType = "pipeline.token"

// Tensor is what came through a queue. Values are the receiver's until Release.
type Tensor struct {
	Micro  int
	Values []float32
	inlet  *Inlet
	req    *actor.Request
}

// Release gives the memory back to the queue, and makes room for the sender. Once only.
func (t *Tensor) Release() {
	t.inlet.free <- t.Values
	t.req.Reply(true)
}

// prepare checks what both ends of a queue need, and lets the node carry tokens.
func prepare(end, way string, node *actor.Node, g *collective.Group, rank, depth int) error {
	switch {
	case node == nil || g == nil:
		return fmt.Errorf("%w: an %s needs a Node and a Group", collective.ErrArgument, end)
	case rank < 0 || rank >= g.Size() || rank == g.Rank():
		return fmt.Errorf("%w: %s %s rank %d, must be another one of 0 to %d", collective.ErrArgument, end, way, rank, g.Size()-1)
	case depth < 1 || depth > MaxDepth:
		return fmt.Errorf("%w: %s of depth %d, must be 1 to %d", collective.ErrArgument, end, depth, MaxDepth)
	}
	return node.Register(tokenType, token{})
}

// InletConfig says what an Inlet receives. All but Depth is needed.
type InletConfig struct {
	Node  *actor.Node
	Name  string // of the actor, unique on the node
	Group *collective.Group
	From  int // rank of the sender
	Elems int // of each tensor
	// Depth is how many tensors there is memory for, those that were taken and not released
	// among them. Default DefaultDepth.
	Depth int
}

// DefaultDepth lets one tensor be received while another is worked on.
const DefaultDepth = 2

// Inlet is the end of a queue where tensors are taken.
type Inlet struct {
	cfg     InletConfig
	ref     actor.Ref
	free    chan []float32
	ready   chan *Tensor
	ended   chan struct{} // the actor has
	err     error         // why; after ended
	closing chan struct{}
	once    sync.Once
}

// OpenInlet starts the actor that receives. The error wraps collective.ErrArgument, or is that
// of the node.
func OpenInlet(ctx context.Context, cfg InletConfig) (*Inlet, error) {
	if cfg.Depth == 0 {
		cfg.Depth = DefaultDepth
	}
	if err := prepare("inlet", "from", cfg.Node, cfg.Group, cfg.From, cfg.Depth); err != nil {
		return nil, err
	}
	if cfg.Elems < 1 {
		return nil, fmt.Errorf("%w: inlet of tensors of %d elements, must be 1 or more", collective.ErrArgument, cfg.Elems)
	}
	q := &Inlet{
		cfg: cfg, free: make(chan []float32, cfg.Depth), ready: make(chan *Tensor, cfg.Depth),
		ended: make(chan struct{}), closing: make(chan struct{}),
	}
	for range cfg.Depth {
		q.free <- make([]float32, cfg.Elems)
	}
	var err error
	q.ref, err = cfg.Node.Spawn(ctx, cfg.Name, &receiver{q: q, waiting: make(map[uint64]announced)}, actor.Options{MailboxSize: cfg.Depth})
	return q, err
}

// Ref returns the address that an Outlet needs.
func (q *Inlet) Ref() actor.Ref { return q.ref }

// Take returns the next tensor, in the order in which they were put. It waits until ctx ends;
// what comes then is for the next Take.
func (q *Inlet) Take(ctx context.Context) (*Tensor, error) {
	select {
	case t := <-q.ready:
		return t, nil
	default:
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	var err error
	select {
	case t := <-q.ready:
		return t, nil
	case <-q.ended:
		err = q.err
	case <-q.cfg.Group.Done():
		err = q.cfg.Group.Err()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, &Error{Op: "take", Queue: q.ref, Micro: -1, Err: err}
}

// Close ends the actor. Tensors that were put and not released yet end the group, unless the
// Outlet was closed before.
func (q *Inlet) Close() error {
	q.once.Do(func() { close(q.closing) })
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := q.cfg.Node.Stop(ctx, q.ref); err != nil && !errors.Is(err, actor.ErrNoProcess) {
		return err
	}
	return nil
}

// receiver is the actor: each token in its mailbox is a tensor to receive.
type receiver struct {
	q       *Inlet
	next    uint64               // token that is due
	waiting map[uint64]announced // those that came before it
}

// announced is a tensor that was not received yet.
type announced struct {
	token
	req *actor.Request
}

// Receive receives the tensors whose turn it is.
func (r *receiver) Receive(c *actor.Context, msg any) error {
	t, err := actor.As[token](msg)
	if err != nil {
		return err
	}
	if t.Elems != r.q.cfg.Elems {
		return fmt.Errorf("%w: micro-batch %d of %d elements from rank %d, must be %d", collective.ErrMismatch, t.Micro, t.Elems, r.q.cfg.From, r.q.cfg.Elems)
	}
	if t.Seq < r.next || t.Seq >= r.next+MaxDepth || c.Request() == nil {
		return fmt.Errorf("%w: token %d, %d is due", ErrOrder, t.Seq, r.next)
	}
	r.waiting[t.Seq] = announced{t, c.Request()}
	for {
		a, ok := r.waiting[r.next]
		if !ok {
			return nil
		}
		if err := r.receive(c.Context(), a); err != nil {
			return err
		}
		delete(r.waiting, r.next)
		r.next++
	}
}

// receive takes a tensor into memory that is free, as its sender knows.
func (r *receiver) receive(ctx context.Context, a announced) error {
	q := r.q
	var values []float32
	select {
	case values = <-q.free:
	case <-q.closing:
		return ErrClosed
	case <-q.cfg.Group.Done():
		return q.cfg.Group.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := q.cfg.Group.Recv(ctx, collective.Of(values), q.cfg.From); err != nil {
		return err
	}
	q.ready <- &Tensor{Micro: a.Micro, Values: values, inlet: q, req: a.req}
	return nil
}

// Stopped tells those who wait to take.
func (r *receiver) Stopped(_ *actor.Context, reason error) {
	if r.q.err = reason; reason == nil {
		r.q.err = ErrClosed
	}
	close(r.q.ended)
}

// OutletConfig says where an Outlet sends. All but Depth is needed.
type OutletConfig struct {
	Node  *actor.Node
	To    actor.Ref // of the Inlet; the node knows its address
	Group *collective.Group
	Rank  int // of the receiver
	Depth int // as that of the Inlet
}

// Outlet is the end of a queue where tensors are put.
type Outlet struct {
	cfg   OutletConfig
	turn  chan struct{} // capacity 1: tokens and tensors go in the same order
	room  chan struct{} // capacity Depth: held by tensors that were not released
	seq   uint64        // of whoever has the turn
	life  context.Context
	stop  context.CancelCauseFunc // with what Put returns from then on
	calls sync.WaitGroup
}

// maxHold bounds how long a tensor may be in a queue.
const maxHold = 24 * time.Hour

// OpenOutlet returns an end of the queue of an Inlet. It sends nothing.
func OpenOutlet(cfg OutletConfig) (*Outlet, error) {
	if cfg.Depth == 0 {
		cfg.Depth = DefaultDepth
	}
	if err := prepare("outlet", "to", cfg.Node, cfg.Group, cfg.Rank, cfg.Depth); err != nil {
		return nil, err
	}
	o := &Outlet{cfg: cfg, turn: make(chan struct{}, 1), room: make(chan struct{}, cfg.Depth)}
	o.life, o.stop = context.WithCancelCause(context.Background())
	return o, nil
}

// Put sends a tensor. It waits while the queue is full, and returns when values may be used
// again. If ctx ends while it waits for room, nothing was sent, and it may be called again.
func (o *Outlet) Put(ctx context.Context, micro int, values []float32) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	err := o.put(ctx, micro, values)
	if err != nil {
		return &Error{Op: "put", Queue: o.cfg.To, Micro: micro, Err: err}
	}
	return nil
}

func (o *Outlet) put(ctx context.Context, micro int, values []float32) error {
	for _, wanted := range []chan struct{}{o.turn, o.room} {
		select {
		case wanted <- struct{}{}:
		case <-o.life.Done():
			return context.Cause(o.life)
		case <-o.cfg.Group.Done():
			return o.cfg.Group.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if wanted == o.turn {
			defer func() { <-o.turn }()
		}
	}
	if err := errors.Join(ctx.Err(), o.Err()); err != nil { // both had come when there was room
		<-o.room
		return err
	}
	t := token{Seq: o.seq, Micro: micro, Elems: len(values)}
	o.seq++
	o.calls.Go(func() { o.announce(t) })
	err := o.cfg.Group.Send(ctx, collective.Of(values), o.cfg.Rank)
	if err != nil {
		o.cfg.Group.Abort() // the other end waits for what was announced
	}
	return err
}

// announce brings a token to the inlet and makes room when it is answered. Where it is not,
// nobody knows which tensors the other end has: the group ends.
func (o *Outlet) announce(t token) {
	ctx, cancel := context.WithTimeout(o.life, maxHold)
	defer cancel()
	if _, err := o.cfg.Node.Call(ctx, o.cfg.To, t); err != nil {
		if o.life.Err() == nil {
			o.cfg.Group.Abort() // unless it has ended before, which may be why
			o.stop(errors.Join(o.cfg.Group.Err(), err))
		}
		return
	}
	<-o.room
}

// Err returns the reason why this end cannot be used any more, nil while it can. An inlet, or
// its node, that is gone ends the group as well: the error wraps that of the group and the
// reason.
func (o *Outlet) Err() error { return context.Cause(o.life) }

// Close ends this end of the queue; what is in it can be taken all the same. Twice is fine.
func (o *Outlet) Close() error {
	o.stop(ErrClosed)
	o.turn <- struct{}{} // a Put that is under way ends with its tensor
	defer func() { <-o.turn }()
	o.calls.Wait()
	return nil
}
