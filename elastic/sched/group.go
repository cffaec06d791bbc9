package sched

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Strategy says how the bundles of a group lie on nodes.
type Strategy uint8

// The strategies.
const (
	// Pack uses as few nodes as it finds.
	Pack Strategy = iota
	// Spread uses as many nodes as there are bundles, if it can.
	Spread
	// StrictPack uses one node, or fails.
	StrictPack
	// StrictSpread uses a node for each bundle, or fails.
	StrictSpread
)

// String returns the name of the strategy.
func (s Strategy) String() string {
	names := [...]string{"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"}
	if int(s) >= len(names) {
		return fmt.Sprintf("strategy %d", uint8(s))
	}
	return names[s]
}

// MaxBundles is the greatest number of bundles of a group.
const MaxBundles = 4096

// AnyBundle is the Task.Bundle of a task that takes the first bundle with room.
const AnyBundle = -1

// Group is a placement group: bundles of resources that are reserved all or none, and
// in which tasks are placed then.
type Group struct {
	ID       string
	Strategy Strategy
	Bundles  []Request
	// Tenant is who is charged for the bundles by Config.Meter.
	Tenant string
}

// group is one that is reserved.
type group struct {
	Group
	bundles []bundle
}

// bundle is what a group reserved on one node, and what is left of it.
type bundle struct {
	shape
	record int32
	memory int64
	custom []Milli // by index in Cluster.customs
}

func (g Group) validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if g.ID == "" {
		fault("ID is empty")
	}
	if g.Strategy > StrictSpread {
		fault("Strategy %d: want at most %d", g.Strategy, StrictSpread)
	}
	if n := len(g.Bundles); n < 1 || n > MaxBundles {
		fault("%d Bundles: want 1 to %d", n, MaxBundles)
	}
	for i, b := range g.Bundles {
		if err := b.check(); err != nil {
			fault("Bundles[%d]: %w", i, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sched: group %q: %w", g.ID, err)
	}
	return nil
}

// PlaceGroup reserves the bundles of a group, all or none, and returns where each is.
// The error wraps ErrInfeasible if the group would not fit in an empty cluster, ErrNoRoom
// if it does not fit now, ErrExists, or says what is not valid.
func (c *Cluster) PlaceGroup(g Group) ([]Placement, error) {
	if err := g.validate(); err != nil {
		return nil, err
	}
	if _, exists := c.groups[g.ID]; exists {
		return nil, fmt.Errorf("%w: group %q", ErrExists, g.ID)
	}
	made := &group{Group: g, bundles: make([]bundle, len(g.Bundles))}
	if err := c.reserve(made); err != nil {
		if !c.everPlaces(func(c *Cluster) error { return c.reserve(&group{Group: g, bundles: make([]bundle, len(g.Bundles))}) }) {
			err = ErrInfeasible
		}
		return nil, fmt.Errorf("%w: group %q, %v", err, g.ID, g.Strategy)
	}
	c.groups[g.ID] = made
	placements := make([]Placement, len(g.Bundles))
	for i, b := range made.bundles {
		placements[i] = c.placement(&c.records[b.record])
		made.bundles[i] = c.newBundle(b.record)
	}
	return placements, nil
}

// reserve places the bundles by the strategy, or leaves everything as it was.
func (c *Cluster) reserve(g *group) error {
	if g.Strategy == Pack || g.Strategy == StrictPack {
		return c.packBundles(g, g.order())
	}
	return c.spreadBundles(g, g.order())
}

// order is the bundles, the largest first: the one that is hardest to place.
func (g *group) order() []int {
	order := make([]int, len(g.Bundles))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := g.Bundles[i].normal(), g.Bundles[j].normal()
		return cmp.Or(cmp.Compare(b.accelerator(), a.accelerator()), cmp.Compare(len(b.Custom), len(a.Custom)),
			cmp.Compare(b.MemoryBytes, a.MemoryBytes), cmp.Compare(b.CPU, a.CPU))
	})
	return order
}

