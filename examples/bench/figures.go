package main

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Powers of two that sizes are made of.
const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// probe measures something for about d and returns its figures, always as many.
type probe func(ctx context.Context, d time.Duration) ([]float64, error)

// median returns the middle of the values, the mean of the two in the middle if
// their number is even, 0 without values.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	if n == 0 {
		return 0
	}
	return (s[(n-1)/2] + s[n/2]) / 2
}

// quantile returns the least of the values such that a share q of all are not greater
// (nearest rank), 0 without values.
func quantile[T float64 | time.Duration](values []T, q float64) T {
	s := slices.Sorted(slices.Values(values))
	if len(s) == 0 {
		return 0
	}
	rank := int(q * float64(len(s)))
	if float64(rank) < q*float64(len(s)) {
		rank++
	}
	return s[min(max(rank, 1), len(s))-1]
}

// pair is what limit and product measured in turns: a series for each figure.
type pair struct{ limit, product [][]float64 }

// alternate measures limit and product in turns, after a warm-up of each. A nil limit
// is left out. The order within a turn changes, so that neither is always the one
// that follows a pause.
func (b *bench) alternate(ctx context.Context, limit, product probe) (pair, error) {
	var p pair
	runtime.GC() // what earlier rows have left behind is not collected in the middle of this one
	warmUp := b.probeTime() / 2
	for _, f := range []probe{limit, product} {
		if f == nil {
			continue
		}
		if _, err := f(ctx, warmUp); err != nil {
			return p, err
		}
	}
	for i := range b.repeats() {
		turns := []turn{{limit, &p.limit}, {product, &p.product}}
		if i%2 == 1 {
			slices.Reverse(turns)
		}
		for _, t := range turns {
			if err := t.take(ctx, b.probeTime()); err != nil {
				return p, err
			}
		}
	}
	return p, nil
}

// turn is a probe and where its figures go.
type turn struct {
	probe
	series *[][]float64
}

func (t turn) take(ctx context.Context, d time.Duration) error {
	if t.probe == nil {
		return nil
	}
	figures, err := t.probe(ctx, d)
	if err != nil {
		return err
	}
	for len(*t.series) < len(figures) {
		*t.series = append(*t.series, nil)
	}
	for i, f := range figures {
		(*t.series)[i] = append((*t.series)[i], f)
	}
	return nil
}

// drive calls op from n goroutines in loops until d is over, and returns how many calls
// per second were completed, until the last one. Each goroutine looks at the clock
// after every batch calls. The first error ends it.
func drive(ctx context.Context, n, batch int, d time.Duration, op func(ctx context.Context, goroutine int) error) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var calls atomic.Int64
	var running sync.WaitGroup
	start := time.Now()
	for i := range n {
		running.Go(func() {
			done := 0
			for time.Since(start) < d && ctx.Err() == nil {
				for range batch {
					if err := op(ctx, i); err != nil {
						cancel(err)
						return
					}
				}
				done += batch
			}
			calls.Add(int64(done))
		})
	}
	running.Wait()
	elapsed := time.Since(start)
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return float64(calls.Load()) / elapsed.Seconds(), nil
}

// loop calls f until d is over and returns the calls per second.
func loop(ctx context.Context, batch int, d time.Duration, f func()) (float64, error) {
	return drive(ctx, 1, batch, d, func(context.Context, int) error {
		f()
		return nil
	})
}

// batchOf is how many calls with so many bytes are made between two looks at the
// clock, which costs as much as a few hundred bytes.
func batchOf(size int64) int { return int(max(1, 64*kib/size)) }
