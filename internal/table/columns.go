package table

import (
	"fmt"

	"github.com/elasticps/elasticps/shard"
)

// Columns are some rows of a block, each part of them in an array of its own: what is sent
// to another server or written to a file.
type Columns struct {
	// IDs are the ids of the rows, in the order of the block.
	IDs []int64
	// State of each row: its last touch in the upper 32 bits, bit 31 set if it has a sum,
	// and its steps in the others. Zero where the table needs none of them.
	State []uint64
	// Weights has Dim elements for each row.
	Weights []float32
	// Slots has for each slot of the rule its Elems for each row.
	Slots [][]float32
	// Sums has Dim elements for each row, zeros for those without a sum, if the table
	// has Config.Sums, and is empty otherwise.
	Sums []float32
}

// Resize gives the columns the lengths that n rows of the table need. It keeps their memory
// if it is large enough; what they hold then is undefined.
func (t *Table) Resize(c *Columns, n int) {
	c.IDs = resize(c.IDs, n)
	c.State = resize(c.State, n)
	c.Weights = resize(c.Weights, n*t.dim)
	c.Slots = resize(c.Slots, len(t.rule.Slots))
	for i, s := range t.rule.Slots {
		c.Slots[i] = resize(c.Slots[i], n*s.Elems)
	}
	if t.layout.hasSums {
		c.Sums = resize(c.Sums, n*t.dim)
	}
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Copy gives the columns the length of a block and reads all its rows.
func (t *Table) Copy(block int, c *Columns) {
	t.Resize(c, t.blocks[block].n)
	t.Read(block, 0, c)
}

// Read fills the columns with the rows of a block from number from on, as many as there are
// and as c.IDs has room for, and returns how many. All columns must have room for that
// many, see [Table.Resize]. Rows keep their numbers until a push, Expire, Delete, Append or
// Clear.
func (t *Table) Read(block, from int, c *Columns) int {
	b := &t.blocks[block]
	n := max(min(len(c.IDs), b.n-from), 0)
	for i := range n {
		r := b.row(b.place(from + i))
		values, s := r[b.values:], b.state(r)
		c.IDs[i], c.State[i] = r.id(), uint64(s)
		copy(c.Weights[i*t.dim:(i+1)*t.dim], values)
		values = values[t.dim:]
		for k := range t.rule.Slots {
			e := t.rule.Slots[k].Elems
			copy(c.Slots[k][i*e:(i+1)*e], values)
			values = values[e:]
		}
		if !t.layout.hasSums {
			continue
		}
		if sum := c.Sums[i*t.dim : (i+1)*t.dim]; s.dirty() {
			copy(sum, b.sumAt(int(r.sum())-1, t.dim))
		} else {
			clear(sum)
		}
	}
	return n
}

// Append adds rows to the end of a block, in their order: what Read gave on another server
// makes a copy, bit for bit. It returns an error, and changes nothing, when the lengths do
// not fit each other and the table, an id belongs to another block or is there already, or
// a state is impossible. MaxRows does not count here: it is kept by the pushes that follow. It
// keeps nothing of the columns.
func (t *Table) Append(block int, c *Columns) error {
	if err := t.checkColumns(block, c); err != nil {
		return err
	}
	b := &t.blocks[block]
	before := b.n
	for i, id := range c.IDs {
		hash := shard.Hash(id)
		if _, ok := b.find(id, hash); ok {
			for b.n > before {
				t.remove(b, b.place(b.n-1))
			}
			b.trim(0)
			return fmt.Errorf("table: block %d: id %d is there twice", block, id)
		}
		p := b.add(id, hash)
		t.rows++
		t.set(b, p, i, c)
		if b.waiting != nil {
			b.waiting.forget(id, hash)
		}
	}
	t.largest = max(t.largest, b.n)
	return nil
}

// set gives a new row what line i of the columns says.
func (t *Table) set(b *block, p place, i int, c *Columns) {
	r := b.row(p)
	values := r[b.values:]
	copy(values, c.Weights[i*t.dim:(i+1)*t.dim])
	values = values[t.dim:]
	for k := range t.rule.Slots {
		e := t.rule.Slots[k].Elems
		copy(values, c.Slots[k][i*e:(i+1)*e])
		values = values[e:]
	}
	s := state(c.State[i])
	if b.hasState {
		r.setState(s)
	}
	if s.dirty() {
		copy(b.sum(p, t.dim), c.Sums[i*t.dim:(i+1)*t.dim])
	}
}

// checkColumns finds what is wrong with columns by themselves.
func (t *Table) checkColumns(block int, c *Columns) error {
	n := len(c.IDs)
	wrong := func(what string, got, want int) error {
		return fmt.Errorf("table: block %d: %d %s for %d rows, must be %d", block, got, what, n, want)
	}
	sums := 0
	if t.layout.hasSums {
		sums = n * t.dim
	}
	switch {
	case len(c.State) != n:
		return wrong("states", len(c.State), n)
	case len(c.Weights) != n*t.dim:
		return wrong("weights", len(c.Weights), n*t.dim)
	case len(c.Sums) != sums:
		return wrong("elements of sums", len(c.Sums), sums)
	case len(c.Slots) != len(t.rule.Slots):
		return wrong("slots", len(c.Slots), len(t.rule.Slots))
	case n > MaxBlockRows-t.blocks[block].n:
		return fmt.Errorf("table: block %d: %d more rows, it has %d, limit %d", block, n, t.blocks[block].n, MaxBlockRows)
	}
	for i, s := range t.rule.Slots {
		if len(c.Slots[i]) != n*s.Elems {
			return wrong(fmt.Sprintf("elements of slot %d", i), len(c.Slots[i]), n*s.Elems)
		}
	}
	for i, id := range c.IDs {
		if t.BlockOf(id) != block {
			return fmt.Errorf("table: block %d: id %d is of another block", block, id)
		}
		s := state(c.State[i])
		if s.dirty() && !t.layout.hasSums {
			return fmt.Errorf("table: block %d: id %d has a sum, the table has none", block, id)
		}
		if s.steps() != 0 && !t.rule.Steps {
			return fmt.Errorf("table: block %d: id %d has taken %d steps, the table does not count them", block, id, s.steps())
		}
	}
	return nil
}

// Settle makes a copy of rows what they are after [Table.Close]: it steps those that have a
// sum, and clears the sums. The table itself does not change.
func (t *Table) Settle(c *Columns) {
	if !t.layout.hasSums {
		return
	}
	slots := make([][]float32, len(c.Slots))
	for i := range c.IDs {
		s := state(c.State[i])
		if !s.dirty() {
			continue
		}
		s = t.counted(s &^ dirtyBit)
		c.State[i] = uint64(s)
		for k := range t.rule.Slots {
			e := t.rule.Slots[k].Elems
			slots[k] = c.Slots[k][i*e : (i+1)*e]
		}
		sum := c.Sums[i*t.dim : (i+1)*t.dim]
		t.rule.Step(c.Weights[i*t.dim:(i+1)*t.dim], sum, slots, s.steps(), t.factor)
		clear(sum)
	}
}

// DropSums makes a copy of rows what they are without the gradients that were added since
// the last [Table.Close].
func (c *Columns) DropSums() {
	for i := range c.State {
		c.State[i] &^= uint64(dirtyBit)
	}
	clear(c.Sums)
}
