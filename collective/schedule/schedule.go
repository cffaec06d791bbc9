package schedule

import (
	"errors"
	"fmt"
)

// None stands for no rank: a step that only sends or only receives.
const None = -1

// Limits of a Shape.
const (
	// MaxRanks is the largest group.
	MaxRanks = 1024
	// MaxCount is the largest number of elements of one operation.
	MaxCount = 1 << 40
)

// ErrShape means that a plan was asked for that cannot be: the text names the argument
// and its bound.
var ErrShape = errors.New("schedule: no such plan")

// Range is the elements from Begin up to, not including, End.
type Range struct{ Begin, End int }

// Len returns the number of elements.
func (r Range) Len() int { return r.End - r.Begin }

// Overlaps reports whether the ranges share an element.
func (r Range) Overlaps(o Range) bool { return r.Begin < o.End && o.Begin < r.End }

// Contains reports whether all elements of o are in r.
func (r Range) Contains(o Range) bool { return r.Begin <= o.Begin && o.End <= r.End }

// split cuts a range into n parts as equal as can be, the first ones longer by one. Parts
// may be empty.
func (r Range) split(n int) []Range {
	parts := make([]Range, n)
	begin, size, longer := r.Begin, r.Len()/n, r.Len()%n
	for i := range parts {
		end := begin + size
		if i < longer {
			end++
		}
		parts[i] = Range{begin, end}
		begin = end
	}
	return parts
}

// equal returns n ranges of count elements, one behind the other.
func equal(n, count int) []Range { return Range{0, n * count}.split(n) }

// Action says what becomes of elements that arrive.
type Action uint8

// The actions.
const (
	// Copy replaces what is there.
	Copy Action = iota
	// First is Copy where it begins a fold.
	First
	// Combine puts both together: there = there op arrived.
	Combine
)

// Step is one step of one rank. It sends first and does not wait until the receiver has
// used what it sent.
type Step struct {
	To    int   // rank that Send goes to, or None
	Send  Range // not empty unless To is None
	Input bool  // Send is of the rank's own input, not of the buffer
	From  int   // rank that Recv comes from, or None; the rank itself: its own input
	Recv  Range // not empty unless From is None
	Do    Action
	Last  bool // Recv has the contributions of all ranks from here on
}

// Plan is what one rank does.
type Plan struct {
	Steps []Step
	// Keep is the part of the input that is needed after the buffer has been written to:
	// where both are the same memory, it must be copied first.
	Keep Range
	// Fresh means that the buffer need not hold the input when the steps begin.
	Fresh bool
}

// Shape is what all ranks of an operation agree on.
type Shape struct {
	// Ranks is the size of the group, 1 to MaxRanks.
	Ranks int
	// Count is the elements of the operation, 0 to MaxCount: of the whole buffer for
	// AllReduce, Broadcast and Reduce; of the part of one rank for the others.
	Count int
	// Segment bounds the elements of one step; a longer one is cut, so that sending,
	// receiving and combining overlap. Zero: no bound.
	Segment int
	// Ahead is how many segments go to a rank before what comes in return is waited for, where they
	// do not depend on it: as many as there are connections to it, which have nothing to carry
	// otherwise. Zero is one. Ranks may differ.
	Ahead int
	// Nodes has the node of each rank, for Hierarchical alone.
	Nodes []int
}

func (s Shape) check(rank, root int) error {
	switch {
	case s.Ranks < 1 || s.Ranks > MaxRanks:
		return fmt.Errorf("%w: %d ranks, must be 1 to %d", ErrShape, s.Ranks, MaxRanks)
	case rank < 0 || rank >= s.Ranks:
		return fmt.Errorf("%w: rank %d, must be 0 to %d", ErrShape, rank, s.Ranks-1)
	case root < 0 || root >= s.Ranks:
		return fmt.Errorf("%w: root %d, must be 0 to %d", ErrShape, root, s.Ranks-1)
	case s.Count < 0 || s.Count > MaxCount/s.Ranks:
		return fmt.Errorf("%w: %d elements, must be 0 to %d", ErrShape, s.Count, MaxCount/s.Ranks)
	case s.Segment < 0:
		return fmt.Errorf("%w: segment of %d elements, must not be negative", ErrShape, s.Segment)
	case s.Ahead < 0:
		return fmt.Errorf("%w: %d segments ahead, must not be negative", ErrShape, s.Ahead)
	}
	return nil
}

// whole is the range of an operation whose Count is that of the whole buffer.
func (s Shape) whole() Range { return Range{0, s.Count} }

// builder collects the steps of one rank.
type builder struct {
	Shape
	rank  int
	steps []Step
	ended int // steps of which it is known whether they are the last of their range
}

// last says whether the steps that were added since the last time complete what they
// receive.
func (b *builder) last(is bool) {
	for i := b.ended; i < len(b.steps); i++ {
		s := &b.steps[i]
		s.Last = is && s.From != None && s.Do == Combine
	}
	b.ended = len(b.steps)
}

// segments cuts a range; an empty one has none.
func (b *builder) segments(r Range) []Range {
	if r.Len() == 0 {
		return nil
	}
	if b.Segment == 0 || r.Len() <= b.Segment {
		return []Range{r}
	}
	return r.split((r.Len() + b.Segment - 1) / b.Segment)
}

// exchange sends one range and receives another, segment by segment. What is sent is there when it
// begins, so that some of it may go ahead, unless it is about to be written to.
func (b *builder) exchange(to int, send Range, from int, recv Range, do Action) {
	var out, in []Range
	if to != None {
		out = b.segments(send)
	}
	if from != None {
		in = b.segments(recv)
	}
	if from != None && !send.Overlaps(recv) {
		for range min(max(b.Ahead, 1)-1, len(out)) {
			b.steps = append(b.steps, Step{To: to, Send: out[0], From: None})
			out = out[1:]
		}
	}
	for i := range max(len(out), len(in)) {
		s := Step{To: None, From: None}
		if i < len(out) {
			s.To, s.Send = to, out[i]
		}
		if i < len(in) {
			s.From, s.Recv, s.Do = from, in[i], do
		}
		b.steps = append(b.steps, s)
	}
}

func (b *builder) send(to int, r Range)             { b.exchange(to, r, None, Range{}, Copy) }
func (b *builder) recv(from int, r Range, a Action) { b.exchange(None, Range{}, from, r, a) }

// segment returns segment i of a range, false when there are not as many.
func (b *builder) segment(r Range, i int) (Range, bool) {
	s := b.segments(r)
	if i >= len(s) {
		return Range{}, false
	}
	return s[i], true
}

// mod is the remainder that is never negative.
func mod(a, n int) int { return ((a % n) + n) % n }
