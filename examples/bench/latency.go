package main

import (
	"context"
	"fmt"
	"time"
)

// latencies calls op one after the other until d is over and returns the p50 and the
// p99 of the time that it took, in seconds.
func latencies(ctx context.Context, d time.Duration, op func(context.Context) error) ([]float64, error) {
	samples := make([]float64, 0, d/(5*time.Microsecond)) // does not grow, or seldom
	for start := time.Now(); time.Since(start) < d; {
		before := time.Now()
		if err := op(ctx); err != nil {
			return nil, err
		}
		samples = append(samples, time.Since(before).Seconds())
	}
	return []float64{quantile(samples, 0.5), quantile(samples, 0.99)}, nil
}

// answerBytes is the size of a raw answer to a push, and of a raw request for values.
const answerBytes = 80

// measureLatency measures operations of which one is in flight, against a raw round
// trip of as many bytes.
func (b *bench) measureLatency(ctx context.Context, transport, op string) error {
	d, err := b.deployment(ctx, transport)
	if err != nil {
		return err
	}
	for _, size := range []int64{64, 4 * kib} {
		e := exchange{in: uint64(size), out: answerBytes}
		if op == opPull {
			e = exchange{in: answerBytes, out: uint64(size)}
		}
		raw, err := d.raw(ctx, e)
		if err != nil {
			return err
		}
		l := d.load(op, size, 1)
		p, err := b.alternate(ctx, raw.roundTrip, l.latency)
		if err != nil {
			return err
		}
		for i, percentile := range []string{"p50", "p99"} {
			name := fmt.Sprintf("%s.latency.%s.%s", op, transport, percentile)
			if err := b.out.add(compared(name, size, "us", 1e6, p.product[i], p.limit[i])); err != nil {
				return err
			}
		}
	}
	return nil
}
