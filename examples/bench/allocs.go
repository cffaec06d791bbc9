package main

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/actor"
)

// creditBytes is what one operation may have under way: 64 frames of at most 256 KiB.
const creditBytes = 16 * mib

func allocationNames() []string {
	var names []string
	for _, op := range []string{opPush, opPull} {
		names = append(names, "allocs."+op+".client", "allocs."+op+".server", "allocs."+op+".bytes")
	}
	return append(names, "allocs.resident")
}

// measureAllocations counts allocations of operations of 4 KiB and 1 MiB in both
// processes, and compares the memory of the server with what it holds.
func (b *bench) measureAllocations(ctx context.Context) error {
	d, err := b.deployment(ctx, transportTCP)
	if err != nil {
		return err
	}
	for _, op := range []string{opPush, opPull} {
		for _, size := range []int64{4 * kib, mib} {
			l := d.load(op, size, 1)
			p, err := b.alternate(ctx, nil, l.allocations(d))
			if err != nil {
				return err
			}
			prefix := "allocs." + op
			rows := []row{
				measured(prefix+".client", size, "allocs/op", 1, p.product[0]),
				measured(prefix+".server", size, "allocs/op", 1, p.product[1]),
				measured(prefix+".bytes", size, "B/op", 1, p.product[2]).against(float64(size)),
			}
			rows[2].Note = "client and server, against the payload"
			for _, r := range rows {
				if err := b.out.add(r); err != nil {
					return err
				}
			}
		}
	}
	return b.addResident(ctx, d)
}

// serverUsage asks the first server process what it has used.
func (d *deployment) serverUsage(ctx context.Context) (usage, error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	return actor.Call[usage](ctx, d.node, d.attendant(d.ids[0]), askUsage{})
}

// allocations is the probe of the allocations per operation: the client's, the
// server's, and the bytes of both. What the processes allocate beside the operations is
// in it.
func (l *load) allocations(d *deployment) probe {
	return func(ctx context.Context, t time.Duration) ([]float64, error) {
		serverBefore, err := d.serverUsage(ctx)
		if err != nil {
			return nil, err
		}
		operations := 0.0
		before := currentUsage()
		for start := time.Now(); time.Since(start) < t; operations++ {
			if err := l.do(ctx, 0); err != nil {
				return nil, err
			}
		}
		after := currentUsage()
		serverAfter, err := d.serverUsage(ctx)
		if err != nil {
			return nil, err
		}
		return []float64{
			float64(after.Mallocs-before.Mallocs) / operations,
			float64(serverAfter.Mallocs-serverBefore.Mallocs) / operations,
			float64(after.Bytes-before.Bytes+serverAfter.Bytes-serverBefore.Bytes) / operations,
		}, nil
	}
}

// addResident compares the server's resident memory with its parameters, which have no
// slots under plain SGD, and the credit window.
func (b *bench) addResident(ctx context.Context, d *deployment) error {
	if !b.selected("allocs.resident") {
		return nil
	}
	// What has been pushed and pulled in full has gone through every buffer.
	for _, op := range []string{opPush, opPull} {
		l := d.load(op, 64*mib, 2)
		if _, err := l.goodput(ctx, b.probeTime()); err != nil {
			return err
		}
	}
	u, err := d.serverUsage(ctx)
	if err != nil || u.Resident == 0 {
		return err // 0: this system does not say
	}
	parameters := d.model.Bytes()
	r := measured("allocs.resident", parameters, "MB", 1e-6, []float64{float64(u.Resident)}).against(float64(parameters+creditBytes) / 1e6)
	r.Note = fmt.Sprintf("whole process, against parameters (%.0f MB) and credit window (%.0f MB)", float64(parameters)/1e6, creditBytes/1e6)
	return b.out.add(r)
}
