package table

import (
	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/shard"
)

// pushMissing does the part of a push that is about ids without row: t.missing has
// their positions.
func (t *Table) pushMissing(ids []int64, grads []float32, now uint32, result *Result) {
	admitted := t.missing
	if t.touches > 1 {
		admitted = t.missing[:0]
		for _, i := range t.missing {
			hash := shard.Hash(ids[i])
			if t.countTouch(&t.blocks[t.blockOf(hash)], ids[i], hash, now) {
				admitted = append(admitted, i)
			} else {
				result.Waiting++
			}
		}
	}
	for _, i := range admitted {
		hash := shard.Hash(ids[i])
		block := t.blockOf(hash)
		b := &t.blocks[block]
		row := b.find(ids[i], hash) // an id may be there twice
		if row < 0 {
			evicted, ok := t.makeRoom(block, hash)
			result.Evicted += evicted
			if !ok {
				result.Refused++
				continue
			}
			row = t.create(b, ids[i], hash)
		}
		t.apply(b, row, t.gradient(grads, int(i)), now)
		result.Applied++
	}
}

// create makes the row of an id.
func (t *Table) create(b *block, id int64, hash uint64) int {
	row := b.add(id, hash)
	t.rows++
	values := b.values(row)
	t.initial.fill(values[:t.dim], id)
	t.startSlots(values[t.dim:])
	if b.waiting != nil {
		b.waiting.forget(id, hash)
	}
	return row
}

// startSlots gives the slots of a row their first values.
func (t *Table) startSlots(values []float32) {
	for _, s := range t.rule.Slots {
		kernel.Fill(values[:s.Elems], s.Start)
		values = values[s.Elems:]
	}
}

// remove removes a row and its sum.
func (t *Table) remove(b *block, row int) {
	b.dropSum(row)
	last := b.n - 1
	b.rows.remove(row)
	b.movedSum(row, last)
	t.rows--
}
