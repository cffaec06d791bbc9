package main

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
)

const (
	// movedLayer is one shard, which is moved back and forth.
	movedLayer = "moved"
	// numOthers is how many layers of 1 MiB, a shard each, stay where they are.
	numOthers = 4
)

func otherLayer(i int) string { return fmt.Sprintf("other-%d", i) }

// migrationSizes are the sizes of the shard that moves.
func (o options) migrationSizes() []int64 {
	if o.quick {
		return []int64{mib, 64 * mib}
	}
	return []int64{mib, 64 * mib, gib}
}

func migrationNames() []string {
	names := []string{"migrate"}
	for _, what := range []string{"freeze", "gap"} {
		for _, q := range []string{"p50", "p99", "max"} {
			names = append(names, "migrate."+what+"."+q)
		}
	}
	return append(names, "migrate.others")
}

// migrationModel is a layer of that size and the ones that do not move.
func migrationModel(size int64) shard.Model {
	m := shard.Model{Layers: []shard.Layer{layerOf(movedLayer, size)}}
	for i := range numOthers {
		m.Layers = append(m.Layers, layerOf(otherLayer(i), mib))
	}
	return m
}

// migration is what the moves of shards of one size have shown.
type migration struct {
	idle, loaded []float64 // raw streams without and with the workers, bytes per second
	goodput      []float64 // of each burst of moves, state bytes per second
	quiet, busy  []float64 // pushes per second to other shards without and with a move
	freezes      []float64 // of each move, in seconds
	gaps         []float64
}

// measureMigrations moves shards of several sizes back and forth between two servers.
func (b *bench) measureMigrations(ctx context.Context) error {
	for _, size := range b.migrationSizes() {
		d, err := b.deploy(ctx, layout{transport: transportTCP, model: migrationModel(size), maxShardBytes: size, servers: 2})
		if err != nil {
			return err
		}
		m, err := b.migrate(ctx, d)
		if err != nil {
			return fmt.Errorf("shard of %s: %w", sizeText(size), err)
		}
		for _, r := range m.rows(size) {
			if err := b.out.add(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// migrate measures, again and again: other shards while nothing moves, a raw stream
// between the servers, and a burst of moves. The workers push all the time.
func (b *bench) migrate(ctx context.Context, d *deployment) (*migration, error) {
	var m migration
	v, err := d.newMover(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.streamBetween(ctx, b.probeTime(), b.repeats(), &m.idle); err != nil {
		return nil, err
	}
	t, err := d.startTraffic(ctx)
	if err != nil {
		return nil, err
	}
	defer t.stop()
	warm := &migration{}
	if err := v.burst(ctx, b.probeTime(), t, warm); err != nil { // both servers have had the shard
		return nil, err
	}
	for range b.repeats() {
		rate, err := t.others(ctx, func() error { return sleep(ctx, b.probeTime()) })
		if err != nil {
			return nil, err
		}
		m.quiet = append(m.quiet, rate)
		if err := d.streamBetween(ctx, b.probeTime(), 1, &m.loaded); err != nil {
			return nil, err
		}
		if err := v.burst(ctx, b.probeTime(), t, &m); err != nil {
			return nil, err
		}
	}
	return &m, nil
}

// streamBetween appends figures of a raw stream from the second server to the first.
func (d *deployment) streamBetween(ctx context.Context, t time.Duration, times int, series *[]float64) error {
	for range times {
		limited, cancel := context.WithTimeout(ctx, t+rawGrace)
		s, err := actor.Call[streamed](limited, d.node, d.attendant(d.ids[1]), askStream{Address: d.limits[0].TCP, For: t})
		cancel()
		if err != nil {
			return err
		}
		*series = append(*series, s.BytesPerSecond)
	}
	return nil
}

// mover moves the shard from where it is to the other server.
type mover struct {
	*deployment
	shard shard.ID
	at    int // index of the owner
}

func (d *deployment) newMover(ctx context.Context) (*mover, error) {
	status, err := d.admin.Status(ctx)
	if err != nil {
		return nil, err
	}
	v := &mover{deployment: d, shard: 0} // the first shard of the first layer
	for _, a := range status.Map.Assignments {
		if a.Shard == v.shard && a.Owner == d.ids[1] {
			v.at = 1
		}
	}
	return v, nil
}

// burst makes moves until d is over, one at least.
func (v *mover) burst(ctx context.Context, d time.Duration, t *traffic, m *migration) error {
	var moved int64
	var took time.Duration
	rate, err := t.others(ctx, func() error {
		for start := time.Now(); moved == 0 || time.Since(start) < d; {
			t.witness.reset()
			began := time.Now()
			report, err := v.admin.Move(ctx, v.shard, v.ids[1-v.at])
			took += time.Since(began)
			if err == nil {
				err = report.Err()
			}
			if err != nil {
				return err
			}
			v.at = 1 - v.at
			moved += report.Bytes
			m.freezes = append(m.freezes, report.Freeze.Seconds())
			gap, err := t.witness.longest(ctx)
			if err != nil {
				return err
			}
			m.gaps = append(m.gaps, gap.Seconds())
		}
		return nil
	})
	m.goodput = append(m.goodput, float64(moved)/took.Seconds())
	m.busy = append(m.busy, rate)
	return err
}

// rows are the figures of shards of that size.
func (m *migration) rows(size int64) []row {
	goodput := compared("migrate", size, "GB/s", 1e-9, m.goodput, m.loaded)
	goodput.Note = fmt.Sprintf("%d moves, %d workers push; limit: raw tcp under the same load; without load %s",
		len(m.freezes), numPushers, number(median(m.idle)/1e9))
	rows := []row{goodput}
	for _, s := range []struct {
		name, note string
		series     []float64
	}{
		{"migrate.freeze.", "as reported", m.freezes},
		{"migrate.gap.", "as a worker sees it", m.gaps},
	} {
		for _, p := range []struct {
			name  string
			share float64
		}{{"p50", 0.5}, {"p99", 0.99}, {"max", 1}} {
			r := measured(s.name+p.name, size, "ms", 1e3, s.series)
			r.Value, r.Note = quantile(s.series, p.share)*1e3, s.note
			rows = append(rows, r)
		}
	}
	others := compared("migrate.others", size, "1/s", 1, m.busy, m.quiet)
	others.Note = "64 KiB pushes to shards that do not move, during moves and before"
	return append(rows, others)
}
