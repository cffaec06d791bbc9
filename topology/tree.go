package topology

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

const (
	// MaxNodeDevices is the largest number of devices of one node of a tree.
	MaxNodeDevices = 1024
	// MaxTreeDevices is the largest number of devices of a tree.
	MaxTreeDevices = 1 << 24
)

// Level describes the failure domains of one kind.
type Level struct {
	// Kind is KindRegion, KindCluster, KindPlane or KindRack.
	Kind Kind
	// BytesPerSecond estimates the bandwidth between two devices whose smallest common domain is of
	// this level, in one direction. 0 means Rate(Kind).
	BytesPerSecond float64
}

// Node is a node as it is added to a tree.
type Node struct {
	// Name is unique within the tree.
	Name string
	// Path names the domains around the node, from the outside, one for each level but
	// the first. Names count within the domain around them.
	Path []string
	// Devices is how many devices it has, all of them free at first.
	Devices int
}

// Tree holds the failure domains of a cluster with the number of free devices in each: a
// domain for the first level, which is the root, down to nodes. Adding, removing, taking and giving
// back touch only the domains around one node. It is not safe for concurrent use.
type Tree struct {
	levels []Level
	root   *domain
	nodes  map[string]*domain
}

// domain is a failure domain or, at the end, a node.
type domain struct {
	name        string
	parent      *domain
	place       int // among the children of parent
	children    []*domain
	byName      map[string]*domain // the children
	depth       int                // index of its level; the number of levels for nodes
	cost        Cost               // of the link to what is around it
	free, total int                // devices, without those in domains that are down
	byFree      []int32            // how many nodes have so many free devices, likewise
}

