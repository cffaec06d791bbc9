package sim

import (
	"time"

	"github.com/elasticps/elasticps/shard"
)

// pipe is one direction of a connection between two runs: in order, without loss
// until it breaks.
type pipe struct {
	from, to *process
	toRun    int
	queue    []func()
	pumping  bool
	closed   bool
}

func newPipe(from, to *process) *pipe {
	return &pipe{from: from, to: to, toRun: to.run}
}

func (p *pipe) write(frame func()) {
	if p.closed {
		return
	}
	p.queue = append(p.queue, frame)
	p.pump()
}

func (p *pipe) pump() {
	if p.pumping || len(p.queue) == 0 {
		return
	}
	p.pumping = true
	p.from.w.after(p.from.w.delay(), p.deliver)
}

func (p *pipe) deliver() {
	w := p.from.w
	p.pumping = false
	switch {
	case !p.to.up || p.to.run != p.toRun || len(p.queue) == 0:
		p.closed, p.queue = true, nil
		return
	case p.from.cut(p.to):
		p.pumping = true
		w.after(beatEvery, p.deliver)
		return
	case p.to.hungUntil > w.now:
		p.pumping = true
		w.after(p.to.hungUntil-w.now, p.deliver)
		return
	}
	frame := p.queue[0]
	p.queue = p.queue[1:]
	frame()
	p.pump()
}

// close ends the direction; what was written may arrive all the same.
func (p *pipe) close() {
	p.closed = true
	if len(p.queue) > 0 && p.from.w.rng.IntN(2) == 0 {
		p.queue = p.queue[:p.from.w.rng.IntN(len(p.queue))]
	}
}

// stream is the owner's end of a connection that makes or keeps another server's copy
// of a shard.
type stream struct {
	owner     *replica
	to        *server
	attempt   uint64
	out, back *pipe
	ended     bool
	gathered  bool // the owner looks for this follower of the former one

	sent      int  // blocks queued
	state     bool // the state frame is queued: what follows is part of its windows
	caughtUp  bool // and confirmed
	confirmed uint64
	inFlight  int           // updates under way
	heard     time.Duration // last sign of life, by the owner's clock
	lease     time.Duration // until when, by the owner's clock
}

// open starts a stream that fills the target's copy block by block, or that goes on with
// a follower whose state is the same.
func (r *replica) open(to shard.ServerID, attempt uint64, refollow bool) {
	if s := r.streamTo(to); s != nil {
		s.end("replaced")
	}
	t := r.peers[to]
	if t == nil {
		return // who ordered it does not know where that is
	}
	s := &stream{owner: r, to: t, attempt: attempt, out: newPipe(r.at.process, t.process), back: newPipe(t.process, r.at.process), heard: r.at.clock()}
	r.streams = append(r.streams, s)
	change, epoch, last := r.applied, r.copy.Epoch, r.last
	target := t.replicas[r.index]
	s.out.write(func() { target.accept(s, refollow, epoch, change, last) })
	if refollow {
		s.sent, s.state, s.gathered = NumBlocks, true, true
		r.gathering++
		r.at.after(gatherTime, func() {
			if s.gathered {
				s.end("not found")
			}
		})
		return
	}
	s.nextBlock()
}

// found ends the search for a follower of the former owner.
func (s *stream) found() {
	if s.gathered {
		s.gathered = false
		s.owner.gathering--
	}
}

// nextBlock queues a block when the one before has been delivered, and behind the
// last one the windows and counters.
func (s *stream) nextBlock() {
	if s.ended {
		return
	}
	r, target := s.owner, s.to.replicas[s.owner.index]
	if s.sent < NumBlocks {
		b := s.sent
		content := r.blocks[b]
		s.sent++
		s.out.write(func() { target.receiveBlock(s, b, content) })
		return
	}
	s.state = true
	if r.joins == s.attempt && !r.at.w.mutants.NoJoin {
		next, err := r.copy.Join(s.attempt)
		if err != nil {
			s.end(err.Error())
			return
		}
		r.copy = next
	}
	windows, change, last := r.windows.Append(nil), r.applied, r.last
	if r.at.w.mutants.NoWindowsInState {
		windows = new(shard.Windows).Append(nil)
	}
	s.out.write(func() { target.receiveState(s, windows, change, last) })
}

// forward sends an update that was just applied behind the block that it touched.
func (s *stream) forward(u update) {
	if s.ended || u.block >= s.sent || (s.owner.at.w.mutants.NoForward && !s.state) {
		return
	}
	s.inFlight++
	live, target := s.state, s.to.replicas[s.owner.index]
	s.out.write(func() {
		s.inFlight--
		target.receiveUpdate(s, u, live)
	})
}

// forwardRetain sends which incarnations still exist, behind what was applied before. Until
// the windows are sent, they have it already when they are.
func (s *stream) forwardRetain(change, horizon uint64, live []uint64) {
	if s.ended || !s.state {
		return
	}
	s.inFlight++
	target, epoch := s.to.replicas[s.owner.index], s.owner.last
	s.out.write(func() {
		s.inFlight--
		if target.follows(s) && target.next(change, epoch) {
			target.windows.Retain(horizon, live)
			target.remember(change)
			s.answer(func() { s.confirmed = max(s.confirmed, change) })
		}
	})
}

