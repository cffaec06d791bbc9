package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
)

const (
	// replicatedBytes is the size of the pushes that a follower has to confirm.
	replicatedBytes = 4 * mib
	// scatteredBytes is the size of small pushes that several followers have to confirm.
	scatteredBytes = 4 * kib
	// lostBytes is the size of the layer whose server is killed, in shards of 4 MiB.
	lostBytes = 64 * mib
)

// replicated is a layer of that size on two servers that follow each other.
func replicated(size int64) layout {
	return layout{
		transport: transportTCP, servers: 2, replicas: 1, maxShardBytes: 4 * mib,
		model: shard.Model{Layers: []shard.Layer{layerOf(layerName(size), size)}},
	}
}

// scattered is a layer of that size in eight shards on three servers.
func scattered(size int64) layout {
	l := replicated(size)
	l.servers, l.maxShardBytes = 3, size/8
	return l
}

// besides starts two jobs that are used in turns, one without followers and one with them.
// The caller closes the second.
func (b *bench) besides(ctx context.Context, without, with layout) (single, double *deployment, err error) {
	without.replicas = 0
	if single, err = b.deploy(ctx, without); err != nil {
		return nil, nil, err
	}
	double = &deployment{layout: with, b: b}
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err = errors.Join(double.start(limited), double.protected(limited)); err != nil {
		double.close()
		return nil, nil, err
	}
	return single, double, nil
}

// measureReplicated measures pushes that one follower confirms, against the same pushes
// to a server without a follower.
func (b *bench) measureReplicated(ctx context.Context) error {
	alone := replicated(replicatedBytes)
	alone.servers = 1
	single, double, err := b.besides(ctx, alone, replicated(replicatedBytes))
	if err != nil {
		return err
	}
	defer double.close()
	n := inFlight(replicatedBytes)
	p, err := b.alternate(ctx, single.load(opPush, replicatedBytes, n).goodput, double.load(opPush, replicatedBytes, n).goodput)
	if err != nil {
		return err
	}
	r := compared("replicas.push", replicatedBytes, "GB/s", 1e-9, p.product[0], p.limit[0])
	r.Note = fmt.Sprintf("%d in flight, one follower; limit: the same without", n)
	return b.out.add(r)
}

// measureReplicatedLatency measures small pushes of several shards, each with a follower on
// one of the other servers, against the same pushes without followers.
func (b *bench) measureReplicatedLatency(ctx context.Context) error {
	single, double, err := b.besides(ctx, scattered(scatteredBytes), scattered(scatteredBytes))
	if err != nil {
		return err
	}
	defer double.close()
	p, err := b.alternate(ctx, single.load(opPush, scatteredBytes, 1).latency, double.load(opPush, scatteredBytes, 1).latency)
	if err != nil {
		return err
	}
	for i, percentile := range []string{"p50", "p99"} {
		r := compared("replicas.latency."+percentile, scatteredBytes, "us", 1e6, p.product[i], p.limit[i])
		r.Note = "eight shards on three servers, one follower each; limit: the same without"
		if err := b.out.add(r); err != nil {
			return err
		}
	}
	return nil
}

// protected returns when every shard has its follower.
func (d *deployment) protected(ctx context.Context) error {
	for {
		status, err := d.admin.Status(ctx)
		if err != nil {
			return err
		}
		unplaced := func(a shard.Assignment) bool { return a.Owner == "" }
		if status.Exposed == 0 && len(status.Map.Assignments) > 0 && !slices.ContainsFunc(status.Map.Assignments, unplaced) {
			return nil
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%d shards without a follower: %w", status.Exposed, err)
		}
	}
}

// measureFailover kills the owner of the first shard again and again, and starts another
// server in its place.
func (b *bench) measureFailover(ctx context.Context) error {
	d, err := b.deploy(ctx, replicated(lostBytes))
	if err != nil {
		return err
	}
	var outages []float64
	for range b.repeats() {
		limited, cancel := context.WithTimeout(ctx, startTimeout)
		outage, err := d.outage(limited)
		cancel()
		if err != nil {
			return err
		}
		outages = append(outages, outage.Seconds())
	}
	r := measured("failover", lostBytes, "ms", 1e3, outages)
	r.Note = "from SIGKILL of a server to the end of the first push to all shards"
	return b.out.add(r)
}

// outage is the time from the death of the first shard's owner to the end of a push to all
// shards. Then another server takes its place.
func (d *deployment) outage(ctx context.Context) (time.Duration, error) {
	if err := d.protected(ctx); err != nil {
		return 0, err
	}
	status, err := d.admin.Status(ctx)
	if err != nil {
		return 0, err
	}
	victim := status.Map.Assignments[0].Owner
	l := d.load(opPush, lostBytes, 1)
	if err := l.do(ctx, 0); err != nil { // it has connections to all
		return 0, err
	}
	began := time.Now()
	if _, err := d.node.Call(ctx, d.attendant(victim), killYourself{}); !errors.Is(err, actor.ErrNodeDown) {
		return 0, fmt.Errorf("server %q was killed, and its node is not down: %w", victim, err)
	}
	if err := l.do(ctx, 0); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return took, errors.Join(d.b.servers.Stop(ctx, victim), d.startServer(ctx))
}
