package pool

import (
	"cmp"
	"slices"
)

// Amounts are computing time and memory.
type Amounts struct {
	Milli int64 // thousandths of a device
	Bytes int64
}

// card is a device of the pool.
type card struct {
	id     string
	bytes  int64 // of its memory; that of a lost one is what it had
	lost   bool
	table  *Table // nil if it is cut as asked
	shares []*share
}

// share is what a reservation has of a card.
type share struct {
	of      *reservation
	taken   Template // what it is of the card
	spilled int64
	fresh   bool // holds nothing yet, so nothing has to move
}

// reservation is what was given out, on one card or more.
type reservation struct {
	id      ID
	request Request
	cards   []*card
	touched uint64 // when it was reserved or touched last, by the pool's clock
}

func (c *card) used() Amounts {
	var sum Amounts
	for _, s := range c.shares {
		sum.Milli += s.taken.Milli
		sum.Bytes += s.taken.Bytes
	}
	return sum
}

func (c *card) spilled() int64 {
	var sum int64
	for _, s := range c.shares {
		sum += s.spilled
	}
	return sum
}

// growth returns how much more would be spilled with a request on the card.
func (c *card) growth(r Request) int64 {
	used := c.used().Bytes
	taken := c.cut(r)
	n := taken.Bytes
	return max(0, used+n-c.bytes) - max(0, used-c.bytes)
}

// stay orders shares: those that are kept in memory first stand in front.
func stay(a, b *share) int {
	return cmp.Or(
		-cmp.Compare(a.of.request.Priority, b.of.request.Priority),
		-cmp.Compare(a.of.touched, b.of.touched),
	)
}

// settle spills what does not fit, brings back what fits again, and returns what has to
// move for it, out before in.
func (c *card) settle() []Transfer {
	slices.SortFunc(c.shares, stay)
	var out, in []Transfer
	room := c.bytes
	for _, s := range c.shares {
		resident := min(s.taken.Bytes, room)
		room -= resident
		spilled := s.taken.Bytes - resident
		t := Transfer{Reservation: s.of.id, Device: c.id, Bytes: spilled - s.spilled, Out: true}
		switch {
		case s.fresh || t.Bytes == 0:
		case t.Bytes > 0:
			out = append(out, t)
		default:
			t.Bytes, t.Out = -t.Bytes, false
			in = append(in, t)
		}
		s.spilled, s.fresh = spilled, false
	}
	return append(out, in...)
}

// drop takes the share of a reservation away.
func (c *card) drop(r *reservation) {
	c.shares = slices.DeleteFunc(c.shares, func(s *share) bool { return s.of == r })
}
