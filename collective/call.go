package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/collective/schedule"
)

// Collective says which operation a call is.
type Collective uint8

// The operations. Those of a group are made by all its ranks in the same order.
const (
	AllReduce Collective = iota + 1
	ReduceScatter
	AllGather
	Broadcast
	Reduce
	AllToAll
	Barrier
	pointToPoint
	allocate
)

// String returns the name of the operation.
func (c Collective) String() string {
	names := [...]string{
		0: "none", AllReduce: "all-reduce", ReduceScatter: "reduce-scatter", AllGather: "all-gather", Broadcast: "broadcast",
		Reduce: "reduce", AllToAll: "all-to-all", Barrier: "barrier", pointToPoint: "message", allocate: "alloc",
	}
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("collective %d", c)
}

// Call is a collective operation with its arguments; see the methods of Group for what
// each needs.
type Call struct {
	Collective Collective
	Dst, Src   Buffer
	Op         Op  // AllReduce, ReduceScatter, Reduce
	Root       int // Broadcast, Reduce
	// Compression of an AllReduce of float32. The zero value is none.
	Compression Compression
}

// Handle stands for a call that is under way.
type Handle struct{ o *operation }

// Done returns a channel that is closed when the call has ended and the buffers are the
// caller's again.
func (h *Handle) Done() <-chan struct{} { return h.o.done }

// Wait waits for the end of the call and returns its error. The call goes on when ctx ends
// before it: what bounds the call is the context that it was started with.
func (h *Handle) Wait(ctx context.Context) error {
	select {
	case <-h.o.done:
		return h.o.err
	case <-ctx.Done():
		return fmt.Errorf("collective: waiting for %v: %w", h.o.asked, context.Cause(ctx))
	}
}

// operation is a call under way.
type operation struct {
	ctx       context.Context
	call      Fingerprint // its algorithm is known when its turn comes, if not before
	asked     Fingerprint // the call as it was entered
	dst, src  Buffer
	packing   Compression
	seq       uint64
	before    *operation // has to end first
	done      chan struct{}
	err       error // when done
	began     time.Time
	deadline  time.Time // when ctx has none
	announced time.Time
	waiting   atomic.Int32 // rank that it waits for, or -1
	bytes     atomic.Int64 // received
	inAll     *allocation  // what a call in place works in on all ranks
	made      *allocation  // by an allocate
}

func (o *operation) collective() bool {
	return o.call.Collective != pointToPoint && !o.began.IsZero()
}

// Start begins a call and returns at once. The buffers belong to the call until it is
// done. When ctx ends before that, or Config.Timeout has passed if it has no deadline, the
// group fails on all ranks: what the others have received of it cannot be known. An error
// that wraps ErrArgument leaves the group as it was.
func (g *Group) Start(ctx context.Context, c Call) (*Handle, error) {
	o, err := g.enter(ctx, c)
	if err != nil {
		return nil, err
	}
	go g.carry(o) // it is one of running
	return &Handle{o}, nil
}

// do carries out a call on the caller's goroutine.
func (g *Group) do(ctx context.Context, c Call) error {
	o, err := g.enter(ctx, c)
	if err != nil {
		return err
	}
	g.carry(o)
	return o.err
}

// enter gives a call its place in the order.
func (g *Group) enter(ctx context.Context, c Call) (*operation, error) {
	call, err := g.check(&c)
	if err != nil {
		return nil, err
	}
	if err := c.Dst.hold(); err != nil {
		return nil, err
	}
	err = c.Src.hold()
	o := &operation{ctx: ctx, call: call, dst: c.Dst, src: c.Src, packing: c.Compression}
	if err == nil {
		if call.Buffer > 0 {
			o.inAll = c.Src.from
		}
		if err = g.line(o); err != nil {
			o.src.drop()
		}
	}
	if err != nil {
		o.dst.drop()
		return nil, err
	}
	return o, nil
}

// line puts an operation in its place in the order.
func (g *Group) line(o *operation) error {
	o.asked, o.done = o.call, make(chan struct{})
	o.waiting.Store(-1)
	g.mu.Lock()
	err, call := g.err, o.call
	if err == nil {
		err = o.ctx.Err()
	}
	if err != nil {
		g.mu.Unlock()
		return &OpError{Call: call, Rank: g.rank, Epoch: g.roster.Epoch, Seq: g.seq + 1 - g.base, Waiting: -1, Err: err}
	}
	g.running.Add(1)
	g.seq++
	o.seq, o.before = g.seq, g.tail
	g.tail = o
	g.history[o.seq%historyLen] = call
	g.active = append(g.active, o)
	var differs error
	for _, p := range g.peers {
		if p != nil && p.announced.seq == o.seq && p.announced.call != call {
			differs = &MismatchError{Seq: o.seq - g.base, Rank: g.rank, Peer: p.rank, Mine: call, Theirs: p.announced.call}
		}
	}
	g.mu.Unlock()
	if differs != nil {
		g.fail(differs, true)
	}
	return nil
}

// carry waits for a call's turn and carries it out.
func (g *Group) carry(o *operation) {
	if o.before != nil {
		<-o.before.done
		o.before = nil
	}
	g.begin(o)
	err := g.Err()
	if err == nil {
		err = g.perform(o)
	}
	g.end(o, err)
}

// begin starts the time of an operation.
func (g *Group) begin(o *operation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o.began = time.Now()
	if _, ok := o.ctx.Deadline(); !ok {
		o.deadline = o.began.Add(g.cfg.Timeout)
	}
}

