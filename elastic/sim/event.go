package sim

import (
	"container/heap"
	"time"
)

// event is something that happens at a time. Those of one time happen in the order in which
// they were made.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

// clock is the events to come, and the time.
type clock struct {
	now    time.Duration
	seq    uint64
	events []event
}

func (c *clock) Len() int { return len(c.events) }

func (c *clock) Less(i, j int) bool {
	a, b := &c.events[i], &c.events[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (c *clock) Swap(i, j int) { c.events[i], c.events[j] = c.events[j], c.events[i] }

// Push is for the heap.
func (c *clock) Push(x any) { c.events = append(c.events, x.(event)) }

// Pop is for the heap.
func (c *clock) Pop() any {
	last := c.events[len(c.events)-1]
	c.events[len(c.events)-1] = event{}
	c.events = c.events[:len(c.events)-1]
	return last
}

// after makes an event.
func (c *clock) after(d time.Duration, do func()) {
	c.seq++
	heap.Push(c, event{c.now + max(0, d), c.seq, do})
}

// every makes an event again and again.
func (c *clock) every(d time.Duration, do func()) {
	c.after(d, func() {
		do()
		c.every(d, do)
	})
}

// run lets events happen until a time.
func (c *clock) run(until time.Duration) {
	for len(c.events) > 0 && c.events[0].at <= until {
		e := heap.Pop(c).(event)
		c.now = e.at
		e.do()
	}
	c.now = until
}
