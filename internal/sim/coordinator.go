package sim

import (
	"time"

	"github.com/elasticps/elasticps/shard"
)

// coordinator is one run of a coordinator. A second one may run beside it for a
// while, with another idea of what is in the store.
type coordinator struct {
	*process
	known []knowledge // by shard
	views []view      // by server
	moves []*drive    // by shard, nil without
}

// knowledge is what a coordinator knows of a record: the last that it has read or
// written. That the owner is gone counts only if it was found out after learned: then a
// write under this revision is proof that there was no other owner meanwhile.
type knowledge struct {
	entry
	learned time.Duration // by this clock, when this revision was learned
	since   time.Duration // when the store was last asked
	busy    bool          // a promotion, a drop or a refill is under way
	queue   []func()      // reads and writes, one after the other; the first is under way
	goneAt  time.Duration // when an order was sent to which the owner answered that it has nothing
	told    time.Duration // when the owner was last told to serve
	isProof bool          // the last promotion came after the former owner's death
}

// view is what a coordinator knows of a server.
type view struct {
	at     *server  // the process that has registered, nil for none
	number uint64   // of its run
	before []former // earlier runs that may live
	asks   uint64   // the run that is being written down
	asked  uint64   // how many were
	isOpen bool     // whether another one was, is not known
	heard  time.Duration
	sent   time.Duration // when that was sent, as the observer knows
	deadAt time.Duration // when it was asked whether a process runs there, and none did
	probed time.Duration
	copies []shard.Copy
}

// drive is a move under way here.
type drive struct {
	m     shard.Migration
	token int
}

func (w *World) startCoordinator() {
	c := &coordinator{process: w.newProcess("coordinator-" + string(rune('0'+len(w.places)%10)))}
	for i := range w.shards {
		c.known = append(c.known, knowledge{entry: w.store.entries[i], learned: c.clock(), since: c.clock()})
	}
	for _, s := range w.servers {
		known := w.store.runs[s.id]
		known.revision++ // what the coordinator before has written of it comes too late
		w.store.runs[s.id] = known
		v := view{heard: c.clock(), number: known.number, before: known.before}
		if !w.profile.twins {
			v = view{heard: c.clock(), at: s}
		}
		c.views = append(c.views, v)
	}
	c.moves = make([]*drive, len(w.shards))
	w.coords = append(w.coords, c)
	w.note("%s starts", c.name)
	c.after(w.between(0, beatEvery), c.tick)
}

func (w *World) stopCoordinator(c *coordinator) {
	w.note("%s stops", c.name)
	c.up = false
	for i, other := range w.coords {
		if other == c {
			w.coords = append(w.coords[:i:i], w.coords[i+1:]...)
		}
	}
}

func (c *coordinator) view(id shard.ServerID) *view { return &c.views[id[0]-'a'] }

func (c *coordinator) suspects(id shard.ServerID) bool {
	return c.clock()-c.view(id).heard > suspectAfter
}

// learn takes what a read has found, or a write has left.
func (c *coordinator) learn(i int, e entry, since time.Duration) {
	k := &c.known[i]
	if e.revision > k.revision {
		*k = knowledge{entry: e, learned: c.clock(), since: k.since, busy: k.busy, queue: k.queue}
	}
	k.since = max(k.since, since)
}

// alone has one read or write of a record run when those before it have ended, or have
// been given up. Ask calls end when there is an answer; a later one is of no use.
func (c *coordinator) alone(i int, ask func(end func(answer func())), giveUp func()) {
	begin := func() {
		over := false
		end := func(answer func()) {
			if over {
				return
			}
			over = true
			answer()
			k := &c.known[i]
			k.queue = k.queue[1:]
			if len(k.queue) > 0 {
				c.after(0, k.queue[0])
			}
		}
		c.after(stepTimeout, func() { end(giveUp) })
		ask(end)
	}
	k := &c.known[i]
	k.queue = append(k.queue, begin)
	if len(k.queue) == 1 {
		begin()
	}
}

// read brings the knowledge of a shard up to date, and says whether it could.
func (c *coordinator) read(i int, then func(ok bool)) {
	c.alone(i, func(end func(func())) {
		since := c.clock()
		c.w.store.read(c.process, i, func(e entry) {
			end(func() {
				c.learn(i, e, since)
				then(true)
			})
		})
	}, func() { then(false) })
}

