package ps

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

// Servers that come, tell what they have, and go: first the servers' side of it, then the
// coordinator's.

const (
	// predecessorGrace is how long a server waits for the coordinator to notice that an
	// earlier run of it is over, and registerPause how long before it asks again.
	predecessorGrace = 2 * time.Second
	registerPause    = 50 * time.Millisecond
)

// register tells the coordinator about this server, its data addresses and what it
// holds. It returns which coordinator knows now.
func (s *Server) register(ctx context.Context) (actor.Ref, error) {
	pages := s.pages()
	began := time.Now()
	for i := 0; ; {
		pages[i].Term = s.term.Load()
		reply, from, err := askFrom[registerReply](ctx, s.cfg.Node, s.coordinator, pages[i], nil)
		if err == nil {
			err = s.obeys(reply.Term)
		}
		switch i++; {
		case err == nil && i < len(pages):
			continue
		case errors.Is(err, errPages): // another coordinator does not have those before
		case !errors.Is(err, ErrConflict) || time.Since(began) > predecessorGrace:
			if err == nil && reply.Checkpoints && s.cfg.Checkpoints == nil { // the coordinator was started anew, with other settings
				s.log.Error("checkpoints will fail", "server", s.cfg.ID, "err", errNoCheckpoints)
			}
			return from, err
		}
		i = 0
		select { // an earlier run of this server may have died a moment ago
		case <-time.After(registerPause):
		case <-ctx.Done():
			return actor.Ref{}, err
		}
	}
}

// tellThatOut tells the coordinator that this run has nothing any more: who takes its place
// need not wait for its end.
func (s *Server) tellThatOut() {
	for s.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(s.ctx, joinTimeout)
		_, err := ask[done](ctx, s.cfg.Node, s.coordinator, outRequest{ID: s.cfg.ID, Run: s.info.Run})
		cancel()
		if err == nil {
			return
		}
		sleep(s.ctx, rejoinPause)
	}
}

// pages are the messages that tell the coordinator what this server holds.
func (s *Server) pages() []registerRequest {
	pages := []registerRequest{{Info: s.info}}
	var clock uint32
	for _, r := range s.inOrder(0) {
		r.mu.Lock()
		if copy, ok := r.holdsCopy(); ok {
			last := &pages[len(pages)-1]
			if len(last.Copies.Shards) == copiesPerPage {
				last.Next = uint32(r.spec.ID)
				pages = append(pages, registerRequest{Info: s.info, First: last.Next})
				last = &pages[len(pages)-1]
			}
			last.Copies.add(copy)
			for _, b := range r.blocks {
				clock = max(clock, b.clock)
				if r.options.ExpireClocks > 0 {
					clock = max(clock, uint32(b.steps))
				}
			}
		}
		r.mu.Unlock()
	}
	for i := range pages {
		pages[i].Clock = clock
	}
	return pages
}

// rejoin registers again with a coordinator that comes back, or has forgotten this server,
// beside the actor.
func (a *serverActor) rejoin(c *actor.Context) {
	if s := a.s; s.rejoining.CompareAndSwap(false, true) {
		s.spawn(func() { s.rejoin(c) })
	}
}

func (s *Server) rejoin(c *actor.Context) {
	for s.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(s.ctx, joinTimeout)
		from, err := s.register(ctx)
		cancel()
		if err == nil {
			s.rejoining.Store(false)
			_ = c.Monitor(from) // a failure shows as another Down
			return
		}
		if errors.Is(err, ErrNotMember) {
			s.out.Store(true) // for good, also for coordinators to come: rejoining stays set
			s.drop()
			s.log.Warn("server is out of the job", "server", s.cfg.ID, "err", err)
			s.tellThatOut()
			return
		}
		s.log.Warn("server cannot reach the coordinator", "server", s.cfg.ID, "err", err)
		sleep(s.ctx, rejoinPause)
	}
}

// errPages means that the page of copies that was registered is not the next one: the
// server begins with the first.
var errPages = errors.New("ps: copies out of order")

// arrival is a server that registers, page by page.
type arrival struct {
	run         uint64
	first, next uint32 // of the last page: where it began, and where the next one does
	copies      copies
}

// register takes a server in, new or come back, when the last page of what it has is there.
func (c *Coordinator) register(ctx *actor.Context, m registerRequest) {
	if err := c.admit(m); err != nil {
		delete(c.arriving, m.Info.ID)
		answer(ctx, err, nil)
		return
	}
	a, err := c.arrive(m)
	if err != nil || m.Next != 0 {
		answer(ctx, err, c.registered())
		return
	}
	delete(c.arriving, m.Info.ID)
	n := ctx.Node()
	if m.Info.Node != n.Name() {
		if err := n.AddPeer(m.Info.Node, m.Info.Addr); err != nil {
			answer(ctx, err, nil)
			return
		}
	}
	e := &entrance{m, a.copies, attempt{ctx.Request()}}
	switch under := c.entering[m.Info.ID]; {
	case under != nil && under.register.Info.Run == m.Info.Run:
		under.fail(errStoreAway) // the earlier attempt, which has been given up
		*under = *e
	case under != nil: // of the two, the one counts that the store will name
		e.fail(fmt.Errorf("%w: server %q, run %d", errStoreAway, m.Info.ID, under.register.Info.Run))
	case c.places.knows(m.Info):
		c.enter(ctx, e)
	default:
		c.entering[m.Info.ID] = e
		c.remember(m.Info)
	}
}

