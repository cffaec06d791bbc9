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
	"github.com/elasticps/elasticps/shard"
)

// Who takes part: the part of the coordinator that deals with servers and workers
// coming, going and dying.

const (
	storeTimeout = 5 * time.Second
	maxRetained  = 6000
)

// register takes a server in, new or come back.
func (c *Coordinator) register(ctx *actor.Context, m registerRequest) error {
	if m.Term > c.term {
		c.depose(fmt.Errorf("%w: server %q has heard of term %d, this is %d", ErrDeposed, m.Info.ID, m.Term, c.term))
		return c.Err()
	}
	if c.removed[m.Info.Instance] {
		return fmt.Errorf("%w: server %q was taken out, and takes part again only when it is started again", ErrNotMember, m.Info.ID)
	}
	n := ctx.Node()
	if m.Info.Node != n.Name() {
		if err := n.AddPeer(m.Info.Node, m.Info.Addr); err != nil {
			return err
		}
	}
	if other := c.info(m.Info.ID); c.isUp(m.Info.ID) && other.Instance != m.Info.Instance {
		return fmt.Errorf("%w: server %q runs on node %q already", ErrConflict, m.Info.ID, other.Node)
	}
	former := c.places.where(m.Info.ID)
	patience, cancel := context.WithTimeout(ctx.Context(), storeTimeout)
	defer cancel()
	if err := c.places.remember(patience, m.Info); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.servers[m.Info.ID]
	if s == nil {
		s = &serverState{}
		c.servers[m.Info.ID] = s
	}
	c.heard[m.Info.ID], s.wrong = true, map[shard.ID]*wrongCopy{}
	if m.Clock > 0 {
		c.clocks.next = max(c.clocks.next, m.Clock+1)
	}
	held := map[shard.ID]bool{}
	m.Copies.each(func(id shard.ID, copy shard.Copy) {
		if int(id) >= len(c.shards) {
			return
		}
		held[id] = !c.isOver(m.Info.ID, id, copy)
		c.created(s, m.Info.ID, id, copy)
	})
	// The same run of a server loses nothing: a repeated request may only be older
	// than the shards that were placed there since.
	if s.info.Instance != m.Info.Instance {
		s.lost = map[shard.ID]bool{}
		for _, r := range c.places.all() {
			if id := r.Assignment.Shard; r.Assignment.Owner == m.Info.ID && !held[id] {
				s.lost[id] = true
				if !r.Recoverable() {
					c.log.Error("shard lost: its only server has come back without it", "shard", id, "server", m.Info.ID)
				}
			}
		}
		c.fail(m.Info.ID, former.Addr, m.Info.Addr, s.lost, held)
	}
	s.info, s.up = m.Info, true
	c.unsettled = true
	return ctx.Monitor(actor.Ref{Node: m.Info.Node, Name: m.Info.Process})
}

// isOver reports whether a copy is what an owner had before it was replaced: an earlier run
// of a server that owns the shard again by now.
func (c *Coordinator) isOver(server shard.ServerID, id shard.ID, copy shard.Copy) bool {
	a := c.places.record(id).Assignment
	serves := copy.State == shard.Serving || copy.State == shard.Following
	return a.Owner == server && serves && copy.Epoch < a.Epoch
}

// created takes note of a copy that a server has. One whose record was not written
// yet is claimed; what the record does not want is put right. The caller holds c.mu.
func (c *Coordinator) created(s *serverState, server shard.ServerID, id shard.ID, copy shard.Copy) {
	r := c.places.record(id)
	if r.Assignment.Owner == "" {
		c.claims[id] = server
		return
	}
	if e, isWrong := r.Correct(server, copy); isWrong {
		c.correct(s, &wrongCopy{order: e}, copy)
	}
}

