package main

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/collective"
)

// reduceSizes are the sizes of the all-reduce rows, in bytes.
func reduceSizes() []int64 { return []int64{64 * kib, mib, 4 * mib, 64 * mib} }

// smallReduce is the size whose latency is measured.
const smallReduce = kib

// Transports of ranks, beside unix and TCP sockets.
const (
	transportProcess = "inproc"
	transportShared  = "shm"
	transportAlloc   = "alloc" // shared memory, and buffers in it
)

// operation is a collective operation that has rows. Sizes are those of the whole buffer: of what
// a rank has at the end of an all-gather, or at the beginning of the others.
type operation struct {
	name string
	call collective.Collective
	// wire is how many times the bytes of the buffer all ranks together send at least, and so what
	// the algorithm's bandwidth is less than that of the wire.
	wire float64
	// bus makes the bus bandwidth of that of the algorithm: bytes that pass the busiest rank's
	// port in one direction, as a share of the buffer. For any number of ranks, and for different
	// operations, it is to be compared with the bandwidth of a port.
	bus float64
}

func allReduce() operation {
	return operation{"allreduce", collective.AllReduce, 2 * (numRanks - 1), 2.0 * (numRanks - 1) / numRanks}
}

// operations are those beside the all-reduce.
func operations() []operation {
	const parts = float64(numRanks-1) / numRanks
	return []operation{
		{"reducescatter", collective.ReduceScatter, numRanks - 1, parts},
		{"allgather", collective.AllGather, numRanks - 1, parts},
		{"alltoall", collective.AllToAll, numRanks - 1, parts},
		{"broadcast", collective.Broadcast, numRanks - 1, 1},
	}
}

// operationSizes are the sizes of their rows, in bytes.
func operationSizes() []int64 { return []int64{64 * kib, 4 * mib} }

func reduceFamily(transport string) family {
	name := "allreduce." + transport
	return family{
		[]string{name, name + ".busbw", name + ".latency.p50", name + ".latency.p99"},
		func(b *bench, ctx context.Context) error { return b.measureReduce(ctx, transport, name) },
	}
}

// operationFamilies measure the other operations over a transport.
func operationFamilies(transport string) (families []family) {
	for _, op := range operations() {
		name := op.name + "." + transport
		families = append(families, family{
			[]string{name, name + ".busbw"},
			func(b *bench, ctx context.Context) error {
				b.retire()
				c, err := startRanks(ctx, transport, b.secret, b.stderr, 0)
				if err != nil {
					return err
				}
				defer c.close(ctx)
				return b.measureOperation(ctx, c, op, operationSizes())
			},
		})
	}
	return families
}

// measureReduce measures all-reduces of four ranks: bytes of the buffer per second against
// the bound that raw streams between the same processes set, and the time of a small one.
func (b *bench) measureReduce(ctx context.Context, transport, name string) error {
	b.retire()
	c, err := startRanks(ctx, transport, b.secret, b.stderr, 0)
	if err != nil {
		return err
	}
	defer c.close(ctx)
	if err := b.measureOperation(ctx, c, allReduce(), reduceSizes()); err != nil {
		return err
	}
	if err := c.tune(ctx, collective.AllReduce, smallReduce); err != nil {
		return err
	}
	p, err := b.alternate(ctx, nil, c.latency)
	if err != nil {
		return err
	}
	for i, percentile := range []string{"p50", "p99"} {
		if err := b.out.add(measured(name+".latency."+percentile, smallReduce, "us", 1e6, p.product[i])); err != nil {
			return err
		}
	}
	return nil
}

// measureOperation measures an operation at some sizes: bytes of the buffer per second, of what
// the bound is, and bus bandwidth.
func (b *bench) measureOperation(ctx context.Context, c *crewOfRanks, op operation, sizes []int64) error {
	name := op.name + "." + c.transport
	for _, size := range sizes {
		if err := c.tune(ctx, op.call, size); err != nil {
			return err
		}
		p, err := b.alternate(ctx, c.bound(op, size), c.bandwidth(op.call, size))
		if err != nil {
			return err
		}
		r := compared(name, size, "GB/s", 1e-9, p.product[0], p.limit[0])
		r.Note = fmt.Sprintf("%d ranks", numRanks)
		if err := b.out.add(r); err != nil {
			return err
		}
		if err := b.out.add(measured(name+".busbw", size, "GB/s", 1e-9*op.bus, p.product[0])); err != nil {
			return err
		}
	}
	return nil
}

// bound is the probe of what raw streams, or memory copies, allow.
func (c *crewOfRanks) bound(op operation, size int64) probe {
	scaled := func(figures []float64, err error) ([]float64, error) {
		for i := range figures {
			figures[i] /= op.wire
		}
		return figures, err
	}
	switch c.transport {
	case transportShared, transportAlloc:
		return func(ctx context.Context, d time.Duration) ([]float64, error) {
			if err := c.tell(ctx, orderCopy, d.Nanoseconds(), size); err != nil {
				return nil, err
			}
			sum, err := c.copies(ctx, d, size)
			return []float64{sum / numRanks}, err
		}
	case transportProcess:
		var to [][]float32
		for range numRanks - 1 {
			to = append(to, gradient(size))
		}
		copies := plainCopy(gradient(size), to...)
		return func(ctx context.Context, d time.Duration) ([]float64, error) { return scaled(copies(ctx, d)) }
	}
	return func(ctx context.Context, d time.Duration) ([]float64, error) {
		if err := c.tell(ctx, orderStream, d.Nanoseconds()); err != nil {
			return nil, err
		}
		sum, err := c.stream(ctx, d)
		return scaled([]float64{sum}, err)
	}
}

// bandwidth is the probe of the bytes of the buffer per second.
func (c *crewOfRanks) bandwidth(op collective.Collective, size int64) probe {
	return func(ctx context.Context, d time.Duration) ([]float64, error) {
		done, begin := int64(0), time.Now()
		for time.Since(begin) < d {
			times := max(1, 2*mib/size)
			if err := c.order(ctx, size, times, op); err != nil {
				return nil, err
			}
			done += times
		}
		return []float64{float64(done*size) / time.Since(begin).Seconds()}, nil
	}
}

// latency is the probe of the time of one small all-reduce, p50 and p99.
func (c *crewOfRanks) latency(ctx context.Context, d time.Duration) ([]float64, error) {
	const batch = 500
	var took []time.Duration
	for begin := time.Now(); time.Since(begin) < d; {
		if err := c.tell(ctx, orderCall, smallReduce, batch, int64(collective.AllReduce)); err != nil {
			return nil, err
		}
		if err := c.prepare(ctx, smallReduce); err != nil {
			return nil, err
		}
		err := c.each(func(i int) error {
			x := c.buffers[i]
			for range batch {
				begin := time.Now()
				if err := c.groups[i].AllReduce(ctx, x, x, collective.Average); err != nil {
					return err
				}
				if i == 0 {
					took = append(took, time.Since(begin))
				}
			}
			return nil
		}, len(c.groups))
		if err != nil {
			return nil, err
		}
	}
	return []float64{quantile(took, 0.5).Seconds(), quantile(took, 0.99).Seconds()}, nil
}
