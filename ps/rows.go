package ps

import (
	"context"
	"fmt"
	"math/bits"
	"slices"

	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// MaxRows is the largest number of ids of one PushRows or PullRows, and MaxRowsBytes of
// the values that belong to them.
const (
	MaxRows      = 1 << 20
	MaxRowsBytes = 1 << 30
)

// keptRowsBytes is how much memory of an operation on rows is kept for the next one.
const keptRowsBytes = 16 << 20

// PullRows fills dst with rows of a table, a sparse layer: row ids[i] comes to
// dst[i*dim : (i+1)*dim], dim being the elements of a row. Any id is legal, and may come
// more than once; hashed uint64 ids are converted. A row that nobody has pushed to yet has
// its initial value: that is not stored, so reading changes nothing on the servers.
//
// At most MaxRows ids and MaxRowsBytes of values, and as many values as ids times dim; no
// ids is fine. What is not so is ErrLength, a layer that is no table ErrUnknownLayer. With
// Table.Staleness, PullRows waits like Tick. Blocking, other errors and what a pull sees
// are as in Pull. Neither slice is kept.
func (c *Client) PullRows(ctx context.Context, table string, ids []int64, dst []float32) error {
	i, err := c.checkRows(wire.PullRows, table, ids, dst)
	if err != nil || len(ids) == 0 {
		return err
	}
	ctx, op, err := c.begin(ctx, wire.PullRows, i)
	if err != nil {
		return err
	}
	defer op.release()
	if err := c.fresh(ctx, table); err != nil {
		return err
	}
	g := c.rowsOf(i, ids)
	defer c.groups.put(g)
	g.values = slices.Grow(g.values[:0], len(g.ids)*g.dim)[:len(g.ids)*g.dim]
	if err := c.sendRows(ctx, op, wire.PullRows, g); err != nil {
		return err
	}
	for i, u := range g.of {
		copy(dst[i*g.dim:(i+1)*g.dim], g.values[int(g.at[u])*g.dim:])
	}
	return nil
}

// PushRows sends gradients of rows of a table and returns when each has been applied
// exactly once: grads[i*dim : (i+1)*dim] is that of row ids[i]. Gradients of equal ids in
// one call are summed, in their order, before the optimizer's step: a row steps once per
// call. A row that did not exist begins at its initial value. Table says what happens to
// rows that are not admitted yet, that are too many, and to gradients that are not finite.
//
// Limits are as in PullRows; blocking and errors as in Push, and ErrNotFinite and
// ErrTableFull. Neither slice is kept.
func (c *Client) PushRows(ctx context.Context, table string, ids []int64, grads []float32) error {
	i, err := c.checkRows(wire.PushRows, table, ids, grads)
	if err != nil || len(ids) == 0 {
		return err
	}
	ctx, op, err := c.begin(ctx, wire.PushRows, i)
	if err != nil {
		return err
	}
	defer op.release()
	g := c.rowsOf(i, ids)
	defer c.groups.put(g)
	g.sum(grads)
	return c.sendRows(ctx, op, wire.PushRows, g)
}

func (c *Client) checkRows(kind wire.Kind, table string, ids []int64, values []float32) (int, error) {
	i, err := c.index(table, true)
	if err != nil {
		return 0, err
	}
	dim := c.job.Model.Layers[i].RowElems()
	switch {
	case len(ids) > MaxRows || 4*len(values) > MaxRowsBytes:
		return 0, fmt.Errorf("%w: %s of table %q with %d ids and %d values, at most %d and %d", ErrLength, opName(kind), table, len(ids), len(values), MaxRows, MaxRowsBytes/4)
	case len(values) != len(ids)*dim:
		return 0, fmt.Errorf("%w: %s of table %q with %d ids and %d values, its rows have %d", ErrLength, opName(kind), table, len(ids), len(values), dim)
	}
	return i, nil
}

// sendRows sends the rows of a group, each shard's in frames of as many as fit.
func (c *Client) sendRows(ctx context.Context, op *operation, kind wire.Kind, g *rowGroup) error {
	perFrame := wire.MaxPayload / (8 + 4*g.dim)
	shards := c.shards[g.layer]
	begin := 0
	for s, end := range g.ends {
		for begin < end && op.failed == nil {
			next := min(begin+perFrame, end)
			op.add(ctx, c.newCall(kind, shards[s], 0, g.ids[begin:next], g.values[begin*g.dim:next*g.dim]))
			begin = next
		}
	}
	return op.finish(ctx)
}

// rowGroup is the rows of one operation, each id once, grouped by shard. It is reused.
type rowGroup struct {
	layer, dim int

	ids    []int64 // by shard, within a shard in the order of their first appearance
	ends   []int   // by shard: where its ids end
	values []float32

	of     []uint32 // of each id asked for: which of the different ids it is, in the order of appearance
	at     []uint32 // of each different id: its place in ids
	unique []int64  // the different ids
	owner  []uint32 // of each: its shard among those of the layer
	index  []uint32 // hash table of unique, plus one
}

// rowsOf groups ids of a table by shard.
func (c *Client) rowsOf(layer int, ids []int64) *rowGroup {
	g := c.groups.get()
	l := c.job.Model.Layers[layer]
	g.layer, g.dim = layer, l.RowElems()
	g.room(len(ids), len(c.shards[layer]))
	shards, rows, n := c.shards[layer], int64(l.Rows()), int64(len(c.shards[layer]))
	mask := uint64(len(g.index) - 1)
	for _, id := range ids {
		h := shard.Hash(id)
		slot := h & mask
		for g.index[slot] != 0 && g.unique[g.index[slot]-1] != id {
			slot = (slot + 1) & mask
		}
		if g.index[slot] == 0 {
			s := shard.Bucket(h, n) // about: shards are of nearly equal length
			element := shard.Bucket(h, rows) * int64(g.dim)
			for element < shards[s].Range.Begin {
				s--
			}
			for element >= shards[s].Range.End {
				s++
			}
			g.unique, g.owner = append(g.unique, id), append(g.owner, uint32(s))
			g.index[slot] = uint32(len(g.unique))
			g.ends[s]++
		}
		g.of = append(g.of, g.index[slot]-1)
	}
	g.place()
	return g
}

// room makes room for n ids of a table with so many shards.
func (g *rowGroup) room(n, shards int) {
	size := 1 << bits.Len(uint(2*n-1))
	g.index = slices.Grow(g.index[:0], size)[:size]
	clear(g.index)
	g.ends = slices.Grow(g.ends[:0], shards)[:shards]
	clear(g.ends)
	g.of, g.unique, g.owner = slices.Grow(g.of[:0], n), slices.Grow(g.unique[:0], n), slices.Grow(g.owner[:0], n)
}

// place puts the different ids into the order of their shards.
func (g *rowGroup) place() {
	total := 0
	for s, n := range g.ends {
		g.ends[s] = total
		total += n
	}
	g.ids, g.at = slices.Grow(g.ids[:0], total)[:total], slices.Grow(g.at[:0], total)[:total]
	for u, id := range g.unique {
		p := &g.ends[g.owner[u]] // grows from the shard's begin to its end
		g.ids[*p], g.at[u] = id, uint32(*p)
		*p++
	}
}

// sum fills the values with gradients: those of equal ids are added.
func (g *rowGroup) sum(grads []float32) {
	n, seen := len(g.ids)*g.dim, uint32(0)
	g.values = slices.Grow(g.values[:0], n)[:n]
	for i, u := range g.of {
		grad := grads[i*g.dim : (i+1)*g.dim]
		dst := g.values[int(g.at[u])*g.dim:][:g.dim]
		if u == seen {
			copy(dst, grad)
			seen++
		} else {
			kernel.Add(dst, grad)
		}
	}
}

// bytes is the memory that a group holds.
func (g *rowGroup) bytes() int {
	return 8*(cap(g.ids)+cap(g.unique)+cap(g.ends)) + 4*(cap(g.values)+cap(g.of)+cap(g.at)+cap(g.owner)+cap(g.index))
}

// rowGroups is a bounded list of groups for reuse.
type rowGroups chan *rowGroup

func (f rowGroups) get() *rowGroup {
	select {
	case g := <-f:
		return g
	default:
		return new(rowGroup)
	}
}

// put gives a group back; a large one is left to the garbage collector.
func (f rowGroups) put(g *rowGroup) {
	if g.bytes() > keptRowsBytes {
		return
	}
	select {
	case f <- g:
	default:
	}
}
