package ps

import (
	"context"
	"fmt"
	"strings"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// Push sends the gradient of a whole layer and returns when every part of it has
// been applied exactly once. grad has as many elements as the layer, in row-major
// order; it must not change before Push returns and is not kept. Push blocks until
// ctx ends, and up to about a second longer if a transfer into or out of the slice is in
// progress then. After an error, parts of the gradient may have been
// applied and parts not. Values are not looked at: with a NaN the parameter is one as well.
//
// Errors: ErrUnknownLayer, ErrLength, ErrNotInitialized, ErrNotPlaced, ErrNotMember,
// ErrShardLost, ErrUnavailable or the context's, inside an *OpError once a shard is
// known.
func (c *Client) Push(ctx context.Context, layer string, grad []float32) error {
	return c.whole(ctx, wire.Push, layer, grad)
}

// Pull fills dst with the parameters of a whole layer. dst has as many elements as
// the layer; its contents are undefined after an error. Blocking and errors are as
// in Push.
//
// A pull after an acknowledged push of the same client sees it, whatever moves in
// between; under BSP, from the next clock on.
func (c *Client) Pull(ctx context.Context, layer string, dst []float32) error {
	return c.whole(ctx, wire.Pull, layer, dst)
}

// PushPull pushes grad and then pulls into dst, which may be the same slice.
func (c *Client) PushPull(ctx context.Context, layer string, grad, dst []float32) error {
	if err := c.Push(ctx, layer, grad); err != nil {
		return err
	}
	return c.Pull(ctx, layer, dst)
}

// PushRange is Push for the rows [first, first+n) of a layer, n being the number of
// whole rows in grad.
func (c *Client) PushRange(ctx context.Context, layer string, first int, grad []float32) error {
	return c.part(ctx, wire.Push, layer, first, grad)
}

// PullRange is Pull for the rows [first, first+n) of a layer, n being the number of
// whole rows in dst.
func (c *Client) PullRange(ctx context.Context, layer string, first int, dst []float32) error {
	return c.part(ctx, wire.Pull, layer, first, dst)
}

// Assign gives a layer declared shard.Assigned its first values. When several
// clients do, the first one wins, block by block, and all succeed.
func (c *Client) Assign(ctx context.Context, layer string, values []float32) error {
	if i, ok := c.layers[layer]; ok && c.job.Model.Layers[i].Init.Kind != shard.Assigned {
		return fmt.Errorf("%w: assign of layer %q, which is initialized by the servers (%v)", ErrConflict, layer, c.job.Model.Layers[i].Init.Kind)
	}
	return c.whole(ctx, wire.Assign, layer, values)
}

// maxNamesShown bounds the layers that an error names.
const maxNamesShown = 8

// someNames lists the first layers of a model.
func someNames(layers []shard.Layer) string {
	var names []string
	for _, l := range layers[:min(len(layers), maxNamesShown)] {
		names = append(names, fmt.Sprintf("%.64q", l.Name))
	}
	text := strings.Join(names, ", ")
	if more := len(layers) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// index finds a layer, sparse or not.
func (c *Client) index(layer string, sparse bool) (int, error) {
	i, ok := c.layers[layer]
	switch {
	case !ok:
		return 0, fmt.Errorf("%w: %q, the model has %s", ErrUnknownLayer, layer, someNames(c.job.Model.Layers))
	case sparse && !c.job.Model.Layers[i].Sparse:
		return 0, fmt.Errorf("%w: layer %q is no table, it has no rows by id", ErrUnknownLayer, layer)
	case !sparse && c.job.Model.Layers[i].Sparse:
		return 0, fmt.Errorf("%w: layer %q is a table, its rows have ids", ErrUnknownLayer, layer)
	}
	return i, nil
}

func (c *Client) whole(ctx context.Context, kind wire.Kind, layer string, values []float32) error {
	i, err := c.index(layer, false)
	if err != nil {
		return err
	}
	if n := c.job.Model.Layers[i].Elems(); int64(len(values)) != n {
		return fmt.Errorf("%w: %s of layer %q with %d elements, it has %d", ErrLength, opName(kind), layer, len(values), n)
	}
	return c.operate(ctx, kind, i, 0, values)
}

func (c *Client) part(ctx context.Context, kind wire.Kind, layer string, first int, values []float32) error {
	i, err := c.index(layer, false)
	if err != nil {
		return err
	}
	l := c.job.Model.Layers[i]
	row := max(l.RowElems(), 1)
	if first < 0 || first > l.Rows() || len(values)%row != 0 || len(values)/row > l.Rows()-first {
		return fmt.Errorf("%w: %s of %d elements from row %d of layer %q, which has %d rows of %d", ErrLength, opName(kind), len(values), first, layer, l.Rows(), l.RowElems())
	}
	return c.operate(ctx, kind, i, int64(first)*int64(row), values)
}

func opName(k wire.Kind) string {
	switch k {
	case wire.Push:
		return "push"
	case wire.Pull:
		return "pull"
	case wire.PushRows:
		return "push of rows"
	case wire.PullRows:
		return "pull of rows"
	case wire.DeleteRows:
		return "deletion of rows"
	}
	return "assign"
}

// operate cuts a range of a layer into requests of at most one block, sends them
// all, and sees each through.
func (c *Client) operate(ctx context.Context, kind wire.Kind, layer int, begin int64, values []float32) error {
	ctx, op, err := c.begin(ctx, kind, layer)
	if err != nil {
		return err
	}
	defer op.release()
	x, err := c.correct(ctx, kind, layer, begin, values)
	if err != nil {
		return c.unsent(kind, layer, err)
	}
	if x != nil {
		defer x.held.Release()
		values = x.values
	}
	stop := begin + int64(len(values))
	c.cuts(layer, begin, stop, func(s shard.Shard, lo, hi int64) bool {
		op.add(ctx, c.newCall(kind, s, lo-s.Range.Begin, nil, values[lo-begin:hi-begin]))
		return op.failed == nil
	})
	if err = op.finish(ctx); err != nil {
		if x != nil {
			clear(x.values) // nobody knows what has arrived
		}
		return err
	}
	if x != nil {
		c.cuts(layer, begin, stop, func(_ shard.Shard, lo, hi int64) bool {
			x.settle(values[lo-begin : hi-begin])
			return true
		})
	}
	return nil
}

// cuts calls f for the parts of a range that requests carry, until it returns false.
func (c *Client) cuts(layer int, begin, stop int64, f func(s shard.Shard, lo, hi int64) bool) {
	for _, s := range c.shards[layer] {
		lo, hi := max(begin, s.Range.Begin), min(stop, s.Range.End)
		for lo < hi {
			next := min(hi, s.Range.Begin+((lo-s.Range.Begin)/BlockElems+1)*BlockElems)
			if !f(s, lo, next) {
				return
			}
			lo = next
		}
	}
}

// begin makes an operation and its context, which ends when it is released.
func (c *Client) begin(ctx context.Context, kind wire.Kind, layer int) (context.Context, *operation, error) {
	if err := c.ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("%w: client %q", ErrClosed, c.cfg.Name)
	}
	if ctx.Err() != nil { // nothing may wait for it where the servers are in this process
		return nil, nil, c.unsent(kind, layer, context.Cause(ctx))
	}
	ctx, cancel := c.deadlines.of(ctx)
	if err := c.prepare(ctx, kind); err != nil {
		cancel()
		return nil, nil, err
	}
	op := c.operations.Get().(*operation)
	op.cancel, op.name, op.layer = cancel, opName(kind), c.job.Model.Layers[layer].Name
	return ctx, op, nil
}

// unsent is the error of an operation of which nothing was sent.
func (c *Client) unsent(kind wire.Kind, layer int, err error) error {
	e := &OpError{Op: opName(kind), Layer: c.job.Model.Layers[layer].Name, Err: err}
	if shards := c.shards[layer]; len(shards) > 0 {
		e.Shard = shards[0].ID
		o, info, _ := c.routes.of(e.Shard) // who has it, if that is known
		e.Server, e.Epoch = info.ID, o.epoch
	}
	return e
}

// finish sees all calls through.
func (op *operation) finish(ctx context.Context) error {
	for op.n > 0 {
		op.settle(ctx, true)
	}
	return op.failed
}

// prepare brings an observer's clock up to date before it reads under BSP.
func (c *Client) prepare(ctx context.Context, kind wire.Kind) error {
	if !c.observer || !reads(kind) || c.job.Consistency.Mode != BSP {
		return nil
	}
	return c.routes.refresh(ctx)
}

// reads reports whether a request of that kind is answered with values.
func reads(k wire.Kind) bool { return k == wire.Pull || k == wire.PullRows }

// writes reports whether a request of that kind changes the state, and has a number.
func writes(k wire.Kind) bool {
	return k == wire.Push || k == wire.Assign || k == wire.PushRows || k == wire.DeleteRows
}

// ofRows reports whether a request of that kind has ids.
func ofRows(k wire.Kind) bool {
	return k == wire.PushRows || k == wire.PullRows || k == wire.DeleteRows
}

// newCall makes a call for a block, or for the rows with some ids.
func (c *Client) newCall(kind wire.Kind, s shard.Shard, offset int64, ids []int64, values []float32) *call {
	k := c.calls.Get().(*call)
	k.ids, k.values, k.silences, k.attempts = ids, values, 0, 0
	k.header = wire.Header{
		Kind: kind, Shard: uint32(s.ID), Incarnation: c.incarnation.Load(), Clock: c.clockNow(),
		Offset: uint64(offset), Count: uint32(len(values)),
	}
	if writes(kind) {
		k.seqs = c.sequences[s.ID]
	}
	k.header.Encoding = uint8(travelType(&c.job.Model.Layers[s.Range.Layer], kind))
	return k
}

// clockNow is the clock that a request carries. An observer has none of its own: it
// reads what the last finished clock left.
func (c *Client) clockNow() uint32 {
	if c.observer {
		return c.routes.openClock()
	}
	return c.clock.Load()
}
