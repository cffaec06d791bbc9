package collective

import (
	"fmt"

	"github.com/elasticps/elasticps/collective/schedule"
)

const (
	// flatBytes is up to what size each rank combines everything itself: the ranks wait
	// for each other once.
	flatBytes = 16 << 10
	// foldBytes are combined at a time, and stay in the nearest cache.
	foldBytes = 16 << 10
	// maxAhead is how many steps ranks can be apart: further ahead is none of them.
	maxAhead = 2
)

// together is a call that all ranks of a host carry out in the memory that they share. Each
// step of it begins when all have made the one before; what one has written in a step, the
// others read in later ones, and never in the same.
type together struct {
	*hostMemory
	group *Group
	op    *operation
	want  header
	calls uint64 // made so far
	raw   [headerBytes]byte

	inputs, outputs [][]byte // of a fold
	block           []byte
	sums            []float32
}

// begin tells the others what this rank calls. They hear of it with the next step.
func (t *together) begin(o *operation) {
	t.op = o
	t.want = header{kind: frameData, epoch: t.group.roster.Epoch, seq: o.seq, call: o.call}
	t.calls++
	t.want.encode((*[headerBytes]byte)(t.own.call(t.calls)))
}

// stepDone tells the others that this rank has made a step.
func (t *together) stepDone() {
	t.turn++
	t.own.step().Store(t.turn)
	for _, m := range t.mates {
		if m != nil {
			m.ring()
		}
	}
}

// all waits until all others have made a step. check compares their calls with this one,
// which they have told by then.
func (t *together) all(step uint64, check bool) error {
	for _, m := range t.mates {
		if m == nil {
			continue
		}
		t.op.waiting.Store(int32(m.rank))
		err := t.await(m, func() (bool, error) { return m.made(step) })
		if err == nil && check {
			err = t.same(m)
		}
		if err != nil {
			return with(m.rank, err)
		}
	}
	return nil
}

// made reports whether a mate has made a step.
func (m *mate) made(step uint64) (bool, error) {
	at := m.theirs.step().Load()
	if own := m.host.turn; at > own+maxAhead {
		return false, fmt.Errorf("%w: it is at step %d in shared memory, this rank at %d", ErrRefused, at, own)
	}
	return at >= step, nil
}

// same compares a mate's call with that of this rank.
func (t *together) same(m *mate) error {
	copy(t.raw[:], m.theirs.call(t.calls)) // what is in shared memory may change
	var h header
	if err := h.decode(t.raw[:]); err != nil {
		return err
	}
	if h != t.want {
		return t.group.mismatch(m.rank, &t.want, &h)
	}
	return nil
}

// allReduce combines through the slots of all ranks.
func (t *together) allReduce(o *operation, dst, src []byte) error {
	t.begin(o)
	if len(src) <= flatBytes {
		return t.flat(dst, src)
	}
	// A chunk is in three steps at once: while the ranks copy one into their slots, they
	// combine their parts of the one before, and take the results of the one before that.
	base := t.turn
	chunks := uint64(len(src)+slotBytes-1) / slotBytes
	cut := func(b []byte, i uint64) []byte {
		at := int(i-1) * slotBytes
		return part(b, at, min(slotBytes, len(b)-at))
	}
	for i := uint64(1); i <= chunks+2; i++ {
		if i <= chunks {
			t.offer(base+i, cut(src, i))
		}
		if err := t.all(base+i-1, i == 2); err != nil {
			return err
		}
		if 1 < i && i <= chunks+1 {
			t.combineOwn(base+i-1, cut(dst, i-1), cut(src, i-1))
		}
		if 2 < i {
			t.collect(base+i-2, cut(dst, i-2))
		}
		t.stepDone()
	}
	return nil
}

// inPlace combines this rank's part of buffers that all ranks map, and writes the result to
// all of them.
func (t *together) inPlace(o *operation) error {
	t.begin(o)
	n, size := t.turn+1, len(o.src.bytes)
	t.stepDone()
	if err := t.all(n, true); err != nil {
		return err
	}
	mine := ranges(size, len(t.mates), t.place)
	t.inputs = t.inputs[:0]
	for _, view := range o.inAll.views {
		t.inputs = append(t.inputs, view[o.src.at:][mine.Begin:mine.End])
	}
	t.outputs = append(t.outputs[:0], t.inputs...)
	t.fold(mine.Len())
	o.bytes.Add(int64((len(t.mates) - 1) * mine.Len()))
	t.stepDone()
	return t.all(n+1, false)
}

