package schedule

import (
	"fmt"
	"slices"
)

// columns divide a buffer among the ranks of each node: as many of them as the smallest node has
// own one each, the same on all nodes.
type columns struct {
	parts []Range
	local []int   // ranks of the own node
	nodes [][]int // of all
	here  int     // place of the own node among them
	mine  int     // place of this rank among the owners of its node, or None
}

func (b *builder) columns() (c columns, err error) {
	if len(b.Nodes) != b.Ranks {
		return c, fmt.Errorf("%w: nodes of %d ranks, must be of all %d", ErrShape, len(b.Nodes), b.Ranks)
	}
	var smallest int
	c.nodes, c.here, smallest = b.groupByNode()
	c.parts, c.local, c.mine = b.whole().split(smallest), c.nodes[c.here], None
	if i := slices.Index(c.local, b.rank); i < smallest {
		c.mine = i
	}
	return c, nil
}

// owners are those of this rank's column on all nodes.
func (c *columns) owners() []int {
	owners := make([]int, len(c.nodes))
	for i, node := range c.nodes {
		owners[i] = node[c.mine]
	}
	return owners
}

// combineColumns combines each column on its owner within the node.
func (b *builder) combineColumns(c *columns) {
	for i, r := range c.parts {
		if owner := c.local[i]; owner != b.rank {
			b.send(owner, r)
		}
	}
	if c.mine == None {
		return
	}
	last := c.local[len(c.local)-1]
	if last == b.rank && len(c.local) > 1 {
		last = c.local[len(c.local)-2]
	}
	for _, rank := range c.local {
		if rank != b.rank {
			b.recv(rank, c.parts[c.mine], Combine)
			b.last(len(c.nodes) == 1 && rank == last)
		}
	}
}

// spreadColumns sends each column from its owner to the other ranks of the node.
func (b *builder) spreadColumns(c *columns) {
	if c.mine != None {
		for _, rank := range c.local {
			if rank != b.rank {
				b.send(rank, c.parts[c.mine])
			}
		}
	}
	for i, r := range c.parts {
		if owner := c.local[i]; owner != b.rank {
			b.recv(owner, r, Copy)
		}
	}
}

// hierarchical is an all-reduce in which as little as possible goes between the nodes: a column is
// combined within the node, then by its owners on all nodes, and sent to the ranks of each.
func (b *builder) hierarchical() error {
	c, err := b.columns()
	if err != nil {
		return err
	}
	b.combineColumns(&c)
	if c.mine != None {
		b.ring(c.owners(), c.here, c.parts[c.mine].split(len(c.nodes)))
	}
	b.spreadColumns(&c)
	return nil
}

// Nested is what one rank does in a hierarchical all-reduce of which the part between the nodes is
// an operation of its own, as where elements are packed for it.
type Nested struct {
	// Before leaves this node's combination of Column in the buffer of its owner, After begins with
	// that of all nodes there and leaves it in all buffers.
	Before, After Plan
	// Column is what this rank owns: it is combined with that of the Owners, one on each node, of
	// whom this rank is the one at Place. Nothing for a rank that owns none.
	Column Range
	Owners []int
	Place  int
}

// Nest returns that of a rank. There must be two nodes or more.
func Nest(rank int, s Shape) (Nested, error) {
	if err := s.check(rank, 0); err != nil {
		return Nested{}, err
	}
	before, after := &builder{Shape: s, rank: rank}, &builder{Shape: s, rank: rank}
	c, err := before.columns()
	if err != nil {
		return Nested{}, err
	}
	if len(c.nodes) < 2 {
		return Nested{}, fmt.Errorf("%w: %d nodes, must be 2 or more", ErrShape, len(c.nodes))
	}
	before.combineColumns(&c)
	after.spreadColumns(&c)
	n := Nested{Before: Plan{Steps: before.steps}, After: Plan{Steps: after.steps}, Place: c.here}
	if c.mine != None {
		n.Column, n.Owners = c.parts[c.mine], c.owners()
	}
	return n, nil
}

// Among returns a plan of as many ranks as there are in the list, which has their numbers in
// a larger group.
func (p Plan) Among(ranks []int) Plan {
	p.Steps = slices.Clone(p.Steps)
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.To != None {
			s.To = ranks[s.To]
		}
		if s.From != None {
			s.From = ranks[s.From]
		}
	}
	return p
}

// groupByNode returns the ranks of each node, in the order in which the nodes appear, the
// place of the own node among them, and the size of the smallest.
func (b *builder) groupByNode() (nodes [][]int, here, smallest int) {
	place := make(map[int]int)
	for rank, node := range b.Nodes {
		i, known := place[node]
		if !known {
			i = len(nodes)
			place[node] = i
			nodes = append(nodes, nil)
		}
		nodes[i] = append(nodes[i], rank)
	}
	smallest = b.Ranks
	for _, ranks := range nodes {
		smallest = min(smallest, len(ranks))
	}
	return nodes, place[b.Nodes[b.rank]], smallest
}
