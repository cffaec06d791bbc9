package checkpoint

import (
	"context"
	"fmt"
	"slices"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// Rows are the rows of one block of a sparse shard, n of them, in the order of the server.
// This package does not look into them: that ids differ and belong to the block is for the server
// to see.
type Rows struct {
	IDs     []int64     // n
	State   []uint64    // n: what the server keeps of each row besides its values
	Weights []float32   // n*Dim
	Slots   [][]float32 // in the order of Shard.Slots: n times Shard.SlotElems
	Waiting []byte      // what the server keeps of rows that are still to come into being
}

// WriteRows writes one block of a sparse layer, which has as many rows and waiting bytes as
// Shard.Rows and Shard.Waiting say. Blocks come in the order of the shards and of Shard.Blocks. The
// slices are not kept. After an error the file is given up.
func (w *Writer) WriteRows(id shard.ID, block int, rows *Rows) error {
	e, err := w.turn(id, block)
	if err != nil {
		return err
	}
	if e.Dim == 0 {
		return w.refuse("block %d of shard %d is dense, WriteBlock writes it", block, id)
	}
	n, waiting := e.Rows[w.block], e.Waiting[w.block]
	wrong := func(what string, have, want int) error {
		return w.refuse("block %d of shard %d with %d %s, must be %d", block, id, have, what, want)
	}
	switch {
	case len(rows.IDs) != n:
		return wrong("ids", len(rows.IDs), n)
	case len(rows.State) != n:
		return wrong("state words", len(rows.State), n)
	case len(rows.Weights) != n*e.Dim:
		return wrong("weights", len(rows.Weights), n*e.Dim)
	case len(rows.Slots) != len(e.Slots):
		return wrong("slots", len(rows.Slots), len(e.Slots))
	case len(rows.Waiting) != waiting:
		return wrong("waiting bytes", len(rows.Waiting), waiting)
	}
	for i, values := range rows.Slots {
		if len(values) != n*e.SlotElems[i] {
			return wrong("values in slot "+e.Slots[i], len(values), n*e.SlotElems[i])
		}
	}
	var zeros [8]byte
	sizes := e.appendSizes(nil, w.block, w.l.blocks[w.shard][w.block])
	w.tensor(rows.Waiting, zeros[:sizes[0]-waiting])
	w.tensor(wire.Bytes(rows.IDs))
	w.tensor(wire.Bytes(rows.State))
	w.tensor(wire.Bytes(rows.Weights))
	for _, values := range rows.Slots {
		w.tensor(wire.Bytes(values))
	}
	w.block++
	return w.err
}

// take fills dst, grown as needed, with the values that the first size bytes of src are.
func take[T float32 | int64 | uint64](dst []T, src *[]byte, size int) []T {
	var one [1]T
	n := size / len(wire.Bytes(one[:]))
	dst = slices.Grow(dst[:0], n)[:n]
	copy(wire.Bytes(dst), *src)
	*src = (*src)[size:]
	return dst
}

// set makes the rows those of a block with these tensors, whose memory Waiting shares.
func (rows *Rows) set(s source, values []byte, sizes []int) {
	n := s.entry().Waiting[s.index]
	rows.Waiting = values[:n:n]
	values = values[sizes[0]:]
	rows.IDs = take(rows.IDs, &values, sizes[1])
	rows.State = take(rows.State, &values, sizes[2])
	rows.Weights = take(rows.Weights, &values, sizes[3])
	for i, size := range sizes[4:] {
		rows.Slots[i] = take(rows.Slots[i], &values, size)
	}
}

// ReadRows calls visit for each block of a sparse shard, ascending, those without rows too, and
// returns the shard's state. Rows and Slots of the block are overwritten afterwards: visit does not
// keep them. dim, slots and elems are what Shard.Dim, Slots and SlotElems must be, so that another
// table or optimizer is refused (ErrMismatch). A block is checked before it is visited. It holds one
// block twice, or some MiB of small ones. An error of visit ends the reading and is returned as it is;
// others are *Error.
func (c *Checkpoint) ReadRows(ctx context.Context, id shard.ID, dim int, slots []string, elems []int, visit func(block int, rows *Rows) error) (Shard, error) {
	s, err := c.Shard(ctx, id)
	if err != nil {
		return s, err
	}
	if s.Dim != dim || dim == 0 || !slices.Equal(s.Slots, slots) || !slices.Equal(s.SlotElems, elems) {
		return Shard{}, fault(c.chain[0].Name, "", fmt.Sprintf("shard %d", id), ErrMismatch,
			"rows of %d values (0: dense), slots %q of %d; %d, %q, %d wanted", s.Dim, s.Slots, s.SlotElems, dim, slots, elems)
	}
	if err := c.eachBlock(ctx, new(room), id, visit); err != nil {
		return Shard{}, err
	}
	return s, nil
}

// eachBlock reads all blocks of a sparse shard.
func (c *Checkpoint) eachBlock(ctx context.Context, into *room, id shard.ID, visit func(block int, rows *Rows) error) error {
	found, err := c.allSources(ctx, id)
	if err != nil {
		return err
	}
	rows := Rows{Slots: make([][]float32, len(found[0].entry().Slots))}
	return c.readBlocks(ctx, into, found, func(s source, values []byte, sizes []int) error {
		rows.set(s, values, sizes)
		return visit(s.block(), &rows)
	})
}

// allSources finds all blocks of a shard, of which there is at least one.
func (c *Checkpoint) allSources(ctx context.Context, id shard.ID) ([]source, error) {
	r := c.chain[0].Shards[id].Range
	return c.sources(ctx, id, 0, int((r.Elems()+BlockElems-1)/BlockElems))
}

// shardsOf returns the shards of a sparse layer.
func (c *Checkpoint) shardsOf(layer string) ([]shard.ID, error) {
	m := &c.chain[0].Manifest
	index, ok := m.Model.Index(layer)
	if !ok || !m.Model.Layers[index].Sparse {
		return nil, fault(m.Name, "", fmt.Sprintf("layer %.64q", layer), ErrMismatch, "no such sparse layer")
	}
	var ids []shard.ID
	for _, s := range m.Shards {
		if s.Range.Layer == index {
			ids = append(ids, s.ID)
		}
	}
	return ids, nil
}

// CountRows returns the number of rows of a sparse layer. It reads the headers of files alone.
// Errors are *Error: ErrMismatch when there is no such layer, ErrDamaged.
func (c *Checkpoint) CountRows(ctx context.Context, layer string) (int64, error) {
	shards, err := c.shardsOf(layer)
	if err != nil {
		return 0, err
	}
	count := int64(0)
	for _, id := range shards {
		found, err := c.allSources(ctx, id)
		if err != nil {
			return 0, err
		}
		for _, s := range found {
			count += int64(s.entry().Rows[s.index])
		}
	}
	return count, nil
}

// ReadTable calls visit with all rows of a sparse layer, as many at a time as are in one block: their
// ids and, Shape[1] to a row, their weights, which visit does not keep. It is for those who serve
// the model and know nothing of optimizers. The order is that of shards, blocks and rows in
// them, the same at each reading. Errors are those of ReadRows, with ErrMismatch when there is no such
// layer.
func (c *Checkpoint) ReadTable(ctx context.Context, layer string, visit func(ids []int64, weights []float32) error) error {
	shards, err := c.shardsOf(layer)
	if err != nil {
		return err
	}
	into := new(room)
	for _, id := range shards {
		err := c.eachBlock(ctx, into, id, func(_ int, rows *Rows) error {
			if len(rows.IDs) == 0 {
				return nil
			}
			return visit(rows.IDs, rows.Weights)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
