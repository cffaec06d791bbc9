package sched

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// searchSteps bounds the search for the least victims on one node: it is enough for a dozen
// preemptible tasks. planSteps bounds that of a whole plan. Beyond, the victims are the best
// that were found.
const (
	searchSteps = 4_096
	planSteps   = 16_384
)

// cost is what tasks that would have to go count for: a thousand each, and its priority.
type cost int

const perVictim cost = 1000

// search looks for the victims on one node that make room for copies of a need.
type search struct {
	*Cluster
	host     host // as it is with the victims gone
	need     need
	copies   int
	priority int     // of whom they go for
	choices  []int32 // records, those that are given up first in front
	alike    []bool  // as the one before
	gone     []int32
	best     []int32
	least    cost // of best
	floor    int  // victims that there are at least
	steps    int
}

// leastVictims finds the records, of the choices, that have to go from node i for copies of a
// need, at less than limit. It returns false if there are none.
func (c *Cluster) leastVictims(i int, n need, copies, priority int, choices []int32, limit cost) ([]int32, cost, bool) {
	s := search{Cluster: c, host: c.hosts[i], need: n, copies: copies, priority: priority, least: limit, choices: choices}
	s.host.custom = slices.Clone(s.host.custom)
	if s.fits() {
		return nil, 0, limit > 0
	}
	if !s.greedy() {
		return nil, 0, false
	}
	s.host = c.hosts[i]
	s.host.custom = slices.Clone(s.host.custom)
	if s.floor = s.bound(); !s.done() && c.searched < planSteps {
		s.alike = make([]bool, len(s.choices))
		for k := 1; k < len(s.choices); k++ {
			s.alike[k] = c.sameNeed(s.choices[k-1], s.choices[k])
		}
		s.descend(0, false)
		c.searched += s.steps
	}
	return s.best, s.least, s.best != nil
}

// choices are the tasks of a node that may be evicted for a priority: those of the lowest
// priority first, of them those that share their devices with fewest, and the largest.
func (c *Cluster) choices(i, priority int) []int32 {
	var (
		list  []int32
		users [MaxDevices]int
	)
	crowd := func(r *record) int {
		most := 0
		for set := r.devices; set != 0; set &= set - 1 {
			most = max(most, users[bits.TrailingZeros32(uint32(set))])
		}
		return most
	}
	for _, id := range c.hosts[i].tasks {
		r := &c.records[id]
		for set := r.devices; set != 0; set &= set - 1 {
			users[bits.TrailingZeros32(uint32(set))]++
		}
		if r.task.Preemptible && r.task.Priority < priority && r.group == nil && r.hold == nil && r.leaving == nil &&
			(r.gang == nil || r.gang.running > r.gang.min || r.gang.guard < priority) {
			list = append(list, id)
		}
	}
	slices.SortFunc(list, func(a, b int32) int {
		x, y := &c.records[a], &c.records[b]
		return cmp.Or(cmp.Compare(x.task.Priority, y.task.Priority), cmp.Compare(crowd(x), crowd(y)), cmp.Compare(y.taken(), x.taken()),
			cmp.Compare(y.need.cpu, x.need.cpu), cmp.Compare(x.task.ID, y.task.ID))
	})
	return list
}

// taken is what a record takes of devices.
func (r *record) taken() Milli { return r.need.share * Milli(r.devices.Len()) }

// sameNeed says whether it makes no difference which of two records goes.
func (c *Cluster) sameNeed(a, b int32) bool {
	x, y := &c.records[a], &c.records[b]
	return x.need.cpu == y.need.cpu && x.need.memory == y.need.memory && x.devices == y.devices &&
		x.need.share == y.need.share && slices.Equal(x.need.custom, y.need.custom) &&
		x.task.Priority == y.task.Priority && x.gang == nil && y.gang == nil
}

func (s *search) fits() bool { return s.host.times(s.need, s.need.memory) >= s.copies }

// give returns what a record took, or takes it again with sign 1.
func (s *search) give(id int32, sign Milli) {
	r := &s.records[id]
	s.host.give(r.need, r.devices, sign)
}

// greedy lets all go, and then takes back whom it can, the highest priority first.
func (s *search) greedy() bool {
	for _, id := range s.choices {
		s.give(id, -1)
	}
	if !s.fits() {
		return false
	}
	for _, id := range slices.Backward(s.choices) {
		s.give(id, 1)
		if !s.fits() {
			s.give(id, -1)
			s.gone = append(s.gone, id)
		}
	}
	s.offer()
	s.gone = s.gone[:0]
	return true
}

// offer keeps those that are gone if no better are known.
func (s *search) offer() {
	all := s.withGangs(s.gone)
	if price := s.price(all); price < s.least && s.mayEnd(all) {
		s.best, s.least = all, price
	}
}

