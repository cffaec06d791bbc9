package main

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

const (
	// tableName is the layer of the rows about embedding tables.
	tableName = "table"
	// batchIDs is how many ids one operation on rows has.
	batchIDs = 4096
	// filledIDs is how many rows one push makes before the measurement.
	filledIDs = 1 << 16
)

// tableCase is a table that has all its rows, of which some are pulled and pushed.
type tableCase struct {
	transport string
	rows      int
	dim       int
	optimizer ps.Optimizer
}

// tableCases are all tables that are measured. That of 10,000 rows stays in cache.
func tableCases() []tableCase {
	transports := []string{transportLocal, transportTCP}
	if hasUnix {
		transports = []string{transportLocal, transportUnix, transportTCP}
	}
	var cases []tableCase
	for _, transport := range transports {
		for _, rows := range []int{1e6, 1e7} {
			for _, dim := range []int{16, 64} {
				cases = append(cases, tableCase{transport, rows, dim, ps.Adagrad(learningRate)})
			}
		}
	}
	return append(cases, tableCase{transportTCP, 10_000, 16, ps.SGD(learningRate)})
}

func (c tableCase) name(op, ids string) string {
	return fmt.Sprintf("rows.%s.%s.%s.%d.%s", op, c.transport, countText(c.rows), c.dim, ids)
}

// countText writes a round number of rows.
func countText(n int) string {
	if n >= 1e6 {
		return fmt.Sprintf("%dM", n/1e6)
	}
	return fmt.Sprintf("%dk", n/1e3)
}

// tableFamilies has a family for each table.
func tableFamilies() []family {
	var families []family
	for _, c := range tableCases() {
		f := family{measure: func(b *bench, ctx context.Context) error { return b.measureTable(ctx, c) }}
		for _, op := range []string{opPull, opPush} {
			f.names = append(f.names, c.name(op, uniform), c.name(op, zipf))
		}
		families = append(families, f)
	}
	return families
}

func (c tableCase) model() shard.Model {
	return shard.Model{Layers: []shard.Layer{{
		Name: tableName, Sparse: true, Shape: []int{c.rows, c.dim},
		Init: shard.Initializer{Kind: shard.Uniform, Scale: 0.1, Seed: 1},
	}}}
}

