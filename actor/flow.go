package actor

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Casts between nodes flow under credit, per connection and receiving process, so
// that one slow actor holds up nobody else and nothing is dropped for want of room.
// The sender opens a flow, which belongs to that life of the process: when the process
// ends, the receiver closes it and says how many casts were handled; what was sent
// beyond that is lost, and the sender is told the number. The next cast opens a new flow.
const (
	// castWindow is how many casts of one flow may be unhandled, if the receiver's
	// mailbox bound is not lower.
	castWindow = 8192
	// initialCredit may be used before the receiver has agreed.
	initialCredit = 16
	// creditSlack is how many casts may arrive beyond the credit: those under way on a
	// flow that closed count on its successor.
	creditSlack = 1024
)

// inflow is the receiving end.
type inflow struct {
	c        *conn
	p        *process
	epoch    uint64
	window   uint64
	consumed uint64 // by the process's goroutine only
	returned uint64
	refused  atomic.Uint64
	granted  atomic.Uint64
	received uint64 // by the reader only
}

// consume returns credit when a cast is taken from the mailbox. It runs on the
// process's goroutine.
func (f *inflow) consume() {
	f.consumed++
	if due := f.consumed - f.returned; due >= f.window/4 {
		f.returned = f.consumed
		f.credit(due)
	}
}

// refuse returns the credit of a cast that could not be decoded. It runs on the reader.
func (f *inflow) refuse() {
	f.refused.Add(1)
	f.credit(1)
}

// arrived counts a cast, on the reader. A peer that sends without credit would fill the
// memory, so it is cut off.
func (f *inflow) arrived() error {
	f.received++
	if granted := f.granted.Load(); f.received > granted+creditSlack {
		return fmt.Errorf("%w: %d casts to %s, credit was given for %d", ErrBadMessage, f.received, f.p.ref.Name, granted)
	}
	return nil
}

func (f *inflow) credit(n uint64) {
	f.granted.Add(n)
	f.c.outbox.build(f.c, kindCredit, func(e *encoder) { e.flow(f.p.ref.Name, f.epoch, n) })
}

func (e *encoder) flow(dst string, epoch, n uint64) {
	e.name(dst)
	e.uint(epoch)
	e.uint(n)
}

// flowState is where the sending end stands.
type flowState uint8

const (
	flowOpening flowState = iota // not agreed yet; initialCredit may be used
	flowOpen
	flowRefused // there is no such process
	flowClosed  // the process ended
)

// outflow is the sending end. Refused and closed are final: the table has forgotten
// the flow then.
type outflow struct {
	epoch uint64

	mu     sync.Mutex
	state  flowState
	credit uint64
	sent   uint64
	wake   chan struct{} // closed and replaced when anything changes
}

// flowTable has the flows of one connection.
type flowTable struct {
	c *conn

	inMu sync.Mutex
	in   map[string]*inflow

	openMu sync.Mutex // held by senders while they open a flow, never by the reader
	outMu  sync.Mutex
	out    map[string]*outflow
	epoch  uint64
}

func (t *flowTable) init(c *conn) {
	t.c = c
	t.in = make(map[string]*inflow)
	t.out = make(map[string]*outflow)
}

func (t *flowTable) incoming(dst []byte) *inflow {
	t.inMu.Lock()
	defer t.inMu.Unlock()
	return t.in[string(dst)]
}

func (t *flowTable) lookup(dst string) *outflow {
	t.outMu.Lock()
	defer t.outMu.Unlock()
	return t.out[dst]
}

// outgoing finds or opens the flow to dst. The open frame leaves before any cast.
func (t *flowTable) outgoing(dst string) (*outflow, error) {
	if f := t.lookup(dst); f != nil {
		return f, nil
	}
	t.openMu.Lock()
	defer t.openMu.Unlock()
	if f := t.lookup(dst); f != nil {
		return f, nil
	}
	t.epoch++
	f := &outflow{epoch: t.epoch, wake: make(chan struct{})}
	e := t.c.n.encs.get()
	defer t.c.n.encs.put(e)
	e.begin(kindOpen)
	e.name(dst)
	e.uint(f.epoch)
	// Entered without credit first: the answer must find it, others must not
	// overtake the open frame.
	t.outMu.Lock()
	t.out[dst] = f
	t.outMu.Unlock()
	if err := t.c.send(e.finish()); err != nil {
		return nil, err
	}
	f.change(func() { f.credit += initialCredit })
	return f, nil
}

func (f *outflow) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.wake)
	f.wake = make(chan struct{})
}

// patience says what acquire does about credit that is not there.
type patience uint8

const (
	trying  patience = iota // uses what may be used without consent, and waits for nothing
	hurried                 // wants consent and credit at once, so that it needs no deadline
	patient                 // waits
)

