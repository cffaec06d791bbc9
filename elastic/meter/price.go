package meter

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
)

// Part is a component of a node: so many units of a resource, each of which is worth
// Weight. Only the proportions of weights count.
type Part struct {
	Resource       string
	Amount, Weight int64
}

// Split divides the price of a node among its components in proportion to amount times
// weight, so that the components together cost what the node does: a node with an expensive
// device has cheaper cores than its price by core alone would say, not dearer ones. What does not
// divide evenly goes to those that lose most by rounding, the first of equals. The error names what
// is below zero, or says that nothing has a worth.
func Split(price int64, parts []Part) ([]int64, error) {
	weights := make([]Quantity, len(parts))
	var sum Quantity
	for i, p := range parts {
		if p.Amount < 0 || p.Weight < 0 {
			return nil, fmt.Errorf("meter: parts[%d] %q: Amount %d, Weight %d: want >= 0", i, p.Resource, p.Amount, p.Weight)
		}
		weights[i] = product(uint64(p.Amount), uint64(p.Weight))
		sum = sum.Plus(weights[i])
	}
	switch {
	case price < 0:
		return nil, fmt.Errorf("meter: price %d: want >= 0", price)
	case sum == Quantity{}:
		return nil, fmt.Errorf("meter: none of %d parts has a worth", len(parts))
	}
	return divide(price, weights), nil
}

// Charge divides what each resource cost in the period among those who had it, in proportion
// to what they had, idle time included. For each resource the charges add up to its cost; one
// of which there was nothing is charged to Idle.
func (s Statement) Charge(costs map[string]int64) Charges {
	c := Charges{Tenants: make(map[string]int64)}
	for name, cost := range costs {
		u := s.Resources[name]
		tenants, weights := u.names(), []Quantity{u.Idle}
		for _, t := range tenants {
			weights = append(weights, u.Tenants[t])
		}
		if u.Capacity == (Quantity{}) {
			c.Idle += cost
			continue
		}
		shares := divide(cost, weights)
		c.Idle += shares[0]
		for i, t := range tenants {
			c.Tenants[t] += shares[i+1]
		}
	}
	return c
}

// Charges are what each tenant had for a period, and what idle time cost.
type Charges struct {
	Idle    int64
	Tenants map[string]int64
}

// divide cuts a total into whole parts in proportion to weights, not all zero, by the method
// of largest remainders.
func divide(total int64, weights []Quantity) []int64 {
	sum := new(big.Int)
	for _, w := range weights {
		sum.Add(sum, w.Big())
	}
	parts := make([]int64, len(weights))
	rests := make([]*big.Int, len(weights))
	order := make([]int, len(weights))
	left := total
	for i, w := range weights {
		share := w.Big()
		rests[i] = new(big.Int)
		share.DivMod(share.Mul(share, big.NewInt(total)), sum, rests[i])
		parts[i], order[i] = share.Int64(), i
		left -= parts[i]
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(rests[b].Cmp(rests[a]), cmp.Compare(a, b)) })
	for _, i := range order[:left] {
		parts[i]++
	}
	return parts
}
