package main

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// Operations.
const (
	opPush = "push"
	opPull = "pull"
)

const (
	// numWorkerLayers is how many layers of 1 MiB the rows with several workers have.
	numWorkerLayers = 8
	// numSmallLayers is how many layers of 64 bytes the row of small pushes has.
	numSmallLayers = 16
)

// bulkSizes are the sizes of the push and pull rows, in bytes.
func bulkSizes() []int64 { return []int64{4 * kib, 64 * kib, mib, 4 * mib, 64 * mib} }

// sharedModel is the model of most rows: a layer of each size, and those of the rows
// with several workers and of small pushes.
func sharedModel() shard.Model {
	var m shard.Model
	add := func(name string, bytes int64) { m.Layers = append(m.Layers, layerOf(name, bytes)) }
	add(layerName(64), 64)
	for _, size := range bulkSizes() {
		add(layerName(size), size)
	}
	for i := range numWorkerLayers {
		add(workerLayer(i), mib)
	}
	for i := range numSmallLayers {
		add(smallLayer(i), 64)
	}
	return m
}

// layerOf is a float32 layer in rows of 4 KiB, or in one row if it is shorter.
func layerOf(name string, bytes int64) shard.Layer {
	row := min(bytes, rowBytes)
	return shard.Layer{
		Name: name, Shape: []int{int(bytes / row), int(row / 4)},
		Init: shard.Initializer{Kind: shard.Uniform, Scale: 0.1, Seed: 1},
	}
}

// rowBytes is the size of a row of a layer that has several.
const rowBytes = 4 * kib

func layerName(size int64) string { return fmt.Sprintf("bytes-%d", size) }
func workerLayer(i int) string    { return fmt.Sprintf("worker-%d", i) }
func smallLayer(i int) string     { return fmt.Sprintf("small-%d", i) }

// gradient returns a buffer of small positive numbers, so that steps of any kind and
// number lead to no number that is slower than others. Its pages exist.
func gradient(bytes int64) []float32 {
	g := make([]float32, bytes/4)
	kernel.Uniform(g, 2, 1, 0, 1e-3)
	for i, x := range g {
		g[i] = max(x, -x)
	}
	return g
}

// load is operations on one layer by one client, some of them in flight.
type load struct {
	client  *ps.Worker
	op      string
	layer   string
	size    int64
	buffers [][]float32 // one for each operation in flight
}

// load returns the load of operations on the layer of a size.
func (d *deployment) load(op string, size int64, inFlight int) *load {
	l := &load{client: d.worker, op: op, layer: layerName(size), size: size}
	for range inFlight {
		l.buffers = append(l.buffers, gradient(size))
	}
	return l
}

// do is one operation with the buffer of that goroutine.
func (l *load) do(ctx context.Context, goroutine int) error {
	if l.op == opPull {
		return l.client.Pull(ctx, l.layer, l.buffers[goroutine])
	}
	return l.client.Push(ctx, l.layer, l.buffers[goroutine])
}

// goodput is the probe of the bytes per second of all operations together.
func (l *load) goodput(ctx context.Context, d time.Duration) ([]float64, error) {
	batch := 1
	if len(l.buffers) == 1 {
		batch = batchOf(l.size)
	}
	rate, err := drive(ctx, len(l.buffers), batch, d, l.do)
	return []float64{rate * float64(l.size)}, err
}

// latency is the probe of the time that one operation takes, p50 and p99.
func (l *load) latency(ctx context.Context, d time.Duration) ([]float64, error) {
	return latencies(ctx, d, func(ctx context.Context) error { return l.do(ctx, 0) })
}

// inFlight is how many operations of a size the client has under way: enough to hide
// the round trip, and no more memory than the data is worth.
func inFlight(size int64) int {
	switch {
	case size <= 64*kib:
		return 32
	case size <= mib:
		return 8
	case size <= 4*mib:
		return 4
	}
	return 2
}

// measureSocket measures the goodput of an operation for each size over a socket,
// against a raw stream in the same direction.
func (b *bench) measureSocket(ctx context.Context, transport, op string) error {
	for _, size := range bulkSizes() {
		d, err := b.deployment(ctx, transport)
		if err != nil {
			return err
		}
		e := uploading()
		if op == opPull {
			e = downloading()
		}
		raw, err := d.raw(ctx, e)
		if err != nil {
			return err
		}
		l := d.load(op, size, inFlight(size))
		p, err := b.alternate(ctx, raw.stream, l.goodput)
		if err != nil {
			return err
		}
		r := compared(op+"."+transport, size, "GB/s", 1e-9, p.product[0], p.limit[0])
		r.Note = fmt.Sprintf("%d in flight", inFlight(size))
		if err := b.out.add(r); err != nil {
			return err
		}
	}
	return nil
}

// measureLocal measures operations within this process, against the plain loop that
// does the same to plain buffers.
func (b *bench) measureLocal(ctx context.Context, op string) error {
	d, err := b.deployment(ctx, transportLocal)
	if err != nil {
		return err
	}
	for _, size := range bulkSizes() {
		l := d.load(op, size, 1)
		// The memory that the client's buffer happens to have got is the same for both.
		limit := plainSGD(gradient(size), l.buffers[0])
		if op == opPull {
			limit = plainCopy(gradient(size), l.buffers[0])
		}
		p, err := b.alternate(ctx, limit, l.goodput)
		if err != nil {
			return err
		}
		r := compared(op+"."+transportLocal, size, "GB/s", 1e-9, p.product[0], p.limit[0])
		r.Note = "1 in flight"
		if err := b.out.add(r); err != nil {
			return err
		}
	}
	return nil
}
