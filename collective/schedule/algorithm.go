package schedule

import "fmt"

// Algorithm names a way to carry out an operation. The zero value is none: whoever asks
// for a plan has chosen.
type Algorithm uint8

// The algorithms.
const (
	// Flat sends everything to everybody, and each rank folds: one message time.
	Flat Algorithm = iota + 1
	// Direct sends each part to the rank that owns it, which folds it and sends the
	// result to everybody. The sum has the same bits as that of Flat.
	Direct
	// RecursiveDoubling exchanges the whole buffer with ranks at distance 1, 2, 4, ...
	RecursiveDoubling
	// HalvingDoubling exchanges half of the buffer, then a quarter, and back.
	HalvingDoubling
	// Ring passes parts around, first to combine, then to distribute.
	Ring
	// Tree combines towards a root along a binomial tree and distributes along it.
	Tree
	// Chain is Tree with one child for each rank: slow for a single segment, best for many.
	Chain
	// Hierarchical combines within the nodes, then between them, and distributes within.
	Hierarchical
	// Shared combines in memory that all ranks share, in their order. It has no plan: there
	// are no messages.
	Shared
	algorithmEnd
)

// String returns the name of the algorithm.
func (a Algorithm) String() string {
	names := [...]string{
		0: "automatic", Flat: "flat", Direct: "direct", RecursiveDoubling: "recursive doubling",
		HalvingDoubling: "halving-doubling", Ring: "ring", Tree: "tree", Chain: "chain", Hierarchical: "hierarchical",
		Shared: "shared",
	}
	if int(a) < len(names) {
		return names[a]
	}
	return fmt.Sprintf("algorithm %d", a)
}

// Folds reports whether every element is combined in the order of the ranks, so that the
// result has the same bits for any size and any split into operations.
func (a Algorithm) Folds() bool { return a == Flat || a == Direct || a == Shared }

// unsupported is the error of an algorithm that an operation does not have.
func unsupported(op string, a Algorithm) error {
	return fmt.Errorf("%w: %s has no algorithm %v", ErrShape, op, a)
}

// AllReduce leaves the combination of all inputs in all buffers. It knows every
// algorithm.
func AllReduce(a Algorithm, rank int, s Shape) (Plan, error) {
	if err := s.check(rank, 0); err != nil {
		return Plan{}, err
	}
	b := &builder{Shape: s, rank: rank}
	switch a {
	case Flat:
		b.flat()
		return Plan{Steps: b.steps, Keep: s.whole(), Fresh: true}, nil
	case Direct:
		parts := s.whole().split(s.Ranks)
		b.scatterFold(parts)
		b.gatherAll(parts)
		return Plan{Steps: b.steps, Keep: parts[rank], Fresh: true}, nil
	case RecursiveDoubling:
		b.core(b.recursiveDoubling)
	case HalvingDoubling:
		b.core(b.halvingDoubling)
	case Ring:
		b.ring(ranksUpTo(s.Ranks), rank, s.whole().split(s.Ranks))
	case Tree, Chain:
		b.reduceTree(a, 0)
		b.broadcastTree(a, 0)
	case Hierarchical:
		if err := b.hierarchical(); err != nil {
			return Plan{}, err
		}
	default:
		return Plan{}, unsupported("all-reduce", a)
	}
	return Plan{Steps: b.steps}, nil
}

// ReduceScatter leaves part r of the combination of all inputs, Ranks parts of Count
// elements each, in that place of the buffer of rank r. What is in the others' places
// afterwards means nothing. It knows Ring and Direct, and a Direct plan writes to nothing
// but that place.
func ReduceScatter(a Algorithm, rank int, s Shape) (Plan, error) {
	if err := s.check(rank, 0); err != nil {
		return Plan{}, err
	}
	b := &builder{Shape: s, rank: rank}
	parts := equal(s.Ranks, s.Count)
	switch a {
	case Direct:
		b.scatterFold(parts)
		return Plan{Steps: b.steps, Keep: parts[rank], Fresh: true}, nil
	case Ring:
		b.ringReduce(ranksUpTo(s.Ranks), rank, parts)
	default:
		return Plan{}, unsupported("reduce-scatter", a)
	}
	return Plan{Steps: b.steps}, nil
}

// AllGather leaves the parts of all ranks, Count elements each, in all buffers. The own
// part is in its place when the steps begin. It knows Ring and Direct.
func AllGather(a Algorithm, rank int, s Shape) (Plan, error) {
	if err := s.check(rank, 0); err != nil {
		return Plan{}, err
	}
	b := &builder{Shape: s, rank: rank}
	parts := equal(s.Ranks, s.Count)
	switch a {
	case Direct:
		b.gatherAll(parts)
	case Ring:
		b.ringGather(ranksUpTo(s.Ranks), rank, parts)
	default:
		return Plan{}, unsupported("all-gather", a)
	}
	return Plan{Steps: b.steps}, nil
}

// Broadcast copies the buffer of root to all. It knows Tree and Chain.
func Broadcast(a Algorithm, rank, root int, s Shape) (Plan, error) {
	if err := s.check(rank, root); err != nil {
		return Plan{}, err
	}
	if a != Tree && a != Chain {
		return Plan{}, unsupported("broadcast", a)
	}
	b := &builder{Shape: s, rank: rank}
	b.broadcastTree(a, root)
	return Plan{Steps: b.steps}, nil
}

// Reduce leaves the combination of all inputs in the buffer of root; what the others'
// buffers hold afterwards means nothing. It knows Tree, Chain, Flat and Direct.
func Reduce(a Algorithm, rank, root int, s Shape) (Plan, error) {
	if err := s.check(rank, root); err != nil {
		return Plan{}, err
	}
	b := &builder{Shape: s, rank: rank}
	switch a {
	case Tree, Chain:
		b.reduceTree(a, root)
		return Plan{Steps: b.steps}, nil
	case Flat:
		parts := make([]Range, s.Ranks) // the root owns everything
		parts[root] = s.whole()
		b.scatterFold(parts)
		return Plan{Steps: b.steps, Keep: parts[rank], Fresh: true}, nil
	case Direct:
		parts := s.whole().split(s.Ranks)
		b.scatterFold(parts)
		b.gatherTo(root, parts)
		return Plan{Steps: b.steps, Keep: parts[rank], Fresh: true}, nil
	}
	return Plan{}, unsupported("reduce", a)
}

// AllToAll sends part j of the input of rank i, Ranks parts of Count elements each, to
// part i of the buffer of rank j, for all i and j. It has one algorithm, Direct.
func AllToAll(a Algorithm, rank int, s Shape) (Plan, error) {
	if err := s.check(rank, 0); err != nil {
		return Plan{}, err
	}
	if a != Direct {
		return Plan{}, unsupported("all-to-all", a)
	}
	b := &builder{Shape: s, rank: rank}
	parts := equal(s.Ranks, s.Count)
	b.recv(rank, parts[rank], Copy)
	for k := 1; k < s.Ranks; k++ {
		to, from := mod(rank+k, s.Ranks), mod(rank-k, s.Ranks)
		b.exchange(to, parts[to], from, parts[from], Copy)
	}
	for i := range b.steps {
		b.steps[i].Input = true
	}
	return Plan{Steps: b.steps, Keep: Range{0, s.Ranks * s.Count}, Fresh: true}, nil
}
