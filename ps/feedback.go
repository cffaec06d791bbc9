package ps

import (
	"context"

	"github.com/elasticps/elasticps/collective/codec"
	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// correction is a gradient with what rounding has lost of those before it, while it is
// pushed. What is sent, and sent again, does not change meanwhile.
type correction struct {
	held   *codec.Held
	values []float32 // of the range that is pushed
	as     shard.DType
}

// correct adds to a gradient what rounding has lost; nil if nothing is to be added.
func (c *Client) correct(ctx context.Context, kind wire.Kind, layer int, begin int64, grad []float32) (*correction, error) {
	l := &c.job.Model.Layers[layer]
	if kind != wire.Push || c.cfg.Feedback == nil || l.Wire == shard.Float32 {
		return nil, nil
	}
	held, err := c.cfg.Feedback.Hold(ctx, codec.Place{}, codec.Tensor{Name: l.Name, Len: int(l.Elems())})
	if err != nil {
		return nil, err
	}
	x := &correction{held, held.Values[begin:][:len(grad)], l.Wire}
	kernel.Add(x.values, grad)
	return x, nil
}

// settle keeps what rounding has lost of a part that was sent as one.
func (x *correction) settle(part []float32) {
	var arrived [8 * codec.Block]float32
	for len(part) > 0 {
		n := min(len(part), len(arrived))
		round(arrived[:n], part[:n], x.as)
		kernel.Axpy(part[:n], -1, arrived[:n]) // what is not finite is dropped with Release
		part = part[n:]
	}
}
