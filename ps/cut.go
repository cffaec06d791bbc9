package ps

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/elasticps/elasticps/internal/table"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// A cut is the state of one shard at one instant (I6), taken while pushes go on: the small
// state is copied at once, a block when it is written or just before it changes,
// whichever comes first. The cut keeps the arrays that it was taken of: it outlives a
// move of the shard to another server.

// cutBlockBytes is what a checkpoint keeps of a block besides its values: metadata and the
// last change of its weights; a shard has its number of changes before its blocks.
const cutBlockBytes = blockMetaBytes + 8

// cut is guarded by the replica's mu, but for state, which does not change.
type cut struct {
	r     *replica
	state checkpoint.Shard
	clock uint32 // BSP: updates of earlier clocks are in it, and no others

	weights []float32
	slots   [][]float32
	sum     []float32
	table   *table.Table  // of a sparse layer, instead of the arrays
	live    []block       // of the replica, as long as it has them
	saved   []*savedBlock // by block: copied already, until it is written
	pending []bool        // by block: neither copied nor written
	left    int           // how many are pending
	room    *cutRoom
}

// savedBlock is a copy of one block: of a dense shard, or of a table.
type savedBlock struct {
	values cutBuffer
	rows   *checkpoint.Rows
}

// cutBuffer holds weights and slots of one block of a dense shard, one after the other.
type cutBuffer []float32

// cutRoom bounds the memory of blocks that were copied because they changed. A push that
// would go over it waits until some are written.
type cutRoom struct {
	limit   int64 // bytes
	used    atomic.Int64
	buffers chan cutBuffer
}

func newCutRoom(bytes int64) *cutRoom {
	return &cutRoom{limit: bytes, buffers: make(chan cutBuffer, 16)}
}

// buffer returns memory for n values, that of an earlier block if there is some.
func (r *cutRoom) buffer(n int) cutBuffer {
	select {
	case b := <-r.buffers:
		if cap(b) >= n {
			return b[:n]
		}
	default:
	}
	return make(cutBuffer, n)
}

func (r *cutRoom) recycle(b cutBuffer) {
	select {
	case r.buffers <- b:
	default:
	}
}

// takeCut takes a cut of the shard, if this server owns it: under BSP that at the beginning
// of a clock. Since is the number of changes that an earlier checkpoint has, at the
// epoch that it is of: blocks that have not changed are left out; zero for all.
func (r *replica) takeCut(clock uint32, since uint64, epoch shard.Epoch, room *cutRoom) (*cut, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.copy.Owns() {
		return nil, fmt.Errorf("%w: the copy of shard %d is %v", shard.ErrRefused, r.spec.ID, r.copy.State)
	}
	if r.cut != nil {
		return nil, fmt.Errorf("%w: a checkpoint of shard %d is under way", ErrConflict, r.spec.ID)
	}
	c := &cut{
		r: r, clock: clock, room: room,
		weights: r.weights, slots: slices.Clone(r.slots), sum: r.sum, table: r.table, live: r.blocks,
		saved: make([]*savedBlock, len(r.blocks)), pending: make([]bool, len(r.blocks)),
	}
	c.state = checkpoint.Shard{
		ID: r.spec.ID, Layer: r.layer.Name, Begin: r.spec.Range.Begin, End: r.spec.Range.End,
		Dim: r.tableConfig.Dim, SlotElems: slotElems(r.tableConfig.Rule),
		Epoch: r.copy.Epoch, Applied: r.applied, Clock: uint64(clock), Slots: r.opt.slotNames(),
		Windows: r.windows.Append(nil), BlockState: binary.LittleEndian.AppendUint64(nil, r.changes),
	}
	for b, m := range r.blocks {
		closes := c.closes(b)
		if r.bsp {
			if m.clock > clock {
				return nil, fmt.Errorf("%w: shard %d has closed clock %d, the cut is at %d", ErrConflict, r.spec.ID, m.clock-1, clock)
			}
			m.clock, m.dirty = clock, 0 // what was pushed in the clock of the cut comes after it
		}
		if closes && !r.sparse {
			m.steps++
		}
		if since == 0 || epoch != r.copy.Epoch || m.seen > since || closes {
			c.state.Blocks = append(c.state.Blocks, b)
			c.pending[b] = true
			c.left++
			if r.sparse {
				c.countRows(b)
			}
		}
		var meta [cutBlockBytes]byte
		m.encode(meta[:])
		binary.LittleEndian.PutUint64(meta[blockMetaBytes:], m.seen)
		c.state.BlockState = append(c.state.BlockState, meta[:]...)
	}
	r.cut = c
	return c, nil
}

// closes reports whether the cut has of a block what the closing of an earlier clock will
// make of it.
func (c *cut) closes(b int) bool {
	if !c.r.bsp || c.live[b].clock >= c.clock {
		return false
	}
	if c.table != nil {
		return c.table.Dirty(b) > 0
	}
	return c.live[b].dirty > 0
}

// before saves a block whose weights are about to change. The caller holds the replica's
// mu. A nil cut is fine.
func (c *cut) before(b int) {
	if c == nil || !c.pending[b] || (c.r.bsp && c.live[b].clock < c.clock) {
		return // what the closing of an earlier clock makes belongs to the cut
	}
	c.saved[b] = c.copy(b)
	c.room.used.Add(c.saved[b].bytes())
}

