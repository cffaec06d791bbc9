package table

import (
	"math"
	"math/bits"
	"slices"

	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/shard"
)

const (
	// evictWindow rows at most are compared when some are to be evicted, so that it takes
	// a bounded time. In blocks with more rows eviction is a sample.
	evictWindow = 4 << 10
	// evictShare of the rows that are compared are evicted.
	evictShare = 16
)

// full reports whether n more rows would go over the limit of the shard.
func (t *Table) full(n int) bool { return t.maxRows > 0 && t.rows+int64(n) > t.maxRows }

// share is how many rows a block may have when rows are evicted, at least one: the limit
// of the shard in proportion. It depends on nothing but the block, so that a copy which
// has some blocks only, yet, evicts the same rows from them.
func (t *Table) share(block int) int {
	before := func(block int) uint64 {
		hi, lo := bits.Mul64(uint64(t.maxRows), uint64(min(int64(block)*BlockElems, t.elems)))
		n, _ := bits.Div64(hi, lo, uint64(t.elems))
		return n
	}
	return int(max(before(block+1)-before(block), 1))
}

// makeRoom makes room for one row more in a block. It reports how many rows had to go, and
// false if there is no room.
func (t *Table) makeRoom(block int, hash uint64) (evicted int, ok bool) {
	b := &t.blocks[block]
	switch {
	case b.n >= MaxBlockRows:
		return 0, false
	case t.maxRows == 0:
		return 0, true
	case t.evict == Refuse:
		return 0, !t.full(1)
	case b.n < t.share(block):
		return 0, true
	}
	evicted = t.evictFrom(b, hash)
	return evicted, evicted > 0
}

// evictFrom removes a share of a block's rows, at least one, if it has any without a sum.
func (t *Table) evictFrom(b *block, hash uint64) int {
	candidates := t.keys[:0] // what a row is worth, then its number
	from := 0
	if b.n > evictWindow {
		from = int(hash % uint64(b.n))
	}
	for k := 0; k < b.n && len(candidates) < evictWindow; k++ {
		row := (from + k) % b.n
		if b.stateOf(row)&dirtyBit == 0 {
			candidates = append(candidates, uint64(t.worth(b, row))<<32|uint64(row))
		}
	}
	t.keys = candidates
	if len(candidates) == 0 {
		return 0
	}
	slices.Sort(candidates)
	victims := candidates[:max(len(candidates)/evictShare, 1)]
	for i := range victims {
		victims[i] &= math.MaxUint32
	}
	// From the last row on: what moves into a gap is then no victim.
	slices.Sort(victims)
	for _, row := range slices.Backward(victims) {
		t.remove(b, int(row))
	}
	b.trim(1)
	return len(victims)
}

// worth orders rows: those with the least are evicted.
func (t *Table) worth(b *block, row int) uint32 {
	if t.evict == LeastRecentlyUsed {
		return b.stateOf(row).touched()
	}
	w := b.values(row)[:t.dim]
	return math.Float32bits(kernel.Dot(w, w)) &^ (1 << 31) // order like the numbers, NaN above all
}

// Refuses reports whether the policy is Refuse and a push of ids would need more than
// MaxRows. An id that is there twice and has no row counts twice. It changes nothing.
func (t *Table) Refuses(ids []int64) bool {
	if t.evict != Refuse || !t.full(len(ids)) {
		return false
	}
	var places [group]place
	needed := 0
	for len(ids) > 0 {
		n := min(len(ids), group)
		t.locate(ids[:n], &places)
		for i, p := range places[:n] {
			if p.row < 0 && t.admits(&t.blocks[p.block], ids[i], p.hash) {
				needed++
			}
		}
		ids = ids[n:]
	}
	return needed > 0 && t.full(needed)
}

// Touched calls visit with every block that a push of ids may change, each once. It
// changes nothing.
func (t *Table) Touched(ids []int64, visit func(block int)) {
	clear(t.seen)
	for _, id := range ids {
		t.visitOnce(t.BlockOf(id), visit)
	}
}

func (t *Table) visitOnce(block int, visit func(int)) {
	word, bit := &t.seen[block/64], uint64(1)<<(block%64)
	if *word&bit == 0 {
		*word |= bit
		visit(block)
	}
}

// Expire removes the rows of a block that have not been pushed to for Config.ExpireAfter
// and returns how many; none if that is zero. Rows with a sum stay. Exact admission counters
// expire likewise, and the counters of a filter are halved once in that time. Memory is given
// back.
func (t *Table) Expire(block int, now uint32) int {
	if t.expire == 0 {
		return 0
	}
	b := &t.blocks[block]
	before := b.n
	for row := 0; row < b.n; {
		if s := b.stateOf(row); s&dirtyBit == 0 && s.idle(now) >= t.expire {
			t.remove(b, row)
		} else {
			row++
		}
	}
	if b.n < before {
		b.trim(0)
	}
	t.expireWaiting(b, now)
	return before - b.n
}

// Delete removes the rows of ids, with what was to be added to them, and their exact
// admission counters. It returns how many rows there were. Memory is given back.
func (t *Table) Delete(ids []int64) int {
	clear(t.seen)
	deleted := 0
	for _, id := range ids {
		hash := shard.Hash(id)
		b := &t.blocks[t.blockOf(hash)]
		if row := b.find(id, hash); row >= 0 {
			t.remove(b, row)
			deleted++
		} else if b.waiting != nil {
			b.waiting.forget(id, hash)
		}
	}
	for _, id := range ids {
		t.visitOnce(t.BlockOf(id), func(block int) { t.blocks[block].trim(0) })
	}
	return deleted
}

// Clear empties a block: rows, sums and admission counters.
func (t *Table) Clear(block int) {
	b := &t.blocks[block]
	t.rows -= int64(b.n)
	t.blocks[block] = newBlock(&t.layout, emptyIndex())
}

// Expires reports whether Expire would change anything.
func (t *Table) Expires(block int, now uint32) bool {
	if t.expire == 0 {
		return false
	}
	b := &t.blocks[block]
	for row := range b.n {
		if s := b.stateOf(row); s&dirtyBit == 0 && s.idle(now) >= t.expire {
			return true
		}
	}
	return t.waitingExpires(b, now)
}

// waitingExpires reports whether expireWaiting would change anything.
func (t *Table) waitingExpires(b *block, now uint32) bool {
	if b.filter.counts != nil && now-min(b.filter.since, now) >= t.expire {
		return true
	}
	for row := 0; b.waiting != nil && row < b.waiting.n; row++ {
		if b.waiting.stateOf(row).idle(now) >= t.expire {
			return true
		}
	}
	return false
}
