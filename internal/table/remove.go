package table

import "github.com/elasticps/elasticps/shard"

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
	for p := place(0); p < b.place(b.n); {
		if t.expired(b.row(p).state(), now) {
			t.remove(b, p)
		} else {
			p = b.next(p)
		}
	}
	if b.n < before {
		b.trim(0)
	}
	t.expireWaiting(b, now)
	return before - b.n
}

// Expires reports whether Expire would change anything.
func (t *Table) Expires(block int, now uint32) bool {
	if t.expire == 0 {
		return false
	}
	b := &t.blocks[block]
	for p := place(0); p < b.place(b.n); p = b.next(p) {
		if t.expired(b.row(p).state(), now) {
			return true
		}
	}
	return t.waitingExpires(b, now)
}

// expired reports whether a row of that state is to go: one with a sum stays.
func (t *Table) expired(s state, now uint32) bool { return !s.dirty() && s.idle(now) >= t.expire }

// Delete removes the rows of ids, with what was to be added to them, and their exact
// admission counters. It returns how many rows there were. Memory is given back.
func (t *Table) Delete(ids []int64) int {
	clear(t.seen)
	deleted := 0
	for _, id := range ids {
		hash := shard.Hash(id)
		b := &t.blocks[t.blockOf(hash)]
		if p, ok := b.find(id, hash); ok {
			t.remove(b, p)
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

// remove removes a row and its sum.
func (t *Table) remove(b *block, p place) {
	b.dropSum(p)
	b.rows.remove(p)
	b.movedSum(p)
	t.rows--
}

// Clear empties a block: rows, sums and admission counters.
func (t *Table) Clear(block int) {
	b := &t.blocks[block]
	t.rows -= int64(b.n)
	t.blocks[block] = newBlock(&t.layout, emptyIndex())
}
