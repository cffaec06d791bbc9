package schedule

import "math/bits"

// core runs an algorithm for powers of two on the first ranks, as many as the largest power
// allows. The others give what they have to one of those first, and get the result at the
// end.
func (b *builder) core(run func(size int)) {
	size := 1 << (bits.Len(uint(b.Ranks)) - 1)
	if b.rank >= size {
		b.send(b.rank-size, b.whole())
		b.recv(b.rank-size, b.whole(), Copy)
		return
	}
	partner := b.rank + size
	if partner < b.Ranks {
		b.recv(partner, b.whole(), Combine)
		b.last(false)
	}
	run(size)
	if partner < b.Ranks {
		b.send(partner, b.whole())
	}
}

func (b *builder) recursiveDoubling(size int) {
	for distance := 1; distance < size; distance *= 2 {
		peer := b.rank ^ distance
		b.exchange(peer, b.whole(), peer, b.whole(), Combine)
		b.last(2*distance == size)
	}
}

func (b *builder) halvingDoubling(size int) {
	mine := b.whole()
	var outer []Range // what was halved, from the widest on
	for distance := size / 2; distance > 0; distance /= 2 {
		peer := b.rank ^ distance
		halves := mine.split(2)
		outer = append(outer, mine)
		keep := b.rank / distance % 2
		b.exchange(peer, halves[1-keep], peer, halves[keep], Combine)
		b.last(distance == 1)
		mine = halves[keep]
	}
	for distance := 1; distance < size; distance *= 2 {
		peer := b.rank ^ distance
		wide := outer[len(outer)-1]
		outer = outer[:len(outer)-1]
		theirs := Range{wide.Begin, mine.Begin}
		if b.rank/distance%2 == 0 {
			theirs = Range{mine.End, wide.End}
		}
		b.exchange(peer, mine, peer, theirs, Copy)
		mine = wide
	}
}
