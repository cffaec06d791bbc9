package sim

import (
	"time"

	"github.com/elasticps/elasticps/shard"
)

// entry is a record with the revision that it has in the store.
type entry struct {
	record   shard.Record
	revision uint64
}

// store is the coordination store: linearizable, and away at times.
type store struct {
	*process
	entries   []entry
	runs      map[shard.ServerID]counted
	awayUntil time.Duration
}

func newStore(w *World) *store {
	return &store{process: w.newProcess("store"), runs: map[shard.ServerID]counted{}}
}

// swap is a compare-and-swap asked for by a process. The answer may be lost, and
// may come for a write that was given up long ago. Seen is when what the write relies on
// was so, for the observer.
func (s *store) swap(from *process, id int, revision uint64, r shard.Record, seen time.Duration, answer func(ok bool, e entry)) {
	s.w.send(from, s.process, func() {
		if s.awayUntil > s.w.now {
			return
		}
		e := &s.entries[id]
		ok := e.revision == revision
		if ok {
			if err := r.Validate(); err != nil {
				s.w.fail("%s writes a record that is not valid: %w", from.name, err)
			}
			before := e.record
			*e = entry{r, e.revision + 1}
			s.w.note("store: shard %d revision %d by %s: %s", id, e.revision, from.name, describe(r))
			s.w.checkWrite(id, before, r, seen)
		}
		now := *e
		s.w.send(s.process, from, func() { answer(ok, now) })
	})
}

// read asks for a record.
func (s *store) read(from *process, id int, answer func(e entry)) {
	s.w.send(from, s.process, func() {
		if s.awayUntil > s.w.now {
			return
		}
		now := s.entries[id]
		s.w.send(s.process, from, func() { answer(now) })
	})
}
