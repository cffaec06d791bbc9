package sched

import (
	"cmp"
	"fmt"
	"slices"
)

// MaxGrowth bounds the nodes of one plan to grow.
const MaxGrowth = 10_000

// NodeType is a kind of node of which more can be had. Its Name is that of the type.
type NodeType struct {
	Node
	// Max is how many more there are.
	Max int
}

// Growth is which nodes to add.
type Growth struct {
	// Add is how many of each type.
	Add []int
	// Left is the tasks that would not fit even so, by ID.
	Left []string
}

// Grow plans the nodes that have to be added for tasks that wait. Tasks that fit now need
// none. Those that ask for most come first; for each that does not fit, a node is added of
// the type that the waiting tasks fill best, one without devices for a task without, if
// there is one. The cluster is not changed.
func (c *Cluster) Grow(tasks []Task, types []NodeType) (Growth, error) {
	g := Growth{Add: make([]int, len(types))}
	for i, x := range types {
		if x.Max < 0 || x.Max > MaxGrowth {
			return Growth{}, fmt.Errorf("sched: types[%d] %q: Max %d: want 0 to %d", i, x.Name, x.Max, MaxGrowth)
		}
		if err := x.check(c.config.Levels); err != nil {
			return Growth{}, fmt.Errorf("sched: types[%d]: %w", i, err)
		}
	}
	for _, t := range tasks {
		if err := t.Validate(); err != nil {
			return Growth{}, err
		}
	}
	room := c.roomCopy()
	waiting := room.fill(bySize(tasks))
	for len(waiting) > 0 {
		best := room.bestType(waiting, types, g.Add)
		if best < 0 {
			g.Left = append(g.Left, waiting[0].ID)
			waiting = waiting[1:]
			continue
		}
		g.Add[best]++
		if err := room.AddNodes(types[best].numbered(g.Add[best])); err != nil {
			return Growth{}, err
		}
		waiting = room.fill(waiting)
	}
	slices.Sort(g.Left)
	return g, nil
}

// Shrink returns which nodes can go: those on which nothing is placed, not even a task that
// takes nothing, but for those that the tasks that wait need. So what it takes away, Grow
// does not ask for again. Names are in order.
func (c *Cluster) Shrink(waiting []Task) []string {
	room := c.roomCopy()
	var (
		idle  []int
		spare []string
	)
	for i := range c.hosts {
		switch {
		case len(c.hosts[i].tasks) > 0:
		case c.hosts[i].cordoned:
			spare = append(spare, c.hosts[i].Name)
		default:
			idle = append(idle, i)
			room.hosts[i].cordoned = true
			room.changed(i)
		}
	}
	rest := room.fill(bySize(waiting))
	for _, i := range idle {
		room.hosts[i].cordoned = false
		room.changed(i)
		before := len(rest)
		if rest = room.fill(rest); len(rest) == before {
			spare = append(spare, c.hosts[i].Name)
		}
	}
	slices.Sort(spare)
	return spare
}

// bySize is tasks in falling order of what they ask for.
func bySize(tasks []Task) []Task {
	sorted := slices.Clone(tasks)
	slices.SortStableFunc(sorted, func(a, b Task) int {
		return cmp.Or(cmp.Compare(b.normal().accelerator(), a.normal().accelerator()), cmp.Compare(b.CPU, a.CPU),
			cmp.Compare(b.MemoryBytes, a.MemoryBytes), cmp.Compare(a.ID, b.ID))
	})
	return sorted
}

// roomCopy is a cluster with the same room on its nodes.
func (c *Cluster) roomCopy() *Cluster {
	room := c.emptyCopy()
	for i := range c.hosts {
		from := &c.hosts[i]
		j, _ := room.find(from.Name)
		to := &room.hosts[j]
		to.shape.cpu, to.idle, to.free, to.memory = from.shape.cpu, from.idle, from.free, from.memory
		to.cordoned = from.cordoned
		for k, name := range room.customs {
			if own := slices.Index(c.customs, name); own >= 0 {
				to.custom[k] = from.custom[own]
			}
		}
		room.changed(j)
	}
	return room
}

// fill places tasks where they fit, and returns those that do not.
func (c *Cluster) fill(tasks []Task) []Task {
	var rest []Task
	for _, t := range tasks {
		t.Group, t.Bundle = "", 0
		if ch, err := c.decide(&t); err == nil {
			c.add(record{task: t, need: c.needs(t.Request), devices: ch.devices, host: int32(ch.host)})
		} else {
			rest = append(rest, t)
		}
	}
	return rest
}

// bestType is the type for the first of the tasks that wait, -1 if there is none.
func (c *Cluster) bestType(waiting []Task, types []NodeType, added []int) int {
	best, high := -1, -1.0
	for i, x := range types {
		alone, err := New(Config{Nodes: []Node{x.numbered(0)}, Levels: c.config.Levels, Policy: BestFit})
		if err != nil || added[i] >= x.Max {
			continue
		}
		if _, err := alone.Decide(waiting[0]); err != nil {
			continue
		}
		alone.fill(waiting)
		left := alone.hosts[0]
		use := 1 - float64(left.shape.cpu)/float64(max(x.CPU, 1))
		if x.Devices > 0 {
			use += 1 - float64(left.idle)/float64(Milli(x.Devices)*Whole)
		} else if waiting[0].Devices == 0 {
			use += 2
		}
		if use > high {
			best, high = i, use
		}
	}
	return best
}

// numbered is one node of a type.
func (x NodeType) numbered(n int) Node {
	node := x.Node
	node.Name = fmt.Sprintf("%s+%d", x.Name, n)
	return node
}
