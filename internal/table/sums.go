package table

// sums holds the gradients of the open clock, of those rows only that have got some. Rows
// know the place of their sum, and the sums their rows.
type sums struct {
	places []place   // of the rows; nowhere if a row has been deleted
	values []float32 // a sum per row
	gone   int
}

func (s *sums) bytes() int64 { return 4 * int64(cap(s.places)+cap(s.values)) }

// sum returns the sum of a row, zero at first.
func (b *block) sum(p place, dim int) []float32 {
	r := b.row(p)
	if r.sum() == 0 {
		b.sums.places = append(b.sums.places, p)
		b.sums.values = append(b.sums.values, make([]float32, dim)...)
		r.setSum(uint32(len(b.sums.places)))
	}
	return b.sumAt(int(r.sum())-1, dim)
}

func (b *block) sumAt(i, dim int) []float32 { return b.sums.values[i*dim : (i+1)*dim] }

// dropSum forgets the sum of a row that is going to be removed.
func (b *block) dropSum(p place) {
	if !b.hasSums {
		return
	}
	if r := b.row(p); r.sum() != 0 {
		b.sums.places[r.sum()-1] = nowhere
		b.sums.gone++
	}
}

// movedSum tells the sum of the row that has got a place, if one has, where the row is.
func (b *block) movedSum(p place) {
	if !b.hasSums || p >= b.place(b.n) {
		return
	}
	if r := b.row(p); r.sum() != 0 {
		b.sums.places[r.sum()-1] = p
	}
}

// Dirty returns the number of rows of a block that have a sum.
func (t *Table) Dirty(block int) int {
	s := &t.blocks[block].sums
	return len(s.places) - s.gone
}

// Close steps each row of a block that has a sum with it, and clears the sums. It does
// nothing without Config.Sums.
func (t *Table) Close(block int) {
	b := &t.blocks[block]
	for i, p := range b.sums.places {
		if p == nowhere {
			continue
		}
		r := b.row(p)
		s := t.counted(r.state() &^ dirtyBit)
		r.setState(s)
		r.setSum(0)
		t.step(r[b.values:], b.sumAt(i, t.dim), s.steps())
	}
	b.sums.places, b.sums.values, b.sums.gone = b.sums.places[:0], b.sums.values[:0], 0
}
