package pool

import (
	"cmp"
	"fmt"
	"slices"
)

// Constraint is what stands in the way of a request.
type Constraint string

// The constraints, in the order in which a device is judged by them.
const (
	Absent   Constraint = "device is not usable" // failed or gone
	Shares   Constraint = "shares"               // Config.MaxShares
	Compute  Constraint = "computing time"
	Memory   Constraint = "memory" // of the device, times Config.MemoryFactor
	HostRoom Constraint = "memory of the host"
	Count    Constraint = "number of devices"
)

// Obstacle says how far a device, or the pool, is from what is wanted.
type Obstacle struct {
	Device     string // empty: the pool as a whole
	Constraint Constraint
	Want, Have int64 // in shares, thousandths, bytes or devices
}

// String names the device, the constraint and both numbers.
func (o Obstacle) String() string {
	if o.Device == "" {
		return fmt.Sprintf("%s: want %d, have %d", o.Constraint, o.Want, o.Have)
	}
	return fmt.Sprintf("%s: %s: want %d, have %d", o.Device, o.Constraint, o.Want, o.Have)
}

// RefusalError says why a request was refused. The obstacle in front is the binding
// one: of the devices that do not fit it is that of the one that comes closest.
type RefusalError struct {
	Obstacle
	Request Request
	// Never means that the request would be refused with all devices back and empty, too.
	Never bool
	// Obstacles is everything that speaks against each device.
	Obstacles []Obstacle
}

// Error names the binding constraint and both numbers.
func (e *RefusalError) Error() string {
	if e.Never {
		return "pool: refused for good: " + e.Obstacle.String()
	}
	return "pool: refused for now: " + e.Obstacle.String()
}

// obstacles returns what speaks against a share of the request on a card.
func (p *Pool) obstacles(c *card, r Request) []Obstacle {
	if c.lost {
		return []Obstacle{{c.id, Absent, 1, 0}}
	}
	var list []Obstacle
	total, used := p.total(c), c.used()
	if len(c.shares) >= p.cfg.MaxShares {
		list = append(list, Obstacle{c.id, Shares, 1, int64(p.cfg.MaxShares - len(c.shares))})
	}
	want := c.cut(r)
	if free := total.Milli - used.Milli; want.Milli > free {
		list = append(list, Obstacle{c.id, Compute, want.Milli, free})
	}
	if free := total.Bytes - used.Bytes; want.Bytes > free {
		list = append(list, Obstacle{c.id, Memory, want.Bytes, free})
	}
	return list
}

// refuse returns the error for a request that fits on too few cards.
func (p *Pool) refuse(r Request, candidates []*card) error {
	refusal := &RefusalError{Request: r, Never: p.never(r, candidates)}
	if len(candidates) < r.Devices {
		refusal.Obstacle = Obstacle{Constraint: Count, Want: int64(r.Devices), Have: int64(len(candidates))}
		return refusal
	}
	byCard := make([][]Obstacle, len(candidates))
	for i, c := range candidates {
		byCard[i] = p.obstacles(c, r)
		refusal.Obstacles = append(refusal.Obstacles, byCard[i]...)
	}
	slices.SortStableFunc(byCard, func(a, b []Obstacle) int { return cmp.Compare(len(a), len(b)) })
	refusal.Obstacle = byCard[r.Devices-1][0] // the last device that is needed
	return refusal
}

// never reports whether the request would be refused by the empty pool.
func (p *Pool) never(r Request, candidates []*card) bool {
	var spills []int64
	for _, c := range candidates {
		if want := c.cut(r); want.Bytes <= p.memoryOf(c) {
			spills = append(spills, max(0, want.Bytes-c.bytes))
		}
	}
	if len(spills) < r.Devices {
		return true
	}
	slices.Sort(spills)
	var sum int64
	for _, s := range spills[:r.Devices] {
		sum += s
	}
	return p.cfg.HostBytes > 0 && sum > p.cfg.HostBytes
}
