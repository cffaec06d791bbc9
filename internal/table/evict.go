package table

import (
	"math"
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

// full reports whether n more rows would go over the limit.
func (t *Table) full(n int) bool { return t.maxRows > 0 && t.rows+int64(n) > t.maxRows }

// makeRoom evicts rows until there is room for those of the ids at the given positions: from
// their own blocks and, where these have nothing left, from the next ones.
func (t *Table) makeRoom(ids []int64, positions []int32) int {
	evicted := 0
	if t.evict == Refuse {
		return 0
	}
	for _, i := range positions {
		if !t.full(len(positions)) {
			break
		}
		hash := shard.Hash(ids[i])
		home := t.blockOf(hash)
		for k := range t.blocks {
			b := (home + k) % len(t.blocks)
			if n := t.evictFrom(&t.blocks[b], hash); n > 0 {
				evicted += n
				break
			}
		}
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

// Refuses reports whether the policy is Refuse and a push of ids would need more than
// MaxRows. An id that is there twice and has no row counts twice; of a filter it does not
// foresee that ids of the same push raise each other's counters. It changes nothing.
func (t *Table) Refuses(ids []int64) bool {
	if t.evict != Refuse || !t.full(len(ids)) {
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
			}
		}
		ids = ids[n:]
	}
	return needed > 0 && t.full(needed)
}

// Touched calls visit with every block that a push of ids may change, each once. It
// changes nothing. Where rows would be evicted from blocks other than those of the ids, it
// may visit some that will not change after all.
func (t *Table) Touched(ids []int64, _ uint32, visit func(block int)) {
	var at [group]found
	clear(t.seen)
	t.missing = t.missing[:0]
	for from := 0; from < len(ids); from += group {
		part := ids[from:min(from+group, len(ids))]
		t.locate(part, t.layout.values, &at)
		for i, id := range part {
			f := &at[i]
			t.visitOnce(int(f.block), visit)
			if t.blocks[f.block].confirm(f, id) == nil {
				t.missing = append(t.missing, f.block)
			}
		}
	}
	if t.evict == Refuse || !t.full(len(t.missing)) {
		return
	}
	// A block is evicted from in the place of another one when all between them have
	// nothing left, and in all no more rows than are needed have gone before.
	most := int64(len(t.missing)) + max(t.rows-t.maxRows, 0)
	if t.layout.hasSums {
		most += int64(len(ids) - len(t.missing)) // these get a sum, and stay
	}
	for _, home := range t.missing {
		needed := most
		for k := 0; k < len(t.blocks) && needed > 0; k++ {
			b := (int(home) + k) % len(t.blocks)
			t.visitOnce(b, visit)
			needed -= int64(t.blocks[b].n - t.Dirty(b))
		}
	}
}

func (t *Table) visitOnce(block int, visit func(int)) {
	word, bit := &t.seen[block/64], uint64(1)<<(block%64)
	if *word&bit == 0 {
		*word |= bit
		visit(block)
	}
}
