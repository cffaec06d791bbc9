package shard

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrPlace is wrapped by the errors of Place, Assign and Rebalance.
var ErrPlace = errors.New("shard: place")

// MaxServers is the largest number of servers of one job.
const MaxServers = 1 << 16

// balancePercent is how far, in percent of the mean load, a server may be from
// it before Rebalance moves shards.
const balancePercent = 5

// Load is the weight of a shard in a placement, 0 or more; Shard.Bytes is the
// usual one. Measured heat may take its place.
type Load func(Shard) int64

// loadsOf sums the load of each server named in the map.
func loadsOf(m Map, shards []Shard, load Load) map[ServerID]int64 {
	loads := make(map[ServerID]int64)
	for _, a := range m.Assignments {
		if a.Owner != "" && int64(a.Shard) < int64(len(shards)) {
			loads[a.Owner] += load(shards[a.Shard])
		}
	}
	return loads
}

// Place gives every shard its first owner, at epoch 1, balanced by bytes:
// longest processing time first (R. Graham, Bounds on multiprocessing timing
// anomalies, 1969), ties broken by ID. Draining servers get nothing. There may
// be more servers than shards. Errors wrap ErrPlace; nothing blocks.
func Place(shards []Shard, servers []Server) (Map, error) {
	m := Map{Assignments: make([]Assignment, len(shards))}
	for i := range shards {
		m.Assignments[i].Shard = ID(i)
	}
	return Assign(m, shards, servers, Shard.Bytes)
}

// Assign gives an owner, at the next epoch, to each shard that has none, and
// leaves the others where they are. m is unchanged. It places new shards, and
// those whose owner was lost and unplaced with Map.WithOwner.
func Assign(m Map, shards []Shard, servers []Server, load Load) (Map, error) {
	b, err := newBalance(m, shards, servers, load)
	if err != nil {
		return Map{}, err
	}
	var free []ID
	for _, a := range m.Assignments {
		if a.Owner == "" {
			free = append(free, a.Shard)
		}
	}
	slices.SortFunc(free, b.byLoad)
	next := m.Clone()
	for _, id := range free {
		target, err := b.leastLoaded(id)
		if err != nil {
			return Map{}, err
		}
		b.put(id, target)
		next.Assignments[id].Owner = target.ID
		next.Assignments[id].Epoch++
		next.Version++
	}
	return next, nil
}

// Rebalance plans the moves that empty draining servers and bring every other
// server within 5 percent of the mean of bytes, as far as whole shards allow,
// and moves as little as that takes. Each shard is moved at most once. A map
// that is balanced already gives no moves. Shards without an owner and shards
// of servers that are not in the list (lost ones: their shards need failover,
// not a move) stay out of it. Errors wrap ErrPlace.
func Rebalance(m Map, shards []Shard, servers []Server) ([]Move, error) {
	return RebalanceBy(m, shards, servers, Shard.Bytes)
}

// RebalanceBy is Rebalance with a load of the caller's choice. Capacities are
// still counted in bytes.
func RebalanceBy(m Map, shards []Shard, servers []Server, load Load) ([]Move, error) {
	b, err := newBalance(m, shards, servers, load)
	if err != nil {
		return nil, err
	}
	if err := b.drain(); err != nil {
		return nil, err
	}
	for range 4 * len(shards) {
		if !b.improve() {
			break
		}
	}
	return b.moves(m), nil
}

// slot is one server while a plan is made.
type slot struct {
	Server
	load, bytes int64
	shards      []ID // by load, largest first, then by ID
}

func (s *slot) fits(bytes int64) bool {
	return s.CapacityBytes == 0 || s.bytes+bytes <= s.CapacityBytes
}

// balance is the working state of a plan.
type balance struct {
	shards []Shard
	load   Load
	slots  []*slot // not draining, by ID
	leave  []*slot // draining, by ID
}

func newBalance(m Map, shards []Shard, servers []Server, load Load) (*balance, error) {
	if err := checkPlacement(m, shards, servers, load); err != nil {
		return nil, err
	}
	b := &balance{shards: shards, load: load}
	byID := make(map[ServerID]*slot, len(servers))
	for _, s := range servers {
		t := &slot{Server: s}
		byID[s.ID] = t
		if s.Draining {
			b.leave = append(b.leave, t)
		} else {
			b.slots = append(b.slots, t)
		}
	}
	for _, a := range m.Assignments {
		if t := byID[a.Owner]; t != nil && a.Owner != "" {
			t.shards = append(t.shards, a.Shard)
			t.load += load(shards[a.Shard])
			t.bytes += shards[a.Shard].Bytes()
		}
	}
	byName := func(x, y *slot) int { return cmp.Compare(x.ID, y.ID) }
	slices.SortFunc(b.slots, byName)
	slices.SortFunc(b.leave, byName)
	for _, t := range byID {
		slices.SortFunc(t.shards, b.byLoad)
	}
	return b, nil
}

