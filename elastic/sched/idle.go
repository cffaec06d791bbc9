package sched

import "time"

// Idle is a timer for each node, which runs while nothing is placed there. It starts again
// when that node gets work, were it for a moment between two questions, and for nothing
// else: tasks that wait do not touch it, they only keep the nodes that they need. The zero
// value lets nodes go as soon as they are idle.
type Idle struct {
	// After is how long a node is idle before it goes.
	After time.Duration

	nodes map[string]idleNode
}

// idleNode is when a node was first seen without work, and which work was its last then.
type idleNode struct {
	since time.Duration
	work  uint64
}

// Expired returns which of the nodes that Shrink names have been idle for After at a time, which
// is counted from any beginning. Names are in order. A time that goes back expires nothing.
func (d *Idle) Expired(c *Cluster, now time.Duration, waiting []Task) []string {
	nodes := make(map[string]idleNode)
	for i := range c.hosts {
		h := &c.hosts[i]
		if len(h.tasks) > 0 {
			continue
		}
		n, known := d.nodes[h.Name]
		if !known || n.work != h.work {
			n = idleNode{now, h.work}
		}
		nodes[h.Name] = n
	}
	d.nodes = nodes
	var expired []string
	for _, name := range c.Shrink(waiting) {
		if now-nodes[name].since >= d.After {
			expired = append(expired, name)
		}
	}
	return expired
}
