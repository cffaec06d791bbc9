package ps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/elasticps/elasticps/actor"
)

// Who takes part: the part of the coordinator that deals with workers coming and going,
// and with whoever dies.

const (
	storeTimeout = 5 * time.Second
	maxRetained  = 6000
)

// join takes a worker in. A repeated request gets the same answer; one that comes
// back to a restarted coordinator keeps its incarnation and clock.
func (c *Coordinator) join(ctx *actor.Context, m joinRequest) {
	inc, known := c.nonces[m.Nonce]
	var err error
	if !known {
		inc, err = c.admitWorker(ctx, m)
	}
	if err != nil || inc != 0 {
		answer(ctx, err, joinReply{Incarnation: inc, Clock: c.clockOf(inc)})
	}
}

// admitWorker makes a worker a member and returns its incarnation, or zero if it will be
// answered when the store has that.
func (c *Coordinator) admitWorker(ctx *actor.Context, m joinRequest) (uint64, error) {
	inc := m.Incarnation
	missing := c.missing[inc]
	switch {
	case inc != 0 && !m.Observer && c.cfg.Job.clocked() && !missing,
		inc != 0 && (c.members[inc] != nil || !c.mayReturn(inc)):
		return 0, fmt.Errorf("%w: incarnation %d was taken for gone", ErrNotMember, inc)
	case inc == 0 && c.enrolling[m.Nonce] != nil:
		e := c.enrolling[m.Nonce]
		e.fail(errStoreAway) // the earlier attempt, which has been given up
		e.req = ctx.Request()
		return 0, nil
	case inc == 0 && !m.Observer && !c.takesWorkers():
		return 0, errReturning
	case inc == 0:
		var err error
		if inc, err = c.number(); err != nil {
			return 0, err
		}
		if !m.Observer && c.cfg.Job.awaited() {
			c.enrol(ctx.Request(), m, inc)
			return 0, nil
		}
	}
	return inc, c.enterWorker(ctx, m, inc)
}

// takesWorkers reports whether a new worker may begin now.
func (c *Coordinator) takesWorkers() bool {
	return !c.settling() && (!c.clocks.cut || c.barrier != nil)
}

// enterWorker makes a worker a member.
func (c *Coordinator) enterWorker(ctx *actor.Context, m joinRequest, inc uint64) error {
	if err := ctx.Monitor(m.Worker); err != nil {
		return err
	}
	for i, has := range m.Has[:min(len(m.Has), len(c.datasets))] {
		c.datasets[i].claim(inc, has)
	}
	c.nonces[m.Nonce] = inc
	c.members[inc] = &participant{name: m.Name, ref: m.Worker, nonce: m.Nonce, observer: m.Observer}
	if !m.Observer {
		if c.missing[inc] {
			c.clocks.comeBack(inc, m.Clock)
			c.back(inc)
		}
		c.clocks.join(inc, m.Clock)
		c.log.Info("worker joined", "worker", m.Name, "incarnation", inc, "clock", c.clockOf(inc))
	}
	return nil
}

// errStoreAway answers requests that are to be repeated until the coordination store has
// been told something.
var errStoreAway = errors.New("ps: the coordination store has not answered yet")

// enrolment is a worker for whom others will wait, of which the store is told.
type enrolment struct {
	join        joinRequest
	incarnation uint64
	attempt
}

// enrolled says that the store knows of a worker, or why it does not yet.
type enrolled struct {
	nonce string
	err   error
}

// maxEnrolling bounds the workers of which the store is told at the same time.
const maxEnrolling = 1024

// enrol tells the store of a worker, beside the actor: whatever takes time there must not hold
// the others' clocks. Once begun it is not given up, because the write may take place late.
func (c *Coordinator) enrol(req *actor.Request, m joinRequest, inc uint64) {
	c.enrolling[m.Nonce] = &enrolment{m, inc, attempt{req}}
	c.running.Go(func() {
		for c.ctx.Err() == nil {
			ctx, cancel := context.WithTimeout(c.ctx, storeTimeout)
			err := c.places.setMember(ctx, inc, []byte{1})
			cancel()
			_ = c.cfg.Node.Cast(c.ctx, c.ref, enrolled{m.Nonce, err}) // fails only when closed
			if err == nil {
				return
			}
			sleep(c.ctx, retryPause)
		}
	})
}

