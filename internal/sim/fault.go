package sim

import (
	"time"

	"github.com/elasticps/elasticps/shard"
)

// Faults, and what operators do.
const (
	faultMove = iota
	faultAbort
	faultCrash
	faultHang
	faultCut
	faultCutOneWay
	faultCutCoordinators
	faultStream
	faultCoordinator
	faultSecond
	faultHangCoordinator
	faultStore
	faultWorker
	numFaults
)

// nextFault makes one thing go wrong and schedules the next.
func (w *World) nextFault() {
	if !w.faulty {
		return
	}
	w.after(w.between(0, 2*w.profile.faultEvery), w.nextFault)
	total := 0
	for _, weight := range w.profile.weights {
		total += weight
	}
	n := w.rng.IntN(total)
	for kind, weight := range w.profile.weights {
		if n -= weight; n < 0 {
			w.fault(kind)
			return
		}
	}
}

// spell is how long a fault lasts: mostly less than the time after which somebody
// is suspected, at times much more.
func (w *World) spell() time.Duration {
	if w.rng.IntN(2) == 0 {
		return w.between(0, suspectAfter)
	}
	return w.between(0, 5*suspectAfter)
}

func (w *World) fault(kind int) {
	s := w.servers[w.rng.IntN(len(w.servers))]
	switch kind {
	case faultMove:
		w.move()
	case faultAbort:
		c := w.coords[w.rng.IntN(len(w.coords))]
		c.wake(c.run, func() { c.feed(w.rng.IntN(len(w.shards)), shard.Event{Kind: shard.EventAbort, Reason: "asked for"}) })
	case faultCrash:
		w.crash(s)
	case faultHang:
		s.hungUntil = max(s.hungUntil, w.now+w.spell())
		w.note("%s hangs until %v", s.name, s.hungUntil)
	case faultCut, faultCutOneWay:
		from, to := w.places[w.rng.IntN(len(w.places))], w.places[w.rng.IntN(len(w.places))]
		until := w.now + w.spell()
		from.cutOff(to, until)
		if kind == faultCut {
			to.cutOff(from, until)
		}
		w.note("%s is cut off from %s until %v, both ways %v", from.name, to.name, until, kind == faultCut)
	case faultCutCoordinators: // it goes on for its followers and workers
		until := w.now + w.between(suspectAfter, 3*suspectAfter)
		for _, c := range w.coords {
			s.cutOff(c.process, until)
		}
		w.note("%s is cut off from the coordinators until %v", s.name, until)
	case faultStream:
		r := s.replicas[w.rng.IntN(len(w.shards))]
		if s.up && len(r.streams) > 0 {
			r.streams[w.rng.IntN(len(r.streams))].end("broken")
		}
	case faultCoordinator:
		w.replaceCoordinator(w.coords[w.rng.IntN(len(w.coords))])
	case faultSecond:
		if len(w.coords) == 1 {
			w.startCoordinator()
		}
	case faultHangCoordinator:
		c := w.coords[w.rng.IntN(len(w.coords))]
		c.hungUntil = max(c.hungUntil, w.now+w.spell())
		w.lateUntil = max(w.lateUntil, c.hungUntil)
		w.note("%s hangs until %v", c.name, c.hungUntil)
	case faultStore:
		w.store.awayUntil = w.now + w.spell()
		w.note("store is away until %v", w.store.awayUntil)
	case faultWorker:
		k := w.workers[w.rng.IntN(len(w.workers))]
		k.start()
		w.note("%s comes back as incarnation %d", k.name, k.incarnation)
	}
}

// crash ends the run of a server and schedules the next.
func (w *World) crash(s *server) {
	if !s.up || !w.faulty {
		return
	}
	s.crash()
	back := w.spell()
	if w.rng.IntN(2) == 0 {
		back = w.between(0, beatEvery) // before anybody misses it
	}
	w.after(back, func() { w.revive(s) })
}

// revive starts a server again that has ended, unless it has another process.
func (w *World) revive(s *server) {
	if !s.up && w.server(s.id) == s {
		w.note("%s is started again", s.name)
		s.start()
	}
}

// stumble has a server crash soon after it has carried out an order, at times before its
// answer gets anywhere. The order to serve is the most delicate one: workers may have been
// answered by the new owner before its coordinator hears of it, or suspects anything.
func (w *World) stumble(s *server, order shard.EffectKind) {
	seldom, end := 50, w.between(0, 2*beatEvery)
	if order == shard.EffectActivate {
		seldom, end = 8, w.between(0, 4*beatEvery)
	}
	if !w.faulty || w.profile.weights[faultCrash] == 0 || w.rng.IntN(seldom) != 0 {
		return
	}
	if w.rng.IntN(2) == 0 {
		for _, c := range w.coords {
			s.cutOff(c.process, w.now+end)
		}
	}
	w.after(end, func() { w.crash(s) })
}

// stumbles has a coordinator stop, at times, between a write and what it wanted to do next.
func (w *World) stumbles(c *coordinator) bool {
	if !w.faulty || w.profile.weights[faultCoordinator] == 0 || w.rng.IntN(40) != 0 {
		return false
	}
	w.replaceCoordinator(c)
	return true
}

// replaceCoordinator ends one coordinator; there is always another.
func (w *World) replaceCoordinator(c *coordinator) {
	w.stopCoordinator(c)
	if len(w.coords) == 0 {
		w.startCoordinator()
	}
}

// move has a coordinator move a shard to another server, a follower perhaps.
func (w *World) move() {
	c := w.coords[w.rng.IntN(len(w.coords))]
	w.moveShard(c, w.rng.IntN(len(w.shards)))
}

func (w *World) moveShard(c *coordinator, i int) {
	to := w.servers[w.rng.IntN(len(w.servers))]
	c.wake(c.run, func() {
		m, effects, err := shard.Begin(c.known[i].record, to.id)
		c.begin(i, m, effects, err)
	})
}

// hasten has a shard moved on that has just been promoted, at times.
func (w *World) hasten(c *coordinator, i int) {
	if w.faulty && w.rng.IntN(4) == 0 {
		w.after(w.between(0, beatEvery), func() { w.moveShard(c, i) })
	}
}

// calm ends every fault.
func (w *World) calm() {
	w.note("the faults are over")
	w.faulty = false
	w.store.awayUntil = 0
	for _, p := range w.places {
		p.cutUntil = nil
		p.hungUntil = 0
	}
	for _, s := range w.servers {
		if !s.up {
			s.start()
		}
	}
	for len(w.coords) > 1 {
		w.stopCoordinator(w.coords[0])
	}
	if len(w.coords) == 0 {
		w.startCoordinator()
	}
}
