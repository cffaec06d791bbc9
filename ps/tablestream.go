package ps

import (
	"encoding/binary"
	"fmt"

	"github.com/elasticps/elasticps/internal/table"
	"github.com/elasticps/elasticps/internal/wire"
)

// A block of a table travels to a follower as metadata, frames of rows, and frames of what
// the table knows of ids that are not admitted yet. It is of one instant, however many
// frames it takes.

const (
	rowsSection    = 0
	waitingSection = 1

	tableMetaBytes = blockMetaBytes + 16 // and rows, bytes of what is known of waiting ids
	// maxWaitingBytes bounds what a follower takes of one block.
	maxWaitingBytes = 1 << 30
)

// rowBytes is what a row takes in a frame: its id, its state, and all its values.
func rowBytes(dim int, rule table.Rule, sums bool) int {
	n := 16 + 4*dim
	for _, s := range rule.Slots {
		n += 4 * s.Elems
	}
	if sums {
		n += 4 * dim
	}
	return n
}

func (r *replica) rowBytes() int { return rowBytes(r.layer.RowElems(), r.tableConfig.Rule, r.bsp) }

// columns returns room for n rows, which the next call uses again.
func (r *replica) columns(n int) *table.Columns {
	r.table.Resize(&r.scratch, n)
	return &r.scratch
}

// queueRows queues one block of a table. The caller holds r.mu and has waited for room.
func (f *followerStream) queueRows(b int) {
	r := f.r
	rows, waiting := r.table.Len(b), r.table.AppendWaiting(b, nil)
	meta := f.p.free.get()
	raw := meta.bytes(tableMetaBytes)
	r.blocks[b].encode(raw)
	binary.LittleEndian.PutUint64(raw[blockMetaBytes:], uint64(rows))
	binary.LittleEndian.PutUint64(raw[blockMetaBytes+8:], uint64(len(waiting)))
	head := wire.Header{Kind: wire.BlockMeta, Offset: uint64(b) * BlockElems, Length: tableMetaBytes, PayloadSum: wire.Sum(raw)}
	f.enqueue(ofBlock, head, meta)
	head.Kind = wire.Block
	perFrame := wire.MaxPayload / r.rowBytes()
	for from := 0; from < rows; from += perFrame {
		c := r.columns(min(perFrame, rows-from))
		r.table.Read(b, from, c)
		buffer := f.p.free.get()
		raw := appendColumns(buffer.bytes(wire.MaxPayload)[:0], c)
		head.Code, head.Count, head.Length, head.PayloadSum = rowsSection, uint32(len(c.IDs)), uint32(len(raw)), wire.Sum(raw)
		f.enqueue(ofBlock, head, buffer)
	}
	for len(waiting) > 0 {
		n := min(len(waiting), wire.MaxPayload)
		buffer := f.p.free.get()
		head.Code, head.Count, head.Length = waitingSection, 0, uint32(n)
		head.PayloadSum = wire.Copy(buffer.bytes(n), waiting[:n])
		f.enqueue(ofBlock, head, buffer)
		waiting = waiting[n:]
	}
	f.sent = b + 1
}

// enqueueRows queues a change of rows: those of blocks that the follower has, or is about
// to get.
func (f *followerStream) enqueueRows(h wire.Header, ids []int64, values []float32) {
	r := f.r
	b := f.p.free.get()
	if f.sent < len(r.blocks) {
		room := f.p.free.get()
		defer f.p.free.put(room)
		ids, values = r.sentRows(f.sent, ids, values, room)
	}
	h.Count, h.Length = uint32(len(values)), uint32(8*len(ids)+4*len(values))
	h.PayloadSum = wire.Copy(b.bytes(int(h.Length)), wire.Bytes(ids), wire.Bytes(values))
	f.enqueue(ofUpdate, h, b)
}

// sentRows returns those of the rows that are in the first blocks; their values are in room.
func (r *replica) sentRows(blocks int, ids []int64, values []float32, room *buffer) ([]int64, []float32) {
	dim, n := len(values)/max(len(ids), 1), 0 // a deletion has no values
	var kept []int64
	for i, id := range ids {
		if r.table.BlockOf(id) < blocks {
			kept = append(kept, id)
			n += copy(room.values[n:], values[i*dim:(i+1)*dim])
		}
	}
	return kept, room.values[:n]
}

