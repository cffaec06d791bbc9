package sched

import (
	"cmp"
	"math"
	"slices"
)

// maxTable bounds the table for nodes on which the next unit is cheaper than the one
// before: nodes times units. Beyond it the answer may not be the least.
const maxTable = 1 << 24

// noLimit is more than all victims together cost.
const noLimit cost = math.MaxInt / 4

// offer is what a number of units costs on a node, and who goes for them.
type offer struct {
	price   cost
	victims []int32
}

// assign finds nodes for count units of a task, so that fewest have to go.
func (c *Cluster) assign(t Task, nodes []int, unit, count int) (assignment, bool) {
	need := c.needs(t.Request)
	if count == 1 {
		return c.assignOne(t, need, nodes, unit)
	}
	offers := make([][]offer, len(nodes))
	rising, room := true, 0
	for k, i := range nodes {
		offers[k] = c.offers(t, need, i, unit, count)
		rising = rising && isRising(offers[k])
		room += len(offers[k]) - 1
	}
	if room < count {
		return assignment{}, false
	}
	var counts []int
	if rising || len(nodes)*count > maxTable {
		counts = cheapestSteps(offers, count)
	} else {
		counts = cheapestTable(offers, count)
	}
	var a assignment
	for k, n := range counts {
		if n == 0 {
			continue
		}
		a.nodes, a.counts = append(a.nodes, nodes[k]), append(a.counts, n)
		for _, id := range offers[k][n].victims {
			if !slices.Contains(a.victims, id) {
				a.victims = append(a.victims, id)
			}
		}
	}
	a.price = c.price(a.victims)
	return a, true
}

// assignOne finds the node where one unit costs least.
func (c *Cluster) assignOne(t Task, need need, nodes []int, unit int) (assignment, bool) {
	a, found := assignment{price: noLimit}, false
	for _, i := range nodes {
		if !c.mayRun(need, t, i) {
			continue
		}
		if victims, price, ok := c.leastVictims(i, need, unit, t.Priority, c.choices(i, t.Priority), a.price); ok && price < a.price {
			a, found = assignment{[]int{i}, []int{1}, victims, price}, true
		}
	}
	return a, found
}

// mayRun says whether a node is of the right kind and open.
func (c *Cluster) mayRun(n need, t Task, i int) bool {
	h := &c.hosts[i]
	return !h.cordoned && n.unknown == "" &&
		(n.devices == 0 || h.count > 0 && c.allowed(t.Request)>>h.model&1 == 1)
}

// offers are what 0, 1, 2 and so on units cost on a node.
func (c *Cluster) offers(t Task, need need, i, unit, count int) []offer {
	list := []offer{{}}
	if !c.mayRun(need, t, i) {
		return list
	}
	free := c.hosts[i].times(need, need.memory) / unit
	choices := c.choices(i, t.Priority)
	for n := 1; n <= count; n++ {
		if n <= free {
			list = append(list, offer{})
			continue
		}
		victims, price, ok := c.leastVictims(i, need, n*unit, t.Priority, choices, noLimit)
		if !ok {
			break
		}
		list = append(list, offer{price, victims})
	}
	return list
}

// isRising says whether no unit is cheaper than the one before.
func isRising(offers []offer) bool {
	last := cost(0)
	for n := 1; n < len(offers); n++ {
		step := offers[n].price - offers[n-1].price
		if step < last {
			return false
		}
		last = step
	}
	return true
}

// cheapestSteps takes unit after unit where the next costs least, which is best when no
// unit is cheaper than the one before on its node.
func cheapestSteps(offers [][]offer, count int) []int {
	type step struct {
		price   cost
		node, n int
	}
	var steps []step
	for k, list := range offers {
		for n := 1; n < len(list); n++ {
			steps = append(steps, step{list[n].price - list[n-1].price, k, n})
		}
	}
	slices.SortFunc(steps, func(a, b step) int {
		return cmp.Or(cmp.Compare(a.price, b.price), cmp.Compare(a.node, b.node), cmp.Compare(a.n, b.n))
	})
	counts := make([]int, len(offers))
	for _, s := range steps {
		if count > 0 && s.n == counts[s.node]+1 {
			counts[s.node]++
			count--
		}
	}
	for k := 0; count > 0; k = (k + 1) % len(counts) { // steps that came out of turn
		if counts[k]+1 < len(offers[k]) {
			counts[k]++
			count--
		}
	}
	return counts
}

// cheapestTable finds the cheapest way by a table over nodes and units: exact for any
// prices (the knapsack of multiple choices).
func cheapestTable(offers [][]offer, count int) []int {
	price := make([]cost, count+1)
	for n := 1; n <= count; n++ {
		price[n] = noLimit
	}
	taken := make([][]int16, len(offers))
	for k, list := range offers {
		taken[k] = make([]int16, count+1)
		for n := count; n >= 1; n-- {
			for take := 1; take < len(list) && take <= n; take++ {
				if p := price[n-take] + list[take].price; p < price[n] {
					price[n], taken[k][n] = p, int16(take)
				}
			}
		}
	}
	counts := make([]int, len(offers))
	for k := len(offers) - 1; k >= 0; k-- {
		counts[k] = int(taken[k][count])
		count -= counts[k]
	}
	return counts
}

// price is what it costs that records go.
func (c *Cluster) price(gone []int32) cost {
	var sum cost
	for _, id := range gone {
		sum += perVictim + cost(c.records[id].task.Priority)
	}
	return sum
}