// mayEnd says whether the gangs that end with so many gone are all below the priority.
func (s *search) mayEnd(gone []int32) bool {
	left := make(map[*gang]int)
	for _, id := range gone {
		if g := s.records[id].gang; g != nil && g.guard >= s.priority {
			if left[g]++; g.running-left[g] < g.min {
				return false
			}
		}
	}
	return true
}

// withGangs adds the rest of each gang that would be left with less than it needs: it does
// not run without them.
func (c *Cluster) withGangs(gone []int32) []int32 {
	all := slices.Clone(gone)
	for _, id := range gone {
		g := c.records[id].gang
		if g == nil {
			continue
		}
		leave := 0
		for _, other := range gone {
			if c.records[other].gang == g {
				leave++
			}
		}
		if g.running-leave >= g.min {
			continue
		}
		for other := range c.records {
			if c.records[other].gang == g && !slices.Contains(all, int32(other)) {
				all = append(all, int32(other))
			}
		}
	}
	return all
}

// descend tries the choices from k on, each of them gone or not.
func (s *search) descend(k int, skipped bool) {
	if s.steps++; s.steps > searchSteps || s.done() || s.price(s.gone) >= s.least {
		return
	}
	if s.fits() {
		s.offer()
		return
	}
	if k == len(s.choices) || s.price(s.gone)+s.atLeast() >= s.least {
		return
	}
	if !skipped || !s.alike[k] {
		id := s.choices[k]
		s.give(id, -1)
		s.gone = append(s.gone, id)
		s.descend(k+1, false)
		s.gone = s.gone[:len(s.gone)-1]
		s.give(id, 1)
	}
	s.descend(k+1, true)
}

// done says whether no fewer can go than those that were found.
func (s *search) done() bool { return s.best != nil && len(s.best) <= s.floor }

// atLeast is what the victims cost at least that are still missing.
func (s *search) atLeast() cost {
	return cost(s.bound()) * (perVictim + cost(s.records[s.choices[0]].task.Priority))
}

// bound is a number of victims that it takes at least: of those that free most of one
// resource, as many as cover what is missing of it; and for devices what deviceBound says.
func (s *search) bound() int {
	missing := [...]int64{
		int64(s.need.cpu)*int64(s.copies) - int64(s.host.shape.cpu),
		s.need.memory*int64(s.copies) - s.host.memory,
		int64(s.need.share)*int64(s.need.devices)*int64(s.copies) - int64(s.host.idle),
	}
	least := max(1, s.deviceBound())
	for kind, lack := range missing {
		if lack <= 0 {
			continue
		}
		var most int64
		for _, id := range s.choices {
			r := &s.records[id]
			freed := [...]int64{int64(r.need.cpu), r.need.memory, int64(r.taken())}
			most = max(most, freed[kind])
		}
		if most > 0 {
			least = max(least, int((lack+most-1)/most))
		}
	}
	return least
}

// deviceBound counts for each device what has to go before it has a share left, the largest
// first, and adds up the cheapest devices of those that are missing. A victim on several
// devices counts on each as its part, so no victim is counted more than once.
func (s *search) deviceBound() int {
	wanted := s.need.devices * s.copies
	if wanted == 0 || s.need.share < Whole && s.copies > 1 {
		return 0
	}
	fitting := s.host.fitting(s.need.share)
	if wanted -= fitting.Len(); wanted <= 0 {
		return 0
	}
	var parts [MaxDevices]float64
	for d := range parts[:s.host.count] {
		if parts[d] = math.Inf(1); !fitting.Has(d) {
			parts[d] = s.clears(d)
		}
	}
	slices.Sort(parts[:s.host.count])
	sum := 0.0
	for _, part := range parts[:min(wanted, int(s.host.count))] {
		sum += part
	}
	if math.IsInf(sum, 1) {
		return len(s.choices) + 1
	}
	return int(math.Ceil(sum - 1e-9))
}

// clears is how many victims it takes at least until a device has a share left.
func (s *search) clears(d int) float64 {
	missing := s.need.share - Milli(s.host.free[d])
	least, widest := 0, 1
	var shares [64]Milli
	n := 0
	for _, id := range s.choices {
		r := &s.records[id]
		if !r.devices.Has(d) || slices.Contains(s.gone, id) {
			continue
		}
		widest = max(widest, r.devices.Len())
		if n == len(shares) {
			return 0 // too many to tell
		}
		shares[n] = r.need.share
		n++
	}
	slices.Sort(shares[:n])
	for i := n - 1; i >= 0 && missing > 0; i-- {
		missing -= shares[i]
		least++
	}
	if missing > 0 {
		return math.Inf(1)
	}
	return float64(least) / float64(widest)
}