// end ends an operation, which is one of running until then. Its error is that with which
// the group failed first.
func (g *Group) end(o *operation, err error) {
	defer g.running.Done()
	if err != nil {
		var lane *laneError
		if errors.As(err, &lane) {
			g.judge(lane)
		} else {
			g.failWith(err)
		}
		o.err = &OpError{
			Call: o.call, Rank: g.rank, Epoch: g.roster.Epoch, Seq: g.number(o), Waiting: int(o.waiting.Load()),
			Bytes: o.bytes.Load(), Elapsed: time.Since(o.began), Err: g.Err(),
		}
	}
	g.mu.Lock()
	g.active = slices.DeleteFunc(g.active, func(x *operation) bool { return x == o })
	if g.tail == o {
		g.tail = nil
	}
	if err == nil && o.call.Collective != pointToPoint {
		g.completed++
	}
	g.mu.Unlock()
	if o.call.Collective != pointToPoint { // who sends holds it
		o.dst.drop()
		o.src.drop()
	}
	o.dst, o.src, o.packing = Buffer{}, Buffer{}, Compression{}
	close(o.done)
}

// number is that of a call, as the user counts: without those that the group has made for
// itself.
func (g *Group) number(o *operation) uint64 {
	if o.call.Collective == pointToPoint {
		return o.seq
	}
	return o.seq - g.base
}

// failWith fails the group, and notes whom the error declares lost.
func (g *Group) failWith(err error) {
	g.mu.Lock()
	if g.err == nil {
		for _, rank := range Lost(err) {
			g.lost[rank] = true
		}
	}
	g.mu.Unlock()
	g.fail(err, true)
}

// judge fails the group because a connection has failed. What that means is known where the
// peer says more: if it has failed itself, for what reason, or if it is dead. Both are
// about to arrive.
func (g *Group) judge(e *laneError) {
	p := g.peers[e.rank]
	wait := time.NewTimer(judgement)
	defer wait.Stop()
	select {
	case <-g.whole:
	case <-p.silent:
	case <-wait.C:
	}
	reason := e.Error()
	if p.left.Load() {
		reason = "it has left"
	}
	g.failWith(g.rankError([]int{e.rank}, reason))
}

// judgement is how long a failed connection waits for an explanation.
const judgement = 500 * time.Millisecond

// perform chooses how a call is carried out, unless it was chosen before, and does that.
func (g *Group) perform(o *operation) error {
	switch {
	case o.call.Collective == allocate:
		return g.allocate(o)
	case o.inAll != nil:
		return g.together.inPlace(o)
	case o.call.Algorithm == schedule.Shared:
		return g.together.allReduce(o, o.dst.bytes, o.src.bytes)
	}
	if o.call.Codec != 0 {
		return g.performPacked(o)
	}
	tried, err := g.choose(o)
	if err != nil {
		return err
	}
	plan, err := g.plan(&o.call)
	if err != nil {
		return err
	}
	if tried == nil {
		return g.move(o, plan)
	}
	began := time.Now()
	err = g.move(o, plan)
	tried.note(time.Since(began).Seconds() * g.scale(tried, &o.call))
	return err
}

// move carries out the plan of a call.
func (g *Group) move(o *operation, plan schedule.Plan) error {
	r, dst, src, size := &g.runner, o.dst.bytes, o.src.bytes, o.call.Type.Bytes()
	own := g.rank * o.call.Count
	switch o.call.Collective {
	case AllGather:
		copy(dst[own*size:], src)
		return r.run(o, plan, place{dst, 0}, place{})
	case Broadcast:
		if g.rank == o.call.Root {
			copy(dst, src)
		}
		return r.run(o, plan, place{dst, 0}, place{})
	case ReduceScatter:
		if plan.Fresh {
			return r.run(o, plan, place{dst, own}, place{src, 0})
		}
		work := room(&r.work, len(src))
		copy(work, src)
		if err := r.run(o, plan, place{work, 0}, place{}); err != nil {
			return err
		}
		copy(dst, work[own*size:])
		return nil
	case Reduce:
		if g.rank != o.call.Root {
			dst = room(&r.work, len(src))
		}
	}
	if shared, offset := overlap(dst, src); !plan.Fresh && (!shared || offset != 0) {
		copy(dst, src)
	}
	return r.run(o, plan, place{dst, 0}, place{src, 0})
}

// maxPlans bounds the plans that a group remembers.
const maxPlans = 128

// plan returns the plan of a call; those of the latest calls are remembered.
func (g *Group) plan(call *Fingerprint) (schedule.Plan, error) {
	r := &g.runner
	if p, ok := r.plans[*call]; ok {
		return p, nil
	}
	s := schedule.Shape{Ranks: g.Size(), Count: call.units(), Ahead: g.streams, Nodes: g.nodes}
	s.Segment = g.segment(call, g.Size())
	var p schedule.Plan
	var err error
	switch call.Collective {
	case AllReduce, Barrier:
		p, err = schedule.AllReduce(call.Algorithm, g.rank, s)
	case ReduceScatter:
		p, err = schedule.ReduceScatter(call.Algorithm, g.rank, s)
	case AllGather:
		p, err = schedule.AllGather(call.Algorithm, g.rank, s)
	case Broadcast:
		p, err = schedule.Broadcast(call.Algorithm, g.rank, call.Root, s)
	case Reduce:
		p, err = schedule.Reduce(call.Algorithm, g.rank, call.Root, s)
	case AllToAll:
		p, err = schedule.AllToAll(call.Algorithm, g.rank, s)
	}
	if err != nil {
		return p, err
	}
	if len(r.plans) >= maxPlans {
		clear(r.plans)
	}
	r.plans[*call] = p
	return p, nil
}

// segment is how many units the segments of a call have, of which so many ranks have a part.
func (g *Group) segment(call *Fingerprint, ranks int) int {
	return max(1, segmentBytes(call, ranks, g.streams, g.cfg.SegmentBytes)/call.unitBytes())
}
