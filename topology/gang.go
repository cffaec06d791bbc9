package topology

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Gang is what Place finds nodes for: tasks that start together or not at all.
type Gang struct {
	// Tasks is their number, 1 or more.
	Tasks int
	// Devices is how many devices each task needs, 1 or more, all on one node.
	Devices int
	// Required is the level of which one domain must hold all tasks: a level of the tree,
	// KindNode, or KindUnknown for none.
	Required Kind
	// Preferred is the level of which as few domains as possible shall hold the tasks. The
	// default, KindUnknown, is Required; without that either, the tasks go where they
	// leave the fewest free devices behind, one by one.
	Preferred Kind
}

// Placement is a number of tasks on one node.
type Placement struct {
	Node  string
	Tasks int
}

// Place finds nodes for all tasks of a gang, by path and name, and takes nothing yet. With
// Required or Preferred it chooses the fewest domains of the preferred level, if it can within
// one domain of a nearer level than must be; of equal choices the one whose worst link costs
// least, and of these the one with the least room left. Within these domains it goes on in the
// same way, down to nodes. What fits into one domain avoids those whose link has lost half of its
// bandwidth or more, if it can. Ties go to the first by name.
//
// Errors wrap ErrInvalid, or ErrNoRoom if the gang does not fit as a whole; the text names what
// is short.
func (t *Tree) Place(g Gang) ([]Placement, error) {
	required, preferred, err := t.checkGang(g)
	if err != nil {
		return nil, err
	}
	if g.Required == KindUnknown && g.Preferred == KindUnknown {
		return t.fill(g)
	}
	p := placer{devices: g.Devices, required: required, preferred: max(required, preferred)}
	shares := p.choose(t.root, g.Tasks)
	if shares == nil {
		return nil, t.noRoom(g, required)
	}
	for _, s := range shares {
		p.descend(s.domain, s.tasks)
	}
	return placements(p.leaves), nil
}

// checkGang returns the depths of the required and preferred levels, 0 for none.
func (t *Tree) checkGang(g Gang) (int, int, error) {
	var errs []error
	for _, c := range []struct {
		name string
		n    int
	}{{"tasks", g.Tasks}, {"devices for each task", g.Devices}} {
		if c.n < 1 {
			errs = append(errs, fmt.Errorf("%w: a gang with %d %s, must be 1 or more", ErrInvalid, c.n, c.name))
		}
	}
	required, err1 := t.depthOf("required", g.Required)
	preferred, err2 := t.depthOf("preferred", g.Preferred)
	return required, preferred, errors.Join(append(errs, err1, err2)...)
}

// depthOf returns the depth of a level, that of the root for KindUnknown.
func (t *Tree) depthOf(what string, k Kind) (int, error) {
	switch k {
	case KindUnknown:
		return 0, nil
	case KindNode:
		return len(t.levels), nil
	}
	at := slices.IndexFunc(t.levels, func(l Level) bool { return l.Kind == k })
	if at < 0 {
		return 0, fmt.Errorf("%w: the %s level %v is no level of the tree", ErrInvalid, what, k)
	}
	return at, nil
}

func (t *Tree) noRoom(g Gang, required int) error {
	room, largest := 0, 0
	for _, d := range t.root.below(required, nil) {
		room = max(room, d.tasks(g.Devices))
	}
	for free, nodes := range t.root.byFree {
		if nodes > 0 {
			largest = free
		}
	}
	return fmt.Errorf("%w: %d tasks with %d devices each within one %v: room for %d; %d of %d devices are free, at most %d on a node",
		ErrNoRoom, g.Tasks, g.Devices, cmp.Or(g.Required, t.levels[0].Kind), room, t.root.free, t.root.total, largest)
}

// fill places one task after the other where it leaves the fewest free devices.
func (t *Tree) fill(g Gang) ([]Placement, error) {
	if t.root.tasks(g.Devices) < g.Tasks {
		return nil, t.noRoom(g, 0)
	}
	var leaves []share
	for range g.Tasks {
		d := t.root
		for len(d.children) > 0 {
			d = slices.MinFunc(d.children, func(a, b *domain) int { return tightest(a, b, g.Devices) })
		}
		d.change(-g.Devices) // so that the next task sees it
		leaves = append(leaves, share{d, 1})
	}
	for _, s := range leaves {
		s.domain.change(g.Devices)
	}
	return placements(leaves), nil
}

// ailing is the cost from which on a domain is used after all others.
const ailing = Down / 2

// tightest orders domains by how good a place for one task they are.
func tightest(a, b *domain, devices int) int {
	return cmp.Or(
		compareBools(a.cost == Down || a.tasks(devices) == 0, b.cost == Down || b.tasks(devices) == 0),
		compareBools(a.cost >= ailing, b.cost >= ailing),
		cmp.Compare(a.free, b.free), cmp.Compare(a.name, b.name))
}

// compareBools orders false before true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// share is a number of tasks in a domain.
type share struct {
	domain *domain
	tasks  int
}

// placements turns nodes into what the caller sees.
func placements(leaves []share) []Placement {
	slices.SortStableFunc(leaves, func(a, b share) int { return compareDomains(a.domain, b.domain) })
	var list []Placement
	for _, s := range leaves {
		if n := len(list); n > 0 && list[n-1].Node == s.domain.name {
			list[n-1].Tasks += s.tasks
		} else {
			list = append(list, Placement{s.domain.name, s.tasks})
		}
	}
	return list
}

