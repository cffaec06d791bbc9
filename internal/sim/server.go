package sim

import (
	"time"

	"github.com/elasticps/elasticps/shard"
)

// server is one parameter server: a process with a copy, perhaps absent, of every shard.
type server struct {
	*process
	id       shard.ServerID
	replicas []*replica
	diedAt   time.Duration
	number   uint64 // of the run: those of later runs of the same name are higher
}

func newServer(w *World, i int) *server {
	id := shard.ServerID(rune('a' + i))
	s := &server{process: w.newProcess(string(id)), id: id}
	s.start()
	w.store.runs[id] = counted{number: s.number}
	return s
}

// server finds a server by its name.
func (w *World) server(id shard.ServerID) *server { return w.servers[id[0]-'a'] }

// start begins a run, which has nothing.
func (s *server) start() {
	s.up, s.hungUntil = true, 0
	s.run++
	s.w.numbers++
	s.number = s.w.numbers
	s.replicas = nil
	for i := range s.w.profile.shards {
		s.replicas = append(s.replicas, &replica{at: s, index: i})
	}
	s.after(s.w.between(0, beatEvery), s.tick)
	s.report()
	s.insist()
}

func (s *server) crash() {
	s.w.note("%s crashes", s.name)
	s.up, s.diedAt = false, s.w.now
	for _, r := range s.replicas {
		for len(r.streams) > 0 {
			r.streams[0].end("crashed")
		}
	}
}

// tick beats, notices streams that are gone, and reports.
func (s *server) tick() {
	for _, r := range s.replicas {
		for _, st := range append([]*stream(nil), r.streams...) {
			st.check()
		}
		r.reportLost()
		r.release()
	}
	s.report()
	s.after(beatEvery, s.tick)
}

// report tells every coordinator what is held here.
func (s *server) report() {
	copies := make([]shard.Copy, len(s.replicas))
	for i, r := range s.replicas {
		copies[i] = r.copy
	}
	number, now := s.number, s.w.now
	for _, c := range s.w.coords {
		s.w.send(s.process, c.process, func() { c.reported(s, number, now, copies) })
	}
}

// block is a run of parameters that only ever adds: the set of pushes that it contains,
// and a sum that depends on their order.
type block struct {
	set    uint64
	sum    uint64
	change uint64 // the last change of the shard that touched it
}

// update is one push that was applied, as it is forwarded.
type update struct {
	push   *push
	block  int
	change uint64
	epoch  shard.Epoch // of the owner that made it
	floor  uint64
}

// replica is one server's copy of one shard.
type replica struct {
	at    *server
	index int
	copy  shard.Copy

	blocks  [NumBlocks]block
	windows shard.Windows
	applied uint64      // changes
	last    shard.Epoch // of the owner that made the last one
	trail   []point     // what the blocks summed up to, since the copy was complete

	streams   []*stream // an owner's
	gathering int       // followers of the former owner that are looked for
	joins     uint64    // the attempt whose target is to be a follower
	frozen    uint64    // the attempt whose freeze was confirmed
	waiting   []request
	orders    []orderWait
	in        *stream                    // a follower's
	answered  time.Duration              // when a beat was last answered, by this clock
	mute      time.Duration              // until when a promoted follower says nothing, by this clock
	peers     map[shard.ServerID]*server // the processes that the last order has named
}

// request is a push or a pull that waits until what it would say is confirmed.
type request struct {
	change uint64
	isPull bool
	answer func()
}

// orderWait is an order that is answered later.
type orderWait struct {
	e      shard.Effect
	answer func(ok bool)
}

func (r *replica) streamTo(id shard.ServerID) *stream {
	for _, s := range r.streams {
		if s.to.id == id {
			return s
		}
	}
	return nil
}

// change takes an update into a block: twice is a violation whatever came before.
func (r *replica) change(u update) {
	b := &r.blocks[u.block]
	if b.set&u.push.bit != 0 {
		r.at.w.fail("I1: push %d of worker %d applied twice to shard %d at %s", u.push.seq, u.push.incarnation, r.index, r.at.name)
	}
	b.set |= u.push.bit
	b.sum = b.sum*0x9e3779b97f4a7c15 + u.push.bit
	b.change = u.change
	if r.copy.State != shard.Receiving {
		r.remember(u.change)
	}
}

// point is the sum of a copy after a change.
type point struct{ change, sum uint64 }

func (r *replica) remember(change uint64) {
	r.trail = append(r.trail, point{change, r.sum()})
}

// sumAt is the sum of the copy after a change, if it is remembered.
func (r *replica) sumAt(change uint64) (uint64, bool) {
	for i := len(r.trail) - 1; i >= 0; i-- {
		if r.trail[i].change == change {
			return r.trail[i].sum, true
		}
	}
	return 0, false
}

