package shard_test

import (
	"fmt"

	"github.com/elasticps/elasticps/shard"
)

// world runs the real Migration and Copy machines: coordinators, three
// servers and a store, joined by a network that drops, delays, doubles and
// reorders, with crashes of everyone but the store. Every choice comes from
// one source, so a seed (or the fuzzer's bytes) reproduces a schedule.
type world struct {
	choose  func(n int) int // 0..n-1
	faults  bool
	record  shard.Record
	rev     int
	nodes   map[shard.ServerID]*node
	names   []shard.ServerID
	coords  []*coordinator
	flight  []message
	token   int
	acked   int  // pushes acknowledged
	unsure  bool // a serving server died: acked may exceed what is left
	epochs  map[shard.Epoch]shard.ServerID
	outcome map[shard.Outcome]int
	log     []string
}

type node struct {
	id          shard.ServerID
	up          bool
	incarnation int
	copy        shard.Copy
	content     int // pushes contained
	stream      stream
}

type stream struct {
	to          *node
	incarnation int
	attempt     uint64
	broken      bool
}

type coordinator struct {
	move    shard.Migration
	effect  shard.Effect
	rev     int
	token   int // of the call under way
	waited  int
	started map[shard.ServerID]int // incarnations when the move began
}

// message is a call, or the reply to one.
type message struct {
	token  int
	effect shard.Effect
	rev    int
	reply  *shard.Event
	newRev int
}

func newWorld(choose func(int) int) *world {
	w := &world{choose: choose, names: []shard.ServerID{"a", "b", "c"}, nodes: map[shard.ServerID]*node{}, rev: 1}
	w.epochs, w.outcome = map[shard.Epoch]shard.ServerID{}, map[shard.Outcome]int{}
	for _, id := range w.names {
		w.nodes[id] = &node{id: id, up: true}
	}
	w.record.Assignment = shard.Assignment{Shard: 7, Epoch: 1, Owner: "a"}
	w.nodes["a"].copy = shard.ServeFirst(w.record.Assignment)
	return w
}

func (w *world) note(format string, args ...any) {
	if len(w.log) < 4000 {
		w.log = append(w.log, fmt.Sprintf(format, args...))
	}
}

// tick makes one thing happen and checks the invariants.
func (w *world) tick() error {
	before := w.record
	switch k := w.choose(10); {
	case k < 5 && len(w.flight) > 0:
		w.deliver()
	case k < 7:
		if err := w.push(); err != nil {
			return err
		}
	case k == 7:
		w.start()
	case k == 8:
		if err := w.wait(); err != nil {
			return err
		}
	default:
		if w.faults {
			w.fault()
		} else {
			w.repair()
		}
	}
	return w.check(before)
}

// check holds I2 and that epochs and versions never go back.
func (w *world) check(before shard.Record) error {
	writers := 0
	for _, id := range w.names {
		n := w.nodes[id]
		if n.up && n.copy.MayAcknowledge(n.copy.Epoch) {
			writers++
			if first, ok := w.epochs[n.copy.Epoch]; ok && first != id {
				return fmt.Errorf("I2: %s and %s both served at epoch %d", first, id, n.copy.Epoch)
			}
			w.epochs[n.copy.Epoch] = id
		}
	}
	if writers > 1 {
		return fmt.Errorf("I2: %d servers may acknowledge", writers)
	}
	was, is := shard.MapOf([]shard.Assignment{before.Assignment}), shard.MapOf([]shard.Assignment{w.record.Assignment})
	if is.Version < was.Version || w.record.Assignment.Attempt < before.Assignment.Attempt {
		return fmt.Errorf("version went from %d to %d", was.Version, is.Version)
	}
	return w.record.Validate()
}

// push sends one update to every server that would acknowledge it.
func (w *world) push() error {
	for _, id := range w.names {
		n := w.nodes[id]
		if !n.up || !n.copy.MayAcknowledge(n.copy.Epoch) {
			continue
		}
		if n.content != w.acked && !w.unsure {
			return fmt.Errorf("%s acknowledges at epoch %d with %d of %d updates", id, n.copy.Epoch, n.content, w.acked)
		}
		n.content++
		w.acked, w.unsure = n.content, false
		if n.copy.State == shard.Following {
			n.forward()
		}
	}
	return nil
}

func (n *node) intact() bool {
	s := n.stream
	return s.to != nil && !s.broken && s.to.up && s.to.incarnation == s.incarnation && s.attempt == n.copy.Attempt && s.to.copy.Attempt == s.attempt
}

func (n *node) forward() {
	if !n.intact() {
		n.stream.broken = true
		return
	}
	n.stream.to.content++
}

func (w *world) send(m message) {
	w.flight = append(w.flight, m)
}