// receiveTableMeta begins a block of a table.
func (r *replica) receiveTableMeta(h *wire.Header, payload []byte) error {
	p := &r.progress
	if p.rows+p.waitingBytes != 0 || p.stated || p.blocks >= len(r.blocks) || h.Offset != uint64(p.blocks)*BlockElems || h.Length != tableMetaBytes {
		return fmt.Errorf("%w: block at %d, expected block %d of %d", errStream, h.Offset, p.blocks, len(r.blocks))
	}
	rows, waiting := binary.LittleEndian.Uint64(payload[blockMetaBytes:]), binary.LittleEndian.Uint64(payload[blockMetaBytes+8:])
	if rows > maxWaitingBytes || waiting > maxWaitingBytes {
		return fmt.Errorf("%w: block %d of %d rows and %d bytes of waiting ids, at most %d", errStream, p.blocks, rows, waiting, maxWaitingBytes)
	}
	r.blocks[p.blocks] = decodeBlock(payload)
	r.table.Clear(p.blocks)
	p.rows, p.waitingBytes, p.waiting = int(rows), int(waiting), p.waiting[:0]
	return r.endTableBlock()
}

// receiveTableSection takes rows, or what is known of waiting ids.
func (r *replica) receiveTableSection(h *wire.Header, payload []byte) error {
	p := &r.progress
	if h.Offset != uint64(p.blocks)*BlockElems || p.rows+p.waitingBytes == 0 {
		return fmt.Errorf("%w: section of the block at %d, expected block %d", errStream, h.Offset, p.blocks)
	}
	if h.Code == waitingSection {
		if p.rows > 0 || len(p.waiting)+len(payload) > p.waitingBytes || len(payload) == 0 {
			return fmt.Errorf("%w: %d bytes of waiting ids after %d of %d, with %d rows to come", errStream, len(payload), len(p.waiting), p.waitingBytes, p.rows)
		}
		p.waiting = append(p.waiting, payload...)
		return r.endTableBlock()
	}
	n := int(h.Count)
	if h.Code != rowsSection || n == 0 || n > p.rows || len(payload) != n*r.rowBytes() {
		return fmt.Errorf("%w: %d rows in %d bytes, %d rows of %d bytes to come", errStream, n, len(payload), p.rows, r.rowBytes())
	}
	c := r.columns(n)
	decodeColumns(c, payload)
	if err := r.table.Append(p.blocks, c); err != nil {
		return fmt.Errorf("%w: %w", errStream, err)
	}
	p.rows -= n
	return r.endTableBlock()
}

// endTableBlock goes on to the next block when this one is complete.
func (r *replica) endTableBlock() error {
	p := &r.progress
	if p.rows > 0 || len(p.waiting) < p.waitingBytes {
		return nil
	}
	if err := r.table.SetWaiting(p.blocks, p.waiting); err != nil {
		return fmt.Errorf("%w: %w", errStream, err)
	}
	p.waitingBytes, p.waiting = 0, nil
	p.blocks++
	return nil
}

// appendColumns appends what travels of some rows, column after column.
func appendColumns(dst []byte, c *table.Columns) []byte {
	dst = append(dst, wire.Bytes(c.IDs)...)
	for _, s := range c.State {
		dst = binary.LittleEndian.AppendUint64(dst, s)
	}
	dst = append(dst, wire.Bytes(c.Weights)...)
	for _, s := range c.Slots {
		dst = append(dst, wire.Bytes(s)...)
	}
	return append(dst, wire.Bytes(c.Sums)...)
}

// decodeColumns fills columns with what has travelled, which is as long.
func decodeColumns(c *table.Columns, src []byte) {
	take := func(dst []byte) { src = src[copy(dst, src):] }
	take(wire.Bytes(c.IDs))
	for i := range c.State {
		c.State[i] = binary.LittleEndian.Uint64(src)
		src = src[8:]
	}
	take(wire.Bytes(c.Weights))
	for _, s := range c.Slots {
		take(wire.Bytes(s))
	}
	take(wire.Bytes(c.Sums))
}
