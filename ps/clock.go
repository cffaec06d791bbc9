package ps

import (
	"fmt"
	"maps"
	"slices"
)

// clocks is the barrier of a job: a pure state machine over the logical clocks of
// the members. The coordinator feeds it and answers the ticks that it releases.
//
// A member at clock c computes and pushes its c-th batch; it ticks when all pushes
// of that clock are acknowledged, and is released to c+1 when the mode allows. A
// member that leaves or dies is forgotten, so that it never holds the others.
type clocks struct {
	mode    Consistency
	members map[uint64]member // by incarnation
	held    bool              // nobody is released
	cut     bool              // nobody begins a clock that is new to all until a checkpoint has been taken
	next    uint32            // clock of the next member when there is none, never goes back
}

type member struct {
	clock   uint32 // clock that the member works on
	waiting bool   // it has finished clock and waits for clock+1
	back    bool   // it came back, and may be one clock further than it said
}

func newClocks(mode Consistency) clocks {
	return clocks{mode: mode, members: map[uint64]member{}}
}

// open is the lowest clock that a member still works on: every update of earlier
// clocks has been acknowledged.
func (c *clocks) open() uint32 {
	if len(c.members) == 0 {
		return c.next
	}
	low := ^uint32(0)
	for _, m := range c.members {
		low = min(low, m.clock)
	}
	return low
}

// join adds a member. It starts at the open clock, or at its own when it comes
// back to a restarted coordinator with a later one. Joining twice changes nothing.
func (c *clocks) join(incarnation uint64, clock uint32) uint32 {
	if m, ok := c.members[incarnation]; ok {
		return m.clock
	}
	clock = max(clock, c.open())
	c.members[incarnation] = member{clock: clock}
	c.next = max(c.next, clock)
	return clock
}

// comeBack adds a member that a restarted coordinator did not know, at its own clock.
func (c *clocks) comeBack(incarnation uint64, clock uint32) {
	c.members[incarnation] = member{clock: clock, back: true}
	c.next = max(c.next, clock)
}

// leave forgets a member and returns the members that are released by it, in order.
// After the last one has left, all clocks count as finished.
func (c *clocks) leave(incarnation uint64) []uint64 {
	m, ok := c.members[incarnation]
	if !ok {
		return nil
	}
	delete(c.members, incarnation)
	c.next = max(c.next, m.clock+1)
	return c.release()
}

// tick records that a member has finished clock. It returns the members that are
// released to their next clock, in order; the member itself may be among them.
// A repeated tick of a clock that is already over releases the member again, so
// that a lost answer can be asked for once more.
func (c *clocks) tick(incarnation uint64, clock uint32) ([]uint64, error) {
	m, ok := c.members[incarnation]
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: incarnation %d", ErrNotMember, incarnation)
	case clock+1 == m.clock:
		return []uint64{incarnation}, nil
	case m.back && !m.waiting && clock == m.clock+1:
		m.clock = clock // the last answer of the earlier coordinator overtook its return
	case clock != m.clock:
		return nil, fmt.Errorf("ps: tick of clock %d, the worker is at clock %d", clock, m.clock)
	}
	m.waiting = true
	c.members[incarnation] = m
	return c.release(), nil
}

// release lets go everybody who may, lowest incarnation first.
func (c *clocks) release() []uint64 {
	var released []uint64
	for !c.held {
		finished, last := c.finished(), c.last()
		moved := false
		for _, inc := range slices.Sorted(maps.Keys(c.members)) {
			m := c.members[inc]
			if !m.waiting || !c.mayStart(m.clock+1, finished) || c.cut && m.clock+1 > last {
				continue
			}
			c.members[inc] = member{clock: m.clock + 1}
			c.next = max(c.next, m.clock+1)
			released = append(released, inc)
			moved = true
		}
		if !moved {
			break
		}
	}
	return released
}

// barrier returns the clock that begins next, and whether every member has finished the
// ones before.
func (c *clocks) barrier() (clock uint32, all bool) {
	if len(c.members) == 0 {
		return c.next, true
	}
	clock = c.finished()
	for _, m := range c.members {
		if !m.waiting || m.clock+1 != clock {
			return clock, false
		}
	}
	return clock, true
}

// last is the highest clock that a member works on or has finished: some may be behind, when
// an earlier coordinator has not told all that it had begun.
func (c *clocks) last() (high uint32) {
	for _, m := range c.members {
		high = max(high, m.clock)
	}
	return high
}

// finished is the number of clocks that every member has finished.
func (c *clocks) finished() uint32 {
	low := ^uint32(0)
	for _, m := range c.members {
		done := m.clock
		if m.waiting {
			done++
		}
		low = min(low, done)
	}
	return low
}

// mayStart reports whether a member may begin clock when all members have finished
// the clocks below finished.
func (c *clocks) mayStart(clock, finished uint32) bool {
	switch c.mode.Mode {
	case BSP:
		return clock <= finished
	case SSP:
		return clock <= finished || clock-finished <= c.mode.Staleness
	default:
		return true
	}
}
