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

// full reports whether n more rows would go over the limit of the shard, or over that of a
// block, if they are all of the largest one.
func (t *Table) full(n int) bool {
	return t.maxRows > 0 && t.rows+int64(n) > t.maxRows || t.largest+n > t.blockRows
}

// share is how many rows a block may have when rows are evicted, at least one: the limit
// of the shard in proportion. It depends on nothing but the block, so that a copy which
// has some blocks only, yet, evicts the same rows from them.
func (t *Table) share(block int) int {
	if t.maxRows == 0 || t.evict == Refuse {
		return MaxBlockRows // Refuses has looked at the others
	}
	before := func(block int) uint64 {
		hi, lo := bits.Mul64(uint64(t.maxRows), uint64(min(int64(block)*BlockElems, t.elems)))
		n, _ := bits.Div64(hi, lo, uint64(t.elems))
		return n
	}
	return min(int(max(before(block+1)-before(block), 1)), t.blockRows)
}

// makeRoom evicts rows from blocks that are about to get rows for the ids at the given
// positions: as many as there are to come, or all that may go.
func (t *Table) makeRoom(ids []int64, positions []int32) (evicted int) {
	for _, i := range positions {
		t.blocks[t.blockOf(shard.Hash(ids[i]))].coming++
	}
	for _, i := range positions {
		hash := shard.Hash(ids[i])
		block := t.blockOf(hash)
		b := &t.blocks[block]
		for n := 1; n > 0 && b.coming > 0 && b.n+b.coming > t.share(block); {
			n = t.evictFrom(b, hash)
			evicted += n
		}
		b.coming = 0
	}
	return evicted
}

// evictFrom removes a share of a block's rows, at least one, if it has any without a sum.
func (t *Table) evictFrom(b *block, hash uint64) int {
	candidates := t.keys[:0] // what a row is worth, then its place
	from := 0
	if b.n > evictWindow {
		from = int(hash % uint64(b.n))
	}
	for k := 0; k < b.n && len(candidates) < evictWindow; k++ {
		p := b.place((from + k) % b.n)
		if r := b.row(p); !b.state(r).dirty() {
			candidates = append(candidates, uint64(t.worth(b, r))<<32|uint64(p))
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
	for _, p := range slices.Backward(victims) {
		t.remove(b, place(p))
	}
	b.trim(1)
	return len(victims)
}

// worth orders rows: those with the least are evicted.
func (t *Table) worth(b *block, r row) uint32 {
	if t.evict == LeastRecentlyUsed {
		return r.state().touched()
	}
	w := r[b.values : b.values+t.dim]
	return math.Float32bits(kernel.Dot(w, w)) &^ (1 << 31) // order like the numbers, NaN above all
}

// Refuses reports whether a push of ids would need more rows than MaxRows or BlockRows
// allow, and may not evict any. An id that is there twice and has no row counts twice; of a
// filter it does not foresee that ids of the same push raise each other's counters. It
// changes nothing.
func (t *Table) Refuses(ids []int64) bool {
	if t.maxRows > 0 && t.evict != Refuse || !t.full(len(ids)) {
		return false
	}
	var at [group]found
	needed := 0
	for len(ids) > 0 {
		n := min(len(ids), group)
		t.locate(ids[:n], t.layout.values, &at)
		for i, id := range ids[:n] {
			f := &at[i]
			b := &t.blocks[f.block]
			if b.confirm(f, id) == nil && t.admits(b, id, f.hash) {
				needed++
				if b.n+needed > t.blockRows {
					return true
				}
			}
		}
		ids = ids[n:]
	}
	return t.maxRows > 0 && needed > 0 && t.rows+int64(needed) > t.maxRows
}
