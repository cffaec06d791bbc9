package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/internal/kernel"
)

// learningRate is that of all steps outside of the product.
const learningRate = 1e-3

// copyPiece is below the size from which the copy of Go goes past the cache.
const copyPiece = 256 * kib

// plainCopy returns the probe of memory copies from one array to others of its length,
// bytes copied per second: the better of copies of whole arrays, which from 1 MiB on go
// past the cache, and of pieces, which do not.
func plainCopy(src []float32, to ...[]float32) probe {
	size := 4 * int64(len(src))
	bytes := size * int64(len(to))
	by := func(piece int) probe {
		return perSecond(bytes, batchOf(bytes), func() {
			for _, dst := range to {
				for at := 0; at < len(src); at += piece {
					copy(dst[at:min(at+piece, len(dst))], src[at:])
				}
			}
		})
	}
	whole, pieces := by(len(src)), by(copyPiece/4)
	if size <= copyPiece {
		return whole
	}
	return func(ctx context.Context, d time.Duration) ([]float64, error) {
		a, err := whole(ctx, d/2)
		if err != nil {
			return nil, err
		}
		b, err := pieces(ctx, d/2)
		if err != nil {
			return nil, err
		}
		return []float64{max(a[0], b[0])}, nil
	}
}

// plainSGD returns the probe of a fused step over plain buffers, bytes of gradient per
// second.
func plainSGD(w, g []float32) probe {
	size := 4 * int64(len(w))
	return perSecond(size, batchOf(size), func() { kernel.SGD(w, g, learningRate, 0) })
}

// perSecond returns the probe of the bytes per second of a loop whose body takes so
// many bytes.
func perSecond(bytes int64, batch int, f func()) probe {
	return func(ctx context.Context, d time.Duration) ([]float64, error) {
		rate, err := loop(ctx, batch, d, f)
		return []float64{rate * float64(bytes)}, err
	}
}

// measureMemory measures what memory gives: in cache and out of it.
func (b *bench) measureMemory(ctx context.Context) error {
	for _, size := range []int64{4 * mib, 64 * mib} {
		w, g := gradient(size), gradient(size)
		p, err := b.alternate(ctx, plainCopy(g, w), plainSGD(w, g))
		if err != nil {
			return err
		}
		err = errors.Join(
			b.out.add(measured("limit.copy", size, "GB/s", 1e-9, p.limit[0])),
			b.out.add(measured("limit.sgd", size, "GB/s", 1e-9, p.product[0])),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// measureRaw measures the raw stream and round trip of a transport.
func (b *bench) measureRaw(ctx context.Context, transport string) error {
	d, err := b.deployment(ctx, transport)
	if err != nil {
		return err
	}
	stream, err := d.raw(ctx, uploading())
	if err != nil {
		return err
	}
	p, err := b.alternate(ctx, nil, stream.stream)
	if err != nil {
		return err
	}
	r := measured("limit."+transport, rawChunk, "GB/s", 1e-9, p.product[0])
	r.Note = "one stream"
	if err := b.out.add(r); err != nil {
		return err
	}
	for _, size := range []int64{64, 4 * kib} {
		echo, err := d.raw(ctx, exchange{in: uint64(size), out: answerBytes})
		if err != nil {
			return err
		}
		p, err := b.alternate(ctx, nil, echo.roundTrip)
		if err != nil {
			return err
		}
		for i, percentile := range []string{"p50", "p99"} {
			name := fmt.Sprintf("limit.rtt.%s.%s", transport, percentile)
			if err := b.out.add(measured(name, size, "us", 1e6, p.product[i])); err != nil {
				return err
			}
		}
	}
	return nil
}
