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
	if t.maxRows > 0 && t.evict != Refuse {
		result.Evicted = t.makeRoom(ids, admitted)
	}
	for _, i := range admitted {
		hash := shard.Hash(ids[i])
		block := t.blockOf(hash)
		b := &t.blocks[block]
		p, ok := b.find(ids[i], hash) // an id may be there twice
		if !ok {
			if b.n >= t.share(block) {
				result.Refused++
				continue
			}
			p = t.create(b, ids[i], hash)
		}
		t.apply(b, p, b.row(p), t.gradient(grads, int(i)), now)
		result.Applied++
	}
}

// create makes the row of an id.
func (t *Table) create(b *block, id int64, hash uint64) place {
	p := b.add(id, hash)
	t.rows++
	t.largest = max(t.largest, b.n)
	values := b.row(p)[b.values:]
	t.initial.fill(values[:t.dim], id)
	values = values[t.dim:]
	for _, s := range t.rule.Slots {
		kernel.Fill(values[:s.Elems], s.Start)
		values = values[s.Elems:]
	}
	if b.waiting != nil {
		b.waiting.forget(id, hash)
	}
	return p
}