// measureTable measures pulls and pushes of batches of rows of one table.
func (b *bench) measureTable(ctx context.Context, c tableCase) error {
	if b.quick && c.rows > 1e6 {
		return nil
	}
	d, err := b.deploy(ctx, layout{transport: c.transport, model: c.model(), optimizer: c.optimizer, servers: 1})
	if err != nil {
		return err
	}
	defer b.retire() // its memory is wanted by the next one
	if err := d.fill(ctx, c); err != nil {
		return err
	}
	for _, op := range []string{opPull, opPush} {
		for _, ids := range []string{uniform, zipf} {
			if !b.selected(c.name(op, ids)) {
				continue
			}
			if err := b.measureRows(ctx, d, c, op, ids); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill pushes once to every row.
func (d *deployment) fill(ctx context.Context, c tableCase) error {
	ids, grads := make([]int64, filledIDs), gradient(int64(4*c.dim*filledIDs))
	for first := 0; first < c.rows; first += filledIDs {
		n := min(filledIDs, c.rows-first)
		for i := range n {
			ids[i] = int64(first + i)
		}
		if err := d.worker.PushRows(ctx, tableName, ids[:n], grads[:n*c.dim]); err != nil {
			return err
		}
	}
	return nil
}

// measureRows measures one operation with ids of one distribution, against a raw stream of
// the bytes that travel: each row of a batch once.
func (b *bench) measureRows(ctx context.Context, d *deployment, c tableCase, op, ids string) error {
	l := &rowLoad{d: d, op: op, dim: c.dim, batches: batchesOf(ids, c.rows)}
	var limit probe
	if c.transport != transportLocal {
		e := uploading()
		if op == opPull {
			e = downloading()
		}
		raw, err := d.raw(ctx, e)
		if err != nil {
			return err
		}
		defer d.closeRaw()
		perID := float64(8+4*c.dim) * distinctShare(l.batches)
		limit = func(ctx context.Context, t time.Duration) ([]float64, error) {
			figures, err := raw.stream(ctx, t)
			for i := range figures {
				figures[i] /= perID
			}
			return figures, err
		}
	}
	alone, err := l.bestDepth(ctx, b.probeTime())
	if err != nil {
		return err
	}
	p, err := b.alternate(ctx, limit, l.probe)
	if err != nil {
		return err
	}
	r := measured(c.name(op, ids), int64(4*c.dim*batchIDs), "rows/s", 1, p.product[0])
	if limit != nil {
		r = r.against(median(p.limit[0]))
	}
	r.Note = fmt.Sprintf("%v, %d ids, %d in flight, with one %s; processor ns per row: client %.0f, server %.0f", c.optimizer.Kind, batchIDs,
		len(l.buffers), number(alone), median(p.product[1]), median(p.product[2]))
	return b.out.add(r)
}

// rowLoad is operations on batches of rows, some of them in flight.
type rowLoad struct {
	d       *deployment
	op      string
	dim     int
	batches [][]int64
	buffers [][]float32 // one for each operation in flight
	next    []int       // batch of each
}

// rowDepths are how many operations on rows are tried to have in flight.
func rowDepths() []int { return []int{1, 2, 4} }

// bestDepth sets how many operations are in flight to the best number, and returns the
// rows per second with one.
func (l *rowLoad) bestDepth(ctx context.Context, t time.Duration) (alone float64, err error) {
	best, most := 0, 0.0
	for _, n := range rowDepths() {
		l.setDepth(n)
		for _, t := range []time.Duration{t / 2, t} { // a warm-up, and once more
			figures, err := l.probe(ctx, t)
			if err != nil {
				return 0, err
			}
			if n == 1 {
				alone = figures[0]
			}
			if figures[0] > most {
				best, most = n, figures[0]
			}
		}
	}
	l.setDepth(best)
	return alone, nil
}

func (l *rowLoad) setDepth(n int) {
	l.buffers, l.next = nil, make([]int, n)
	for i := range n {
		l.buffers = append(l.buffers, gradient(int64(4*l.dim*batchIDs)))
		l.next[i] = i * numBatches / n
	}
}

// do is one operation of that goroutine.
func (l *rowLoad) do(ctx context.Context, goroutine int) error {
	ids := l.batches[l.next[goroutine]%len(l.batches)]
	l.next[goroutine]++
	if l.op == opPull {
		return l.d.worker.PullRows(ctx, tableName, ids, l.buffers[goroutine])
	}
	return l.d.worker.PushRows(ctx, tableName, ids, l.buffers[goroutine])
}

// probe measures the rows per second of all operations together, and what client and
// server use of the processors for each row, in nanoseconds. Within one process all of it
// is the client's.
func (l *rowLoad) probe(ctx context.Context, t time.Duration) ([]float64, error) {
	serverBefore, err := l.d.usageOrNone(ctx)
	if err != nil {
		return nil, err
	}
	before, start := processorTime(), time.Now()
	rate, err := drive(ctx, len(l.buffers), 4, t, l.do)
	if err != nil {
		return nil, err
	}
	rows := rate * time.Since(start).Seconds() * batchIDs
	client := processorTime() - before
	serverAfter, err := l.d.usageOrNone(ctx)
	server := serverAfter.Processors - serverBefore.Processors
	return []float64{rate * batchIDs, float64(client) / rows, float64(server) / rows}, err
}

// usageOrNone is what the server process has used, nothing if there is none.
func (d *deployment) usageOrNone(ctx context.Context) (usage, error) {
	if d.transport == transportLocal {
		return usage{}, nil
	}
	return d.serverUsage(ctx)
}