func checkPlacement(m Map, shards []Shard, servers []Server, load Load) error {
	var errs []error
	if err := m.Validate(len(shards)); err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", ErrPlace, err))
	}
	if len(servers) > MaxServers {
		return fmt.Errorf("%w: %d servers, limit %d", ErrPlace, len(servers), MaxServers)
	}
	seen, usable := make(map[ServerID]bool, len(servers)), false
	for i, s := range servers {
		switch {
		case s.ID == "" || len(s.ID) > MaxServerIDBytes:
			errs = append(errs, fmt.Errorf("%w: server %d has a name of %d bytes, must be 1 to %d", ErrPlace, i, len(s.ID), MaxServerIDBytes))
		case seen[s.ID]:
			errs = append(errs, fmt.Errorf("%w: server %.64q is listed twice", ErrPlace, s.ID))
		case s.CapacityBytes < 0:
			errs = append(errs, fmt.Errorf("%w: server %.64q has a capacity of %d bytes, must be 0 or more", ErrPlace, s.ID, s.CapacityBytes))
		}
		seen[s.ID] = true
		usable = usable || !s.Draining
	}
	if !usable && len(shards) > 0 {
		errs = append(errs, fmt.Errorf("%w: %d shards and no server that is not draining", ErrPlace, len(shards)))
	}
	for i, s := range shards {
		if s.ID != ID(i) || s.Range.Elems() < 0 || load(s) < 0 {
			errs = append(errs, fmt.Errorf("%w: shard at position %d has ID %d, %d elements and load %d", ErrPlace, i, s.ID, s.Range.Elems(), load(s)))
			break
		}
	}
	return errors.Join(errs...)
}

// byLoad orders shards by falling load, ties by ID.
func (b *balance) byLoad(x, y ID) int {
	return cmp.Or(cmp.Compare(b.load(b.shards[y]), b.load(b.shards[x])), cmp.Compare(x, y))
}

func (b *balance) leastLoaded(id ID) (*slot, error) {
	var best *slot
	for _, s := range b.slots {
		if s.fits(b.shards[id].Bytes()) && (best == nil || s.load < best.load) {
			best = s
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%w: shard %d of %d bytes fits none of %d servers", ErrPlace, id, b.shards[id].Bytes(), len(b.slots))
	}
	return best, nil
}

func (b *balance) put(id ID, to *slot) {
	to.load += b.load(b.shards[id])
	to.bytes += b.shards[id].Bytes()
	at, _ := slices.BinarySearchFunc(to.shards, id, b.byLoad)
	to.shards = slices.Insert(to.shards, at, id)
}

func (b *balance) take(from *slot, at int, to *slot) {
	id := from.shards[at]
	from.load -= b.load(b.shards[id])
	from.bytes -= b.shards[id].Bytes()
	from.shards = slices.Delete(from.shards, at, at+1)
	b.put(id, to)
}

// moves is the difference between the plan and the map, by shard: a shard that
// was taken twice moves once, and one that came back does not move.
func (b *balance) moves(m Map) []Move {
	var moves []Move
	for _, s := range b.slots {
		for _, id := range s.shards {
			if from := m.Assignments[id].Owner; from != s.ID {
				moves = append(moves, Move{Shard: id, From: from, To: s.ID})
			}
		}
	}
	slices.SortFunc(moves, func(x, y Move) int { return cmp.Compare(x.Shard, y.Shard) })
	return moves
}

func (b *balance) drain() error {
	for _, s := range b.leave {
		for len(s.shards) > 0 {
			to, err := b.leastLoaded(s.shards[0])
			if err != nil {
				return err
			}
			b.take(s, 0, to)
		}
	}
	return nil
}

// improve moves one more shard if a server is too far from the mean and a move
// helps, and reports whether it did. Each move lowers the sum of the squares of
// the loads, so the calls end.
func (b *balance) improve() bool {
	if len(b.slots) < 2 {
		return false
	}
	order := slices.Clone(b.slots)
	slices.SortStableFunc(order, func(x, y *slot) int { return cmp.Compare(y.load, x.load) })
	var total int64
	for _, s := range order {
		total += s.load
	}
	n := int64(len(order))
	mean := total / n
	slack := mean / 100 * balancePercent
	for i, from := range order {
		for j := len(order) - 1; j > i; j-- {
			to := order[j]
			if from.load <= mean+slack && to.load >= mean-slack {
				break
			}
			if at := b.choose(from, to, mean); at >= 0 {
				b.take(from, at, to)
				return true
			}
		}
	}
	return false
}

// choose picks the shard to move from one server to another: the largest that
// takes neither across the mean, so that no byte has to move back. Failing
// that, the one that leaves the larger of the two loads smallest. It returns -1
// if none helps.
func (b *balance) choose(from, to *slot, mean int64) int {
	if from.load <= mean {
		return -1
	}
	best, bestPeak := -1, from.load
	for at, id := range from.shards {
		load, bytes := b.load(b.shards[id]), b.shards[id].Bytes()
		if load == 0 || !to.fits(bytes) {
			continue
		}
		if load <= from.load-mean && load <= mean-to.load {
			return at
		}
		if peak := max(from.load-load, to.load+load); peak < bestPeak {
			best, bestPeak = at, peak
		}
	}
	return best
}
