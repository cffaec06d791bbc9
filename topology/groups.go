package topology

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// MaxMembers is the largest number of members of one job.
const MaxMembers = 1 << 20

// Member is one rank of a job: a device of a node.
type Member struct {
	// Node is its name in the tree.
	Node string
	// Device is the index of the device within the node.
	Device int
	// Graph holds the links of the node; nil means that all of them are alike. Members of
	// a node have the same.
	Graph *Graph
}

// Parallel says in how many ways a model is divided. The product of the three is the number of
// members.
type Parallel struct {
	// Tensor is the number of devices that share each layer. 0 means 1.
	Tensor int
	// Pipeline is the number of stages. 0 means 1.
	Pipeline int
	// Data is the number of replicas. 0 means as many as the members make.
	Data int
	// Within is the level of which one domain holds every tensor-parallel group: a level of the
	// tree, or KindNode, which KindUnknown stands for. With a farther level, groups still are
	// within a node wherever it has enough members.
	Within Kind
}

// Groups are the communication groups of a job. Members are named by their index. Each
// member is in one group of each sort; the groups of a sort have the same size.
type Groups struct {
	// Order lists all members so that neighbours are near each other: tensor-parallel
	// groups one after the other, by path. It suits rings.
	Order []int
	// Tensor, Data and Pipeline are the groups of each sort. The members of a pipeline are
	// in the order of the stages; at the same place of tensor-parallel groups are devices
	// with the same rank in their nodes, if the nodes are alike.
	Tensor, Data, Pipeline [][]int
}

// Groups divides the members of a job into tensor-, data- and pipeline-parallel groups. The first
// exchange most and get the nearest devices; data-parallel replicas of a stage are next to each
// other; pipelines, which send the least, lead the farthest (Narayanan et al., SC 2021, section
// 3.2; the order tensor, data, pipeline is that of Megatron-LM).
//
// Errors wrap ErrInvalid: sizes that are negative or whose product is not the number of members,
// a member that is not in the tree, is listed twice, or is no accelerator of its graph, and a
// domain of the level Within whose members cannot be divided into tensor-parallel groups.
func (t *Tree) Groups(members []Member, p Parallel) (Groups, error) {
	if err := t.checkMembers(members); err != nil {
		return Groups{}, err
	}
	p, within, err := t.checkParallel(len(members), p)
	if err != nil {
		return Groups{}, err
	}
	ranks := make([]int, len(members))
	for i := range ranks {
		ranks[i] = i
	}
	slices.SortFunc(ranks, func(a, b int) int {
		return cmp.Or(compareDomains(t.nodes[members[a].Node], t.nodes[members[b].Node]), cmp.Compare(members[a].Device, members[b].Device))
	})
	d := divider{tree: t, members: members, size: p.Tensor, within: within}
	if _, err := d.divide(ranks, 0); err != nil {
		return Groups{}, err
	}
	g := Groups{Order: slices.Concat(d.groups...), Tensor: d.groups}
	for stage := range p.Pipeline {
		for place := range p.Tensor {
			g.Data = append(g.Data, pick(d.groups, place, stage*p.Data, 1, p.Data))
		}
	}
	for replica := range p.Data {
		for place := range p.Tensor {
			g.Pipeline = append(g.Pipeline, pick(d.groups, place, replica, p.Data, p.Pipeline))
		}
	}
	return g, nil
}

// pick returns the members at a place of n groups: the first one and every step-th after it.
func pick(groups [][]int, place, first, step, n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = groups[first+i*step][place]
	}
	return list
}

func (t *Tree) checkMembers(members []Member) error {
	if len(members) == 0 || len(members) > MaxMembers {
		return fmt.Errorf("%w: %d members, must be 1 to %d", ErrInvalid, len(members), MaxMembers)
	}
	type place struct {
		node   string
		device int
	}
	graphs := make(map[string]*Graph)
	seen := make(map[place]bool, len(members))
	for i, m := range members {
		if t.nodes[m.Node] == nil {
			return fmt.Errorf("%w: member %d is on node %.64q, which is not in the tree", ErrInvalid, i, m.Node)
		}
		if g, ok := graphs[m.Node]; ok && g != m.Graph {
			return fmt.Errorf("%w: member %d has another graph than the others of node %.64q", ErrInvalid, i, m.Node)
		}
		graphs[m.Node] = m.Graph
		at := place{m.Node, m.Device}
		switch {
		case m.Device < 0:
			return fmt.Errorf("%w: member %d is device %d, must be 0 or more", ErrInvalid, i, m.Device)
		case seen[at]:
			return fmt.Errorf("%w: member %d is device %d of node %.64q, as another one is", ErrInvalid, i, m.Device, m.Node)
		case m.Graph != nil && (m.Device >= len(m.Graph.devices) || m.Graph.devices[m.Device].NIC):
			return fmt.Errorf("%w: member %d is device %d, no accelerator of the graph of node %.64q", ErrInvalid, i, m.Device, m.Node)
		}
		seen[at] = true
	}
	return nil
}

