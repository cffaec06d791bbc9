package topology

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

const (
	// maxExact is the number of devices up to which the search may be exact.
	maxExact = 16
	// maxSteps bounds the exact search, and so its time.
	maxSteps = 32_000
)

// division is the best one of a set of devices into sets of k and one of the rest.
type division struct {
	total, whole int32  // sums of the scores within all sets, and within those of k
	squares      int64  // sum of the squares of the scores of the sets of k
	key          int64  // score of the best set of k, then what remains without it
	set          uint16 // that set, 0 if there is none
}

// exactSearch finds the best division of every set of devices that it meets. Sets are bit masks.
type exactSearch struct {
	*problem
	low, high []int32    // sums of scores of one device with the lower and the upper eight
	ranked    []uint8    // for each device, all others by falling score
	index     []uint16   // mask without device 0, which the first set takes → place in memo + 1
	memo      []division // whole is negative if none has a total of as much, and all that must be in it
	mustMask  uint16
	steps     int
	maxSteps  int
}

// exact returns the best set and the total of its division, or false if that would take
// more than maxSteps. A division with a total of atLeast exists. In every division one set
// holds the lowest device: only such sets are tried, and of twins the lower ones first, as
// the others would give the same.
func (p *problem) exact(atLeast int32, maxSteps int) ([]int, int32, bool) {
	if p.n > maxExact {
		return nil, 0, false
	}
	s := &exactSearch{
		problem: p, maxSteps: maxSteps, low: make([]int32, p.n<<8), high: make([]int32, p.n<<8),
		ranked: make([]uint8, 0, p.n*p.n), index: make([]uint16, 1<<(p.n-1)),
	}
	s.prepare()
	best := s.divide(1<<p.n-1, atLeast)
	if s.steps > maxSteps {
		return nil, 0, false
	}
	var set []int
	for m := s.canonical(best.set); m != 0; m &= m - 1 {
		set = append(set, bits.TrailingZeros16(m))
	}
	return set, best.total, true
}

// prepare fills what depends on the problem alone.
func (s *exactSearch) prepare() {
	for i := range s.n {
		if s.must[i] {
			s.mustMask |= 1 << i
		}
		row := s.score[i*s.n : (i+1)*s.n]
		for m := 1; m < 256; m++ {
			first := bits.TrailingZeros(uint(m))
			if first < s.n {
				s.low[i<<8|m] = s.low[i<<8|m&(m-1)] + row[first]
			}
			if first+8 < s.n {
				s.high[i<<8|m] = s.high[i<<8|m&(m-1)] + row[first+8]
			}
		}
		for j := range s.n {
			s.ranked = append(s.ranked, uint8(j))
		}
		slices.SortFunc(s.ranked[i*s.n:], func(a, b uint8) int { return cmp.Compare(row[b], row[a]) })
	}
}

// remembered is divide for what the first set has left. What is known not to reach some total is
// looked at again only for less.
func (s *exactSearch) remembered(mask uint16, atLeast int32) division {
	if mask == 0 {
		return division{}
	}
	at := s.index[mask>>1]
	if at == 0 {
		d := s.divide(mask, atLeast) // which remembers others
		s.memo = append(s.memo, d)
		at = uint16(len(s.memo))
		s.index[mask>>1] = at
	} else if d := s.memo[at-1]; d.whole < 0 && atLeast < d.total {
		s.memo[at-1] = s.divide(mask, atLeast)
	}
	return s.memo[at-1]
}

// trial is what divide tries: sets of a size out of a mask.
type trial struct {
	mask    uint16
	size    int
	best    division
	bound   [maxExact]int32 // twice what a device can add to a total: its best k - 1 scores
	nearest [maxExact]int32 // the best score of a device
}

// limit fills bound and nearest. It returns the sum of all bounds, and by how much less
// that is, at least, for the devices of a set of rest.
func (s *exactSearch) limit(t *trial, rest int) (sum, less int32) {
	less = math.MaxInt32
	s.steps += 8 // it takes as long as that
	for m := t.mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros16(m)
		found, beyond := 0, int32(0)
		for _, j := range s.ranked[i*s.n : (i+1)*s.n] {
			if found == s.k-1 {
				break
			}
			if int(j) == i || t.mask>>j&1 == 0 {
				continue
			}
			score := s.score[i*s.n+int(j)]
			if found == 0 {
				t.nearest[i] = score
			}
			if found >= rest-1 {
				beyond += score
			}
			t.bound[i] += score
			found++
		}
		sum += t.bound[i]
		less = min(less, beyond)
	}
	return sum, less * int32(rest)
}