// compareDomains orders domains of the same depth by their paths.
func compareDomains(a, b *domain) int {
	if a == b {
		return 0
	}
	return cmp.Or(compareDomains(a.parent, b.parent), cmp.Compare(a.name, b.name))
}

// placer places one gang that has a level.
type placer struct {
	devices             int
	required, preferred int // depths, preferred is the larger or the same
	leaves              []share
}

// choice is a way to spread tasks over the parts of a domain.
type choice struct {
	shares []share
	cost   Cost // of the worst link between the parts
	spare  int  // tasks for which there is room beside
}

// choose returns the domains of the preferred level that take all tasks, nil if they do not
// fit. Those within one domain of a nearer level come first; a farther level must do with fewer.
func (p *placer) choose(root *domain, tasks int) []share {
	var best choice
	for depth := p.preferred; depth >= p.required && len(best.shares) != 1; depth-- {
		var here choice
		for _, d := range root.below(depth, nil) {
			if d.tasks(p.devices) < tasks {
				continue
			}
			c := choice{[]share{{d, tasks}}, ailment(d), d.tasks(p.devices) - tasks}
			if depth < p.preferred {
				c = p.fewest(d, d.below(p.preferred, nil), tasks)
			}
			if here.shares == nil || compareChoices(c, here) < 0 {
				here = c
			}
		}
		if best.shares == nil || here.shares != nil && len(here.shares) < len(best.shares) {
			best = here
		}
	}
	return best.shares
}

// compareChoices orders choices, the better one first.
func compareChoices(a, b choice) int {
	return cmp.Or(cmp.Compare(len(a.shares), len(b.shares)), cmp.Compare(a.cost, b.cost), cmp.Compare(a.spare, b.spare),
		compareDomains(a.shares[0].domain, b.shares[0].domain))
}

// ailment is the cost that is charged for a domain which holds everything alone: of its link to
// what is around it, if that has lost much.
func ailment(d *domain) Cost {
	if d.cost < ailing {
		return 0
	}
	return d.cost
}

// part is a domain over which tasks may be spread.
type part struct {
	share      // with all tasks for which it has room
	cost  Cost // of the worst link up to the domain that is divided
}

// fewest spreads tasks over the fewest of the domains within d; there is room for them.
func (p *placer) fewest(d *domain, domains []*domain, tasks int) choice {
	var parts []part
	for _, inner := range domains {
		if room := inner.tasks(p.devices); room > 0 {
			cost := Cost(0)
			for at := inner; at != d; at = at.parent {
				cost = max(cost, at.cost)
			}
			parts = append(parts, part{share{inner, room}, cost})
		}
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(b.tasks, a.tasks), compareDomains(a.domain, b.domain))
	})
	if parts[0].tasks >= tasks {
		last := tightestPart(parts, tasks, func(q part) Cost { return ailment(q.domain) })
		return choice{[]share{{last.domain, tasks}}, ailment(last.domain), last.tasks - tasks}
	}
	number := needed(parts, tasks)
	costs := make([]Cost, len(parts))
	for i, q := range parts {
		costs[i] = q.cost
	}
	slices.Sort(costs)
	c := choice{}
	for _, c.cost = range slices.Compact(costs) {
		cheap := slices.DeleteFunc(slices.Clone(parts), func(q part) bool { return q.cost > c.cost })
		if needed(cheap, tasks) != number {
			continue
		}
		for _, q := range cheap[:number-1] {
			c.shares = append(c.shares, q.share)
			tasks -= q.tasks
		}
		last := tightestPart(cheap[number-1:], tasks, func(part) Cost { return 0 })
		c.shares = append(c.shares, share{last.domain, tasks})
		c.spare = last.tasks - tasks
		break
	}
	return c
}

// needed returns how many of the parts, largest first, take all tasks; 0 if they do not.
func needed(parts []part, tasks int) int {
	for i, q := range parts {
		if tasks -= q.tasks; tasks <= 0 {
			return i + 1
		}
	}
	return 0
}

// tightestPart returns of the parts that take all tasks the cheapest, of equal ones the smallest.
func tightestPart(parts []part, tasks int, cost func(part) Cost) part {
	fits := slices.DeleteFunc(slices.Clone(parts), func(q part) bool { return q.tasks < tasks })
	return slices.MinFunc(fits, func(a, b part) int {
		return cmp.Or(cmp.Compare(cost(a), cost(b)), cmp.Compare(a.tasks, b.tasks),
			cmp.Compare(a.domain.free, b.domain.free), compareDomains(a.domain, b.domain))
	})
}

// descend places tasks in a domain, for which it has room.
func (p *placer) descend(d *domain, tasks int) {
	if len(d.children) == 0 {
		p.leaves = append(p.leaves, share{d, tasks})
		return
	}
	for _, s := range p.fewest(d, d.below(d.depth+1, nil), tasks).shares {
		p.descend(s.domain, s.tasks)
	}
}

// below appends the domains of a depth that can be reached from d.
func (d *domain) below(depth int, list []*domain) []*domain {
	if d.depth == depth {
		return append(list, d)
	}
	for _, c := range d.children {
		if c.cost < Down {
			list = c.below(depth, list)
		}
	}
	return list
}