func (c *Coordinator) report(ctx *actor.Context, m serverReport) {
	c.mu.Lock()
	s := c.servers[m.ID]
	if s == nil || s.info.Instance != m.Instance {
		c.mu.Unlock()
		if s == nil {
			_ = ctx.TryCast(ctx.From(), registerAgain{Term: c.term}) // the next report asks again
		}
		return
	}
	// A report of a server that is down: its connection broke and is back, and the news
	// of that came after the server had registered again.
	back, ref := !s.up, actor.Ref{Node: s.info.Node, Name: s.info.Process}
	s.load, s.up = m.Load, true
	for _, n := range m.Alone {
		c.applied[shard.ID(n.Shard)] = n.Applied
	}
	for _, l := range m.Lost {
		if int(l.Shard) < len(c.shards) {
			c.drop(shard.ID(l.Shard), l.Follower)
		}
	}
	c.compare(s, m.Copies)
	c.mu.Unlock()
	if back {
		_ = ctx.Monitor(ref) // a failure shows as another Down
	}
}

// join takes a worker in. A repeated request gets the same answer; one that comes
// back to a restarted coordinator keeps its incarnation and clock.
func (c *Coordinator) join(ctx *actor.Context, m joinRequest) (joinReply, error) {
	if inc, known := c.nonces[m.Nonce]; known {
		return joinReply{Incarnation: inc, Clock: c.clockOf(inc)}, nil
	}
	inc := m.Incarnation
	missing := c.missing[inc]
	switch {
	case inc != 0 && !m.Observer && c.cfg.Job.clocked() && !missing,
		inc != 0 && (c.members[inc] != nil || !c.mayReturn(inc)):
		return joinReply{}, fmt.Errorf("%w: incarnation %d was taken for gone", ErrNotMember, inc)
	case inc == 0 && !m.Observer && (c.settling() || (c.clocks.cut && c.barrier == nil)):
		return joinReply{}, errReturning
	case inc == 0:
		var err error
		if inc, err = c.newIncarnation(ctx.Context(), !m.Observer); err != nil {
			return joinReply{}, err
		}
	}
	if err := ctx.Monitor(m.Worker); err != nil {
		return joinReply{}, err
	}
	for i, has := range m.Has[:min(len(m.Has), len(c.datasets))] {
		c.datasets[i].claim(inc, has)
	}
	c.nonces[m.Nonce] = inc
	c.members[inc] = &participant{name: m.Name, ref: m.Worker, nonce: m.Nonce, observer: m.Observer}
	if !m.Observer {
		if missing {
			c.clocks.comeBack(inc, m.Clock)
			c.back(inc)
		}
		c.clocks.join(inc, m.Clock)
		c.log.Info("worker joined", "worker", m.Name, "incarnation", inc, "clock", c.clockOf(inc))
	}
	return joinReply{Incarnation: inc, Clock: c.clockOf(inc)}, nil
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

// newIncarnation takes the next number and, for a member whom others may wait for,
// writes that down.
func (c *Coordinator) newIncarnation(ctx context.Context, member bool) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if c.next == c.limit {
		first, limit, err := c.places.reserve(ctx)
		if err != nil {
			return 0, err
		}
		c.next, c.limit = first, limit
	}
	if member && c.cfg.Job.awaited() {
		if err := c.places.setMember(ctx, c.next, []byte{1}); err != nil {
			return 0, err
		}
	}
	c.next++
	return c.next - 1, nil
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

// explain answers the ticks whose attempt is about to end with whom they wait for.
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
		if p.tick != nil && time.Until(p.tick.Deadline()) < 2*reconcileInterval {
			p.tick.Fail(fmt.Errorf("%w at clock %d: %q", errWaiting, low, slow))
			p.tick = nil
		}
	}
}

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
	if !c.placing {
		c.place()
	}
	c.periodic()
	c.explain()
	c.judge()
	c.mu.Lock()
	if now := time.Now(); now.Sub(c.audited) > auditInterval { // whatever nobody has thought of
		c.unsettled, c.audited = true, now
	}
	c.repair()
	c.mu.Unlock()
	if time.Since(c.started) < retainGrace {
		return
	}
	c.giveUp()
	clear(c.gone)
	m := retain{Term: c.term, Horizon: c.next - 1, Live: slices.Sorted(maps.Keys(c.members))}
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

// candidates are the servers that may get shards. The caller holds c.mu.
func (c *Coordinator) candidates() []shard.Server {
	var out []shard.Server
	for _, id := range slices.Sorted(maps.Keys(c.servers)) {
		if s := c.servers[id]; s.up {
			out = append(out, shard.Server{ID: id, Draining: s.draining, Domain: s.info.Domain})
		}
	}
	return out
}

