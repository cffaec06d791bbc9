package table

import (
	"math/bits"

	"github.com/elasticps/elasticps/internal/kernel"
)

// Result counts what a push did with its ids.
type Result struct {
	Applied int // their rows took the gradient
	Waiting int // not admitted yet, the gradient is dropped
	Refused int // without row and no room for one, the gradient is dropped
	Evicted int // rows, of other ids, that had to go
}

// Push takes len(ids)*Dim gradients, row after row: it makes the rows that are missing, with
// their first weights and slots, and steps each row or, with Config.Sums, adds the gradient to
// its sum. An id that is there twice is stepped twice. Rows that exist come first, then
// missing ones are made, for which others of their block may have to go. Now is the caller's
// clock.
func (t *Table) Push(ids []int64, grads []float32, now uint32) Result {
	var result Result
	var places [group]place
	t.missing = t.missing[:0]
	clear(t.seen)
	for from := 0; from < len(ids); from += group {
		part := ids[from:min(from+group, len(ids))]
		t.locate(part, &places)
		for i := range part {
			p := &places[i]
			t.seen[p.block/64] |= 1 << (p.block % 64)
			if p.row < 0 {
				t.missing = append(t.missing, int32(from+i))
				continue
			}
			t.apply(&t.blocks[p.block], int(p.row), t.gradient(grads, from+i), now)
		}
	}
	result.Applied = len(ids) - len(t.missing)
	if len(t.missing) > 0 {
		t.pushMissing(ids, grads, now, &result)
	}
	return result
}

// Changed calls visit with every block that the last [Table.Push] may have changed.
func (t *Table) Changed(visit func(block int)) {
	for i, word := range t.seen {
		for ; word != 0; word &= word - 1 {
			visit(64*i + bits.TrailingZeros64(word))
		}
	}
}

func (t *Table) gradient(grads []float32, i int) []float32 {
	return grads[i*t.dim : (i+1)*t.dim]
}

// apply lets a row take a gradient.
func (t *Table) apply(b *block, row int, grad []float32, now uint32) {
	if b.hasSums {
		s := b.stateOf(row).touch(now)
		b.setState(row, s|dirtyBit)
		kernel.Add(b.sum(row, t.dim), grad)
		return
	}
	if !b.hasState {
		t.step(b.values(row), grad, 0)
		return
	}
	c, i := b.at(row)
	s := t.counted(c.state[i].touch(now))
	c.state[i] = s
	t.step(b.values(row), grad, s.steps())
}

// step applies the rule to weights and slots of a row.
func (t *Table) step(values, grad []float32, steps uint64) {
	w, rest := values[:t.dim], values[t.dim:]
	for i := range t.rule.Slots {
		n := t.rule.Slots[i].Elems
		t.views[i], rest = rest[:n:n], rest[n:]
	}
	t.rule.Step(w, grad, t.views, steps)
}