// packBundles puts as many bundles as it can on one node, those left on the next.
func (c *Cluster) packBundles(g *group, order []int) error {
	var placed []int32
	for len(order) > 0 {
		best, most := -1, 0
		for i := range c.hosts {
			n := c.countBundles(g, order, i)
			if n > most || n == most && n > 0 && c.fuller(i, best) {
				best, most = i, n
			}
		}
		if best < 0 || g.Strategy == StrictPack && most < len(order) {
			c.undo(placed)
			return ErrNoRoom
		}
		var rest []int
		for _, b := range order {
			id, ok := c.tryBundle(g, b, best)
			if !ok {
				rest = append(rest, b)
				continue
			}
			placed = append(placed, id)
		}
		order = rest
	}
	return nil
}

// fuller says whether node i has less left than node j.
func (c *Cluster) fuller(i, j int) bool {
	a, b := &c.hosts[i], &c.hosts[j]
	return cmp.Or(cmp.Compare(a.idle, b.idle), cmp.Compare(a.shape.cpu, b.shape.cpu)) < 0
}

// countBundles is how many of the bundles node i takes, in that order.
func (c *Cluster) countBundles(g *group, order []int, i int) int {
	var placed []int32
	for _, b := range order {
		if id, ok := c.tryBundle(g, b, i); ok {
			placed = append(placed, id)
		}
	}
	c.undo(placed)
	return len(placed)
}

// tryBundle reserves a bundle on a node if it has room.
func (c *Cluster) tryBundle(g *group, b, i int) (int32, bool) {
	r := g.Bundles[b]
	cl := class{need: c.needs(r), allowed: c.allowed(r)}
	h := &c.hosts[i]
	if h.refuses(&cl) || h.memory < r.MemoryBytes {
		return 0, false
	}
	id := c.add(record{
		task: Task{Request: r}, need: cl.need, group: g, host: int32(i),
		devices: h.tightest(cl.need.share, cl.need.devices),
	})
	g.bundles[b].record = id
	return id, true
}

func (c *Cluster) dropAll(ids []int32) {
	for _, id := range slices.Backward(ids) {
		c.drop(id)
	}
}

// spreadBundles puts each bundle on a node of its own. If the best nodes do not work out,
// bundles change places along augmenting paths (Kuhn, 1955), so strict spreading fails only
// when it is impossible. What is left over goes anywhere if the strategy allows.
func (c *Cluster) spreadBundles(g *group, order []int) error {
	taken := make(map[int]int) // node → bundle
	var left []int
	for _, b := range order {
		if !c.match(g, b, taken, make(map[int]bool)) {
			left = append(left, b)
		}
	}
	if g.Strategy == StrictSpread && len(left) > 0 {
		return ErrNoRoom
	}
	var placed []int32
	for _, i := range sortedKeys(taken) {
		id, ok := c.tryBundle(g, taken[i], i)
		if !ok {
			c.undo(placed)
			return ErrNoRoom
		}
		placed = append(placed, id)
	}
	for _, b := range left {
		ch, err := c.decide(&Task{Request: g.Bundles[b]})
		if err != nil {
			c.undo(placed)
			return err
		}
		id, _ := c.tryBundle(g, b, ch.host)
		placed = append(placed, id)
	}
	return nil
}

// match finds a node for bundle b: the best free one, or one whose bundle finds another.
func (c *Cluster) match(g *group, b int, taken map[int]int, tried map[int]bool) bool {
	r := g.Bundles[b]
	cl := c.classOf(r, nil)
	best := -1
	for i, score := range cl.scores {
		_, used := taken[i]
		if score != never && !used && c.hosts[i].memory >= r.MemoryBytes && (best < 0 || score > cl.scores[best]) {
			best = i
		}
	}
	if best >= 0 {
		taken[best] = b
		return true
	}
	for _, i := range sortedKeys(taken) {
		if cl.scores[i] == never || c.hosts[i].memory < r.MemoryBytes || tried[i] {
			continue
		}
		tried[i] = true
		other := taken[i]
		if c.match(g, other, taken, tried) {
			taken[i] = b
			return true
		}
	}
	return false
}

