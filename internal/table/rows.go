package table

import (
	"math"

	"github.com/elasticps/elasticps/shard"
)

// Sizes of chunks. Rows are never copied to make room for others, but for the first few of
// a block: many blocks may have few.
const (
	chunkBytes = 8 << 10
	firstRows  = 8
)

// layout is how the rows of a table lie in memory: the id, in the bits of two elements,
// the state in two more, the place of the sum in one, and the values. What a push or pull
// needs of a row is in one place, since each place costs a miss of the cache.
type layout struct {
	stride   int  // elements of a row
	values   int  // where the values of a row begin
	perChunk int  // rows of a chunk
	shift    uint // a chunk has 1<<shift places, of which it uses the first perChunk
	hasState bool
	hasSums  bool
}

const stateAt, sumAt = 2, 4 // elements of a row

func newLayout(values int, hasState, hasSums bool) layout {
	l := layout{values: stateAt, hasState: hasState, hasSums: hasSums}
	if hasState {
		l.values += 2
	}
	if hasSums {
		l.values++
	}
	l.stride = l.values + values
	l.perChunk = max(chunkBytes/(4*l.stride), 1)
	for 1<<l.shift < l.perChunk {
		l.shift++
	}
	return l
}

// place says where a row is: in which chunk, and which row of it. Places order like rows.
type place uint32

// rows is a set of rows with their ids: a slab in chunks and an index. Rows are numbered
// from 0 without gaps.
type rows struct {
	*layout
	n      int
	chunks [][]float32 // only the first may be shorter than the layout says
	dir    []*segment
}

// row is one row of a slab.
type row []float32

func (r row) id() int64 {
	return int64(uint64(math.Float32bits(r[0])) | uint64(math.Float32bits(r[1]))<<32)
}

func (r row) setID(id int64) {
	r[0], r[1] = math.Float32frombits(uint32(id)), math.Float32frombits(uint32(uint64(id)>>32))
}

func (r row) state() state {
	return state(math.Float32bits(r[stateAt])) | state(math.Float32bits(r[stateAt+1]))<<32
}

func (r row) setState(s state) {
	r[stateAt], r[stateAt+1] = math.Float32frombits(uint32(s)), math.Float32frombits(uint32(s>>32))
}

// sum is the place of the row's sum in the block plus one, 0 if it has none.
func (r row) sum() uint32       { return math.Float32bits(r[sumAt]) }
func (r row) setSum(sum uint32) { r[sumAt] = math.Float32frombits(sum) }

// state is the touch, dirty and step count of a row, as in [Columns].
type state uint64

const dirtyBit state = 1 << 31

func (s state) dirty() bool     { return s&dirtyBit != 0 }
func (s state) touched() uint32 { return uint32(s >> 32) }
func (s state) steps() uint64   { return uint64(s &^ dirtyBit & (1<<32 - 1)) }

// touch is the state after a push. Time does not go back.
func (s state) touch(now uint32) state {
	return s&(1<<32-1) | state(max(s.touched(), now))<<32
}

// idle is how long a row has not been touched.
func (s state) idle(now uint32) uint32 { return now - min(s.touched(), now) }

// place of row number n.
func (r *rows) place(n int) place {
	return place(n/r.perChunk<<r.shift | n%r.perChunk)
}

// next is the place behind p.
func (r *rows) next(p place) place {
	if p++; int(p&(1<<r.shift-1)) == r.perChunk {
		p = (p>>r.shift + 1) << r.shift
	}
	return p
}

// row returns the row at a place.
func (r *rows) row(p place) row {
	i := int(p&(1<<r.shift-1)) * r.stride
	return r.chunks[p>>r.shift][i : i+r.stride : i+r.stride]
}

// state returns the state of a row, 0 if rows have none.
func (r *rows) state(of row) state {
	if !r.hasState {
		return 0
	}
	return of.state()
}

// add makes a row for an id that has none. Its values are whatever was there before.
func (r *rows) add(id int64, hash uint64) place {
	p := r.place(r.n)
	if int(p>>r.shift) == len(r.chunks) {
		room := r.perChunk
		if r.n == 0 {
			room = min(room, firstRows)
		}
		r.chunks = append(r.chunks, make([]float32, room*r.stride))
	} else if r.n*r.stride == len(r.chunks[0]) && r.n < r.perChunk {
		r.resizeFirst(min(2*r.n, r.perChunk))
	}
	r.n++
	added := r.row(p)
	clear(added[:r.values])
	added.setID(id)
	r.insert(hash, p)
	return p
}

// resizeFirst gives the first chunk room for n rows.
func (r *rows) resizeFirst(n int) {
	chunk := make([]float32, n*r.stride)
	copy(chunk, r.chunks[0])
	r.chunks[0] = chunk
}

// remove takes a row out; the last one gets its place.
func (r *rows) remove(p place) {
	gone := r.row(p)
	r.erase(shard.Hash(gone.id()), p)
	r.n--
	last := r.place(r.n)
	if p == last {
		return
	}
	moved := r.row(last)
	hash := shard.Hash(moved.id())
	s := r.segment(hash)
	s.slots[s.slot(hash, last)] = newEntry(hash, p)
	copy(gone, moved)
}

// trim gives memory back: chunks that are not needed, but for spare ones, and, if there are
// none, an index that is mostly empty.
func (r *rows) trim(spare int) {
	needed := (r.n + r.perChunk - 1) / r.perChunk
	if keep := needed + spare; keep < len(r.chunks) {
		clear(r.chunks[keep:])
		r.chunks = r.chunks[:keep]
	}
	if spare > 0 {
		return
	}
	if cap(r.chunks) > 2*len(r.chunks) {
		r.chunks = append(make([][]float32, 0, len(r.chunks)), r.chunks...)
	}
	if needed == 1 {
		room := firstRows
		for room < r.n {
			room *= 2
		}
		if room*r.stride < len(r.chunks[0]) {
			r.resizeFirst(room)
		}
	}
	if r.numSlots() > max(minSlots, 4*r.n) {
		r.rebuild()
	}
}

// bytes is the memory that the rows and their index take.
func (r *rows) bytes() int64 {
	const sliceHeader, segmentHeader = 24, 48
	n := int64(cap(r.chunks))*sliceHeader + 4*int64(r.numSlots()) + int64(len(r.dir))*segmentHeader
	if len(r.chunks) > 0 {
		n += 4 * int64(len(r.chunks[0])+(len(r.chunks)-1)*r.perChunk*r.stride)
	}
	return n
}