// enrolled takes in a worker of which the store knows, also one that asks no more: it is
// found to be gone then.
func (c *Coordinator) enrolled(ctx *actor.Context, m enrolled) {
	e := c.enrolling[m.nonce]
	switch {
	case m.err != nil:
		e.fail(fmt.Errorf("%w: %w", errStoreAway, m.err))
		return
	case !c.takesWorkers():
		ctx.SendAfter(reconcileInterval, m)
		return
	}
	delete(c.enrolling, m.nonce)
	if err := c.enterWorker(ctx, e.join, e.incarnation); err != nil {
		c.forgetMember(e.incarnation)
		e.fail(err)
	} else {
		e.reply(joinReply{Incarnation: e.incarnation, Clock: c.clockOf(e.incarnation)})
	}
}

// attempt is the latest request of somebody of whom the store is told, and is answered once.
type attempt struct {
	req *actor.Request // nil: answered
}

func (a *attempt) fail(err error) {
	if a.req != nil {
		a.req.Fail(err)
		a.req = nil
	}
}

func (a *attempt) reply(msg any) {
	if a.req != nil {
		a.req.Reply(msg)
		a.req = nil
	}
}

// mayReturn reports whether an incarnation may be one of an earlier coordinator that is
// on its way to this one.
func (c *Coordinator) mayReturn(inc uint64) bool {
	return inc < c.next && !c.gone[inc] && time.Since(c.started) <= retainGrace
}

// onItsWay reports whether the join of a member is on the way to this coordinator, as far
// as it can tell.
func (c *Coordinator) onItsWay(inc uint64) bool {
	return c.missing[inc] || c.members[inc] == nil && !c.cfg.Job.clocked() && c.mayReturn(inc)
}

// number hands out the next number that the store has reserved. When there is none, more
// are reserved beside the actor, and the caller is to ask again.
func (c *Coordinator) number() (uint64, error) {
	if len(c.enrolling) >= maxEnrolling {
		return 0, fmt.Errorf("%w: %d workers wait for it", errStoreAway, len(c.enrolling))
	}
	if c.next < c.limit {
		c.next++
		return c.next - 1, nil
	}
	if !c.reserves {
		c.reserves = true
		above := c.next - 1
		c.running.Go(func() {
			ctx, cancel := context.WithTimeout(c.ctx, storeTimeout)
			defer cancel()
			var m numbered
			m.first, m.limit, m.err = c.places.reserve(ctx, above)
			_ = c.cfg.Node.Cast(c.ctx, c.ref, m) // fails only when closed
		})
	}
	if c.unreserved != nil {
		return 0, fmt.Errorf("%w: %w", errStoreAway, c.unreserved)
	}
	return 0, errStoreAway
}

// numbered says which numbers have been reserved.
type numbered struct {
	first, limit uint64
	err          error
}

func (c *Coordinator) numbered(m numbered) {
	if c.reserves, c.unreserved = false, m.err; m.err == nil {
		c.next, c.limit = m.first, m.limit
	}
}

func (c *Coordinator) clockOf(inc uint64) uint32 {
	if m, ok := c.clocks.members[inc]; ok {
		return m.clock
	}
	return c.clocks.open()
}

// tick records the end of a worker's clock and answers everybody whom it releases.
func (c *Coordinator) tick(ctx *actor.Context, m tickRequest) {
	p := c.members[m.Incarnation]
	req := ctx.Request()
	if c.onItsWay(m.Incarnation) {
		answer(ctx, errReturning, nil)
		return
	}
	if p == nil || req == nil {
		answer(ctx, fmt.Errorf("%w: incarnation %d", ErrNotMember, m.Incarnation), nil)
		return
	}
	p.tick = req // an earlier request of the same clock has been given up
	released, err := c.clocks.tick(m.Incarnation, m.Clock)
	if err != nil {
		p.tick = nil
		req.Fail(err)
		return
	}
	c.release(released)
}

func (c *Coordinator) release(incarnations []uint64) {
	for _, inc := range incarnations {
		p := c.members[inc]
		if p == nil || p.tick == nil {
			continue // it asks again
		}
		p.tick.Reply(tickReply{Clock: c.clockOf(inc)})
		p.tick = nil
	}
	c.releaseStale()
}

// explain answers the requests whose attempt is about to end with what they wait for.
func (c *Coordinator) explain() {
	c.releaseStale()
	var slow []string
	low := c.clocks.finished()
	for _, inc := range slices.Sorted(maps.Keys(c.clocks.members)) {
		p := c.members[inc]
		if m := c.clocks.members[inc]; p != nil && !m.waiting && m.clock == low && len(slow) < 8 {
			slow = append(slow, p.name)
		}
	}
	for _, p := range c.members {
		if p.tick != nil && ends(p.tick) {
			p.tick.Fail(fmt.Errorf("%w at clock %d: %q", errWaiting, low, slow))
			p.tick = nil
		}
	}
	for _, e := range c.enrolling {
		if e.req != nil && ends(e.req) {
			e.fail(errStoreAway)
		}
	}
	for id, e := range c.entering {
		if e.req != nil && ends(e.req) {
			e.fail(fmt.Errorf("%w: server %q", errStoreAway, id))
		}
	}
}

