package sched

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Victim is a task that has to go, and what its owner wants to know of it.
type Victim struct {
	Task Task
	Node string
}

// Preemption is a plan to place a task or a gang by letting others go. It is a value; the
// cluster knows nothing of it before Begin.
type Preemption struct {
	// ID is that of the task or the gang.
	ID string
	// Victims have to go, in the order of their names.
	Victims []Victim
	// Placements is where the tasks go then.
	Placements []Placement

	gang  string
	least int
	tasks []Task
}

// hold is a preemption under way: what it needs is kept free as victims go.
type hold struct {
	plan    *Preemption
	records []int32
	broken  bool // a node is gone
}

// Preempt plans to place a task where fewest preemptible tasks of lower priority have to
// go for it; of equals rather those of lower priority, and those on the node that comes
// first. If there is room, nobody has to go. Members of a gang that needs them count
// with the whole gang, which ends. The error wraps ErrNoRoom or ErrInfeasible, or says
// what is not valid. Nothing is changed.
func (c *Cluster) Preempt(t Task) (*Preemption, error) {
	if t.Group != "" {
		return nil, fmt.Errorf("sched: task %q in group %q: bundles are not preempted", t.ID, t.Group)
	}
	return c.preempt(Gang{ID: t.ID, Tasks: []Task{t}}, "")
}

// MaxPreemptingGang is the greatest number of tasks of a gang that preempts.
const MaxPreemptingGang = 4096

// PreemptGang is Preempt for a gang of equal requests: for Min of its tasks, or all if
// that is 0. A constraint may bind groups within a node, another the whole gang within a
// level; other constraints are refused.
func (c *Cluster) PreemptGang(g Gang) (*Preemption, error) { return c.preempt(g, g.ID) }

func (c *Cluster) preempt(g Gang, name string) (*Preemption, error) {
	if err := c.validateGang(g); err != nil {
		return nil, err
	}
	if len(g.Tasks) > MaxPreemptingGang {
		return nil, fmt.Errorf("sched: gang %q: %d Tasks: want at most %d to preempt", g.ID, len(g.Tasks), MaxPreemptingGang)
	}
	first := g.Tasks[0]
	for _, t := range g.Tasks {
		if !slices.Equal(appendKey(nil, t.normal(), nil), appendKey(nil, first.normal(), nil)) ||
			t.MemoryBytes != first.MemoryBytes || t.Priority != first.Priority {
			return nil, fmt.Errorf("sched: gang %q: task %q asks for other resources or priority than %q: want them equal",
				g.ID, t.ID, first.ID)
		}
	}
	unit, level, err := c.units(g)
	if err != nil {
		return nil, err
	}
	n := cmp.Or(g.Min, len(g.Tasks))
	c.searched = 0
	best, found := assignment{}, false
	for _, nodes := range c.regions(level) {
		if a, ok := c.assign(first, nodes, unit, (n+unit-1)/unit); ok && (!found || a.price < best.price) {
			best, found = a, true
		}
	}
	if !found {
		if !c.everPlaces(func(c *Cluster) error { _, err := c.tryGang(g); return err }) {
			return nil, fmt.Errorf("%w: task or gang %q", ErrInfeasible, g.ID)
		}
		return nil, fmt.Errorf("%w: task or gang %q of priority %d", ErrNoRoom, g.ID, first.Priority)
	}
	return c.newPreemption(g, name, best, unit), nil
}

// units are the ranks that have to be on one node together, and the level within which all
// have to be, -1 for none.
func (c *Cluster) units(g Gang) (unit, level int, err error) {
	unit, level = 1, -1
	nodes := len(c.config.Levels)
	for i, x := range g.Constraints {
		size, within := cmp.Or(x.Size, len(g.Tasks)), c.level(x.Within)
		switch {
		case within == nodes:
			unit = size
		case size == len(g.Tasks):
			level = within
		default:
			return 0, 0, fmt.Errorf("sched: gang %q: Constraints[%d]: %d ranks within %q: preemption wants a node, or the whole gang",
				g.ID, i, size, x.Within)
		}
	}
	return unit, level, nil
}

// regions are the nodes of each domain of a level.
func (c *Cluster) regions(level int) [][]int {
	if level < 0 {
		all := make([]int, len(c.hosts))
		for i := range all {
			all[i] = i
		}
		return [][]int{all}
	}
	regions := make([][]int, len(c.domains[level]))
	for i := range c.hosts {
		d := c.hosts[i].domains[level]
		regions[d] = append(regions[d], i)
	}
	return regions
}

