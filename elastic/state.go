package elastic

import (
	"slices"
	"time"
)

// State is what the policy remembers from one plan to the next. It is a value:
// Plan returns the next one and leaves its argument alone. The zero value is a
// policy that has seen nothing.
type State struct {
	up, down     hold
	changed      hold // since the last change of the set of servers or of an owner
	shrunk       hold // since the load last made it remove servers, until it grows again
	numReversals int  // growths that followed such a shrinking too soon
	nextOperator uint64
	nextServer   int
	backoffs     []backoff // few: one for each subject that failed of late
}

// hold is a condition and the time since which it has held without a break.
type hold struct {
	holds bool
	since time.Duration
}

func (h *hold) observe(at time.Duration, holds bool) {
	if !holds || !h.holds || at < h.since {
		*h = hold{holds: holds, since: at}
	}
}

func (h hold) heldFor(at, d time.Duration) bool { return h.holds && at-h.since >= d }

type backoff struct {
	subject subject
	until   time.Duration
}

func (st State) clone() State {
	st.backoffs = slices.Clone(st.backoffs)
	return st
}

// absorb takes note of the operators that ended.
func (st *State) absorb(p Policy, s Snapshot) {
	st.backoffs = slices.DeleteFunc(st.backoffs, func(b backoff) bool { return b.until <= s.At })
	for _, o := range s.Finished {
		switch o.Status {
		case Succeeded:
			st.changed = hold{holds: true, since: s.At}
		case Failed, TimedOut, Cancelled:
			st.backoffs = slices.DeleteFunc(st.backoffs, func(b backoff) bool { return b.subject == o.subject() })
			st.backoffs = append(st.backoffs, backoff{subject: o.subject(), until: s.At + p.Backoff})
		}
	}
}

// observe follows the two conditions on which a change waits.
func (st *State) observe(at time.Duration, up, down bool) {
	st.up.observe(at, up)
	st.down.observe(at, down)
}

// maxReversals bounds the doublings of DwellDown.
const maxReversals = 4

// acted notes a change: what was measured before says nothing about what comes after.
func (st *State) acted(at time.Duration, d Decision, dwellDown time.Duration) {
	st.up, st.down = hold{}, hold{}
	st.changed = hold{holds: true, since: at}
	if d.Reason != Load {
		return
	}
	switch {
	case d.To < d.From:
		st.shrunk = hold{holds: true, since: at}
	case st.shrunk.heldFor(at, dwellDown<<maxReversals):
		st.shrunk, st.numReversals = hold{}, 0
	case st.shrunk.holds:
		st.shrunk, st.numReversals = hold{}, min(maxReversals, st.numReversals+1)
	}
}

// dwellDown is the dwell time of shrinking after the reversals so far.
func (st State) dwellDown(d time.Duration) time.Duration { return d << st.numReversals }

// cooling reports whether the last change is more recent than d.
func (st State) cooling(at, d time.Duration) bool {
	return st.changed.holds && at-st.changed.since < d
}

func (st State) backingOff(s subject, at time.Duration) bool {
	return slices.ContainsFunc(st.backoffs, func(b backoff) bool { return b.subject == s && b.until > at })
}
