package schedule

// family is the place of a rank in a tree.
type family struct {
	parent   int   // None for the root
	children []int // the ones with small subtrees first
}

// familyOf is the place of this rank in the binomial tree, or in the chain, that begins at
// root and goes on with the ranks behind it.
func (b *builder) familyOf(a Algorithm, root int) family {
	place := mod(b.rank-root, b.Ranks)
	at := func(place int) int { return mod(root+place, b.Ranks) }
	f := family{parent: None}
	if a == Chain {
		if place > 0 {
			f.parent = at(place - 1)
		}
		if place < b.Ranks-1 {
			f.children = []int{at(place + 1)}
		}
		return f
	}
	for distance := 1; distance < b.Ranks; distance *= 2 {
		if place&distance != 0 {
			f.parent = at(place - distance)
			break
		}
		if place+distance < b.Ranks {
			f.children = append(f.children, at(place+distance))
		}
	}
	return f
}

// broadcastTree passes segments down from root, those with large subtrees first.
func (b *builder) broadcastTree(a Algorithm, root int) {
	f := b.familyOf(a, root)
	for _, r := range b.segments(b.whole()) {
		if f.parent != None {
			b.recv(f.parent, r, Copy)
		}
		for i := len(f.children) - 1; i >= 0; i-- {
			b.send(f.children[i], r)
		}
	}
}

// reduceTree passes segments up to root.
func (b *builder) reduceTree(a Algorithm, root int) {
	f := b.familyOf(a, root)
	for _, r := range b.segments(b.whole()) {
		for i, child := range f.children {
			b.recv(child, r, Combine)
			b.last(f.parent == None && i == len(f.children)-1)
		}
		if f.parent != None {
			b.send(f.parent, r)
		}
	}
}