// assignment is how many units each node takes, and who goes for them.
type assignment struct {
	nodes   []int
	counts  []int
	victims []int32
	price   cost
}

// newPreemption fills in where the tasks go once the victims are gone.
func (c *Cluster) newPreemption(g Gang, name string, a assignment, unit int) *Preemption {
	p := &Preemption{ID: g.ID, gang: name, least: cmp.Or(g.Min, len(g.Tasks))}
	for _, id := range a.victims {
		r := &c.records[id]
		p.Victims = append(p.Victims, Victim{Task: r.task, Node: c.hosts[r.host].Name})
	}
	slices.SortFunc(p.Victims, func(x, y Victim) int { return cmp.Compare(x.Task.ID, y.Task.ID) })
	n := c.needs(g.Tasks[0].Request)
	for k, i := range a.nodes {
		left := c.hosts[i].shape
		for _, id := range a.victims {
			if r := &c.records[id]; int(r.host) == i {
				left.take(-r.need.cpu, r.devices, -r.need.share)
			}
		}
		for range a.counts[k] * unit {
			if len(p.tasks) == len(g.Tasks) {
				break
			}
			t := g.Tasks[len(p.tasks)]
			set := left.tightest(n.share, n.devices)
			left.take(n.cpu, set, n.share)
			p.tasks = append(p.tasks, t)
			p.Placements = append(p.Placements, Placement{t.ID, c.hosts[i].Name, set, n.share})
		}
	}
	return p
}

// Begin reserves what a preemption needs of what is free, and lets nobody else count on
// its victims. They go on until Complete. The error wraps ErrUnknown if a victim or a node
// is gone, or ErrNoRoom if the plan does not hold any more; nothing is changed then.
func (c *Cluster) Begin(p *Preemption) error {
	if _, exists := c.holds[p.ID]; exists {
		return fmt.Errorf("%w: preemption for %q", ErrExists, p.ID)
	}
	if len(p.tasks) != len(p.Placements) {
		return fmt.Errorf("sched: preemption for %q: %d Placements for %d tasks: want a plan as it was made", p.ID, len(p.Placements), len(p.tasks))
	}
	h := &hold{plan: p}
	for _, v := range p.Victims {
		id, ok := c.byID[v.Task.ID]
		if !ok || c.records[id].leaving != nil {
			return fmt.Errorf("%w: preemption for %q: victim %q", ErrUnknown, p.ID, v.Task.ID)
		}
		if r := &c.records[id]; r.task.Priority != v.Task.Priority || r.task.Preemptible != v.Task.Preemptible || c.hosts[r.host].Name != v.Node {
			return fmt.Errorf("%w: preemption for %q: victim %q is another task now", ErrUnknown, p.ID, v.Task.ID)
		}
	}
	if err := c.check(p); err != nil {
		return err
	}
	for _, v := range p.Victims {
		c.records[c.byID[v.Task.ID]].leaving = h
	}
	for _, t := range p.tasks {
		c.coming[t.ID] = true
	}
	c.holds[p.ID] = h
	c.refill(h)
	return nil
}

// check says whether a plan still holds.
func (c *Cluster) check(p *Preemption) error {
	left := make(map[int]*host)
	at := func(name string) (*host, error) {
		i, ok := c.find(name)
		if !ok {
			return nil, fmt.Errorf("%w: preemption for %q: node %q", ErrUnknown, p.ID, name)
		}
		if left[i] == nil {
			h := c.hosts[i]
			h.custom = slices.Clone(h.custom)
			left[i] = &h
		}
		return left[i], nil
	}
	for _, v := range p.Victims {
		r := &c.records[c.byID[v.Task.ID]]
		h, err := at(c.hosts[r.host].Name)
		if err != nil {
			return err
		}
		h.give(r.need, r.devices, -1)
	}
	for i, pl := range p.Placements {
		if c.exists(pl.Task) {
			return fmt.Errorf("%w: task %q", ErrExists, pl.Task)
		}
		h, err := at(pl.Node)
		if err != nil {
			return err
		}
		n := c.needs(p.tasks[i].Request)
		if !c.mayRun(n, p.tasks[i], c.places[pl.Node]) || n.devices > 0 && h.fitting(n.share)&pl.Devices != pl.Devices {
			return fmt.Errorf("%w: preemption for %q: devices %v of %q", ErrNoRoom, p.ID, pl.Devices.List(), pl.Node)
		}
		if h.give(n, pl.Devices, 1); h.shape.cpu < 0 || h.memory < 0 || h.lacksCustom() {
			return fmt.Errorf("%w: preemption for %q: node %q", ErrNoRoom, p.ID, pl.Node)
		}
	}
	return nil
}