// change writes what f makes of the known record, under the revision of that; seen is when
// the servers were in the state that it relies on, 0 for a while ago. Then gets 0 for a
// success or when nothing is to be written, EventConflict, also when f refuses, or
// EventUnknown.
func (c *coordinator) change(i int, f func(cur shard.Record) (next shard.Record, seen time.Duration, ok bool), then func(failed shard.EventKind)) {
	c.alone(i, func(end func(func())) {
		since, k := c.clock(), c.known[i]
		next, seen, ok := f(k.record)
		switch {
		case !ok:
			end(func() { then(shard.EventConflict) })
			return
		case next.Equal(k.record):
			end(func() { then(0) })
			return
		}
		c.w.store.swap(c.process, i, k.revision, next, seen, func(ok bool, e entry) {
			end(func() {
				if !ok {
					then(shard.EventConflict)
					return
				}
				c.learn(i, e, since)
				if c.w.stumbles(c) {
					return
				}
				then(0)
			})
		})
	}, func() { then(shard.EventUnknown) })
}

// beside changes the record beside whatever move is under way, if its owner is still the
// one of was at that epoch; one change of this kind at a time.
func (c *coordinator) beside(i int, was shard.Assignment, f func(cur shard.Record) (shard.Record, time.Duration, bool), then func()) {
	c.known[i].busy = true
	same := func(cur shard.Record) (shard.Record, time.Duration, bool) {
		next, seen, ok := f(cur)
		return next, seen, ok && cur.Assignment.SameOwner(was)
	}
	c.change(i, same, func(failed shard.EventKind) {
		if failed == 0 {
			c.known[i].busy = false
			then()
			return
		}
		c.read(i, func(bool) {})
		c.after(resendEvery, func() { c.known[i].busy = false })
	})
}

// begin drives a move.
func (c *coordinator) begin(i int, m shard.Migration, effects []shard.Effect, err error) {
	if err != nil || c.moves[i] != nil || len(effects) == 0 {
		return
	}
	c.w.note("%s: %v of shard %d %s->%s attempt %d in phase %v", c.name, m.Kind, m.Shard, m.From, m.To, m.Attempt, m.Phase)
	c.moves[i] = &drive{m: m}
	c.perform(i, effects)
}

// feed gives the move of a shard an event.
func (c *coordinator) feed(i int, ev shard.Event) {
	d := c.moves[i]
	if d == nil {
		return
	}
	next, effects, err := d.m.Step(ev)
	if err != nil {
		c.w.note("%s: %v", c.name, err)
		return
	}
	c.w.note("%s: shard %d: %v in %v -> %v", c.name, i, ev.Kind, d.m.Phase, next.Phase)
	d.m = next
	c.perform(i, effects)
}

// perform does the effect that a move asks for, and feeds it what came of it, unless the
// move has gone on by then. What is known of the record may be of a later attempt, before
// and after that: then the move is over.
func (c *coordinator) perform(i int, effects []shard.Effect) {
	d := c.moves[i]
	if len(effects) == 0 {
		return
	}
	e := effects[0]
	d.token++
	token := d.token
	isOver := func() bool { return c.known[i].record.Assignment.Attempt > d.m.Attempt && !c.w.mutants.LaterSet }
	then := func(kind shard.EventKind, r *shard.Record) {
		switch {
		case c.moves[i] != d || d.token != token:
			return
		case isOver():
			c.feed(i, shard.Event{Kind: shard.EventSuperseded})
			return
		case kind == 0:
			kind = e.Kind.Success()
		}
		c.feed(i, shard.Event{Kind: kind, Step: e.Kind, Record: r})
	}
	switch {
	case e.Kind == shard.EffectDone:
		c.w.count(d.m.Kind.String() + " " + d.m.Outcome.String())
		c.moves[i] = nil
	case isOver():
		c.feed(i, shard.Event{Kind: shard.EventSuperseded})
	case e.Kind == shard.EffectReadRecord:
		c.readForMove(i, then)
	case e.Record != nil:
		c.writeForMove(i, e, then)
	default:
		c.orderForMove(e, then)
	}
}

func (c *coordinator) readForMove(i int, then func(shard.EventKind, *shard.Record)) {
	c.read(i, func(ok bool) {
		if !ok {
			c.after(resendEvery, func() { then(shard.EventUnknown, nil) })
			return
		}
		r := c.known[i].record
		then(shard.EventRecord, &r)
	})
}