func (w *world) deliver() {
	i := w.choose(len(w.flight))
	m := w.flight[i]
	if !(w.faults && w.choose(8) == 0) { // else doubled: it stays in flight
		w.flight = append(w.flight[:i], w.flight[i+1:]...)
	}
	if w.faults && w.choose(8) == 0 {
		return // lost
	}
	if m.reply != nil {
		w.answer(m)
		return
	}
	if m.effect.Server == "" {
		w.store(m)
		return
	}
	n := w.nodes[m.effect.Server]
	if !n.up {
		return
	}
	ev := w.perform(n, m.effect)
	w.note("%s: %v/%d -> %v %s", n.id, m.effect.Kind, m.effect.Attempt, ev.Kind, ev.Reason)
	w.send(message{token: m.token, reply: &ev})
}

var success = map[shard.EffectKind]shard.EventKind{
	shard.EffectPersistPending: shard.EventPersisted, shard.EffectPrepare: shard.EventPrepared,
	shard.EffectFollow: shard.EventFollowed, shard.EffectFreeze: shard.EventFrozen, shard.EffectCommit: shard.EventCommitted,
	shard.EffectActivate: shard.EventActivated, shard.EffectRelease: shard.EventReleased,
	shard.EffectClearPending: shard.EventCleared, shard.EffectPersistAbort: shard.EventAbortPersisted,
	shard.EffectThaw: shard.EventThawed, shard.EffectDiscard: shard.EventDiscarded,
	shard.EffectCommitRestore: shard.EventRestoreCommitted, shard.EffectRestore: shard.EventRestored,
}

// perform is what a server does with an order.
func (w *world) perform(n *node, e shard.Effect) shard.Event {
	failed := func(err error) shard.Event {
		return shard.Event{Kind: shard.EventFailed, Step: e.Kind, Reason: err.Error()}
	}
	next, err := n.copy.Step(e)
	if err != nil {
		return failed(err)
	}
	former := n.copy
	n.copy = next
	switch e.Kind {
	case shard.EffectPrepare:
		if former != next {
			n.content = 0
		}
	case shard.EffectFollow:
		if former != next {
			to := w.nodes[e.Peer]
			n.stream = stream{to: to, incarnation: to.incarnation, attempt: e.Attempt, broken: !to.up}
		}
		return n.fill(e, false)
	case shard.EffectFreeze:
		return n.fill(e, true)
	}
	return shard.Event{Kind: success[e.Kind], Step: e.Kind}
}

func (n *node) fill(e shard.Effect, complete bool) shard.Event {
	failed := shard.Event{Kind: shard.EventFailed, Step: e.Kind, Reason: "stream broken"}
	if !n.intact() {
		n.stream.broken = true
		return failed
	}
	to := n.stream.to
	filled, err := to.copy.Fill(e.Attempt)
	if err != nil {
		n.stream.broken = true
		return failed
	}
	if !complete && to.copy.State == shard.Receiving {
		to.content = n.content
	}
	if complete && to.content != n.content {
		return failed
	}
	to.copy = filled
	return shard.Event{Kind: success[e.Kind], Step: e.Kind}
}

// store performs one compare-and-swap or read.
func (w *world) store(m message) {
	reply := message{token: m.token, newRev: w.rev}
	switch {
	case m.effect.Kind == shard.EffectReadRecord:
		r := w.record
		reply.reply = &shard.Event{Kind: shard.EventRecord, Record: &r}
	case m.rev != w.rev:
		reply.reply = &shard.Event{Kind: shard.EventConflict, Step: m.effect.Kind}
	default:
		w.record = m.effect.Record.Onto(w.record)
		w.rev++
		reply.newRev = w.rev
		reply.reply = &shard.Event{Kind: success[m.effect.Kind], Step: m.effect.Kind}
	}
	w.note("store: %v rev %d -> %v", m.effect.Kind, m.rev, reply.reply.Kind)
	w.send(reply)
}

func (w *world) answer(m message) {
	for _, c := range w.coords {
		if c.token == m.token {
			if m.newRev != 0 && m.reply.Kind != shard.EventConflict {
				c.rev = m.newRev
			}
			w.feed(c, *m.reply)
			return
		}
	}
}

func (w *world) feed(c *coordinator, ev shard.Event) {
	next, effects, err := c.move.Step(ev)
	if err != nil {
		return
	}
	c.move = next
	w.dispatch(c, effects)
}

func (w *world) dispatch(c *coordinator, effects []shard.Effect) {
	for _, e := range effects {
		w.token++
		c.effect, c.token, c.waited = e, w.token, 0
		if e.Kind == shard.EffectDone {
			w.outcome[c.move.Outcome]++
			w.note("done: %v: %s", c.move.Outcome, c.move.Reason)
			w.remove(c)
			return
		}
		w.send(message{token: c.token, effect: e, rev: c.rev})
	}
}