// give takes a need off a node that is only imagined, or gives it back with sign -1.
func (h *host) give(n need, devices DeviceSet, sign Milli) {
	h.take(sign*n.cpu, devices, sign*n.share)
	h.memory -= int64(sign) * n.memory
	for _, x := range n.custom {
		h.custom[x.index] -= sign * x.amount
	}
}

func (h *host) lacksCustom() bool {
	return slices.ContainsFunc(h.custom, func(v Milli) bool { return v < 0 })
}

// refill keeps as much of what a preemption needs as is free.
func (c *Cluster) refill(h *hold) {
	if h.broken {
		return
	}
	c.dropAll(h.records)
	h.records = h.records[:0]
	for k, pl := range h.plan.Placements {
		i, ok := c.find(pl.Node)
		if !ok {
			h.broken = true
			return
		}
		n, node := c.needs(h.plan.tasks[k].Request), &c.hosts[i]
		n.cpu, n.memory = min(n.cpu, node.shape.cpu), min(n.memory, node.memory)
		for j := range n.custom {
			n.custom[j].amount = min(n.custom[j].amount, node.custom[n.custom[j].index])
		}
		share := n.share
		n.share = 0
		h.records = append(h.records, c.add(record{need: n, host: int32(i), hold: h}))
		for _, device := range pl.Devices.List() {
			part := need{share: min(share, Milli(node.free[device]))}
			h.records = append(h.records, c.add(record{need: part, devices: 1 << device, host: int32(i), hold: h}))
		}
	}
}

// Complete lets the victims of a preemption go and puts its tasks in their place, at once.
// It returns the victims that were still there. If a node has gone meanwhile, it abandons
// the preemption and the error wraps ErrUnknown.
func (c *Cluster) Complete(id string) ([]Task, error) {
	h, ok := c.holds[id]
	if !ok {
		return nil, fmt.Errorf("%w: preemption for %q", ErrUnknown, id)
	}
	if h.broken {
		return nil, errors.Join(fmt.Errorf("%w: preemption for %q: a node is gone", ErrUnknown, id), c.Abandon(id))
	}
	c.endHold(h)
	var gone []Task
	for _, v := range h.plan.Victims {
		if rec, ok := c.byID[v.Task.ID]; ok && c.records[rec].leaving == h {
			gone = append(gone, v.Task)
			c.records[rec].leaving = nil
			c.drop(rec)
		}
	}
	made := &gang{min: h.plan.least}
	for k, pl := range h.plan.Placements {
		i, _ := c.find(pl.Node)
		c.commit(h.plan.tasks[k], choice{i, pl.Devices})
		if h.plan.gang != "" {
			made.enter(&c.records[c.byID[pl.Task]])
		}
	}
	return gone, nil
}

// Abandon ends a preemption under way: its victims stay, what it kept is free.
func (c *Cluster) Abandon(id string) error {
	h, ok := c.holds[id]
	if !ok {
		return fmt.Errorf("%w: preemption for %q", ErrUnknown, id)
	}
	c.endHold(h)
	for _, v := range h.plan.Victims {
		c.stay(h, v.Task.ID)
	}
	return nil
}

// endHold gives back what a preemption kept.
func (c *Cluster) endHold(h *hold) {
	delete(c.holds, h.plan.ID)
	for _, t := range h.plan.tasks {
		delete(c.coming, t.ID)
	}
	c.dropAll(h.records)
}

// stay lets a task stay that was to leave for a hold.
func (c *Cluster) stay(h *hold, task string) {
	if id, ok := c.byID[task]; ok && c.records[id].leaving == h {
		c.records[id].leaving = nil
	}
}

// Evict carries a preemption out: it calls drain for each victim that asks for it, and
// waits, before any goes. A parameter server hands over its shards then. If one cannot be
// drained, nothing is changed and the error is that of drain.
func (c *Cluster) Evict(p *Preemption, drain func(Victim) error) ([]Task, error) {
	if err := c.Begin(p); err != nil {
		return nil, err
	}
	for _, v := range p.Victims {
		if !v.Task.Drain || drain == nil {
			continue
		}
		if err := drain(v); err != nil {
			return nil, errors.Join(fmt.Errorf("sched: preemption for %q: drain %q: %w", p.ID, v.Task.ID, err), c.Abandon(p.ID))
		}
	}
	return c.Complete(p.ID)
}