// divide returns the best division of the devices of mask, if its total is atLeast or more; else
// whole is negative.
func (s *exactSearch) divide(mask uint16, atLeast int32) division {
	t := trial{mask: mask, best: division{total: -1, whole: -1}}
	left := bits.OnesCount16(mask)
	rest := left % s.k
	first := bits.TrailingZeros16(mask)
	bound, less := int32(0), int32(0)
	if left > s.k {
		bound, less = s.limit(&t, rest)
		bound -= t.bound[first] // of what the set leaves
		t.best.total = atLeast  // what is equally good replaces it, as whole is -1
	}
	if rest > 0 && left > s.k {
		t.size = s.k
		s.extend(&t, 1<<first, mask&(mask-1), s.k-1, 0, t.nearest[first], bound-less)
	}
	t.size = cmp.Or(rest, s.k)
	s.extend(&t, 1<<first, mask&(mask-1), t.size-1, 0, t.nearest[first], bound)
	return t.best
}

// extend completes a set by need devices out of others, in rising order. score is that of the
// set, nearest the sum of its devices' best scores, bound twice what those that are not in it can
// add. What cannot reach the best total so far is not followed.
func (s *exactSearch) extend(t *trial, set, others uint16, need int, score, nearest, bound int32) {
	if 2*score+int32(need)*nearest+bound < 2*t.best.total {
		return
	}
	if need == 0 {
		s.consider(t, set, score)
		return
	}
	for ; bits.OnesCount16(others) >= need; others &= others - 1 {
		j := bits.TrailingZeros16(others)
		if w := s.twin[j]; w >= 0 && t.mask>>w&1 == 1 && set>>w&1 == 0 {
			continue
		}
		s.steps++
		if s.steps > s.maxSteps {
			return
		}
		more := s.low[j<<8|int(set&255)] + s.high[j<<8|int(set>>8)]
		s.extend(t, set|1<<j, others&(others-1), need-1, score+more, nearest+t.nearest[j], bound-t.bound[j])
	}
}

// consider compares the division that begins with the set with the best one so far.
func (s *exactSearch) consider(t *trial, set uint16, score int32) {
	whole := t.size == s.k
	if set&s.mustMask != 0 && (!whole || s.mustMask&^set != 0) {
		return // the answer would lack a device that must be in it
	}
	d := s.remembered(t.mask&^set, max(-1, t.best.total-score))
	if d.whole < 0 {
		return
	}
	d.total += score
	if whole {
		d.whole += score
		d.squares += int64(score) * int64(score)
	}
	if whole && s.mustMask&^set == 0 {
		key := s.key(set, score)
		if d.set == 0 || key > d.key || key == d.key && s.lower(set, d.set) {
			d.set, d.key = set, key
		}
	}
	order := cmp.Or(cmp.Compare(d.total, t.best.total), cmp.Compare(d.whole, t.best.whole),
		cmp.Compare(t.best.squares, d.squares), cmp.Compare(d.key, t.best.key))
	if order > 0 || order == 0 && s.lower(d.set, t.best.set) {
		t.best = d
	}
}

// key orders sets: by score, then by the score of all that are left without the set.
func (s *exactSearch) key(set uint16, score int32) int64 {
	rest := s.total + score
	for m := set; m != 0; m &= m - 1 {
		rest -= s.degree[bits.TrailingZeros16(m)]
	}
	return int64(score)<<32 | int64(rest)
}

// lower reports whether the indices of a come before those of b, once twins have been
// exchanged for the lowest.
func (s *exactSearch) lower(a, b uint16) bool {
	return bits.Reverse16(s.canonical(a)) > bits.Reverse16(s.canonical(b))
}

// canonical exchanges the devices of a set for the lowest of their twins.
func (s *exactSearch) canonical(set uint16) uint16 {
	for moved := true; moved; {
		moved = false
		for m := set; m != 0; m &= m - 1 {
			j := bits.TrailingZeros16(m)
			if w := s.twin[j]; w >= 0 && set>>w&1 == 0 {
				set, moved = set&^(1<<j)|1<<w, true
			}
		}
	}
	return set
}