func (w *world) remove(c *coordinator) {
	for i := range w.coords {
		if w.coords[i] == c {
			w.coords = append(w.coords[:i], w.coords[i+1:]...)
			return
		}
	}
}

// start has a new coordinator read the store and resume or begin a move.
func (w *world) start() {
	if len(w.coords) > 1 || (len(w.coords) == 1 && !(w.faults && w.choose(20) == 0)) {
		return
	}
	c := &coordinator{rev: w.rev, started: map[shard.ServerID]int{}}
	for _, n := range w.nodes {
		c.started[n.id] = n.incarnation
	}
	var effects []shard.Effect
	var err error
	if w.record.Pending != nil {
		c.move, effects, err = shard.Resume(w.record)
	} else if w.faults {
		c.move, effects, err = shard.Begin(w.record, w.names[w.choose(len(w.names))])
	} else {
		return
	}
	if err != nil {
		return // source and target were the same
	}
	w.note("start: %v %s->%s attempt %d", c.move.Phase, c.move.From, c.move.To, c.move.Attempt)
	w.coords = append(w.coords, c)
	w.dispatch(c, effects)
}

// wait lets time pass for a coordinator: deadlines end, deaths are noticed.
func (w *world) wait() error {
	if len(w.coords) == 0 {
		return nil
	}
	c := w.coords[w.choose(len(w.coords))]
	c.waited++
	switch k := w.choose(8); {
	case k == 0 && w.died(c, c.move.From) && !c.move.SourceGone:
		w.feed(c, shard.Event{Kind: shard.EventSourceDown})
	case k == 1 && w.died(c, c.move.To) && !c.move.TargetGone:
		w.feed(c, shard.Event{Kind: shard.EventTargetDown})
	case k == 2 && w.faults && w.choose(10) == 0:
		w.feed(c, shard.Event{Kind: shard.EventAbort})
	case c.waited > 30 || (w.faults && c.waited > 2):
		kind := shard.EventTimeout
		if c.effect.Record != nil && w.choose(2) == 0 {
			kind = shard.EventUnknown
		}
		w.feed(c, shard.Event{Kind: kind, Step: c.effect.Kind})
	}
	return nil
}

// died says whether a server may be reported dead: it died since the move began, and
// no later run of it has taken an order of this move. The death of an earlier run says
// nothing about a run that takes part.
func (w *world) died(c *coordinator, id shard.ServerID) bool {
	n := w.nodes[id]
	return n.incarnation != c.started[id] && !(n.up && n.copy.Attempt == c.move.Attempt)
}

func (w *world) fault() {
	n := w.nodes[w.names[w.choose(len(w.names))]]
	switch w.choose(6) {
	case 0:
		w.crash(n)
	case 1, 2:
		n.up = true
	case 3:
		if len(w.coords) > 0 && w.choose(4) == 0 {
			w.note("coordinator dies")
			w.remove(w.coords[w.choose(len(w.coords))])
		}
	default:
		w.repair()
	}
}

func (w *world) crash(n *node) {
	if !n.up || w.choose(6) != 0 {
		return
	}
	w.note("%s dies in %v", n.id, n.copy.State)
	if n.copy.MayAcknowledge(n.copy.Epoch) {
		w.unsure = true
	}
	n.up, n.copy, n.content, n.stream = false, shard.Copy{}, 0, stream{}
	n.incarnation++
}

// repair restarts servers and, as failover does, fills an owner that has
// nothing, at a new epoch.
func (w *world) repair() {
	for _, id := range w.names {
		if n := w.nodes[id]; !n.up && !w.faults {
			n.up = true
		}
	}
	owner := w.nodes[w.record.Assignment.Owner]
	if w.record.Pending != nil || !owner.up || owner.copy.MayAcknowledge(owner.copy.Epoch) {
		return
	}
	if owner.copy.State == shard.Following || owner.copy.State == shard.Frozen {
		return
	}
	w.record.Assignment.Epoch++
	w.rev++
	owner.copy = shard.ServeFirst(w.record.Assignment)
	w.unsure = true
	w.note("%s is filled at epoch %d", owner.id, owner.copy.Epoch)
}

// run makes faults for some ticks, then none, and returns what is wrong.
func (w *world) run(faulty, calm int) error {
	w.faults = true
	for range faulty {
		if err := w.tick(); err != nil {
			return err
		}
	}
	w.faults = false
	for range calm {
		if err := w.tick(); err != nil {
			return err
		}
		owner := w.nodes[w.record.Assignment.Owner]
		if len(w.coords) == 0 && w.record.Pending == nil && owner.up && owner.copy.MayAcknowledge(w.record.Assignment.Epoch) {
			return nil // I5: settled and serving
		}
	}
	return fmt.Errorf("I5: not settled after %d calm ticks: %d coordinators, record %+v, owner %+v",
		calm, len(w.coords), w.record, w.nodes[w.record.Assignment.Owner])
}
