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

// Place gives every shard its first owner, at epoch 1, balanced by bytes:
// longest processing time first (R. Graham, Bounds on multiprocessing timing
// anomalies, 1969), ties broken by ID. Draining servers get nothing. There may
// be more servers than shards. Errors wrap ErrPlace; nothing blocks.
func Place(shards []Shard, servers []Server) (Map, error) {
	m := Map{Assignments: make([]Assignment, len(shards))}
	for i := range shards {
		m.Assignments[i].Shard = ID(i)
	}
	return Assign(m, shards, servers)
}

// Assign gives an owner, at the next epoch, to each shard that has none, and
// leaves the others where they are. m is unchanged. It places new shards, and
// those whose owner was lost and unplaced with Map.WithOwner.
func Assign(m Map, shards []Shard, servers []Server) (Map, error) {
	b, err := newBalance(m, shards, servers)
	if err != nil {
		return Map{}, err
	}
	var free []ID
	for _, a := range m.Assignments {
		if a.Owner == "" {
			free = append(free, a.Shard)
		}
	}
	slices.SortFunc(free, b.bySize)
	next := m.Clone()
	for _, id := range free {
		target, err := b.emptiest(id)
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
	b, err := newBalance(m, shards, servers)
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
	bytes  int64
	shards []ID // largest first, then by ID
}

func (s *slot) fits(bytes int64) bool {
	return s.CapacityBytes == 0 || s.bytes+bytes <= s.CapacityBytes
}

// balance is the working state of a plan.
type balance struct {
	shards []Shard
	slots  []*slot // not draining, by ID
	leave  []*slot // draining, by ID
}

func newBalance(m Map, shards []Shard, servers []Server) (*balance, error) {
	if err := checkPlacement(m, shards, servers); err != nil {
		return nil, err
	}
	b := &balance{shards: shards}
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
			t.bytes += shards[a.Shard].Bytes()
		}
	}
	byName := func(x, y *slot) int { return cmp.Compare(x.ID, y.ID) }
	slices.SortFunc(b.slots, byName)
	slices.SortFunc(b.leave, byName)
	for _, t := range byID {
		slices.SortFunc(t.shards, b.bySize)
	}
	return b, nil
}

func checkPlacement(m Map, shards []Shard, servers []Server) error {
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
		if s.ID != ID(i) || s.Range.Elems() < 0 {
			errs = append(errs, fmt.Errorf("%w: shard at position %d has ID %d and %d elements", ErrPlace, i, s.ID, s.Range.Elems()))
			break
		}
	}
	return errors.Join(errs...)
}

// bySize orders shards by falling size, ties by ID.
func (b *balance) bySize(x, y ID) int {
	return cmp.Or(cmp.Compare(b.shards[y].Bytes(), b.shards[x].Bytes()), cmp.Compare(x, y))
}

// emptiest is the server with the fewest bytes that a shard fits.
func (b *balance) emptiest(id ID) (*slot, error) {
	var best *slot
	for _, s := range b.slots {
		if s.fits(b.shards[id].Bytes()) && (best == nil || s.bytes < best.bytes) {
			best = s
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%w: shard %d of %d bytes fits none of %d servers", ErrPlace, id, b.shards[id].Bytes(), len(b.slots))
	}
	return best, nil
}

func (b *balance) put(id ID, to *slot) {
	to.bytes += b.shards[id].Bytes()
	at, _ := slices.BinarySearchFunc(to.shards, id, b.bySize)
	to.shards = slices.Insert(to.shards, at, id)
}

func (b *balance) take(from *slot, at int, to *slot) {
	id := from.shards[at]
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
			to, err := b.emptiest(s.shards[0])
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
	slices.SortStableFunc(order, func(x, y *slot) int { return cmp.Compare(y.bytes, x.bytes) })
	var total int64
	for _, s := range order {
		total += s.bytes
	}
	n := int64(len(order))
	mean := total / n
	slack := mean / 100 * balancePercent
	for i, from := range order {
		for j := len(order) - 1; j > i; j-- {
			to := order[j]
			if from.bytes <= mean+slack && to.bytes >= mean-slack {
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
	if from.bytes <= mean {
		return -1
	}
	best, bestPeak := -1, from.bytes
	for at, id := range from.shards {
		bytes := b.shards[id].Bytes()
		if bytes == 0 || !to.fits(bytes) {
			continue
		}
		if bytes <= from.bytes-mean && bytes <= mean-to.bytes {
			return at
		}
		if peak := max(from.bytes-bytes, to.bytes+bytes); peak < bestPeak {
			best, bestPeak = at, peak
		}
	}
	return best
}
