package ps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
)

// commandKind is what a command asks for.
type commandKind uint8

const (
	commandStep  commandKind = iota // the effect of a move that Step names
	commandHost                     // create a shard that never existed
	commandOwns                     // say whether this server has the shard as its owner
	commandEvict                    // drop a shard that was created here but recorded elsewhere: it never had a client
)

// maxStep bounds how long a step may take whatever the coordinator asks for.
const maxStep = time.Hour

// flight is a step under way. The same command arriving again waits for the same
// outcome instead of starting over.
type flight struct {
	ended chan struct{}
	err   error
}

type flightKey struct {
	kind    commandKind
	step    shard.EffectKind
	shard   shard.ID
	epoch   shard.Epoch
	attempt uint64
	set     uint64
}

// answer performs a command once, however often it is sent, and answers it.
func (s *Server) answer(req *actor.Request, m command) {
	key := flightKey{m.Kind, m.Step, shard.ID(m.Shard), shard.Epoch(m.Epoch), m.Attempt, m.Set}
	s.mu.Lock()
	f, running := s.flights[key]
	if !running {
		f = &flight{ended: make(chan struct{})}
		s.flights[key] = f
	}
	s.mu.Unlock()
	if !running {
		ctx, cancel := context.WithTimeout(s.ctx, min(max(m.Timeout, time.Millisecond), maxStep))
		f.err = s.execute(ctx, m)
		cancel()
		if errors.Is(f.err, context.DeadlineExceeded) || errors.Is(f.err, context.Canceled) {
			// It has failed for good: who reads that its time is over would ask again.
			f.err = fmt.Errorf("%w: %v", ErrUnavailable, f.err)
		}
		s.mu.Lock()
		delete(s.flights, key)
		s.mu.Unlock()
		close(f.ended)
	}
	<-f.ended // bounded by the step's own timeout
	if f.err != nil {
		s.log.Warn("step failed", "server", s.cfg.ID, "step", m.Step, "shard", m.Shard, "epoch", m.Epoch, "err", f.err)
	}
	if req == nil {
		return
	}
	if f.err != nil {
		req.Fail(f.err)
		return
	}
	reply := commandReply{}
	if r := s.replica(key.shard); r != nil {
		r.mu.Lock()
		reply.Bytes, reply.Filled = r.stateBytes(), r.filled
		r.mu.Unlock()
	}
	req.Reply(reply)
}

// execute performs one order. shard.Copy decides whether it is taken; each is
// idempotent.
func (s *Server) execute(ctx context.Context, m command) error {
	if int(m.Shard) >= len(s.shards) {
		return fmt.Errorf("%w: shard %d, the job has %d", shard.ErrRefused, m.Shard, len(s.shards))
	}
	order := shard.Effect{
		Kind: m.Step, Shard: shard.ID(m.Shard), Server: s.cfg.ID, Peer: m.Peer.ID,
		Epoch: shard.Epoch(m.Epoch), Attempt: m.Attempt, Join: m.Join, Set: m.Set,
	}
	for _, f := range m.Followers {
		if order.Followers.Len() < shard.MaxFollowers {
			order.Followers = order.Followers.With(f.ID)
		}
	}
	r, err := s.copyOf(order.Shard)
	if err != nil {
		return err
	}
	switch m.Kind {
	case commandHost:
		return s.fill(ctx, r, order, m.From)
	case commandOwns:
		return r.owns(order)
	case commandEvict:
		return r.evict(order)
	}
	switch m.Step {
	case shard.EffectFollow:
		return s.follow(ctx, r, order, m.Peer, m.Rate)
	case shard.EffectFreeze:
		return r.freeze(ctx, order)
	case shard.EffectActivate:
		return s.activate(ctx, r, order, m)
	}
	return s.take(r, order)
}

// copyOf returns this server's copy of a shard, an absent one if it has none.
func (s *Server) copyOf(id shard.ID) (*replica, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, fmt.Errorf("%w: server %q", ErrClosed, s.cfg.ID)
	}
	r := s.replicas[id]
	if r == nil {
		r = newReplica(s.job, s.shards[id])
		s.replicas[id] = r
	}
	return r, nil
}