// acquire takes one credit.
func (t *flowTable) acquire(ctx context.Context, dst string, how patience) error {
	seen := uint64(0) // the flow that we waited for
	waited := false
	for {
		f, err := t.outgoing(dst)
		if err != nil {
			return err
		}
		f.mu.Lock()
		state, wake := f.state, f.wake
		if f.credit > 0 && (state == flowOpen || state == flowOpening && how == trying) {
			f.credit--
			f.sent++
			f.mu.Unlock()
			return nil
		}
		f.mu.Unlock()
		switch {
		case state == flowRefused && (seen == f.epoch || how != patient):
			return ErrNoProcess
		case state == flowRefused || state == flowClosed:
			continue // forgotten; open a new one
		case how == hurried:
			return ErrMailboxFull
		}
		if state == flowOpen && !waited {
			waited = true
			t.c.n.mailboxFull(Ref{Node: t.c.peer, Name: dst})
		}
		if how == trying {
			return ErrMailboxFull
		}
		seen = f.epoch
		if err := t.await(ctx, f, wake); err != nil {
			return err
		}
	}
}

// await waits for a change of f.
func (t *flowTable) await(ctx context.Context, f *outflow, wake chan struct{}) error {
	select {
	case <-wake:
	case <-ctx.Done():
		return deadlineError(ctx.Err())
	case <-t.c.done:
		return t.c.err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == flowRefused {
		return ErrNoProcess
	}
	return nil
}

func (c *conn) onFlow(k kind, body []byte) error {
	f, err := parseFlow(k, body)
	if err != nil {
		return err
	}
	if k == kindOpen {
		c.flows.open(c.intern(f.dst), f.epoch)
		return nil
	}
	c.flows.update(k, string(f.dst), f.epoch, f.count)
	return nil
}

// open is the peer's wish to cast to dst.
func (t *flowTable) open(dst string, epoch uint64) {
	p := t.c.n.process(dst)
	if p == nil || p.box.isClosed() {
		t.outboxFlow(kindClosed, dst, epoch, 0)
		return
	}
	window := uint64(min(castWindow, max(initialCredit, p.opts.MailboxSize)))
	f := &inflow{c: t.c, p: p, epoch: epoch, window: window}
	f.granted.Store(window)
	t.inMu.Lock()
	t.in[dst] = f
	t.inMu.Unlock()
	t.outboxFlow(kindOpened, dst, epoch, window-initialCredit)
	if p.box.isClosed() { // it ended meanwhile, and may have missed the flow
		t.gone(p)
	}
}

func (t *flowTable) outboxFlow(k kind, dst string, epoch, n uint64) {
	t.c.outbox.build(t.c, k, func(e *encoder) { e.flow(dst, epoch, n) })
}

// gone closes the flow to a process that has ended.
func (t *flowTable) gone(p *process) {
	t.inMu.Lock()
	f := t.in[p.ref.Name]
	if f == nil || f.p != p {
		t.inMu.Unlock()
		return
	}
	delete(t.in, p.ref.Name)
	t.inMu.Unlock()
	t.outboxFlow(kindClosed, p.ref.Name, f.epoch, f.consumed+f.refused.Load()+1)
}

// update is what the peer says about a flow of ours.
func (t *flowTable) update(k kind, dst string, epoch, n uint64) {
	t.outMu.Lock()
	f := t.out[dst]
	if f == nil || f.epoch != epoch {
		t.outMu.Unlock()
		return
	}
	if k == kindClosed {
		delete(t.out, dst)
	}
	t.outMu.Unlock()
	var lost uint64
	f.change(func() {
		switch k {
		case kindOpened:
			f.state = flowOpen
			f.credit += n
		case kindCredit:
			f.credit += n
		case kindClosed:
			lost = f.close(n)
		}
	})
	if lost > 0 {
		t.c.n.castLost(Ref{Node: t.c.peer, Name: dst}, lost)
	}
}

// close ends the flow. n is 0 if there was no process, else one more than the casts
// that were handled. It returns how many were not.
func (f *outflow) close(n uint64) (lost uint64) {
	f.credit = 0
	if n == 0 {
		f.state = flowRefused
		return f.sent
	}
	f.state = flowClosed
	if handled := n - 1; f.sent > handled {
		lost = f.sent - handled
	}
	return lost
}

func (n *Node) castLost(to Ref, count uint64) {
	n.log.Warn("actor: casts lost, the receiver ended", "to", to.String(), "count", count)
	if f := n.cfg.Observe.CastLost; f != nil {
		f(to, count)
	}
}

// flowsGone closes the flows of all peers to a process that has ended.
func (n *Node) flowsGone(p *process) {
	n.net.eachConn(func(c *conn) { c.flows.gone(p) })
}

// closeAll ends all flows with the connection. How much is lost with it is not known
// on this side; Observer.PeerDown tells that it broke.
func (t *flowTable) closeAll() {
	t.outMu.Lock()
	flows := t.out
	t.out = make(map[string]*outflow)
	t.outMu.Unlock()
	for _, f := range flows {
		f.change(func() { f.state, f.credit = flowClosed, 0 })
	}
}