func (c *Coordinator) registered() registerReply {
	return registerReply{c.cfg.Job.Name, c.term, c.cfg.Checkpoints.Storage != nil}
}

// entrance is a server that has told everything.
type entrance struct {
	register registerRequest
	copies   copies
	attempt
}

// noted says that the store knows which run of a server counts, or why it does not.
type noted struct {
	server shard.ServerID
	err    error
}

// remember tells the store of a server, beside the actor: whatever takes time there must not
// hold the workers' clocks.
func (c *Coordinator) remember(info serverInfo) {
	c.running.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, storeTimeout)
		defer cancel()
		err := c.places.remember(ctx, info)
		_ = c.cfg.Node.Cast(c.ctx, c.ref, noted{info.ID, err}) // fails only when closed
	})
}

// noted takes a server in of which the store knows.
func (c *Coordinator) noted(ctx *actor.Context, m noted) {
	e := c.entering[m.server]
	delete(c.entering, m.server)
	err := m.err
	if err == nil {
		err = c.admit(e.register) // it may have been taken out meanwhile
	} else if errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", errStoreAway, err)
	}
	switch {
	case err != nil:
		e.fail(err)
	case !c.places.knows(e.register.Info): // it has come from another address meanwhile
		e.fail(errStoreAway)
	default:
		c.enter(ctx, e)
	}
}

// enter makes a server of which the store knows part of the job.
func (c *Coordinator) enter(ctx *actor.Context, e *entrance) {
	info := e.register.Info
	c.hold(e.register, e.copies)
	if err := ctx.Monitor(actor.Ref{Node: info.Node, Name: info.Process}); err != nil {
		e.fail(err)
	} else {
		e.reply(c.registered())
	}
}

// admit returns an error unless a server may take part now.
func (c *Coordinator) admit(m registerRequest) error {
	id, run := m.Info.ID, m.Info.Run
	if m.Term > c.term {
		c.depose(fmt.Errorf("%w: server %q has heard of term %d, this is %d", ErrDeposed, id, m.Term, c.term))
		return c.Err()
	}
	if err := c.places.where(id).admits(id, run, len(m.Copies.Shards) == 0); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, leaves := c.leaving[id]; leaves {
		return fmt.Errorf("%w: server %q", errLeaving, id)
	}
	if s := c.servers[id]; s != nil && s.up && s.info.Run != run {
		return fmt.Errorf("%w: server %q runs on node %q already", ErrConflict, id, s.info.Node)
	}
	return nil
}

// arrive takes one page of what a server has. A repeated one changes nothing.
func (c *Coordinator) arrive(m registerRequest) (*arrival, error) {
	a := c.arriving[m.Info.ID]
	switch {
	case m.First == 0:
		a = &arrival{run: m.Info.Run}
		c.arriving[m.Info.ID] = a
	case a == nil || a.run != m.Info.Run:
		return nil, errPages
	case m.First == a.first:
		return a, nil
	case m.First != a.next:
		return nil, errPages
	}
	a.first, a.next = m.First, m.Next
	m.Copies.each(func(id shard.ID, copy shard.Copy) {
		if int(id) < len(c.shards) {
			a.copies.put(id, copy)
		}
	})
	return a, nil
}

// hold makes a server that has registered part of the job, with what it has.
func (c *Coordinator) hold(m registerRequest, has copies) {
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
	missing := c.holdings(m.Info.ID)
	has.each(func(id shard.ID, copy shard.Copy) {
		delete(missing, id)
		c.created(s, m.Info.ID, id, copy)
	})
	// The same run of a server loses nothing: a repeated request may only be older
	// than the shards that were placed there since.
	if s.info.Run != m.Info.Run {
		s.lost = map[shard.ID]bool{}
		for id, r := range missing {
			s.lost[id] = true
			if !r.Recoverable() {
				c.log.Error("shard lost: its only server has come back without it", "shard", id, "server", m.Info.ID)
			}
		}
		c.fail(m.Info.ID, missing)
	}
	s.info, s.up = m.Info, true
	c.unsettled = true
}

