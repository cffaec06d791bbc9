package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/ps"
)

// workerCounts are the numbers of workers that push and pull together.
func workerCounts() []int { return []int{1, 2, 4, 8} }

func workerNames() []string {
	var names []string
	for _, n := range workerCounts() {
		names = append(names, fmt.Sprintf("pushpull.workers.%d", n))
		if n > 1 {
			names = append(names, fmt.Sprintf("pushpull.workers.%d.slowest", n))
		}
	}
	return names
}

// crew is workers that each push and then pull 1 MiB, layer after layer. All go over
// the same layers, each from another one on.
type crew struct {
	workers []*ps.Worker
	buffers [][]float32
	next    []int
	done    []atomic.Int64 // operations of each worker
}

func newCrew(workers []*ps.Worker) *crew {
	n := len(workers)
	c := &crew{workers: workers, next: make([]int, n), done: make([]atomic.Int64, n)}
	for i := range workers {
		c.buffers = append(c.buffers, gradient(mib))
		c.next[i] = i
	}
	return c
}

func (c *crew) do(ctx context.Context, i int) error {
	layer := workerLayer(c.next[i] % numWorkerLayers)
	c.next[i]++
	err := c.workers[i].PushPull(ctx, layer, c.buffers[i], c.buffers[i])
	c.done[i].Add(1)
	return err
}

// probe measures the bytes per second of all workers together, pushed and pulled, and
// the share of the slowest in the mean.
func (c *crew) probe(ctx context.Context, d time.Duration) ([]float64, error) {
	for i := range c.done {
		c.done[i].Store(0)
	}
	rate, err := drive(ctx, len(c.workers), 1, d, c.do)
	least, sum := c.done[0].Load(), int64(0)
	for i := range c.done {
		least = min(least, c.done[i].Load())
		sum += c.done[i].Load()
	}
	mean := float64(sum) / float64(len(c.workers))
	return []float64{rate * 2 * mib, float64(least) / max(mean, 1)}, err
}

// measureWorkers measures several workers against the best of what one reaches: with
// one operation in flight, and with eight.
func (b *bench) measureWorkers(ctx context.Context) error {
	d, err := b.deployment(ctx, transportTCP)
	if err != nil {
		return err
	}
	most := slices.Max(workerCounts())
	workers, closeAll, err := d.newWorkers(ctx, most)
	defer closeAll()
	if err != nil {
		return err
	}
	one := newCrew(workers[:1])
	deep := newCrew(slices.Repeat(workers[:1], 8))
	best := func(ctx context.Context, t time.Duration) ([]float64, error) {
		a, err := one.probe(ctx, t)
		if err != nil {
			return nil, err
		}
		b, err := deep.probe(ctx, t)
		if err != nil {
			return nil, err
		}
		return []float64{max(a[0], b[0])}, nil
	}
	for _, n := range workerCounts() {
		p, err := b.alternate(ctx, best, newCrew(workers[:n]).probe)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("pushpull.workers.%d", n)
		r := compared(name, mib, "GB/s", 1e-9, p.product[0], p.limit[0])
		r.Note = "limit: best of one worker, 1 or 8 in flight, tcp"
		if err := b.out.add(r); err != nil {
			return err
		}
		if n == 1 {
			continue
		}
		r = measured(name+".slowest", mib, "of mean", 1, p.product[1]).against(1)
		if err := b.out.add(r); err != nil {
			return err
		}
	}
	return nil
}