// full reports whether a change of a block must wait until others are written.
func (c *cut) full(b int) bool {
	return c.pending[b] && c.room.used.Load() >= c.room.limit
}

// fullAnywhere reports whether a change of any block must wait until others are written.
func (c *cut) fullAnywhere() bool { return c.left > 0 && c.room.used.Load() >= c.room.limit }

func (s *savedBlock) bytes() int64 {
	if s.rows != nil {
		n := 8*int64(len(s.rows.IDs)+len(s.rows.State)) + 4*int64(len(s.rows.Weights)) + int64(len(s.rows.Waiting))
		for _, slot := range s.rows.Slots {
			n += 4 * int64(len(slot))
		}
		return n
	}
	return 4 * int64(len(s.values))
}

// copy returns a copy of a pending block as it is in the cut. The caller holds the
// replica's mu.
func (c *cut) copy(b int) *savedBlock {
	c.pending[b] = false
	c.left--
	if c.table != nil {
		return &savedBlock{rows: c.copyRows(b)}
	}
	return &savedBlock{values: c.copyValues(b)}
}

func (c *cut) copyValues(b int) cutBuffer {
	r := c.r
	lo, hi := r.bounds(b)
	n := int(hi - lo)
	buffer := c.room.buffer(n * (1 + len(c.slots)))
	copy(buffer, c.weights[lo:hi])
	views := make([][]float32, len(c.slots))
	for i, s := range c.slots {
		views[i] = buffer[(i+1)*n : (i+2)*n]
		copy(views[i], s[lo:hi])
	}
	if c.closes(b) {
		r.opt.step(buffer[:n], c.sum[lo:hi], views, c.live[b].steps+1, r.factor(c.live[b].clock))
	}
	return buffer
}

// write writes the blocks of the cut in their order, and ends it.
func (c *cut) write(ctx context.Context, w *checkpoint.Writer, paced func(bytes int64)) error {
	defer c.end()
	for _, b := range c.state.Blocks {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		c.r.mu.Lock()
		saved := c.saved[b]
		c.saved[b] = nil
		if saved == nil {
			saved = c.copy(b)
		} else {
			c.room.used.Add(-saved.bytes())
			c.r.room.Broadcast()
		}
		c.r.mu.Unlock()
		bytes := saved.bytes()
		if err := c.writeBlock(w, b, saved); err != nil {
			return err
		}
		paced(bytes)
	}
	return nil
}

func (c *cut) writeBlock(w *checkpoint.Writer, b int, saved *savedBlock) error {
	if saved.rows != nil {
		return w.WriteRows(c.state.ID, b, saved.rows)
	}
	n := len(saved.values) / (1 + len(c.slots))
	slots := make([][]float32, len(c.slots))
	for i := range slots {
		slots[i] = saved.values[(i+1)*n : (i+2)*n]
	}
	if err := w.WriteBlock(c.state.ID, b, saved.values[:n], slots...); err != nil {
		return err
	}
	c.room.recycle(saved.values)
	return nil
}

// end gives up what is left of the cut. It is safe to call it twice.
func (c *cut) end() {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	for b, saved := range c.saved {
		if saved != nil {
			c.room.used.Add(-saved.bytes())
		}
		c.saved[b], c.pending[b] = nil, false
	}
	if c.r.cut == c {
		c.r.cut = nil
	}
	c.r.room.Broadcast()
}

// changesIn is how many changes the state of a shard in a checkpoint has.
func changesIn(s checkpoint.Shard) uint64 {
	if len(s.BlockState) < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(s.BlockState)
}

// restore fills a copy that was allocated, and that nobody else has yet, from a checkpoint.
func (r *replica) restore(ctx context.Context, from *checkpoint.Checkpoint) error {
	read := r.restoreValues
	if r.sparse {
		read = r.restoreRows
	}
	state, err := read(ctx, from)
	if err != nil {
		return err
	}
	if state.Layer != r.layer.Name || state.Begin != r.spec.Range.Begin || state.End != r.spec.Range.End ||
		len(state.BlockState) != 8+cutBlockBytes*len(r.blocks) {
		return fmt.Errorf("%w: shard %d is [%d, %d) of layer %q in it, with %d bytes of state, not [%d, %d) of %q", checkpoint.ErrMismatch,
			r.spec.ID, state.Begin, state.End, state.Layer, len(state.BlockState), r.spec.Range.Begin, r.spec.Range.End, r.layer.Name)
	}
	if r.windows, err = shard.DecodeWindows(state.Windows); err != nil {
		return fmt.Errorf("%w: shard %d: %w", checkpoint.ErrDamaged, r.spec.ID, err)
	}
	r.applied, r.filled = state.Applied, state.Applied
	r.changes = changesIn(state)
	for b := range r.blocks {
		meta := state.BlockState[8+b*cutBlockBytes:]
		r.blocks[b] = decodeBlock(meta)
		r.blocks[b].seen = binary.LittleEndian.Uint64(meta[blockMetaBytes:])
		if !r.bsp {
			r.blocks[b].clock, r.blocks[b].dirty = 0, 0
		}
	}
	return nil
}

func (r *replica) restoreValues(ctx context.Context, from *checkpoint.Checkpoint) (checkpoint.Shard, error) {
	return from.ReadShard(ctx, r.spec.ID, r.weights, r.opt.slotNames(), r.slots...)
}
