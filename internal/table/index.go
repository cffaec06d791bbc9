package table

import "github.com/elasticps/elasticps/shard"

// The index of a block finds the row of an id: open addressing with linear probing in
// segments of bounded size, and a directory of segments that doubles when a full one is cut
// in two (Fagin, Nievergelt, Pippenger and Strong, "Extendible hashing", ACM Transactions on
// Database Systems 4, 1979). So no insertion moves more than one segment, however many rows
// the block has.
//
// The hash of an id serves several purposes, with bits of their own: the lowest choose the
// slot, those above the segment, eight more are kept in the slot as a tag, so that the id of
// a row is seldom looked at in vain, and the highest have chosen the bucket and with it the
// block.
const (
	segmentBits = 13 // a segment has at most 8192 slots
	maxDepth    = 12 // of the directory: beyond, segments grow instead
	placeBits   = 24 // of a slot; the others are the tag
	tagShift    = 32 // of the hash
	minSlots    = 8
)

// entry is what a slot holds: the tag and the place plus one, zero when it is empty. The
// place of an empty one is nowhere.
type entry uint32

func newEntry(hash uint64, p place) entry {
	return entry(hash>>tagShift<<placeBits) | entry(p+1)
}

func (e entry) place() place { return place(e&(1<<placeBits-1)) - 1 }

// mayBe reports whether the tag is that of a hash.
func (e entry) mayBe(hash uint64) bool { return uint8(e>>placeBits) == uint8(hash>>tagShift) }

// segment is one part of the index. Its number of slots is a power of two.
type segment struct {
	slots []entry
	used  int
	depth uint8 // bits of the hash, above the lowest segmentBits, that its ids have in common
}

// full reports whether another entry would make it more than three quarters full.
func (s *segment) full() bool { return (s.used+1)*4 > len(s.slots)*3 }

func (s *segment) add(hash uint64, e entry) {
	mask := uint64(len(s.slots) - 1)
	at := hash & mask
	for s.slots[at] != 0 {
		at = (at + 1) & mask
	}
	s.slots[at] = e
	s.used++
}

// slot returns the slot that holds a place, which must be there.
func (s *segment) slot(hash uint64, p place) uint64 {
	mask := uint64(len(s.slots) - 1)
	at := hash & mask
	for s.slots[at].place() != p {
		at = (at + 1) & mask
	}
	return at
}

// emptyIndex is the directory of a block without rows.
func emptyIndex() []*segment { return []*segment{{slots: make([]entry, 1)}} }

func (r *rows) segment(hash uint64) *segment {
	return r.dir[hash>>segmentBits&uint64(len(r.dir)-1)]
}

// home is the slot at which the search for a hash begins.
func (s *segment) home(hash uint64) []entry {
	at := hash & uint64(len(s.slots)-1)
	return s.slots[at : at+1]
}

// first returns the place of the first row whose tag is that of a hash, or nowhere.
func (s *segment) first(hash uint64) place {
	mask := uint64(len(s.slots) - 1)
	for at := hash & mask; ; at = (at + 1) & mask {
		if e := s.slots[at]; e == 0 || e.mayBe(hash) {
			return e.place()
		}
	}
}

// find returns the place of the row of an id, if there is one.
func (r *rows) find(id int64, hash uint64) (place, bool) {
	s := r.segment(hash)
	mask := uint64(len(s.slots) - 1)
	for at := hash & mask; ; at = (at + 1) & mask {
		e := s.slots[at]
		if e == 0 {
			return 0, false
		}
		if e.mayBe(hash) && r.row(e.place()).id() == id {
			return e.place(), true
		}
	}
}

// insert enters a row whose id is not there yet.
func (r *rows) insert(hash uint64, p place) {
	s := r.segment(hash)
	for s.full() {
		if len(s.slots) >= 1<<segmentBits && s.depth < maxDepth {
			r.split(hash, s)
		} else {
			r.grow(s)
		}
		s = r.segment(hash)
	}
	s.add(hash, newEntry(hash, p))
}

// grow gives a segment twice the slots. An empty block gets a segment of its own: until
// then all share one.
func (r *rows) grow(s *segment) {
	bigger := &segment{slots: make([]entry, max(2*len(s.slots), minSlots)), depth: s.depth}
	for _, e := range s.slots {
		if e != 0 {
			bigger.add(r.hash(e.place()), e)
		}
	}
	if len(s.slots) == 1 {
		r.dir = []*segment{bigger}
		return
	}
	s.slots = bigger.slots
}

// split puts the ids of a segment into two, by one more bit of their hashes.
func (r *rows) split(hash uint64, s *segment) {
	bit := uint64(1) << s.depth
	if int(bit) == len(r.dir) {
		r.dir = append(r.dir, r.dir...)
	}
	var halves [2]*segment
	for i := range halves {
		halves[i] = &segment{slots: make([]entry, len(s.slots)), depth: s.depth + 1}
	}
	for _, e := range s.slots {
		if e != 0 {
			h := r.hash(e.place())
			halves[h>>segmentBits>>s.depth&1].add(h, e)
		}
	}
	for i := hash >> segmentBits & (bit - 1); i < uint64(len(r.dir)); i += bit {
		r.dir[i] = halves[i>>s.depth&1]
	}
}

// erase takes a row out and closes the gap, so that no probe ends too early.
func (r *rows) erase(hash uint64, p place) {
	s := r.segment(hash)
	mask := uint64(len(s.slots) - 1)
	gap := s.slot(hash, p)
	for at := (gap + 1) & mask; s.slots[at] != 0; at = (at + 1) & mask {
		home := r.hash(s.slots[at].place()) & mask
		if (at-home)&mask >= (at-gap)&mask {
			s.slots[gap] = s.slots[at]
			gap = at
		}
	}
	s.slots[gap] = 0
	s.used--
}

// rebuild makes the index anew, as small as it can be.
func (r *rows) rebuild() {
	r.dir = emptyIndex()
	p := place(0)
	for range r.n {
		r.insert(r.hash(p), p)
		p = r.next(p)
	}
}

// numSlots is the number of slots of all segments.
func (r *rows) numSlots() int {
	n := 0
	for i, s := range r.dir {
		if i>>s.depth == 0 { // the others repeat it
			n += len(s.slots)
		}
	}
	return n
}

func (r *rows) hash(p place) uint64 { return shard.Hash(r.row(p).id()) }