// place gives new shards their first owners. A shard's record is written after its
// server has created it, so that a record never names a server without the shard.
func (c *Coordinator) place() {
	free := c.places.unplaced()
	c.mu.Lock()
	servers := c.candidates()
	c.mu.Unlock()
	up := slices.DeleteFunc(slices.Clone(servers), func(s shard.Server) bool { return s.Draining })
	if len(free) == 0 || len(up) < c.cfg.Job.MinServers {
		return
	}
	m, err := shard.Assign(c.places.owners(), c.shards, c.known(servers), shard.Shard.Bytes)
	if err != nil {
		c.log.Warn("cannot place", "err", err)
		return
	}
	c.placing = true
	var todo []shard.Assignment
	for _, id := range free {
		a, _ := m.Owner(id)
		if claimed, ok := c.claims[id]; ok && c.isUp(claimed) {
			a.Owner = claimed
		}
		todo = append(todo, a)
	}
	c.running.Go(func() {
		err := c.create(todo)
		_ = c.cfg.Node.Cast(c.ctx, c.ref, placed{err}) // fails only when closed
	})
}

// known adds the owners that are down, which Assign has to know but must not use.
func (c *Coordinator) known(servers []shard.Server) []shard.Server {
	have := map[shard.ServerID]bool{}
	for _, s := range servers {
		have[s.ID] = true
	}
	for _, a := range c.places.owners().Assignments {
		if a.Owner != "" && !have[a.Owner] {
			have[a.Owner] = true
			servers = append(servers, shard.Server{ID: a.Owner, Draining: true})
		}
	}
	return servers
}

func (c *Coordinator) create(todo []shard.Assignment) error {
	var errs []error
	for _, a := range todo {
		ctx, cancel := context.WithTimeout(c.ctx, c.cfg.CopyTimeout)
		_, err := c.order(ctx, a.Owner, command{
			Kind: commandHost, Shard: uint32(a.Shard), Epoch: uint64(a.Epoch), Timeout: c.cfg.CopyTimeout, From: c.restoredFrom(),
		})
		if err == nil {
			create := func(shard.Record) (shard.Record, error) { return shard.Record{Assignment: a}, nil }
			if err = c.places.change(ctx, a.Shard, create); err != nil {
				_, _ = c.places.read(ctx, a.Shard) // it may have been written all the same
			}
		}
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("shard %d on %q: %w", a.Shard, a.Owner, err))
		}
	}
	return errors.Join(errs...)
}

func (c *Coordinator) drain(m drainRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.servers[m.Server]
	if s == nil {
		return fmt.Errorf("%w: unknown server %q", ErrConflict, m.Server)
	}
	s.draining = m.Drain
	c.unsettled = true
	return nil
}

// maxRemoved bounds the runs of servers that are remembered as removed.
const maxRemoved = 1024

// remove forgets a server that is down or draining, owns nothing and is not about to.
func (c *Coordinator) remove(id shard.ServerID) error {
	if owned := len(c.places.owners().Of(id)); owned > 0 {
		return fmt.Errorf("%w: server %q still owns %d shards", ErrConflict, id, owned)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.servers[id]
	if s != nil && s.up && !s.draining { // it may have been down when the caller looked
		return fmt.Errorf("%w: server %q is up and not draining", ErrConflict, id)
	}
	for _, r := range c.places.all() {
		becomes := false // a follower
		if p := r.Pending; p != nil && (p.From == id || p.To == id) {
			if p.Kind != shard.KindReplicate {
				return fmt.Errorf("%w: server %q takes part in a move of shard %d", ErrConflict, id, p.Shard)
			}
			becomes = true
		}
		if s == nil || !becomes && !r.Followers.Has(id) {
			continue
		}
		c.unsettled = true
		return fmt.Errorf("%w: server %q follows shard %d", errReplacing, id, r.Assignment.Shard)
	}
	if s != nil && (s.up || s.draining) {
		if len(c.removed) >= maxRemoved {
			clear(c.removed)
		}
		c.removed[s.info.Instance] = true
	}
	delete(c.servers, id)
	c.forgetServer(id)
	return nil
}