// ends reports whether an attempt is about to end.
func ends(req *actor.Request) bool { return time.Until(req.Deadline()) < 2*reconcileInterval }

// leave forgets a participant. The others go on without it.
func (c *Coordinator) leave(inc uint64) {
	p := c.members[inc]
	if p == nil && !c.missing[inc] {
		return
	}
	c.forgetMember(inc)
	if time.Since(c.started) < retainGrace {
		c.gone[inc] = true // later ones are refused without being remembered
	}
	c.back(inc)
	if p == nil {
		return
	}
	delete(c.members, inc)
	delete(c.nonces, p.nonce)
	for _, d := range c.datasets {
		d.lose(inc)
	}
	if p.tick != nil {
		p.tick.Fail(fmt.Errorf("%w: worker %q has left", ErrNotMember, p.name))
	}
	c.release(c.clocks.leave(inc))
}

// checked says whether a participant answers whose connection was lost.
type checked struct {
	incarnation uint64
	alive       bool
}

// silentPatience is how long a participant for whose clock nobody waits may be silent
// before it is gone for good.
const silentPatience = 5 * time.Second

// verify asks a participant whether it lives, beside the actor: a lost connection does
// not say which side was away, and if it was this one, for a moment, nobody is gone.
func (c *Coordinator) verify(inc uint64, p *participant) {
	patience := silentPatience
	if c.cfg.Job.clocked() && !p.observer {
		patience = probeTimeout
	}
	ref := p.ref
	c.running.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, patience)
		defer cancel()
		err := c.ask(ctx, ref)
		for err != nil && ctx.Err() == nil && !errors.Is(err, actor.ErrNoProcess) && !errors.Is(err, syscall.ECONNREFUSED) {
			sleep(ctx, retryPause)
			err = c.ask(ctx, ref)
		}
		_ = c.cfg.Node.Cast(c.ctx, c.ref, checked{inc, err == nil}) // fails only when closed
	})
}

// ask asks a process once whether it lives.
func (c *Coordinator) ask(ctx context.Context, ref actor.Ref) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := c.cfg.Node.Call(ctx, ref, aliveRequest{})
	return err
}

// checked watches a participant again that lives, and forgets one that does not.
func (c *Coordinator) checked(ctx *actor.Context, m checked) {
	p := c.members[m.incarnation]
	switch {
	case p == nil: // it has left meanwhile
	case m.alive:
		_ = ctx.Monitor(p.ref) // a failure shows as another Down
	default:
		c.log.Warn("worker is gone", "worker", p.name, "incarnation", m.incarnation)
		c.leave(m.incarnation)
	}
}

// down takes note that a process or its node is gone.
func (c *Coordinator) down(ref actor.Ref) {
	for _, inc := range slices.Sorted(maps.Keys(c.members)) {
		if p := c.members[inc]; p.ref == ref {
			c.verify(inc, p)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.servers {
		if s.info.Node == ref.Node && s.info.Process == ref.Name && s.up {
			s.up = false
			c.log.Warn("server is gone", "server", id, "shards", len(c.places.owners().Of(id)))
			c.suspect(id)
		}
	}
}

// reconcile does what should have been done by now: place what is unplaced, tell
// servers who is left.
func (c *Coordinator) reconcile(ctx *actor.Context) {
	if c.placing == nil {
		c.place()
	}
	c.periodic()
	c.explain()
	c.judge()
	c.mu.Lock()
	if now := time.Now(); now.Sub(c.audited) > auditInterval { // whatever nobody has thought of
		c.unsettled, c.audited = true, now
		c.replaceLost()
		c.askReturning()
	}
	c.repair()
	c.mu.Unlock()
	if time.Since(c.started) < retainGrace {
		return
	}
	c.giveUp()
	clear(c.gone)
	m := retain{Term: c.term, Horizon: c.next - 1, Live: slices.Sorted(maps.Keys(c.members))}
	for _, e := range c.enrolling {
		m.Live = append(m.Live, e.incarnation)
	}
	slices.Sort(m.Live)
	if len(m.Live) > maxRetained {
		return // would not fit a message; the windows have a bound of their own
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if s.up {
			_ = ctx.TryCast(actor.Ref{Node: s.info.Node, Name: s.info.Process}, m) // sent again soon
		}
	}
}