// checkParallel returns the sizes with their defaults and the depth of the level Within.
func (t *Tree) checkParallel(members int, p Parallel) (Parallel, int, error) {
	var errs []error
	for _, c := range []struct {
		name string
		n    int
	}{{"tensor", p.Tensor}, {"pipeline", p.Pipeline}, {"data", p.Data}} {
		if c.n < 0 || c.n > MaxMembers {
			errs = append(errs, fmt.Errorf("%w: %s parallelism of %d, must be 0 to %d", ErrInvalid, c.name, c.n, MaxMembers))
		}
	}
	within, err := t.depthOf("tensor-parallel", cmp.Or(p.Within, KindNode))
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return p, 0, err
	}
	p.Tensor, p.Pipeline = max(p.Tensor, 1), max(p.Pipeline, 1)
	p.Data = cmp.Or(p.Data, members/(p.Tensor*p.Pipeline))
	if p.Data == 0 || members%p.Tensor != 0 || members/p.Tensor%p.Pipeline != 0 || members/p.Tensor/p.Pipeline != p.Data {
		return p, 0, fmt.Errorf("%w: %d members are not tensor %d times pipeline %d times data %d", ErrInvalid, members, p.Tensor, p.Pipeline, p.Data)
	}
	return p, within, nil
}

// divider makes the tensor-parallel groups.
type divider struct {
	tree    *Tree
	members []Member
	size    int
	within  int // depth of the level in one domain of which a group must be
	groups  [][]int
}

// divide makes groups of the members of one domain of the depth, which are in order, and returns
// those that are left over.
func (d *divider) divide(ranks []int, depth int) ([]int, error) {
	if depth == len(d.tree.levels) {
		return d.divideNode(ranks)
	}
	var left []int
	for len(ranks) > 0 {
		inner := d.domainOf(ranks[0], depth+1)
		end := slices.IndexFunc(ranks, func(r int) bool { return d.domainOf(r, depth+1) != inner })
		if end < 0 {
			end = len(ranks)
		}
		rest, err := d.divide(ranks[:end], depth+1)
		if err != nil {
			return nil, err
		}
		left, ranks = append(left, rest...), ranks[end:]
	}
	for len(left) >= d.size {
		d.groups, left = append(d.groups, left[:d.size:d.size]), left[d.size:]
	}
	return d.settle(left, depth)
}

// divideNode makes groups of the members of one node, the best connected ones by its graph.
func (d *divider) divideNode(ranks []int) ([]int, error) {
	g := d.members[ranks[0]].Graph
	var made [][]int
	for len(ranks) >= d.size {
		group := ranks[:d.size]
		if g != nil {
			byDevice := make(map[int]int)
			var free []int
			for _, r := range ranks {
				byDevice[d.members[r].Device] = r
				free = append(free, d.members[r].Device)
			}
			chosen, err := g.Choose(free, d.size)
			if err != nil {
				return nil, err
			}
			group = nil
			for _, device := range chosen {
				group = append(group, byDevice[device])
			}
		}
		made = append(made, slices.Clone(group))
		ranks = slices.DeleteFunc(slices.Clone(ranks), func(r int) bool { return slices.Contains(group, r) })
	}
	slices.SortFunc(made, func(a, b []int) int { return cmp.Compare(d.members[a[0]].Device, d.members[b[0]].Device) })
	d.groups = append(d.groups, made...)
	return d.settle(ranks, len(d.tree.levels))
}

// settle returns what is left over in a domain of the depth, if that may be so.
func (d *divider) settle(left []int, depth int) ([]int, error) {
	if len(left) > 0 && depth <= d.within {
		inside := d.domainOf(left[0], depth)
		return nil, fmt.Errorf("%w: of the members in %.64q, %d are left over by groups of %d", ErrInvalid, inside.name, len(left), d.size)
	}
	return left, nil
}

// domainOf returns the domain of the depth around a member.
func (d *divider) domainOf(rank, depth int) *domain {
	at := d.tree.nodes[d.members[rank].Node]
	for at.depth > depth {
		at = at.parent
	}
	return at
}

// Place says where a member is in its three groups. The rank in the pipeline is its stage.
type Place struct{ Tensor, Data, Pipeline Seat }

// Seat is one member's place in the groups of one sort: which group, and which rank in it.
type Seat struct{ Group, Rank int }

// Of returns the place of a member. Errors wrap ErrInvalid: there is no such member.
func (g Groups) Of(member int) (Place, error) {
	var p Place
	for _, c := range []struct {
		seat   *Seat
		groups [][]int
	}{{&p.Tensor, g.Tensor}, {&p.Data, g.Data}, {&p.Pipeline, g.Pipeline}} {
		c.seat.Group = slices.IndexFunc(c.groups, func(group []int) bool { return slices.Contains(group, member) })
		if c.seat.Group < 0 {
			return Place{}, fmt.Errorf("%w: member %d is not in the groups, which have %d", ErrInvalid, member, len(g.Order))
		}
		c.seat.Rank = slices.Index(c.groups[c.seat.Group], member)
	}
	return p, nil
}