// writeForMove writes in place of a record that the step comes after. Another record has
// to be read by the move first, although this coordinator may know it from elsewhere.
func (c *coordinator) writeForMove(i int, e shard.Effect, then func(shard.EventKind, *shard.Record)) {
	onto := func(cur shard.Record) (shard.Record, time.Duration, bool) {
		return e.Record.Onto(cur), 0, e.Record.Succeeds(cur) || c.w.mutants.FreshRevision
	}
	c.change(i, onto, func(failed shard.EventKind) {
		if failed == 0 {
			then(0, nil)
			return
		}
		if failed == shard.EventUnknown && c.w.mutants.UnknownIsDone {
			failed = 0
		}
		c.after(retryPause, func() { then(failed, nil) })
	})
}

// orderForMove gives an order with the followers that the record has. An owner that does
// not serve after the commit is not given up for the source if the record has followers:
// it may have served with them, and one of them is promoted.
func (c *coordinator) orderForMove(e shard.Effect, then func(shard.EventKind, *shard.Record)) {
	timeout := stepTimeout
	if e.Kind == shard.EffectFollow {
		timeout = copyTimeout
	}
	begin := c.clock()
	k := &c.known[e.Shard]
	e.Followers, e.Set = k.record.Followers, k.record.Set
	c.order(e, true, timeout, func(ok, answered bool, now shard.Copy) {
		if k.record.Assignment.Owner == e.Server {
			k.noteGone(begin, answered && !ok, now)
		}
		event := shard.EventTimeout
		switch {
		case ok:
			then(0, nil)
			return
		case e.Kind == shard.EffectActivate && k.record.Followers.Len() > 0 && !c.w.mutants.RestoreAlways:
		case answered && !(e.Kind == shard.EffectActivate && c.mayLive(e.Server)): // what a later run says is no news of an earlier one
			event = shard.EventFailed
		case c.mayLive(e.Server):
		case c.view(e.Server).deadAt > begin && (e.Kind == shard.EffectPrepare || e.Kind == shard.EffectActivate || e.Kind == shard.EffectDiscard):
			event = shard.EventTargetDown
		case c.view(e.Server).deadAt > begin:
			event = shard.EventSourceDown
		}
		c.after(retryPause, func() { then(event, nil) })
	})
}

// noteGone takes note of the owner's answer to an order that was sent under the record:
// it may have nothing of the shard.
func (k *knowledge) noteGone(sent time.Duration, refused bool, now shard.Copy) {
	if refused && sent >= k.learned && hasNone(now) {
		k.goneAt = sent
	}
}

// isGone says whether the owner has answered under the known record that it has nothing.
func (k *knowledge) isGone() bool { return k.goneAt > 0 && k.goneAt >= k.learned }

// hasNone says whether a copy is none that could serve.
func hasNone(c shard.Copy) bool {
	return c.State == shard.Absent || c.State == shard.Receiving || c.State == shard.Released
}

// order sends an order to a server until it is answered or time is up.
func (c *coordinator) order(e shard.Effect, proof bool, timeout time.Duration, then func(ok, answered bool, now shard.Copy)) {
	s := c.view(e.Server).at
	peers := map[shard.ServerID]*server{}
	for _, id := range append(e.Followers.IDs(), e.Peer) {
		if id != "" && c.view(id).at != nil {
			peers[id] = c.view(id).at
		}
	}
	c.call(s, timeout, func(answer func(bool, shard.Copy)) { s.replicas[e.Shard].order(e, peers, proof, answer) }, then)
}

// call has a server do something until it answers or time is up; then is called once. A nil
// server has not registered, and is silent.
func (c *coordinator) call(s *server, timeout time.Duration, do func(answer func(bool, shard.Copy)), then func(ok, answered bool, now shard.Copy)) {
	over := false
	end := func(ok, answered bool, now shard.Copy) {
		if !over {
			over = true
			then(ok, answered, now)
		}
	}
	if s == nil {
		c.after(timeout, func() { end(false, false, shard.Copy{}) })
		return
	}
	number := c.view(s.id).number
	ask := func() {
		c.w.send(c.process, s.process, func() {
			if s.number != number && c.w.profile.twins {
				return // it was for an earlier run
			}
			do(func(ok bool, now shard.Copy) {
				c.w.send(s.process, c.process, func() { end(ok, true, now) })
			})
		})
	}
	var again func()
	again = func() {
		if !over {
			ask()
			c.after(resendEvery, again)
		}
	}
	again()
	c.after(timeout, func() { end(false, false, shard.Copy{}) })
}
