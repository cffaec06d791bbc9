package ps

import (
	"context"
	"fmt"

	"github.com/elasticps/elasticps/internal/wire"
)

const (
	// MaxCallRows is the largest number of ids of one PushRows, PullRows or DeleteRows.
	MaxCallRows = 1 << 20
	// MaxCallBytes is the largest size of the values that belong to them.
	MaxCallBytes = 1 << 30
)

// PullRows fills dst with rows of a table, a sparse layer: row ids[i] comes to
// dst[i*dim : (i+1)*dim], dim being the elements of a row. Any id is legal, and may come
// more than once; hashed uint64 ids are converted. A row that nobody has pushed to yet has
// its initial value: that is not stored, so reading changes nothing on the servers.
//
// At most MaxCallRows ids and MaxCallBytes of values, and as many values as ids times dim; no
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
	g := c.groups.get()
	defer g.keep(c.groups)
	g.gather(ids, c.job.Model.Layers[i].RowElems(), c.hashes[i])
	if err := c.sendRows(ctx, op, wire.PullRows, i, g); err != nil {
		return err
	}
	g.spread(dst)
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
	g := c.groups.get()
	defer g.keep(c.groups)
	g.gather(ids, c.job.Model.Layers[i].RowElems(), c.hashes[i])
	g.sum(grads)
	return c.sendRows(ctx, op, wire.PushRows, i, g)
}

// DeleteRows removes rows of a table, with their optimizer state, their admission counts (but
// for what a filter has counted) and what was pushed to them in the open clock. It returns when
// each has been removed exactly once, like a push: a repetition on the way does not remove what
// was pushed behind it. An id without row is fine. A later pull gives the initial value, a
// later push makes the row anew.
//
// Under BSP, too, rows go at once: others that push to or pull the same ids in that clock may
// see either. At most MaxCallRows ids, else ErrLength; blocking and other errors are as in
// Push. The slice is not kept.
func (c *Client) DeleteRows(ctx context.Context, table string, ids []int64) error {
	i, err := c.index(table, true)
	if err != nil {
		return err
	}
	if len(ids) > MaxCallRows {
		return fmt.Errorf("%w: %s of table %q with %d ids, at most %d", ErrLength, opName(wire.DeleteRows), table, len(ids), MaxCallRows)
	}
	if len(ids) == 0 {
		return nil
	}
	ctx, op, err := c.begin(ctx, wire.DeleteRows, i)
	if err != nil {
		return err
	}
	defer op.release()
	g := c.groups.get()
	defer g.keep(c.groups)
	g.gather(ids, 0, c.hashes[i]) // without values
	return c.sendRows(ctx, op, wire.DeleteRows, i, g)
}

// checkRows finds the table and says whether ids and values are within the limits.
func (c *Client) checkRows(kind wire.Kind, table string, ids []int64, values []float32) (int, error) {
	i, err := c.index(table, true)
	if err != nil {
		return 0, err
	}
	dim := c.job.Model.Layers[i].RowElems()
	switch {
	case len(ids) > MaxCallRows || 4*len(values) > MaxCallBytes:
		return 0, fmt.Errorf("%w: %s of table %q with %d ids and %d values, at most %d and %d",
			ErrLength, opName(kind), table, len(ids), len(values), MaxCallRows, MaxCallBytes/4)
	case len(values) != len(ids)*dim:
		return 0, fmt.Errorf("%w: %s of table %q with %d ids and %d values, its rows have %d",
			ErrLength, opName(kind), table, len(ids), len(values), dim)
	}
	return i, nil
}

// sendRows sends the rows of a group, each shard's in frames of as many as fit.
func (c *Client) sendRows(ctx context.Context, op *operation, kind wire.Kind, layer int, g *rowGroup) error {
	perFrame := wire.MaxPayload / (8 + 4*g.dim)
	for s, of := range c.shards[layer] {
		begin, end := g.begins[s], g.ends[s]
		for begin < end && op.failed == nil {
			next := min(begin+perFrame, end)
			op.add(ctx, c.newCall(kind, of, 0, g.ids[begin:next], g.values[begin*g.dim:next*g.dim]))
			begin = next
		}
	}
	return op.finish(ctx)
}