// created takes note of a copy that a server has. One whose record was not written
// yet is claimed; what the record does not want is put right. The caller holds c.mu.
func (c *Coordinator) created(s *serverState, server shard.ServerID, id shard.ID, copy shard.Copy) {
	r := c.places.record(id)
	c.speaks(r.Assignment, server, copy)
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
	if _, leaves := c.leaving[m.ID]; leaves || s == nil || s.info.Run != m.Run || c.entering[m.ID] != nil || c.places.isOpen(m.ID) {
		c.mu.Unlock()
		if !leaves { // taken out or replaced, perhaps: it finds out which
			_ = ctx.TryCast(ctx.From(), registerAgain{Term: c.term}) // the next report asks again
		}
		return
	}
	// A report of a server that is down: its connection broke and is back, and the news
	// of that came after the server had registered again.
	back, ref := !s.up, actor.Ref{Node: s.info.Node, Name: s.info.Process}
	s.load, s.up = m.Load, true
	for _, n := range m.Counts {
		if int(n.Shard) < len(c.shards) && c.places.record(shard.ID(n.Shard)).Assignment.Owner == m.ID {
			c.applied[shard.ID(n.Shard)] = n.Applied
		}
	}
	for _, l := range m.Lost {
		if int(l.Shard) < len(c.shards) {
			c.drop(shard.Assignment{Shard: shard.ID(l.Shard), Owner: m.ID, Epoch: shard.Epoch(l.Epoch)}, l.Follower)
		}
	}
	c.compare(s, m.Copies)
	c.mu.Unlock()
	if back {
		_ = ctx.Monitor(ref) // a failure shows as another Down
	}
}

// errLeaving answers requests that are to be repeated when a removal is over.
var errLeaving = errors.New("ps: the server is being taken out")

// maxRemovals bounds the requests to remove the same server that wait.
const maxRemovals = 64

func (c *Coordinator) drain(m drainRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.servers[m.Server]
	if s == nil {
		return fmt.Errorf("%w: unknown server %q", ErrConflict, m.Server)
	}
	if _, leaves := c.leaving[m.Server]; leaves {
		return fmt.Errorf("%w: server %q is being taken out", ErrConflict, m.Server)
	}
	s.draining = m.Drain
	c.unsettled = true
	return nil
}

// left says that the store has that a server has left.
type left struct{ server shard.ServerID }

// remove forgets a server that is down or draining, owns nothing and is not about to. It is
// answered when the store has it: no coordinator to come takes the server for one that is
// in the job. Once begun it is not given up, because the write may take place late.
func (c *Coordinator) remove(req *actor.Request, id shard.ServerID) {
	if req == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting, leaves := c.leaving[id]
	if leaves {
		waiting = append(waiting, req)
		c.leaving[id] = waiting[max(0, len(waiting)-maxRemovals):] // the latest attempts
		return
	}
	how, err := c.mayLeave(id)
	if err != nil {
		req.Fail(err)
		return
	}
	c.leaving[id] = []*actor.Request{req}
	c.running.Go(func() {
		for c.ctx.Err() == nil {
			ctx, cancel := context.WithTimeout(c.ctx, storeTimeout)
			err := c.places.leave(ctx, id, how)
			cancel()
			if err == nil {
				_ = c.cfg.Node.Cast(c.ctx, c.ref, left{id}) // fails only when closed
				return
			}
			c.log.Warn("coordination store", "server", id, "err", err)
			sleep(c.ctx, retryPause)
		}
	})
}

// left answers those who wait for a removal.
func (c *Coordinator) left(id shard.ServerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.servers, id)
	delete(c.heard, id)
	delete(c.arriving, id)
	for _, req := range c.leaving[id] {
		req.Reply(done{})
	}
	delete(c.leaving, id)
}

// mayLeave says how a server would leave now, or why it may not. The caller holds c.mu.
func (c *Coordinator) mayLeave(id shard.ServerID) (how departure, err error) {
	if owned := len(c.places.owners().Of(id)); owned > 0 {
		return 0, fmt.Errorf("%w: server %q still owns %d shards", ErrConflict, id, owned)
	}
	if c.entering[id] != nil {
		return 0, fmt.Errorf("%w: server %q", errStoreAway, id)
	}
	if c.placing[id] { // their records are about to name it
		return 0, fmt.Errorf("%w: shards are being created on server %q", ErrConflict, id)
	}
	s := c.servers[id]
	if at := c.places.where(id); s == nil && at.ID != "" && at.Left == present && time.Since(c.started) <= retainGrace {
		return 0, fmt.Errorf("%w: server %q", errReturning, id)
	}
	if s != nil && s.up && !s.draining { // it may have been down when the caller looked
		return 0, fmt.Errorf("%w: server %q is up and not draining", ErrConflict, id)
	}
	for _, r := range c.places.all() {
		becomes := false // a follower
		if p := r.Pending; p != nil && (p.From == id || p.To == id) {
			if p.Kind != shard.KindReplicate {
				return 0, fmt.Errorf("%w: server %q takes part in a move of shard %d", ErrConflict, id, p.Shard)
			}
			becomes = true
		}
		if s == nil || !becomes && !r.Followers.Has(id) {
			continue
		}
		c.unsettled = true
		return 0, fmt.Errorf("%w: server %q follows shard %d", errReplacing, id, r.Assignment.Shard)
	}
	if s != nil && s.draining {
		return removed, nil
	}
	return forgotten, nil
}
