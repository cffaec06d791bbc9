package main

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/shard"
)

// halfBytes is the size of the float32 gradient that travels in 16 bits.
const halfBytes = 64 * mib

const halfLayer = "half"

// measureHalf measures the time of a push whose gradient travels as fp16, against that
// of the same gradient as float32.
func (b *bench) measureHalf(ctx context.Context) error {
	half := layerOf(halfLayer, halfBytes)
	half.Wire = shard.Float16
	model := shard.Model{Layers: []shard.Layer{layerOf(layerName(halfBytes), halfBytes), half}}
	d, err := b.deploy(ctx, layout{transport: transportTCP, model: model, servers: 1})
	if err != nil {
		return err
	}
	wide := d.load(opPush, halfBytes, inFlight(halfBytes))
	narrow := *wide
	narrow.layer = halfLayer
	p, err := b.alternate(ctx, wide.timePerPush, narrow.timePerPush)
	if err != nil {
		return err
	}
	r := compared("push.tcp.fp16", halfBytes, "ms", 1e3, p.product[0], p.limit[0])
	r.Note = fmt.Sprintf("per push, %d in flight; limit: the same as float32", inFlight(halfBytes))
	return b.out.add(r)
}

// timePerPush is the probe of the seconds from one completed operation to the next.
func (l *load) timePerPush(ctx context.Context, d time.Duration) ([]float64, error) {
	rate, err := l.goodput(ctx, d)
	for i := range rate {
		rate[i] = float64(l.size) / max(rate[i], 1)
	}
	return rate, err
}