// newBundle is a bundle with all it reserved left.
func (c *Cluster) newBundle(id int32) bundle {
	r := &c.records[id]
	h := &c.hosts[r.host]
	b := bundle{record: id, memory: r.need.memory, custom: make([]Milli, len(c.customs))}
	b.shape = shape{cpu: r.need.cpu, cores: r.need.cpu, count: h.count, model: h.model}
	for i := range b.free[:b.count] {
		if r.devices.Has(i) {
			b.free[i] = int16(r.need.share)
			b.idle += r.need.share
		}
	}
	for _, x := range r.need.custom {
		b.custom[x.index] = x.amount
	}
	return b
}

// RemoveGroup gives back what a group reserved and returns the tasks that were in it, in
// the order of their names; they are placed no more.
func (c *Cluster) RemoveGroup(id string) ([]Task, error) {
	g, ok := c.groups[id]
	if !ok {
		return nil, fmt.Errorf("%w: group %q", ErrUnknown, id)
	}
	return c.dropGroup(g), nil
}

func (c *Cluster) dropGroup(g *group) []Task {
	var tasks []Task
	for i := range c.records {
		if r := &c.records[i]; r.group == g && r.inBundle() {
			tasks = append(tasks, r.task)
			c.drop(int32(i))
		}
	}
	for _, b := range g.bundles {
		c.drop(b.record)
	}
	delete(c.groups, g.ID)
	slices.SortFunc(tasks, func(a, b Task) int { return cmp.Compare(a.ID, b.ID) })
	return tasks
}

// inBundle says whether a record takes from a bundle, not from its node.
func (r *record) inBundle() bool { return r.group != nil && r.task.ID != "" }

// book takes what a task needs off its bundle, or gives it back with sign -1.
func (g *group) book(r *record, sign Milli) {
	b := &g.bundles[r.task.Bundle]
	b.take(sign*r.need.cpu, r.devices, sign*r.need.share)
	b.memory -= int64(sign) * r.need.memory
	for _, x := range r.need.custom {
		b.custom[x.index] -= sign * x.amount
	}
}

// placeInGroup puts a task into a bundle of its group.
func (c *Cluster) placeInGroup(t Task) (Placement, error) {
	g, ok := c.groups[t.Group]
	switch {
	case !ok:
		return Placement{}, fmt.Errorf("%w: group %q", ErrUnknown, t.Group)
	case t.Bundle >= len(g.bundles):
		return Placement{}, fmt.Errorf("sched: task %q: Bundle %d: want less than %d", t.ID, t.Bundle, len(g.bundles))
	}
	first, last := t.Bundle, t.Bundle
	if t.Bundle == AnyBundle {
		first, last = 0, len(g.bundles)-1
	}
	err := ErrInfeasible
	for i := first; i <= last; i++ {
		b, need := g.bundles[i], c.needs(t.Request)
		if b.refuses(need) {
			if full := c.newBundle(b.record); !full.refuses(need) {
				err = ErrNoRoom
			}
			continue
		}
		t.Bundle = i
		id := c.add(record{
			task: t, need: need, group: g, host: c.records[b.record].host,
			devices: b.tightest(need.share, need.devices),
		})
		c.byID[t.ID] = id
		return c.placement(&c.records[id]), nil
	}
	return Placement{}, fmt.Errorf("%w: task %q, bundle %d of group %q", err, t.ID, t.Bundle, t.Group)
}

// refuses says whether the bundle has no room.
func (b *bundle) refuses(n need) bool {
	if n.unknown != "" || b.shape.cpu < n.cpu || b.memory < n.memory || b.fitting(max(n.share, 1)).Len() < n.devices {
		return true
	}
	for _, x := range n.custom {
		if b.custom[x.index] < x.amount {
			return true
		}
	}
	return false
}
