package table

// sums holds the gradients of the open clock, of those rows only that have got some. Rows
// know the place of their sum, and the sums their rows.
type sums struct {
	rows   []int32   // -1: the row has been deleted
	values []float32 // one gradient per row
	gone   int       // rows that have been deleted
}

func (s *sums) bytes() int64 { return 4 * int64(cap(s.rows)+cap(s.values)) }

// sum returns the sum of a row, zero at first.
func (b *block) sum(row, dim int) []float32 {
	c, i := b.at(row)
	if c.sums[i] == 0 {
		b.sums.rows = append(b.sums.rows, int32(row))
		b.sums.values = append(b.sums.values, make([]float32, dim)...)
		c.sums[i] = uint32(len(b.sums.rows))
	}
	return b.sumAt(int(c.sums[i])-1, dim)
}

func (b *block) sumAt(place, dim int) []float32 {
	return b.sums.values[place*dim : (place+1)*dim]
}

// dropSum forgets the sum of a row that is going to be removed.
func (b *block) dropSum(row int) {
	if !b.hasSums {
		return
	}
	if c, i := b.at(row); c.sums[i] != 0 {
		b.sums.rows[c.sums[i]-1] = -1
		b.sums.gone++
		c.sums[i] = 0
	}
}

// movedSum tells the sum of a row that the row has another number.
func (b *block) movedSum(row, before int) {
	if !b.hasSums || row == before {
		return
	}
	if c, i := b.at(row); c.sums[i] != 0 {
		b.sums.rows[c.sums[i]-1] = int32(row)
	}
}

// Dirty is the number of rows of a block that have a sum.
func (t *Table) Dirty(block int) int {
	s := &t.blocks[block].sums
	return len(s.rows) - s.gone
}

// Close steps each row of a block that has a sum with it, and clears the sums. It does
// nothing without Config.Sums.
func (t *Table) Close(block int) {
	b := &t.blocks[block]
	for place, row := range b.sums.rows {
		if row < 0 {
			continue
		}
		c, i := b.at(int(row))
		s := t.counted(c.state[i] &^ dirtyBit)
		c.state[i], c.sums[i] = s, 0
		t.step(b.values(int(row)), b.sumAt(place, t.dim), s.steps())
	}
	b.sums.rows, b.sums.values, b.sums.gone = b.sums.rows[:0], b.sums.values[:0], 0
}

// counted is the state after one more step.
func (t *Table) counted(s state) state {
	if t.rule.Steps && s.steps() < MaxSteps {
		return s + 1
	}
	return s
}
