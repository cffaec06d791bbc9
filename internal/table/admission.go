package table

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/elasticps/elasticps/shard"
)

// waitingBytes is the size of an exact counter in the encoding of [Table.AppendWaiting].
const waitingBytes = 16

// countTouch counts a push for an id without row and reports whether it gets one.
func (t *Table) countTouch(b *block, id int64, hash uint64, now uint32) bool {
	if t.filter > 0 {
		if b.filter.counts == nil {
			b.filter = filter{counts: make([]byte, t.filter), since: now}
		}
		return b.filter.touch(hash, t.touches)
	}
	if b.waiting == nil {
		b.waiting = &rows{layout: &t.counters, dir: emptyIndex()}
	}
	p, ok := b.waiting.find(id, hash)
	if !ok {
		if b.waiting.n >= MaxBlockRows {
			return false
		}
		p = b.waiting.add(id, hash)
	}
	// The counter stays until the row is made, for ids that are there twice.
	counter := b.waiting.row(p)
	s := counter.state().touch(now)
	if s.steps() < uint64(t.touches) {
		s++
	}
	counter.setState(s)
	return s.steps() >= uint64(t.touches)
}

// admits reports whether a push would give a row to an id that has none.
func (t *Table) admits(b *block, id int64, hash uint64) bool {
	count := uint32(0)
	switch {
	case t.touches <= 1:
	case t.filter > 0:
		count = b.filter.estimate(hash)
	case b.waiting != nil:
		if p, ok := b.waiting.find(id, hash); ok {
			count = uint32(b.waiting.row(p).state().steps())
		}
	}
	return count+1 >= t.touches
}

// forget removes the counter of an id, if it has one.
func (r *rows) forget(id int64, hash uint64) {
	if p, ok := r.find(id, hash); ok {
		r.remove(p)
		r.trim(1)
	}
}

// expireWaiting ages the counters of a block.
func (t *Table) expireWaiting(b *block, now uint32) {
	if b.filter.counts != nil && now-min(b.filter.since, now) >= t.expire {
		b.filter.halve()
		b.filter.since = now
	}
	if b.waiting == nil {
		return
	}
	for p := place(0); p < b.waiting.place(b.waiting.n); {
		if b.waiting.row(p).state().idle(now) >= t.expire {
			b.waiting.remove(p)
		} else {
			p = b.waiting.next(p)
		}
	}
	if b.waiting.n == 0 {
		b.waiting = nil
		return
	}
	b.waiting.trim(0)
}

// waitingExpires reports whether expireWaiting would change anything.
func (t *Table) waitingExpires(b *block, now uint32) bool {
	if b.filter.counts != nil && now-min(b.filter.since, now) >= t.expire {
		return true
	}
	w := b.waiting
	for p := place(0); w != nil && p < w.place(w.n); p = w.next(p) {
		if w.row(p).state().idle(now) >= t.expire {
			return true
		}
	}
	return false
}

// AppendWaiting appends the admission counters of a block to dst: nothing if there are
// none. Exact counters are records of 16 bytes, little endian: the id, its touches (4 bytes),
// its last touch (4); so those of a block can be sorted into other blocks. A filter is
// the time since when it counts (4 bytes) and its counters, which fit a block of the same
// range and table only. Equal states give equal bytes.
func (t *Table) AppendWaiting(block int, dst []byte) []byte {
	b := &t.blocks[block]
	if b.filter.counts != nil {
		dst = binary.LittleEndian.AppendUint32(dst, b.filter.since)
		return append(dst, b.filter.counts...)
	}
	if b.waiting == nil {
		return dst
	}
	dst = slices.Grow(dst, t.WaitingBytes(block))
	for i := range b.waiting.n {
		counter := b.waiting.row(b.waiting.place(i))
		s := counter.state()
		dst = binary.LittleEndian.AppendUint64(dst, uint64(counter.id()))
		dst = binary.LittleEndian.AppendUint32(dst, uint32(s.steps()))
		dst = binary.LittleEndian.AppendUint32(dst, s.touched())
	}
	return dst
}

// WaitingBytes returns how many bytes AppendWaiting appends.
func (t *Table) WaitingBytes(block int) int {
	b := &t.blocks[block]
	switch {
	case b.filter.counts != nil:
		return 4 + len(b.filter.counts)
	case b.waiting == nil:
		return 0
	}
	return waitingBytes * b.waiting.n
}

// SetWaiting puts what AppendWaiting gave in the place of a block's counters. It returns an
// error, and changes nothing, when src does not fit the admission of this table, or has an
// id of another block, one twice, one that has a row, or a count of zero. It keeps nothing
// of src.
func (t *Table) SetWaiting(block int, src []byte) error {
	b := &t.blocks[block]
	switch {
	case len(src) == 0:
		b.waiting, b.filter = nil, filter{}
		return nil
	case t.touches <= 1:
		return fmt.Errorf("table: block %d: %d bytes of counters for a table that admits at once", block, len(src))
	case t.filter > 0:
		if len(src) != 4+t.filter {
			return fmt.Errorf("table: block %d: filter of %d bytes, must be %d", block, len(src)-4, t.filter)
		}
		b.filter = filter{since: binary.LittleEndian.Uint32(src), counts: slices.Clone(src[4:])}
		return nil
	case len(src)%waitingBytes != 0:
		return fmt.Errorf("table: block %d: %d bytes of counters, must be a multiple of %d", block, len(src), waitingBytes)
	}
	waiting := &rows{layout: &t.counters, dir: emptyIndex()}
	for ; len(src) > 0; src = src[waitingBytes:] {
		id, count := int64(binary.LittleEndian.Uint64(src)), binary.LittleEndian.Uint32(src[8:])
		hash := shard.Hash(id)
		_, counted := waiting.find(id, hash)
		_, has := b.find(id, hash)
		switch {
		case t.BlockOf(id) != block:
			return fmt.Errorf("table: block %d: counter of id %d, which is of another block", block, id)
		case counted:
			return fmt.Errorf("table: block %d: two counters of id %d", block, id)
		case has:
			return fmt.Errorf("table: block %d: counter of id %d, which has a row", block, id)
		case count == 0 || count > MaxSteps:
			return fmt.Errorf("table: block %d: count %d of id %d, must be in [1, %d]", block, count, id, MaxSteps)
		case waiting.n >= MaxBlockRows:
			return fmt.Errorf("table: block %d: more than %d counters", block, MaxBlockRows)
		}
		p := waiting.add(id, hash)
		waiting.row(p).setState(state(count).touch(binary.LittleEndian.Uint32(src[12:])))
	}
	b.waiting = waiting
	return nil
}
