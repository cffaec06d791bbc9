package topology

import (
	"fmt"
	"slices"
)

// Choose returns k of the free devices, by rising index, that are well connected and
// leave the others well connected.
//
// It divides the free devices into sets of k, and one of the rest, so that the sum of the
// scores of all pairs within the sets is the largest; of equal divisions it prefers the one
// with more of that sum in sets of k, then the one in which these are more even (the
// lower sum of squares). Of all sets of k of the divisions that are left it returns
// the one with the best score; of equal ones that whose removal leaves the highest sum of
// scores among all others; of equal ones again the one with the lowest indices. For k = 1
// this is the device that is connected worst.
//
// An index that is free several times, as slices of one card are, counts once: the
// answer is k different devices. must, if given, is part of the answer. With up to 16
// free devices the answer is exact, unless nothing is symmetric and the search would take
// too long; it is then, and with more devices, that of a local search.
//
// Errors wrap ErrInvalid (an index that is not an accelerator of the graph, k below 1,
// more than k in must, or one that is not free) and ErrNoRoom (fewer than k are free).
func (g *Graph) Choose(free []int, k int, must ...int) ([]int, error) {
	free, must, err := g.checkChoice(free, k, must)
	if err != nil {
		return nil, err
	}
	p := g.newProblem(free, k, must)
	set, total := p.local()
	if best, _, ok := p.exact(total, maxSteps); ok {
		set = best
	}
	chosen := make([]int, len(set))
	for at, i := range set {
		chosen[at] = free[i]
	}
	slices.Sort(chosen)
	return chosen, nil
}

// checkChoice returns both lists in order and without repetitions.
func (g *Graph) checkChoice(free []int, k int, must []int) ([]int, []int, error) {
	free, must = slices.Compact(slices.Sorted(slices.Values(free))), slices.Compact(slices.Sorted(slices.Values(must)))
	for _, i := range free {
		if i < 0 || i >= len(g.devices) || g.devices[i].NIC {
			return nil, nil, fmt.Errorf("%w: free device %d is no accelerator of a graph with %d devices", ErrInvalid, i, len(g.devices))
		}
	}
	for _, i := range must {
		if _, ok := slices.BinarySearch(free, i); !ok {
			return nil, nil, fmt.Errorf("%w: device %d must be taken and is not free", ErrInvalid, i)
		}
	}
	switch {
	case k < 1:
		return nil, nil, fmt.Errorf("%w: %d devices wanted, must be 1 or more", ErrInvalid, k)
	case len(must) > k:
		return nil, nil, fmt.Errorf("%w: %d devices must be taken and %d are wanted", ErrInvalid, len(must), k)
	case len(free) < k:
		return nil, nil, fmt.Errorf("%w: %d devices wanted, %d free", ErrNoRoom, k, len(free))
	}
	return free, must, nil
}

// problem is the choice of k out of n devices, which are counted from 0.
type problem struct {
	n, k   int
	score  []int32 // of pairs, row by row
	degree []int32 // sums of rows
	total  int32   // of all pairs
	twin   []int   // the device before this one with the same links to all others, or -1
	must   []bool
}

func (g *Graph) newProblem(free []int, k int, must []int) *problem {
	n := len(free)
	p := &problem{n: n, k: k, score: make([]int32, n*n), degree: make([]int32, n), twin: make([]int, n), must: make([]bool, n)}
	for a, i := range free {
		for b, j := range free {
			p.score[a*n+b] = g.scores[i*len(g.devices)+j]
			p.degree[a] += p.score[a*n+b]
		}
		p.total += p.degree[a]
		_, p.must[a] = slices.BinarySearch(must, i)
	}
	p.total /= 2
	for b := range n {
		p.twin[b] = -1
		for a := b - 1; a >= 0 && p.twin[b] < 0; a-- {
			if p.areTwins(a, b) {
				p.twin[b] = a
			}
		}
	}
	return p
}

// areTwins reports whether exchanging a and b changes nothing. Being twins is transitive.
func (p *problem) areTwins(a, b int) bool {
	if p.must[a] != p.must[b] || p.degree[a] != p.degree[b] {
		return false
	}
	for x := range p.n {
		if x != a && x != b && p.score[a*p.n+x] != p.score[b*p.n+x] {
			return false
		}
	}
	return true
}
