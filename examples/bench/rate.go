package main

import (
	"context"
	"fmt"
	"time"
)

// depths are how many 64-byte pushes are tried to have under way, each from a goroutine
// of its own; the one that gets most through is measured.
func depths() []int { return []int{64, 256, 1024} }

// measureRate measures how many 64-byte pushes per second one client gets through,
// against raw messages of that size that are written and read many at a time.
func (b *bench) measureRate(ctx context.Context) error {
	const size = 64
	d, err := b.deployment(ctx, transportTCP)
	if err != nil {
		return err
	}
	// A chunk of requests, each with a header as long as an answer, and of answers.
	const perChunk = 64 * kib / (size + answerBytes)
	raw, err := d.raw(ctx, exchange{in: perChunk * (size + answerBytes), out: perChunk * answerBytes})
	if err != nil {
		return err
	}
	limit := func(ctx context.Context, t time.Duration) ([]float64, error) {
		chunks, err := raw.pipelined(ctx, t)
		for i := range chunks {
			chunks[i] *= perChunk
		}
		return chunks, err
	}
	depth, err := b.bestDepth(ctx, d)
	if err != nil {
		return err
	}
	p, err := b.alternate(ctx, limit, d.smallPushes(depth))
	if err != nil {
		return err
	}
	r := compared("push.rate", size, "1/s", 1, p.product[0], p.limit[0])
	r.Note = fmt.Sprintf("%d goroutines of one client, %d layers, tcp", depth, numSmallLayers)
	return b.out.add(r)
}

// bestDepth tries each depth once, after a warm-up.
func (b *bench) bestDepth(ctx context.Context, d *deployment) (int, error) {
	best, most := 0, 0.0
	for _, n := range depths() {
		for _, t := range []time.Duration{b.probeTime() / 2, b.probeTime()} {
			rate, err := d.smallPushes(n)(ctx, t)
			if err != nil {
				return 0, err
			}
			if rate[0] > most {
				best, most = n, rate[0]
			}
		}
	}
	return best, nil
}

// smallPushes is the probe of the 64-byte pushes per second of so many goroutines.
func (d *deployment) smallPushes(goroutines int) probe {
	grad := gradient(64)
	return func(ctx context.Context, t time.Duration) ([]float64, error) {
		rate, err := drive(ctx, goroutines, 16, t, func(ctx context.Context, goroutine int) error {
			return d.worker.Push(ctx, smallLayer(goroutine%numSmallLayers), grad)
		})
		return []float64{rate}, err
	}
}