// flat combines everything on each rank.
func (t *together) flat(dst, src []byte) error {
	n := t.turn + 1
	copy(t.own.slot(n), src)
	t.stepDone()
	if err := t.all(n, true); err != nil {
		return err
	}
	t.outputs = append(t.outputs[:0], dst)
	t.gather(n, schedule.Range{End: len(dst)})
	t.fold(len(dst))
	t.op.bytes.Add(int64((len(t.mates) - 1) * len(dst)))
	return nil
}

// gather makes a range of the slots of all ranks the inputs of a fold.
func (t *together) gather(n uint64, r schedule.Range) {
	t.inputs = t.inputs[:0]
	for place := range t.mates {
		t.inputs = append(t.inputs, t.arenaOf(place).slot(n)[r.Begin:r.End])
	}
}

func (h *hostMemory) arenaOf(place int) *arena {
	if m := h.mates[place]; m != nil {
		return m.theirs
	}
	return h.own
}

// offer copies a chunk for the others.
func (t *together) offer(n uint64, src []byte) {
	mine, slot := ranges(len(src), len(t.mates), t.place), t.own.slot(n)
	copy(slot, src[:mine.Begin])
	copy(slot[mine.End:], src[mine.End:])
}

// combineOwn combines this rank's part of a chunk. The result stays where the others take
// it from: nobody else reads that part of this rank's input.
func (t *together) combineOwn(n uint64, dst, src []byte) {
	mine, slot := ranges(len(src), len(t.mates), t.place), t.own.slot(n)
	t.gather(n, mine)
	t.inputs[t.place] = src[mine.Begin:mine.End]
	t.outputs = append(t.outputs[:0], slot[mine.Begin:mine.End], dst[mine.Begin:mine.End])
	t.fold(mine.Len())
	t.op.bytes.Add(int64((len(t.mates) - 1) * mine.Len()))
}

// collect takes the others' parts of a chunk.
func (t *together) collect(n uint64, dst []byte) {
	for place, m := range t.mates {
		if m == nil {
			continue
		}
		r := ranges(len(dst), len(t.mates), place)
		copy(dst[r.Begin:r.End], m.theirs.slot(n)[r.Begin:r.End])
		t.op.bytes.Add(int64(r.Len()))
	}
}

// fold combines the inputs, of n bytes each, in their order and copies the result to all
// outputs. An output may be an input: where the first ones are the same, that is where the sum
// is made.
func (t *together) fold(n int) {
	shared, offset := overlap(t.outputs[0], t.inputs[0])
	inPlace, outputs := shared && offset == 0, t.outputs
	if inPlace {
		outputs = outputs[1:]
	}
	for at := 0; at < n; at += foldBytes {
		k := min(foldBytes, n-at)
		sum := t.block[:k]
		if inPlace {
			sum = part(t.outputs[0], at, k)
		}
		if t.op.call.Type.half() {
			t.foldHalf(sum, at)
		} else {
			t.foldWhole(sum, at)
		}
		for _, out := range outputs {
			copy(out[at:at+k], sum)
		}
	}
}

func (t *together) foldWhole(sum []byte, at int) {
	call := &t.op.call
	copy(sum, t.inputs[0][at:]) // at once, where it is the same
	for _, in := range t.inputs[1:] {
		combine(call.Type, call.Op, sum, in[at:at+len(sum)])
	}
	if call.Op == Average {
		divide(call.Type, sum, len(t.inputs))
	}
}

// foldHalf sums in float32 and rounds at the end.
func (t *together) foldHalf(sum []byte, at int) {
	call, n := &t.op.call, len(sum)/2
	sums, x := t.sums[:n], t.sums[n:2*n]
	widen(call.Type, sums, t.inputs[0][at:at+len(sum)])
	for _, in := range t.inputs[1:] {
		widen(call.Type, x, in[at:at+len(sum)])
		combineFloat32(call.Op, sums, x)
	}
	if call.Op == Average {
		divideSlice(sums, float32(len(t.inputs)))
	}
	narrow(call.Type, sum, sums)
}
