package table

// Sizes of chunks. Rows are never copied to make room for others, but for the first few of
// a block: many blocks may have few.
const (
	chunkBytes   = 8 << 10
	maxChunkRows = 1 << 10
	firstRows    = 8
)

// layout is how the rows of a table lie in memory.
type layout struct {
	stride   int  // values of a row: weights, then slots
	shift    uint // a chunk has 1<<shift rows
	hasState bool
	hasSums  bool
}

func newLayout(stride int, hasState, hasSums bool) layout {
	l := layout{stride: stride, hasState: hasState, hasSums: hasSums}
	for rowBytes := 4 * max(stride, 1); 1<<l.shift < maxChunkRows && rowBytes<<(l.shift+1) <= chunkBytes; {
		l.shift++
	}
	return l
}

// rows is a set of rows with their ids: a slab in chunks and an index. Rows are numbered
// from 0 without gaps.
type rows struct {
	*layout
	n      int
	chunks []chunk
	dir    []*segment
}

// chunk holds some rows, each part of them in an array of its own. Only the first chunk of
// a block may have less room than the layout says.
type chunk struct {
	ids    []int64
	values []float32
	state  []state
	sums   []uint32 // place of the row's sum in the block plus one, 0 without
}

// state is the touch, dirty and step count of a row, as in [Columns].
type state uint64

const dirtyBit state = 1 << 31

func (s state) touched() uint32 { return uint32(s >> 32) }
func (s state) steps() uint64   { return uint64(s &^ dirtyBit & (1<<32 - 1)) }

// touch is the state after a push. Time does not go back.
func (s state) touch(now uint32) state {
	return s&(1<<32-1) | state(max(s.touched(), now))<<32
}

// idle is how long a row has not been touched.
func (s state) idle(now uint32) uint32 { return now - min(s.touched(), now) }

// at returns the chunk of a row and the row's place in it.
func (r *rows) at(row int) (*chunk, int) {
	return &r.chunks[row>>r.shift], row & (1<<r.shift - 1)
}

func (r *rows) id(row int) int64 {
	c, i := r.at(row)
	return c.ids[i]
}

// values returns weights and slots of a row.
func (r *rows) values(row int) []float32 {
	c, i := r.at(row)
	return c.values[i*r.stride : (i+1)*r.stride : (i+1)*r.stride]
}

// stateOf returns the state of a row, 0 if rows have none.
func (r *rows) stateOf(row int) state {
	if !r.hasState {
		return 0
	}
	c, i := r.at(row)
	return c.state[i]
}

func (r *rows) setState(row int, s state) {
	if r.hasState {
		c, i := r.at(row)
		c.state[i] = s
	}
}

// add makes a row for an id that has none. Its values are whatever was there before.
func (r *rows) add(id int64, hash uint64) int {
	row := r.n
	if row>>r.shift == len(r.chunks) {
		n := 1 << r.shift
		if row == 0 {
			n = min(n, firstRows)
		}
		r.chunks = append(r.chunks, r.newChunk(n))
	} else if row == len(r.chunks[0].ids) && row < 1<<r.shift {
		r.chunks[0] = r.resized(2 * row)
	}
	r.n++
	c, i := r.at(row)
	c.ids[i] = id
	if r.hasSums {
		c.sums[i] = 0
	}
	r.setState(row, 0)
	r.insert(hash, row)
	return row
}

func (r *rows) newChunk(n int) chunk {
	c := chunk{ids: make([]int64, n), values: make([]float32, n*r.stride)}
	if r.hasState {
		c.state = make([]state, n)
	}
	if r.hasSums {
		c.sums = make([]uint32, n)
	}
	return c
}

// resized is the first chunk with room for n rows.
func (r *rows) resized(n int) chunk {
	from, to := &r.chunks[0], r.newChunk(n)
	copy(to.ids, from.ids)
	copy(to.values, from.values)
	copy(to.state, from.state)
	copy(to.sums, from.sums)
	return to
}

// remove takes a row out; the last one gets its number.
func (r *rows) remove(row int) {
	r.erase(r.hash(row), row)
	last := r.n - 1
	if row != last {
		hash := r.hash(last)
		s := r.segment(hash)
		s.slots[s.slot(hash, last)] = newEntry(hash, row)
		to, i := r.at(row)
		from, j := r.at(last)
		to.ids[i] = from.ids[j]
		copy(r.values(row), r.values(last))
		r.setState(row, r.stateOf(last))
		if r.hasSums {
			to.sums[i] = from.sums[j]
		}
	}
	r.n--
}

// trim gives memory back: chunks that are not needed, but for spare ones, and an index that
// is mostly empty.
func (r *rows) trim(spare int) {
	needed := (r.n + 1<<r.shift - 1) >> r.shift
	if keep := needed + spare; keep < len(r.chunks) {
		clear(r.chunks[keep:])
		r.chunks = r.chunks[:keep]
	}
	if spare > 0 {
		return
	}
	if cap(r.chunks) > 2*len(r.chunks) {
		r.chunks = append(make([]chunk, 0, len(r.chunks)), r.chunks...)
	}
	if needed == 1 {
		room := firstRows
		for room < r.n {
			room *= 2
		}
		if room < len(r.chunks[0].ids) {
			r.chunks[0] = r.resized(room)
		}
	}
	if r.slots() > max(minSlots, 4*r.n) {
		r.rebuild()
	}
}

// bytes is the memory that the rows and their index take.
func (r *rows) bytes() int64 {
	const chunkHeader, segmentHeader = 4 * 24, 40
	perRow := int64(8 + 4*r.stride)
	if r.hasState {
		perRow += 8
	}
	if r.hasSums {
		perRow += 4
	}
	room := int64(0)
	if len(r.chunks) > 0 {
		room = int64(len(r.chunks[0].ids)) + int64(len(r.chunks)-1)<<r.shift
	}
	return room*perRow + int64(cap(r.chunks))*chunkHeader + 4*int64(r.slots()) + int64(len(r.dir))*(segmentHeader+8)
}
