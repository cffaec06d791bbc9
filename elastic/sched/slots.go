package sched

import (
	"cmp"
	"slices"
)

// part is how many ranks in a row a node takes.
type part struct{ host, count int }

// slots is how many ranks each domain takes, by level; the last level is the nodes.
type slots struct {
	*Cluster
	bounds []bound
	free   [][]int
	count  int            // of the ranks that are placed
	known  map[spot][]way // what ways has found
}

// spot names a domain.
type spot struct{ level, domain int }

// divide finds nodes for the ranks of a gang, at least for least of them; nil if there is no
// room. The domains of the level that the last bound names, and of those around it, are as few as
// can be, from the outermost level on; in each of them the domains of the innermost level are,
// and then those between. Of equals the ones are taken that are filled best.
func (c *Cluster) divide(g Gang, bounds []bound, least int) []part {
	s := slots{Cluster: c, bounds: slices.Clone(bounds), known: make(map[spot][]way)}
	nodes, last := len(c.config.Levels), &s.bounds[len(bounds)-1]
	cl := c.classOf(g.Tasks[0].Request, g.Tasks[0].Prefer)
	s.free = make([][]int, nodes+1)
	one, all := last.level, last.size == len(g.Tasks)
	if len(c.hosts) == 0 {
		return nil
	}
	if all {
		last.size = 1 // fewer of them may run, all within one domain
	}
	s.free[nodes] = make([]int, len(c.hosts))
	for i := range c.hosts {
		if cl.scores[i] != never {
			s.free[nodes][i] = s.whole(nodes, c.hosts[i].times(cl.need, g.Tasks[0].MemoryBytes))
		}
	}
	s.addUp(nodes-1, one)
	if all {
		if last.size = min(slices.Max(s.free[one]), len(g.Tasks)); last.size < least {
			return nil
		}
		for domain, n := range s.free[one] {
			s.free[one][domain] = n - n%last.size
		}
	}
	s.addUp(one-1, 0)
	s.count = min(s.sum(-1, 0), len(g.Tasks))
	if s.count -= s.count % last.size; s.count < least {
		return nil
	}
	return s.take(nil, -1, 0, s.count)
}

// addUp fills in what the domains of the levels take, from an inner to an outer one.
func (s *slots) addUp(inner, outer int) {
	for level := inner; level >= outer; level-- {
		s.free[level] = make([]int, len(s.domains[level]))
		for domain := range s.free[level] {
			s.free[level][domain] = s.whole(level, s.sum(level, domain))
		}
	}
}

// whole rounds a number of ranks down to whole groups that must lie within one domain of
// that level.
func (s *slots) whole(level, n int) int {
	for _, b := range s.bounds {
		if b.level >= level {
			n -= n % b.size
		}
	}
	return n
}

// sum is what the domains inside one take together. Level -1 is the cluster.
func (s *slots) sum(level, domain int) int {
	n := 0
	for _, child := range s.children[level+1][domain] {
		n += s.free[level+1][child]
	}
	return n
}

// take appends the nodes that take count ranks inside a domain: the tightest one of those inside
// if one is enough, else the largest, and then the same for the rest.
func (s *slots) take(parts []part, level, domain, count int) []part {
	if level == len(s.config.Levels) {
		return append(parts, part{domain, count})
	}
	if s.counts(level) {
		if shares := s.split(level, domain, count); shares != nil {
			for _, x := range shares {
				parts = s.take(parts, level+1, x.host, x.count)
			}
			return parts
		}
	}
	used := make(map[int32]bool)
	for count > 0 {
		best, bestPrice := int32(-1), 0
		for _, child := range s.children[level+1][domain] {
			free := s.free[level+1][child]
			if used[child] || free == 0 {
				continue
			}
			price := s.priceOf(level+1, int(child), min(count, free))
			if best < 0 || s.better(level+1, int(child), int(best), count, price, bestPrice) {
				best, bestPrice = child, price
			}
		}
		used[best] = true
		n := min(count, s.free[level+1][best])
		parts = s.take(parts, level+1, int(best), n)
		count -= n
	}
	return parts
}

// better says whether domain a is to be preferred to b for count ranks.
func (s *slots) better(level, a, b, count, priceA, priceB int) bool {
	freeA, freeB := s.free[level][a], s.free[level][b]
	switch enoughA, enoughB := freeA >= count, freeB >= count; {
	case enoughA != enoughB:
		return enoughA
	case !enoughA:
		return freeA > freeB
	case priceA != priceB:
		return priceA < priceB
	}
	return freeA < freeB
}

// priceOf tells domains apart in which count ranks find room: the lower the better.
func (s *slots) priceOf(level, domain, count int) int {
	if s.counts(level) {
		if price, ok := s.cheapest(level, domain, count); ok {
			return price
		}
	}
	n := s.touched(level, domain, count)
	if level >= s.bounds[len(s.bounds)-1].level {
		return n
	}
	if n > 1 {
		return (len(s.config.Levels)-level)<<48 + n
	}
	least := -1
	for _, child := range s.children[level+1][domain] {
		if s.free[level+1][child] >= count {
			if price := s.priceOf(level+1, int(child), count); least < 0 || price < least {
				least = price
			}
		}
	}
	return least
}

// touched is how many of the domains inside one are needed for count ranks.
func (s *slots) touched(level, domain, count int) int {
	if level >= len(s.config.Levels) {
		return 0
	}
	var free []int
	for _, child := range s.children[level+1][domain] {
		free = append(free, s.free[level+1][child])
	}
	slices.SortFunc(free, func(a, b int) int { return cmp.Compare(b, a) })
	n := 0
	for ; count > 0; n++ {
		count -= free[n]
	}
	return n
}