// owns refuses unless this copy is the owner's. On a refusal another server may get the shard, so
// it ends the attempt here: an order to fill the copy that comes later is refused. One that
// has a copy, or is about to have it filled, does not say.
func (r *replica) owns(order shard.Effect) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.copy
	if was.Owns() && was.Epoch == order.Epoch {
		return nil
	}
	next, hasNone := was.Deny(order.Attempt)
	if !hasNone || r.filling > 0 {
		return fmt.Errorf("%w: shard %d may yet be served here: the copy is %v at epoch %d", ErrUnavailable, order.Shard, was.State, was.Epoch)
	}
	if next != was {
		r.free()
		r.become(next)
	}
	return fmt.Errorf("%w: the copy of shard %d is %v at epoch %d, not the owner's at epoch %d", shard.ErrRefused, order.Shard, was.State, was.Epoch, order.Epoch)
}

// evict drops a copy that no move has touched.
func (r *replica) evict(order shard.Effect) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.copy.MayAcknowledge(order.Epoch) && r.copy.Attempt == 0 {
		r.free()
		r.become(shard.Copy{})
	}
	return nil
}

// take carries out an order that needs nobody else.
func (s *Server) take(r *replica, order shard.Effect) error {
	r.mu.Lock()
	was := r.copy
	next, err := r.copy.Step(order)
	if err != nil || next == was {
		r.mu.Unlock()
		return err
	}
	switch next.State {
	case shard.Receiving:
		r.allocate()
	case shard.Released, shard.Absent:
		r.free()
	}
	ended, answers := r.assume(next)
	r.mu.Unlock()
	endAll(ended, errNotFollowing)
	answerDeferred(answers.ready)
	refuseDeferred(answers.dropped)
	return nil
}

// activate makes a copy the owner. It returns when the followers that the record has go on
// with this server, or are lost: the owner answers nothing before, and whoever has a push
// sent there sends it twice. One that is promoted answers nothing before the lease of its
// predecessor is over, unless that is known to be dead.
func (s *Server) activate(ctx context.Context, r *replica, order shard.Effect, m command) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.copy
	next, err := r.copy.Step(order)
	if err != nil || next == was {
		return err
	}
	promoted := order.Attempt > was.Attempt && !m.Sure
	r.quiet = time.Time{}
	if promoted && r.source != nil {
		if left := time.Duration(r.source.heard.Load()-since()) + leaseTime + leaseDrift; left > 0 {
			r.quiet = time.Now().Add(left)
			s.spawn(func() { sleep(s.ctx, left); r.speak() })
		}
	}
	r.source = nil
	for _, to := range m.Followers {
		if next.Followers.Has(to.ID) {
			r.gathering++
			s.spawn(func() { s.refollow(r, order, to) })
		}
	}
	_, _ = r.assume(next) // it had no streams and no answers to give
	for r.gathering > 0 && r.waitRoom(ctx) {
	}
	return nil
}

// speak wakes those who wait for a promoted copy.
func (r *replica) speak() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.become(r.copy)
}

// refollowPatience is how long a new owner looks for the followers of its predecessor,
// and answers nothing.
const refollowPatience = 500 * time.Millisecond

// refollow has a follower of the former owner go on with this one, whose state is the
// same until it answers the first request. If it cannot, the coordinator is told, and
// takes it from the set.
func (s *Server) refollow(r *replica, order shard.Effect, to serverInfo) {
	ctx, cancel := context.WithTimeout(s.ctx, refollowPatience)
	defer cancel()
	f := newFollowerStream(r, order.Attempt)
	f.refollow = true
	err := f.open(ctx, s, order, to)
	r.mu.Lock()
	if r.gathering--; r.gathering == 0 {
		r.become(r.copy) // wakes those who wait
	}
	r.mu.Unlock()
	if err != nil {
		s.log.Warn("follower is lost", "server", s.cfg.ID, "shard", order.Shard, "follower", to.ID, "err", err)
		s.reportSoon()
	}
}

// settlement has the deferred answers that can be given when the role of a copy changes.
type settlement struct{ ready, dropped []deferred }

// assume gives the copy another role. It returns the streams that have no use any more,
// and the deferred answers that can be given now; the caller, who holds mu, sees to
// them when it does not any more.
func (r *replica) assume(next shard.Copy) (ended []*followerStream, a settlement) {
	r.become(next)
	ended = r.unwanted(next)
	if r.copy.Owns() {
		a.ready = r.settled()
		return ended, a
	}
	a.dropped, r.deferred = r.deferred, nil
	return slices.Clone(r.streams), a // each that ends is taken off r.streams
}