func (r *replica) sum() uint64 {
	total := uint64(0)
	for _, b := range r.blocks {
		total = total*31 + b.sum
	}
	return total
}

// retain takes in which incarnations of workers still exist. The followers get it in its
// place among the changes, and a copy that follows ignores what comes to it otherwise.
func (r *replica) retain(horizon uint64, live []uint64) {
	w := r.at.w
	if w.mutants.RetainByFollowers && r.copy.State == shard.CaughtUp {
		r.windows.Retain(horizon, live)
	}
	if !r.copy.Serves() {
		return
	}
	for _, s := range r.streams {
		if s.inFlight >= maxQueued {
			return // it comes again
		}
	}
	if !r.windows.Retain(horizon, live) || w.mutants.RetainAlone {
		return
	}
	w.count("retain")
	r.applied, r.last = r.applied+1, r.copy.Epoch
	r.remember(r.applied)
	for _, s := range append([]*stream(nil), r.streams...) {
		s.forwardRetain(r.applied, horizon, live)
	}
}

// clear drops the state.
func (r *replica) clear() {
	r.blocks, r.windows, r.applied, r.trail = [NumBlocks]block{}, shard.Windows{}, 0, nil
	r.in, r.answered = nil, 0
}

// order performs one order of a coordinator; answer may be called later or never.
func (r *replica) order(e shard.Effect, peers map[shard.ServerID]*server, proof bool, answer func(ok bool, now shard.Copy)) {
	passesOn := e.Kind == shard.EffectFollow || e.Kind == shard.EffectFreeze
	if wait := r.mute - r.at.clock(); wait > 0 && passesOn && !r.at.w.mutants.FollowWhileMute {
		// Nobody else may get the shard while a former owner may have a lease: the next one
		// would not know of it.
		r.at.after(wait+time.Microsecond, func() { r.order(e, peers, proof, answer) })
		return
	}
	was := r.copy
	if r.at.w.mutants.KeepIgnoresSet && (e.Kind == shard.EffectKeep || e.Kind == shard.EffectSettle) {
		r.copy.Set = 0
	}
	next, err := r.copy.Step(e)
	if err != nil {
		r.copy = was
		r.at.w.note("%s: %v", r.at.name, err)
		r.refuse(e, answer)
		return
	}
	if next != was {
		r.peers = peers
		r.at.w.note("%s: %v of shard %d: %s -> %s", r.at.name, e.Kind, e.Shard, describeCopy(was), describeCopy(next))
		r.become(e, was, next, proof)
		r.at.w.stumble(r.at, e.Kind)
	}
	if passesOn {
		r.orders = append(r.orders, orderWait{e, func(ok bool) { answer(ok, r.copy) }})
		r.settleWaits()
		return
	}
	answer(true, r.copy)
}

// become does what a change of the copy asks for.
func (r *replica) become(e shard.Effect, was, next shard.Copy, proof bool) {
	r.copy = next
	switch e.Kind {
	case shard.EffectPrepare:
		r.clear()
	case shard.EffectFollow:
		r.prune()
		r.joins = 0
		if e.Join {
			r.joins = e.Attempt
		}
		r.open(e.Peer, e.Attempt, false)
	case shard.EffectActivate:
		r.activate(was, proof)
	}
	if !r.copy.Owns() {
		r.deny()
		for len(r.streams) > 0 {
			r.streams[0].end("not the owner")
		}
	}
	if next.State == shard.Released || next.State == shard.Absent {
		r.clear()
	}
	if next.State == shard.CaughtUp && was.State == shard.Frozen {
		r.in, r.answered = nil, 0
	}
	r.prune()
	r.settleWaits()
	r.release()
}

// activate makes a follower or target the owner. It takes the followers over that have
// the same state; and it says nothing while the former owner may think that it has a
// lease, unless that one is frozen or dead.
func (r *replica) activate(was shard.Copy, proof bool) {
	r.in = nil
	if r.answered > 0 && !proof && !r.at.w.mutants.NoLeaseWait {
		r.mute = r.answered + leaseWait
		r.at.after(r.mute-r.at.clock(), r.release)
	}
	for _, id := range r.copy.Followers.IDs() {
		r.gather(id)
	}
	r.at.w.count("activate from " + was.State.String())
}

// gather looks for a follower of the former owner; until it is found nothing is answered.
func (r *replica) gather(id shard.ServerID) {
	attempt := r.copy.Attempt
	r.gathering++
	r.at.after(r.at.w.delay(), func() { // to connect
		r.gathering--
		if r.copy.Owns() && r.copy.Attempt == attempt {
			r.open(id, attempt, true)
		}
	})
}