// end gives the stream up at the owner's end; the other one learns nothing.
func (s *stream) end(why string) {
	if s.ended {
		return
	}
	s.ended = true
	s.found()
	s.out.close()
	s.back.close()
	r := s.owner
	for i, other := range r.streams {
		if other == s {
			r.streams = append(r.streams[:i:i], r.streams[i+1:]...)
			break
		}
	}
	r.at.w.note("%s: stream of shard %d to %s ends: %s", r.at.name, r.index, s.to.name, why)
	r.settleWaits()
}

// answer sends something back to the owner's end.
func (s *stream) answer(do func()) {
	s.back.write(func() {
		if s.ended {
			return
		}
		s.heard = s.owner.at.clock()
		do()
		s.owner.release()
	})
}

// beat asks the follower for another lease.
func (s *stream) beat() {
	at := s.owner.at
	sent := at.clock()
	target := s.to.replicas[s.owner.index]
	s.out.write(func() {
		if !target.follows(s) {
			return
		}
		target.answered = target.at.clock()
		s.answer(func() { s.lease = max(s.lease, sent+leaseTime) })
	})
}

// check gives a stream up when nothing comes back, or the other end has died.
func (s *stream) check() {
	at := s.owner.at
	switch {
	case s.out.to.run != s.out.toRun || !s.to.up:
		if at.w.rng.IntN(2) == 0 && !at.cut(s.to.process) && !s.to.cut(at.process) {
			s.end("reset")
			return
		}
	}
	if at.clock()-s.heard > at.w.profile.streamTimeout {
		s.end("silent")
		return
	}
	s.beat()
}

// follows says whether s is the stream that this copy takes frames from.
func (r *replica) follows(s *stream) bool {
	receives := r.copy.State == shard.Receiving || r.copy.State == shard.CaughtUp
	return receives && (r.in == s || (r.at.w.mutants.AnyStream && r.in != nil))
}

// accept is the follower's answer to a new stream.
func (r *replica) accept(s *stream, refollow bool, epoch shard.Epoch, change uint64, last shard.Epoch) {
	refuse := func(why string) {
		s.answer(func() { s.end("refused: " + why) })
	}
	if !refollow {
		if r.copy.State != shard.Receiving || r.copy.Attempt != s.attempt || r.in != nil {
			refuse("not prepared")
			return
		}
		r.in = s
		return
	}
	m := r.at.w.mutants
	if (change != r.applied && !m.AnyChange) || (last != r.last && !m.AnyLineage) {
		refuse("the state is not the same")
		return
	}
	next, err := r.copy.Refollow(s.owner.at.id, epoch, s.attempt)
	if err != nil {
		refuse(err.Error())
		return
	}
	r.at.w.count("refollow")
	r.copy, r.in = next, s
	r.at.w.checkEqual(r, s.owner, change)
	s.answer(func() {
		s.caughtUp, s.confirmed = true, max(s.confirmed, change)
		s.found()
	})
}

func (r *replica) receiveBlock(s *stream, b int, content block) {
	if !r.follows(s) {
		return
	}
	r.blocks[b] = content
	s.answer(s.nextBlock)
}

func (r *replica) receiveState(s *stream, windows []byte, change uint64, last shard.Epoch) {
	if !r.follows(s) {
		return
	}
	next, err := r.copy.Fill(s.attempt)
	if err != nil {
		return
	}
	decoded, err := shard.DecodeWindows(windows)
	if err != nil {
		r.at.w.fail("windows of shard %d: %w", r.index, err)
		return
	}
	r.copy, r.windows, r.applied, r.last = next, decoded, change, last
	r.at.w.note("%s: shard %d caught up with %s at change %d, attempt %d", r.at.name, r.index, s.owner.at.name, change, s.attempt)
	r.at.w.checkEqual(r, s.owner, change)
	s.answer(func() {
		s.caughtUp, s.confirmed = true, max(s.confirmed, change)
		s.owner.settleWaits()
	})
}

func (r *replica) receiveUpdate(s *stream, u update, live bool) {
	if !r.follows(s) {
		return
	}
	if !live {
		r.change(u)
		return
	}
	if !r.next(u.change, u.epoch) {
		return
	}
	if v := r.windows.Admit(u.push.incarnation, u.push.seq, u.floor); v != shard.Fresh {
		r.at.w.fail("I6: shard %d at %s: forwarded push is %v", r.index, r.at.name, v)
		return
	}
	r.change(u)
	s.answer(func() { s.confirmed = max(s.confirmed, u.change) })
}

// next counts a change, which has to be the one after the last.
func (r *replica) next(change uint64, epoch shard.Epoch) bool {
	if change != r.applied+1 {
		r.at.w.fail("I6: shard %d at %s: change %d after change %d", r.index, r.at.name, change, r.applied)
		return false
	}
	r.applied, r.last = change, epoch
	return true
}
