package sim

import (
	"time"

	"github.com/elasticps/elasticps/shard"
)

// Several processes that live under the name of one server, of which one counts.

// former is a run of a server.
type former struct {
	at     *server
	number uint64
}

// over says whether it has ended.
func (f former) over() bool {
	return !f.at.up || f.at.w.profile.twins && f.at.number != f.number
}

// counted is what the store has of the runs of a server: the one that counts, since when,
// and those before that may live.
type counted struct {
	number   uint64
	since    time.Duration
	before   []former
	revision uint64
}

// counts says whether the store has this run of the server as the one that counts.
func (s *server) counts() bool { return !s.w.profile.twins || s.w.store.runs[s.id].number == s.number }

// enter asks the store to have a run count, unless a later one does, in two steps: what it
// writes counts only if nobody else has written meanwhile, and is written only if the
// coordinator has not given it up. The answer is what counts then, and whether anything was
// written: that alone shows that what was written before, and not answered, comes too late.
func (s *store) enter(from *process, is former, isWanted func() bool, answer func(c counted, written bool)) {
	id := is.at.id
	s.ask(from, func() counted { return s.runs[id] }, func(was counted) {
		switch {
		case !isWanted():
			return
		case was.number > is.number && !s.w.mutants.EarlierRunReturns:
			answer(was, false)
			return
		}
		s.ask(from, func() counted {
			if s.runs[id].revision == was.revision {
				s.w.replace(is)
			}
			return s.runs[id]
		}, func(now counted) { answer(now, true) })
	})
}

// ask is one question to the store. The answer may be lost, and what was done stays so.
func (s *store) ask(from *process, do func() counted, answer func(c counted)) {
	s.w.send(from, s.process, func() {
		if s.awayUntil > s.w.now {
			return
		}
		now := do()
		s.w.send(s.process, from, func() { answer(now) })
	})
}

// replace has another run of a server count.
func (w *World) replace(is former) {
	id := is.at.id
	was, old := w.store.runs[id], w.server(id)
	now := counted{number: is.number, since: was.since, before: was.before, revision: was.revision + 1}
	if was.number != is.number {
		now.since = w.now
	}
	if old != is.at {
		now.before = append(append([]former(nil), was.before...), former{old, was.number})
		for i, s := range w.others {
			if s == is.at {
				w.others[i] = old
			}
		}
		w.servers[id[0]-'a'] = is.at
		w.count("run replaced")
		w.note("store: %s counts, not %s", is.at.name, old.name)
	}
	w.store.runs[id] = now
	w.after(twinGrace, func() { w.revive(is.at) }) // it may have given up by now
}

// forget notes that an earlier run is over.
func (v *view) forget(f former) {
	var rest []former
	for _, other := range v.before {
		if other != f {
			rest = append(rest, other)
		}
	}
	v.before = rest
}

// admits says whether a report is of the run that counts. A later one is written down
// first, when the one before seems to be down; an earlier one is told that it is out.
func (c *coordinator) admits(s *server, number uint64) bool {
	v := c.view(s.id)
	is := former{s, number}
	switch {
	case !c.w.profile.twins:
		return number >= v.number
	case number == v.number && !v.isOpen:
		return true
	case number < v.number && !c.w.mutants.EarlierRunReturns:
		c.expel(is)
		return false
	case number > v.number && v.at != nil && v.at != s && !c.suspects(s.id), v.asks != 0:
		return false
	}
	v.asked++
	asked, wasOpen := v.asked, v.isOpen
	v.asks, v.isOpen = number, v.isOpen || number != v.number
	isWanted := func() bool { return v.asks != 0 && v.asked == asked }
	c.after(stepTimeout, func() {
		if isWanted() {
			v.asks = 0
		}
	})
	c.w.store.enter(c.process, is, isWanted, func(now counted, written bool) {
		if !isWanted() {
			return
		}
		v.asks, v.isOpen = 0, wasOpen && !written
		if v.number != now.number { // of the one that counts nothing is known until it reports again
			v.number, v.before, v.copies, v.deadAt, v.at = now.number, now.before, nil, 0, nil
		}
	})
	return false
}

// expel tells a run that another one has taken its place: it gives up what it has.
func (c *coordinator) expel(is former) {
	c.w.send(c.process, is.at.process, func() {
		if !is.over() && !is.at.counts() {
			c.w.note("%s hears that it was replaced", is.at.name)
			c.w.count("run expelled")
			is.at.crash()
		}
	})
}

// anyOf is a process that lives under a name, or the one that counts.
func (w *World) anyOf(id shard.ServerID) *server {
	all := []*server{w.server(id)}
	for _, s := range w.others {
		if s.id == id && s.up {
			all = append(all, s)
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return all[w.rng.IntN(len(all))]
}

// twinGrace is how long a process tries to become the one that counts.
const twinGrace = 4 * suspectAfter

// insist has a process that has just been started give up if this run of it does not count for
// long, also if one before does. One that others still wait for is started again.
func (s *server) insist() {
	w, number := s.w, s.number
	if !w.profile.twins {
		return
	}
	w.after(twinGrace, func() {
		if s.number != number || !s.up || s.counts() {
			return
		}
		w.note("%s gives up", s.name)
		s.crash()
		if w.server(s.id) == s {
			w.after(twinGrace, func() { w.revive(s) })
		}
	})
}

// nextTwin starts another process under the name of a server, which mostly is cut off from
// the coordinators or hangs, and comes back later.
func (w *World) nextTwin() {
	if !w.faulty {
		return
	}
	w.after(w.between(0, w.profile.length/2), w.nextTwin)
	s := w.servers[w.rng.IntN(len(w.servers))]
	living := 0
	for _, other := range w.others {
		if other.id == s.id && other.up {
			living++
		}
	}
	if living == 2 {
		return
	}
	until := w.now + w.between(suspectAfter, 8*suspectAfter)
	switch w.rng.IntN(4) {
	case 0:
		s.hungUntil = max(s.hungUntil, until)
	case 1:
	default:
		for _, c := range w.coords {
			s.cutOff(c.process, until)
			c.cutOff(s.process, until)
		}
	}
	twin := &server{process: w.newProcess(s.name + "'"), id: s.id}
	w.note("%s is started beside %s, until %v", twin.name, s.name, until)
	w.others = append(w.others, twin)
	twin.start()
}
