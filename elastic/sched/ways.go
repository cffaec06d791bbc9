package sched

import (
	"cmp"
	"slices"
)

// way is one way to use a domain: how many ranks it takes at most with so many domains inside
// it in use, where one of the innermost level counts as innermost others.
type way struct{ cost, room int }

const innermost = 1 << 24

// maxWays bounds the pairs that are looked at to combine two domains. Beyond it the domains of a
// level are the fewest, not those of the innermost one.
const maxWays = 1 << 22

// counts says whether the domains inside one of that level are chosen for the fewest of the
// innermost level: inside them are others, and all are inside what the last bound names.
func (s *slots) counts(level int) bool {
	return level >= s.bounds[len(s.bounds)-1].level && level < len(s.config.Levels)-2
}

// ways are the ways to use a domain, in the order of their costs: each has more room than the
// one before, the first has none. It is nil if there are too many.
func (s *slots) ways(level, domain int) []way {
	at := spot{level, domain}
	list, ok := s.known[at]
	if !ok {
		if level == len(s.config.Levels)-2 {
			list = s.prefixes(level, domain)
		} else if all := s.combine(level, domain); all != nil {
			list = slices.Clone(all[len(all)-1])
		}
		for i := range list {
			if list[i].room = s.whole(level, list[i].room); list[i].room > 0 {
				list[i].cost++ // the domain itself
			}
		}
		list = trim(list)
		s.known[at] = list
	}
	return list
}

// prefixes are the ways of a domain with those of the innermost level inside: the largest first.
func (s *slots) prefixes(level, domain int) []way {
	var free []int
	for _, child := range s.children[level+1][domain] {
		free = append(free, s.free[level+1][child])
	}
	slices.SortFunc(free, func(a, b int) int { return cmp.Compare(b, a) })
	list, room := []way{{}}, 0
	for i, n := range free {
		if n == 0 || room >= s.count {
			break
		}
		room += n
		list = append(list, way{(i + 1) * innermost, min(room, s.count)})
	}
	return list
}

// combine are the ways to use the first few of the domains inside one, from none to all of them.
func (s *slots) combine(level, domain int) [][]way {
	all := [][]way{{{}}}
	for _, child := range s.children[level+1][domain] {
		sums := s.both(all[len(all)-1], s.ways(level+1, int(child)))
		if sums == nil {
			return nil
		}
		all = append(all, sums)
	}
	return all
}

// both are the ways to use two domains, nil if there are too many.
func (s *slots) both(a, b []way) []way {
	if b == nil || len(a)*len(b) > maxWays {
		return nil
	}
	var racks, others int // greatest numbers of both together
	for _, list := range [...][]way{a, b} {
		racks += list[len(list)-1].cost / innermost
		most := 0
		for _, w := range list {
			most = max(most, w.cost%innermost)
		}
		others += most
	}
	if racks >= maxWays/(others+1) {
		return nil
	}
	rooms := make([]int, (racks+1)*(others+1))
	for _, x := range a {
		for _, y := range b {
			sum := x.cost + y.cost
			at := sum/innermost*(others+1) + sum%innermost
			rooms[at] = max(rooms[at], min(x.room+y.room, s.count))
		}
	}
	list := []way{{}}
	for at, room := range rooms {
		if room > list[len(list)-1].room {
			list = append(list, way{at/(others+1)*innermost + at%(others+1), room})
		}
	}
	return list
}

// trim leaves out ways with no more room than a cheaper one.
func trim(list []way) []way {
	most := -1
	return slices.DeleteFunc(list, func(w way) bool {
		if w.room <= most {
			return true
		}
		most = w.room
		return false
	})
}

// cheapest is the least cost at which a domain takes count ranks.
func (s *slots) cheapest(level, domain, count int) (int, bool) {
	for _, w := range s.ways(level, domain) {
		if w.room >= count {
			return w.cost, true
		}
	}
	return 0, false
}

// split divides count ranks among the domains inside one, so that they cost least; nil if there
// are too many ways. One domain alone is the one that is filled best.
func (s *slots) split(level, domain, count int) []part {
	price, ok := s.cheapest(level, domain, count)
	if !ok {
		return nil
	}
	price-- // of the domain itself
	best := -1
	for _, child := range s.children[level+1][domain] {
		alone, ok := s.cheapest(level+1, int(child), count)
		if ok && alone == price && (best < 0 || s.free[level+1][child] < s.free[level+1][best]) {
			best = int(child)
		}
	}
	if best >= 0 {
		return []part{{best, count}}
	}
	all := s.combine(level, domain)
	children := s.children[level+1][domain]
	var shares []part
	for i := len(children) - 1; i >= 0 && count > 0; i-- {
		rest, own := s.apart(all[i], s.ways(level+1, int(children[i])), price, count)
		price = rest.cost
		if n := min(own.room, count); n > 0 {
			shares = append(shares, part{int(children[i]), n})
			count -= n
		}
	}
	return shares
}

// apart finds the two ways that together cost price and take count ranks; of these the
// ones that use the second domain least.
func (s *slots) apart(a, b []way, price, count int) (way, way) {
	for _, y := range b {
		for _, x := range a {
			if x.cost+y.cost == price && x.room+y.room >= count {
				return x, y
			}
		}
	}
	panic("sched: what two ways make together is not made by any two")
}