// refuse answers an order that was refused. If the record has the server as the owner, another
// one may get the shard when the answer is that this one has nothing: then its copy takes no
// order of that attempt any more.
func (r *replica) refuse(e shard.Effect, answer func(ok bool, now shard.Copy)) {
	if next, _ := r.copy.Deny(e.Attempt); next != r.copy && !r.at.w.mutants.DenyAndForget {
		r.clear()
		r.copy = next
	}
	answer(false, r.copy)
}

// host fills the copy, which takes a while, and makes it the owner's, unless it has taken part
// in something else, or was denied, by then.
func (r *replica) host(a shard.Assignment, answer func(ok bool, now shard.Copy)) {
	r.at.after(r.at.w.delay(), func() {
		next, err := r.copy.Host(a)
		if err == nil && next != r.copy {
			r.at.w.note("%s: shard %d begins anew at epoch %d", r.at.name, r.index, a.Epoch)
			r.clear()
			r.copy, r.mute = next, 0
		}
		answer(err == nil, r.copy)
	})
}

// prune ends the streams that nobody needs.
func (r *replica) prune() {
	for _, s := range append([]*stream(nil), r.streams...) {
		target := (r.copy.State == shard.Following || r.copy.State == shard.Frozen) && s.to.id == r.copy.Peer
		if !target && !r.copy.Awaits(s.to.id) {
			s.end("not needed")
		}
	}
}

// deny answers every request that waits: ask another.
func (r *replica) deny() { r.waiting = nil } // they are sent again

// awaits calls do with every server whose confirmation counts; nil for one without a
// stream that is caught up.
func (r *replica) awaits(do func(id shard.ServerID, s *stream)) {
	one := func(id shard.ServerID) {
		if id == "" {
			return
		}
		s := r.streamTo(id)
		if s != nil && !s.caughtUp {
			s = nil
		}
		do(id, s)
	}
	for _, id := range r.copy.Followers {
		one(id)
	}
	if !r.copy.Followers.Has(r.copy.Joining) {
		one(r.copy.Joining)
	}
}

// confirmed is the change up to which everyone who counts has everything, and leased
// says whether each of them has promised to say nothing.
func (r *replica) confirmed() (change uint64, leased bool) {
	change, leased = r.applied, true
	now := r.at.clock()
	r.awaits(func(_ shard.ServerID, s *stream) {
		if s == nil {
			change, leased = 0, false
			return
		}
		change = min(change, s.confirmed)
		leased = leased && s.lease > now
	})
	if r.at.w.mutants.AckBeforeConfirm {
		change = r.applied
	}
	return change, leased || r.at.w.mutants.NoLease
}

// release answers the requests whose answer is confirmed.
func (r *replica) release() {
	if len(r.waiting) == 0 || r.mute > r.at.clock() {
		return
	}
	change, leased := r.confirmed()
	kept := r.waiting[:0:0]
	for _, q := range r.waiting {
		switch {
		case q.change > change, !leased && (q.isPull || !r.at.w.mutants.AckWithoutLease):
			kept = append(kept, q)
		default:
			q.answer()
		}
	}
	r.waiting = kept
}

// settleWaits answers the orders that are done, or never will be.
func (r *replica) settleWaits() {
	kept := r.orders[:0:0]
	for _, o := range r.orders {
		done, ok := r.orderDone(o.e)
		if !done {
			kept = append(kept, o)
			continue
		}
		o.answer(ok)
	}
	r.orders = kept
}

func (r *replica) orderDone(e shard.Effect) (done, ok bool) {
	s := r.streamTo(e.Peer)
	if r.copy.Attempt != e.Attempt || !r.copy.Owns() {
		return true, false
	}
	if e.Kind == shard.EffectFollow {
		if s == nil || s.attempt != e.Attempt {
			return true, false
		}
		return s.caughtUp, true
	}
	if r.copy.State != shard.Frozen {
		return true, false
	}
	if r.frozen == e.Attempt || r.at.w.mutants.NoDrain {
		return true, true
	}
	if s == nil {
		return r.gathering == 0, false
	}
	if change, _ := r.confirmed(); !s.caughtUp || s.confirmed != r.applied || change != r.applied {
		return false, false
	}
	r.frozen = e.Attempt
	return true, true
}

// reportLost tells the coordinators about followers without a stream, again and again.
func (r *replica) reportLost() {
	if !r.copy.Owns() || r.gathering > 0 {
		return
	}
	epoch := r.copy.Epoch
	report := func(id shard.ServerID) {
		if id == "" || r.streamTo(id) != nil {
			return
		}
		for _, c := range r.at.w.coords {
			r.at.w.send(r.at.process, c.process, func() { c.lost(r.index, r.at.id, id, epoch) })
		}
	}
	for _, id := range r.copy.Followers {
		report(id)
	}
	if !r.copy.Followers.Has(r.copy.Joining) {
		report(r.copy.Joining)
	}
}