// NewTree returns a tree without nodes. The levels are given from the outside in, each of a
// nearer kind than the one before. Errors wrap ErrInvalid.
func NewTree(levels ...Level) (*Tree, error) {
	if len(levels) == 0 {
		return nil, fmt.Errorf("%w: a tree without levels", ErrInvalid)
	}
	var errs []error
	t := &Tree{levels: slices.Clone(levels), nodes: make(map[string]*domain), root: &domain{}}
	for i, l := range levels {
		switch {
		case !l.Kind.domain():
			errs = append(errs, fmt.Errorf("%w: level %d is of kind %v, must be %v to %v", ErrInvalid, i, l.Kind, KindRegion, KindRack))
		case i > 0 && l.Kind <= levels[i-1].Kind:
			errs = append(errs, fmt.Errorf("%w: level %d, %v, is not nearer than %v around it", ErrInvalid, i, l.Kind, levels[i-1].Kind))
		case !(l.BytesPerSecond >= 0):
			errs = append(errs, fmt.Errorf("%w: level %d carries %g bytes/s, must be 0 or more", ErrInvalid, i, l.BytesPerSecond))
		}
		t.levels[i].BytesPerSecond = cmp.Or(l.BytesPerSecond, Rate(l.Kind))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t, nil
}

// Add adds a node, and the domains around it that are new, with healthy links. Errors wrap
// ErrInvalid; the tree is unchanged then.
func (t *Tree) Add(n Node) error {
	switch {
	case n.Name == "":
		return fmt.Errorf("%w: a node without a name", ErrInvalid)
	case t.nodes[n.Name] != nil:
		return fmt.Errorf("%w: node %.64q is in the tree already", ErrInvalid, n.Name)
	case len(n.Path) != len(t.levels)-1:
		return fmt.Errorf("%w: node %.64q has a path of %d domains, must be %d", ErrInvalid, n.Name, len(n.Path), len(t.levels)-1)
	case slices.Contains(n.Path, ""):
		return fmt.Errorf("%w: node %.64q has a domain without a name in its path", ErrInvalid, n.Name)
	case n.Devices < 0 || n.Devices > MaxNodeDevices:
		return fmt.Errorf("%w: node %.64q has %d devices, must be 0 to %d", ErrInvalid, n.Name, n.Devices, MaxNodeDevices)
	case t.root.total+n.Devices > MaxTreeDevices:
		return fmt.Errorf("%w: node %.64q makes %d devices, limit %d", ErrInvalid, n.Name, t.root.total+n.Devices, MaxTreeDevices)
	}
	d := t.root
	for _, name := range n.Path {
		d = d.child(name)
	}
	leaf := d.child(n.Name)
	leaf.free, leaf.total = n.Devices, n.Devices
	leaf.count(n.Devices, 1)
	t.nodes[n.Name] = leaf
	leaf.propagate(func(d *domain) {
		d.free += n.Devices
		d.total += n.Devices
		d.count(n.Devices, 1)
	})
	return nil
}

// Remove removes a node, whatever is taken of it, and the domains that are empty without it.
// Errors wrap ErrInvalid.
func (t *Tree) Remove(name string) error {
	leaf, err := t.node(name)
	if err != nil {
		return err
	}
	leaf.propagate(func(d *domain) {
		d.free -= leaf.free
		d.total -= leaf.total
		d.count(leaf.free, -1)
	})
	delete(t.nodes, name)
	for d := leaf; d.parent != nil && len(d.children) == 0; d = d.parent {
		d.parent.drop(d)
	}
	return nil
}

// Take marks n free devices of a node as taken. Errors wrap ErrInvalid (no such node, n
// negative) or ErrNoRoom (fewer are free); nothing is taken then.
func (t *Tree) Take(name string, n int) error {
	leaf, err := t.node(name)
	switch {
	case err != nil:
		return err
	case n < 0:
		return fmt.Errorf("%w: %d devices of node %.64q taken, must be 0 or more", ErrInvalid, n, name)
	case n > leaf.free:
		return fmt.Errorf("%w: %d devices of node %.64q wanted, %d of %d free", ErrNoRoom, n, name, leaf.free, leaf.total)
	}
	leaf.change(-n)
	return nil
}

// Give marks n taken devices of a node as free. Errors wrap ErrInvalid (no such node, n negative,
// or fewer are taken); nothing is given back then.
func (t *Tree) Give(name string, n int) error {
	leaf, err := t.node(name)
	switch {
	case err != nil:
		return err
	case n < 0 || n > leaf.total-leaf.free:
		return fmt.Errorf("%w: %d devices of node %.64q given back, %d of %d taken", ErrInvalid, n, name, leaf.total-leaf.free, leaf.total)
	}
	leaf.change(n)
	return nil
}

// SetCost sets the cost of the link between a domain and what is around it. The domain is given
// by its path from below the root; a node by its path and name. A domain whose link is Down
// counts as having no devices for everything around it, until that changes. Errors wrap
// ErrInvalid.
func (t *Tree) SetCost(path []string, cost Cost) error {
	d, err := t.at(path)
	switch {
	case err != nil:
		return err
	case d.parent == nil:
		return fmt.Errorf("%w: the root has no link", ErrInvalid)
	case cost < 0 || cost > Down:
		return fmt.Errorf("%w: cost %d of %.64q, must be 0 to %d", ErrInvalid, cost, d.name, Down)
	}
	sign := 0
	switch {
	case d.cost < Down && cost == Down:
		sign = -1
	case d.cost == Down && cost < Down:
		sign = 1
	}
	d.cost = min(cost, Down-1) // so that what is around it is reached
	if sign != 0 {
		d.propagate(func(above *domain) {
			above.free += sign * d.free
			above.total += sign * d.total
			for free, nodes := range d.byFree {
				above.count(free, int32(sign)*nodes)
			}
		})
	}
	d.cost = cost
	return nil
}

// Free returns how many devices of a domain, given by its path from below the root, are
// free, and how many it has: those that can be reached from it. Errors wrap ErrInvalid.
func (t *Tree) Free(path ...string) (free, total int, err error) {
	d, err := t.at(path)
	if err != nil {
		return 0, 0, err
	}
	return d.free, d.total, nil
}

// Link returns how a device of one node is connected with one of another: by the kind of the
// smallest domain around both, its bandwidth, and the highest cost of the links that lead there.
// Of one node with itself it is KindNode, as only a Graph knows more. Errors wrap ErrInvalid.
func (t *Tree) Link(a, b string) (Link, error) {
	x, err := t.node(a)
	if err != nil {
		return Link{}, err
	}
	y, err := t.node(b)
	if err != nil {
		return Link{}, err
	}
	if x == y {
		return NewLink(KindNode, 0), nil
	}
	cost := Cost(0)
	for x != y { // all nodes are at the same depth
		cost = max(cost, x.cost, y.cost)
		x, y = x.parent, y.parent
	}
	level := t.levels[x.depth]
	return Link{Kind: level.Kind, BytesPerSecond: level.BytesPerSecond, Cost: cost}, nil
}

func (t *Tree) node(name string) (*domain, error) {
	if d := t.nodes[name]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("%w: the tree has no node %.64q", ErrInvalid, name)
}

func (t *Tree) at(path []string) (*domain, error) {
	d := t.root
	for _, name := range path {
		d = d.byName[name]
		if d == nil {
			return nil, fmt.Errorf("%w: there is no domain %.64q in the tree, of the path %.256q", ErrInvalid, name, path)
		}
	}
	return d, nil
}

// child returns the child of the name, which is made if there is none.
func (d *domain) child(name string) *domain {
	c := d.byName[name]
	if c == nil {
		c = &domain{name: name, parent: d, place: len(d.children), depth: d.depth + 1}
		if d.byName == nil {
			d.byName = make(map[string]*domain)
		}
		d.byName[name] = c
		d.children = append(d.children, c)
	}
	return c
}

// drop removes a child; the last one takes its place.
func (d *domain) drop(c *domain) {
	last := d.children[len(d.children)-1]
	d.children[c.place], last.place = last, c.place
	d.children = d.children[:len(d.children)-1]
	delete(d.byName, c.name)
}

// propagate calls change for the domains around d that count its devices.
func (d *domain) propagate(change func(*domain)) {
	for ; d.parent != nil && d.cost < Down; d = d.parent {
		change(d.parent)
	}
}

// change adds to the free devices of a node.
func (d *domain) change(n int) {
	before := d.free
	move := func(d *domain) {
		d.free += n
		d.count(before, -1)
		d.count(before+n, 1)
	}
	move(d)
	d.propagate(move)
}

// count adds to the number of nodes that have so many free devices.
func (d *domain) count(free int, nodes int32) {
	if free >= len(d.byFree) {
		d.byFree = append(d.byFree, make([]int32, free+1-len(d.byFree))...)
	}
	d.byFree[free] += nodes
}

// tasks returns how many tasks with so many devices each fit into the nodes of the domain.
func (d *domain) tasks(devices int) int {
	sum := 0
	for free := devices; free < len(d.byFree); free++ {
		sum += int(d.byFree[free]) * (free / devices)
	}
	return sum
}
