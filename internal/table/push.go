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
	var at [group]found
	t.missing = t.missing[:0]
	clear(t.seen)
	for from := 0; from < len(ids); from += group {
		part := ids[from:min(from+group, len(ids))]
		t.locate(part, t.layout.stride, &at)
		for i, id := range part {
			f := &at[i]
			t.seen[f.block/64] |= 1 << (f.block % 64)
			b := &t.blocks[f.block]
			if r := b.confirm(f, id); r != nil {
				t.apply(b, f.place, r, t.gradient(grads, from+i), now)
			} else {
				t.missing = append(t.missing, int32(from+i))
			}
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

// apply lets the row r, which is at p, take a gradient.
func (t *Table) apply(b *block, p place, r row, grad []float32, now uint32) {
	if !b.hasState {
		t.step(r[b.values:], grad, 0)
		return
	}
	s := r.state().touch(now)
	if b.hasSums {
		r.setState(s | dirtyBit)
		kernel.Add(b.sum(p, t.dim), grad)
		return
	}
	s = t.counted(s)
	r.setState(s)
	t.step(r[b.values:], grad, s.steps())
}

// counted is the state after one more step.
func (t *Table) counted(s state) state {
	if t.rule.Steps && s.steps() < MaxSteps {
		return s + 1
	}
	return s
}

// step applies the rule to weights and slots of a row.
func (t *Table) step(values, grad []float32, steps uint64) {
	w, rest := values[:t.dim], values[t.dim:]
	for i := range t.rule.Slots {
		n := t.rule.Slots[i].Elems
		t.views[i], rest = rest[:n:n], rest[n:]
	}
	t.rule.Step(w, grad, t.views, steps, t.factor)
}

// Scale says by what the steps that follow multiply the learning rate, at first by 1.
func (t *Table) Scale(factor float64) { t.factor = factor }

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
