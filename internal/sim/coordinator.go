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
	busy    bool          // a write beside a move is under way
	goneAt  time.Duration // when an order was sent to which the owner answered that it has nothing
	told    time.Duration // when the owner was last told to serve
	isProof bool          // the last promotion came after the former owner's death
}

// view is what a coordinator knows of a server.
type view struct {
	run    int
	heard  time.Duration
	deadAt time.Duration // when it was asked whether a process runs there, and none did
	probed time.Duration
	copies []shard.Copy
}

// drive is a move under way here.
type drive struct {
	m       shard.Migration
	effect  shard.Effect
	token   int
	foreign bool // the record has changed by another hand since the move last read it
}

func (w *World) startCoordinator() {
	c := &coordinator{process: w.newProcess("coordinator-" + string(rune('0'+len(w.places)%10)))}
	for i := range w.shards {
		c.known = append(c.known, knowledge{entry: w.store.entries[i], learned: c.clock(), since: c.clock()})
	}
	for range w.servers {
		c.views = append(c.views, view{heard: c.clock()})
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

// learn takes what a read has found, or a write has left. It reports whether that is
// news, which a move under way has not made.
func (c *coordinator) learn(i int, e entry, since time.Duration, own bool) {
	k := &c.known[i]
	if e.revision < k.revision {
		return
	}
	if e.revision > k.revision {
		if d := c.moves[i]; d != nil && !own && !c.w.mutants.FreshRevision {
			d.foreign = true
		}
		*k = knowledge{entry: e, learned: c.clock(), since: k.since, busy: k.busy}
	}
	k.since = max(k.since, since)
}

// read brings the knowledge of a shard up to date.
func (c *coordinator) read(i int, then func()) {
	since := c.clock()
	c.w.store.read(c.process, i, func(e entry) {
		c.learn(i, e, since, false)
		then()
	})
}

// swap writes a record in place of the known one. The outcome is an event of the store:
// then gets 0 for a success, or EventConflict, or EventUnknown.
func (c *coordinator) swap(i int, r shard.Record, then func(failed shard.EventKind)) {
	since, k := c.clock(), c.known[i]
	answered := false
	c.w.store.swap(c.process, i, k.revision, r, func(ok bool, e entry) {
		if ok {
			c.learn(i, e, since, true)
		}
		if answered {
			return
		}
		answered = true
		if !ok {
			then(shard.EventConflict)
			return
		}
		then(0)
	})
	c.after(stepTimeout, func() {
		if !answered {
			answered = true
			then(shard.EventUnknown)
		}
	})
}

// beside writes a record beside whatever move is under way; one at a time.
func (c *coordinator) beside(i int, r shard.Record, then func()) {
	k := &c.known[i]
	if k.busy {
		return
	}
	k.busy = true
	c.swap(i, r, func(failed shard.EventKind) {
		if failed == 0 {
			c.known[i].busy = false
			then()
			return
		}
		c.read(i, func() {})
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

var success = map[shard.EffectKind]shard.EventKind{
	shard.EffectPersistPending: shard.EventPersisted, shard.EffectPrepare: shard.EventPrepared,
	shard.EffectFollow: shard.EventFollowed, shard.EffectFreeze: shard.EventFrozen, shard.EffectCommit: shard.EventCommitted,
	shard.EffectActivate: shard.EventActivated, shard.EffectRelease: shard.EventReleased,
	shard.EffectClearPending: shard.EventCleared, shard.EffectPersistAbort: shard.EventAbortPersisted,
	shard.EffectThaw: shard.EventThawed, shard.EffectDiscard: shard.EventDiscarded,
	shard.EffectCommitRestore: shard.EventRestoreCommitted, shard.EffectRestore: shard.EventRestored,
	shard.EffectSettle: shard.EventSettled, shard.EffectDemote: shard.EventDemoted,
}

// perform does the effect that a move asks for, and feeds it what came of it, unless the
// move has gone on by then.
func (c *coordinator) perform(i int, effects []shard.Effect) {
	d := c.moves[i]
	if len(effects) == 0 {
		return
	}
	e := effects[0]
	d.token++
	d.effect = e
	token := d.token
	then := func(kind shard.EventKind, r *shard.Record) {
		if c.moves[i] != d || d.token != token {
			return
		}
		if kind == 0 {
			kind = success[e.Kind]
		}
		ev := shard.Event{Kind: kind, Step: e.Kind, Record: r}
		c.feed(i, ev)
	}
	isOver := c.known[i].record.Assignment.Attempt > d.m.Attempt && !c.w.mutants.LaterSet
	switch {
	case isOver && e.Kind != shard.EffectDone:
		c.feed(i, shard.Event{Kind: shard.EventSuperseded}) // what is known of the record is of a later attempt
	case e.Kind == shard.EffectDone:
		c.w.count(d.m.Kind.String() + " " + d.m.Outcome.String())
		c.moves[i] = nil
	case e.Kind == shard.EffectReadRecord:
		c.readForMove(i, d, then)
	case e.Record != nil:
		c.writeForMove(i, d, e, then)
	default:
		c.orderForMove(e, then)
	}
}

func (c *coordinator) readForMove(i int, d *drive, then func(shard.EventKind, *shard.Record)) {
	answered := false
	c.read(i, func() {
		if answered {
			return
		}
		answered, d.foreign = true, false
		r := c.known[i].record
		then(shard.EventRecord, &r)
	})
	c.after(stepTimeout, func() {
		if !answered {
			answered = true
			then(shard.EventUnknown, nil)
		}
	})
}

// writeForMove writes under the revision that the move has last seen. If the record has
// changed by another hand since, the move has to read first, although this
// coordinator may know the new revision from elsewhere.
func (c *coordinator) writeForMove(i int, d *drive, e shard.Effect, then func(shard.EventKind, *shard.Record)) {
	if d.foreign {
		then(shard.EventConflict, nil)
		return
	}
	if r := c.known[i].record; e.Kind == shard.EffectCommitRestore && r.Followers.Len() > 0 && !c.w.mutants.RestoreAlways {
		// The target may have served before it died, and its followers have what it acknowledged.
		c.promote(i, false)
		c.after(resendEvery, func() { then(shard.EventConflict, nil) })
		return
	}
	c.swap(i, e.Record.Onto(c.known[i].record), func(failed shard.EventKind) {
		if failed == shard.EventUnknown && c.w.mutants.UnknownIsDone {
			failed = 0
		}
		then(failed, nil)
	})
}

func (c *coordinator) orderForMove(e shard.Effect, then func(shard.EventKind, *shard.Record)) {
	timeout := stepTimeout
	if e.Kind == shard.EffectFollow {
		timeout = copyTimeout
	}
	begin := c.clock()
	k := c.known[e.Shard]
	e.Followers, e.Set = k.record.Followers, k.record.Set
	isSwitch := k.record.Pending != nil && k.record.Pending.Kind != shard.KindReplicate // the former owner is frozen
	c.order(e, isSwitch, timeout, func(ok, answered bool, _ shard.Copy) {
		switch {
		case ok:
			then(0, nil)
		case answered:
			then(shard.EventFailed, nil)
		case c.view(e.Server).deadAt > begin:
			down := shard.EventSourceDown
			if e.Kind == shard.EffectPrepare || e.Kind == shard.EffectActivate || e.Kind == shard.EffectDiscard {
				down = shard.EventTargetDown
			}
			then(down, nil)
		default:
			then(shard.EventTimeout, nil)
		}
	})
}

// order sends an order to a server until it is answered or time is up.
func (c *coordinator) order(e shard.Effect, proof bool, timeout time.Duration, then func(ok, answered bool, now shard.Copy)) {
	s := c.w.server(e.Server)
	c.call(s, timeout, func(answer func(bool, shard.Copy)) { s.replicas[e.Shard].order(e, proof, answer) }, then)
}

// call has a server do something until it answers or time is up; then is called once.
func (c *coordinator) call(s *server, timeout time.Duration, do func(answer func(bool, shard.Copy)), then func(ok, answered bool, now shard.Copy)) {
	over := false
	end := func(ok, answered bool, now shard.Copy) {
		if !over {
			over = true
			then(ok, answered, now)
		}
	}
	ask := func() {
		c.w.send(c.process, s.process, func() {
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
