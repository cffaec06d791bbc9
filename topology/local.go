package topology

import (
	"cmp"
	"slices"
)

// maxRounds bounds the improvement of a division by exchanges.
const maxRounds = 8

// localSearch is a division of all devices into sets that is made better by exchanges of
// two devices, as long as that helps.
type localSearch struct {
	*problem
	sets  [][]int
	of    []int   // device → its set
	bonds []int32 // device by set: sum of the scores with its members
}

// local returns the best set of a good division, and the sum of the scores within all its
// sets. The first set begins with the devices that must be in the answer, every other one with the
// best pair that is left; each grows by the device that fits best.
func (p *problem) local() ([]int, int32) {
	s := &localSearch{problem: p, of: make([]int, p.n)}
	numSets := (p.n + p.k - 1) / p.k
	s.bonds = make([]int32, p.n*numSets)
	for i := range s.of {
		s.of[i] = -1
	}
	for at := range numSets {
		s.sets = append(s.sets, nil)
		for i := range p.n {
			if at == 0 && p.must[i] {
				s.put(i, at)
			}
		}
		if len(s.sets[at]) == 0 && p.k > 1 {
			s.put(s.seed(), at)
		}
		for len(s.sets[at]) < p.k && s.left() > 0 {
			s.put(s.fits(at), at)
		}
	}
	for range maxRounds {
		if !s.improve() {
			break
		}
	}
	return s.best()
}

func (s *localSearch) put(i, set int) {
	s.sets[set] = append(s.sets[set], i)
	s.of[i] = set
	s.bond(i, set, 1)
}

// bond adds the scores of device i to the bonds with the set, or takes them off.
func (s *localSearch) bond(i, set int, sign int32) {
	for x := range s.n {
		s.bonds[x*len(s.bonds)/s.n+set] += sign * s.score[x*s.n+i]
	}
}

func (s *localSearch) left() int {
	left := s.n
	for _, set := range s.sets {
		left -= len(set)
	}
	return left
}

// seed returns the first device of the best pair of those that have no set.
func (s *localSearch) seed() int {
	best, score := -1, int32(-1)
	for i := range s.n {
		if s.of[i] >= 0 {
			continue
		}
		if best < 0 {
			best = i
		}
		for j := i + 1; j < s.n; j++ {
			if s.of[j] < 0 && s.score[i*s.n+j] > score {
				best, score = i, s.score[i*s.n+j]
			}
		}
	}
	return best
}

// fits returns the device without a set that has the best bonds with this one, of equal
// ones that with the weakest to all others.
func (s *localSearch) fits(set int) int {
	best := -1
	for i := range s.n {
		if s.of[i] < 0 && (best < 0 || cmp.Or(
			cmp.Compare(s.with(i, set), s.with(best, set)), cmp.Compare(s.degree[best], s.degree[i])) > 0) {
			best = i
		}
	}
	return best
}

func (s *localSearch) with(i, set int) int32 { return s.bonds[i*len(s.bonds)/s.n+set] }

// improve exchanges every pair of devices of two sets that gains by it, and reports
// whether there was one.
func (s *localSearch) improve() bool {
	improved := false
	for i := range s.n {
		for j := i + 1; j < s.n; j++ {
			a, b := s.of[i], s.of[j]
			if a == b || s.must[i] || s.must[j] {
				continue
			}
			gain := s.with(i, b) + s.with(j, a) - s.with(i, a) - s.with(j, b) - 2*s.score[i*s.n+j]
			if gain <= 0 {
				continue
			}
			s.sets[a][slices.Index(s.sets[a], i)], s.sets[b][slices.Index(s.sets[b], j)] = j, i
			s.of[i], s.of[j] = b, a
			s.bond(i, a, -1)
			s.bond(j, b, -1)
			s.bond(j, a, 1)
			s.bond(i, b, 1)
			improved = true
		}
	}
	return improved
}

// best returns the set that Choose describes: best score, then best rest, then lowest
// indices; the first one if devices must be in it. And the total of the division.
func (s *localSearch) best() ([]int, int32) {
	type ranked struct {
		set         []int
		score, rest int32
	}
	var list []ranked
	total := int32(0)
	for at, set := range s.sets {
		r := ranked{set: slices.Sorted(slices.Values(set)), rest: s.total}
		for _, i := range set {
			r.score += s.with(i, at)
			r.rest -= s.degree[i]
		}
		r.score /= 2
		r.rest += r.score
		total += r.score
		if len(set) == s.k && (at == 0 || !slices.Contains(s.must, true)) {
			list = append(list, r)
		}
	}
	return slices.MinFunc(list, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.rest, a.rest), slices.Compare(a.set, b.set))
	}).set, total
}
