package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// family is rows that are measured together.
type family struct {
	names   []string // of its rows
	measure func(b *bench, ctx context.Context) error
}

// allFamilies is every row that there is, in the order of measurement: what shares a
// deployment stands together.
func allFamilies() []family {
	families := []family{
		{[]string{"limit.copy", "limit.sgd"}, (*bench).measureMemory},
		{[]string{"limit.tcp", "limit.rtt.tcp.p50", "limit.rtt.tcp.p99"}, over(transportTCP, (*bench).measureRaw)},
	}
	families = append(families, socketFamilies(transportTCP)...)
	families = append(families,
		family{[]string{"push.rate"}, (*bench).measureRate},
		family{workerNames(), (*bench).measureWorkers},
		family{allocationNames(), (*bench).measureAllocations},
		family{[]string{"push.tcp.fp16"}, (*bench).measureHalf},
	)
	if hasUnix {
		families = append(families, family{[]string{"limit.unix", "limit.rtt.unix.p50", "limit.rtt.unix.p99"}, over(transportUnix, (*bench).measureRaw)})
		families = append(families, socketFamilies(transportUnix)...)
		families = append(families, reduceFamily(transportUnix), reduceFamily(transportShared), reduceFamily(transportAlloc),
			choiceFamily(transportShared), choiceFamily(transportUnix))
		families = append(families, operationFamilies(transportUnix)...)
		families = append(families, operationFamilies(transportShared)...)
	}
	families = append(families, operationFamilies(transportTCP)...)
	families = append(families,
		reduceFamily(transportTCP),
		reduceFamily(transportProcess),
		choiceFamily(transportTCP),
		choiceFamily(transportProcess),
		family{[]string{"push.local"}, over(opPush, (*bench).measureLocal)},
		family{[]string{"pull.local"}, over(opPull, (*bench).measureLocal)},
		family{optimizerNames(), (*bench).measureOptimizers},
		family{[]string{"optimizer.adam.cache"}, (*bench).measureAdamInCache},
		family{codecNames(), (*bench).measureCodecs},
		family{migrationNames(), (*bench).measureMigrations},
		family{[]string{"replicas.push"}, (*bench).measureReplicated},
		family{[]string{"replicas.latency.p50", "replicas.latency.p99"}, (*bench).measureReplicatedLatency},
		family{[]string{"failover"}, (*bench).measureFailover},
		family{[]string{"checkpoint.write"}, (*bench).measureCheckpoint},
	)
	families = append(families, tableFamilies()...)
	families = append(families, family{redisNames(), (*bench).measureRedis})
	return append(families, memoryFamilies()...)
}

// over binds the argument of a measurement.
func over(arg string, f func(*bench, context.Context, string) error) func(*bench, context.Context) error {
	return func(b *bench, ctx context.Context) error { return f(b, ctx, arg) }
}

func socketFamilies(transport string) []family {
	var families []family
	for _, op := range []string{opPush, opPull} {
		families = append(families, family{
			[]string{op + "." + transport},
			func(b *bench, ctx context.Context) error { return b.measureSocket(ctx, transport, op) },
		})
	}
	for _, op := range []string{opPush, opPull} {
		name := op + ".latency." + transport
		families = append(families, family{
			[]string{name + ".p50", name + ".p99"},
			func(b *bench, ctx context.Context) error { return b.measureLatency(ctx, transport, op) },
		})
	}
	return families
}

// rowNames is the names of all rows.
func rowNames(families []family) []string {
	var names []string
	for _, f := range families {
		names = append(names, f.names...)
	}
	return names
}

// measure measures the families of which rows were asked for.
func (b *bench) measure(ctx context.Context, families []family) error {
	for _, f := range families {
		if !slices.ContainsFunc(f.names, b.selected) {
			continue
		}
		if err := f.measure(b, ctx); err != nil {
			return fmt.Errorf("bench: rows %s: %w", strings.Join(f.names, ", "), err)
		}
	}
	return nil
}

// bound says which way a target is to be read.
type bound uint8

const (
	none bound = iota
	ratioAtLeast
	ratioAtMost
	valueAtLeast
	valueAtMost
)

// target is what the project wants of a row. The zero value is no target.
type target struct {
	bound bound
	value float64
}

// targetRow gives the target of the rows of a name, which may end in "*", at some
// sizes, or at all if there are none.
type targetRow struct {
	name  string
	sizes []int64
	target
}

// targets has every target in one place. The first row that fits counts.
func targets() []targetRow {
	return []targetRow{
		{"push.tcp", []int64{mib, 4 * mib}, target{ratioAtLeast, 0.88}},
		{"pull.tcp", []int64{mib, 4 * mib}, target{ratioAtLeast, 0.90}},
		{"push.tcp", []int64{64 * kib}, target{ratioAtLeast, 0.75}},
		{"pull.tcp", []int64{64 * kib}, target{ratioAtLeast, 0.75}},
		{"push.tcp", []int64{64 * mib}, target{ratioAtLeast, 0.85}},
		{"pull.tcp", []int64{64 * mib}, target{ratioAtLeast, 0.85}},
		{"push.tcp.fp16", nil, target{ratioAtMost, 0.7}},
		{"push.unix", []int64{64 * kib, mib, 4 * mib}, target{ratioAtLeast, 0.75}},
		{"pull.unix", []int64{64 * kib, mib, 4 * mib}, target{ratioAtLeast, 0.75}},
		{"push.unix", []int64{64 * mib}, target{ratioAtLeast, 0.5}},
		{"pull.unix", []int64{64 * mib}, target{ratioAtLeast, 0.5}},
		{"push.local", []int64{4 * mib}, target{ratioAtLeast, 0.8}},
		{"pull.local", []int64{4 * mib}, target{ratioAtLeast, 0.8}},
		{"push.latency.*.p50", nil, target{ratioAtMost, 1.3}},
		{"push.latency.*.p99", nil, target{ratioAtMost, 2.5}},
		{"pull.latency.*.p50", nil, target{ratioAtMost, 1.3}},
		{"pull.latency.*.p99", nil, target{ratioAtMost, 2.5}},
		{"push.rate", nil, target{valueAtLeast, 1e6}},
		{"pushpull.workers.8", nil, target{ratioAtLeast, 0.9}},
		{"pushpull.workers.8.slowest", nil, target{ratioAtLeast, 0.5}},
		{"optimizer.adam.cache", nil, target{ratioAtLeast, 8}},
		{"optimizer.*", nil, target{ratioAtLeast, 0.8}},
		{"migrate", nil, target{ratioAtLeast, 0.7}},
		{"migrate.freeze.p99", nil, target{valueAtMost, 5}},
		{"migrate.gap.p99", nil, target{valueAtMost, 5}},
		{"migrate.others", nil, target{ratioAtLeast, 0.9}},
		{"failover", nil, target{valueAtMost, 1000}},
		{"checkpoint.write", nil, target{ratioAtLeast, 0.8}},
		{"rows.pull.unix.1M.16.zipf", nil, target{valueAtLeast, 10e6}},
		{"rows.push.unix.1M.16.zipf", nil, target{valueAtLeast, 6e6}},
		{"rows.*.tcp.10k.16.uniform", nil, target{valueAtLeast, 35e6}},
		{"rows.memory.*", nil, target{ratioAtMost, 1.5}},
		{"allreduce.tcp", []int64{64 * mib}, target{ratioAtLeast, 0.75}},
		{"allreduce.tcp", []int64{mib, 4 * mib}, target{ratioAtLeast, 0.7}},
		{"allreduce.choice.*", nil, target{ratioAtLeast, 0.9}},
		{"allreduce.shm.busbw", []int64{64 * mib}, target{valueAtLeast, 1.37}},
		{"allreduce.shm.busbw", []int64{4 * mib}, target{valueAtLeast, 2.6}},
		{"allreduce.tcp.latency.p50", nil, target{valueAtMost, 120}},
		{"allreduce.shm.latency.p50", nil, target{valueAtMost, 40}},
		{"allocs.*.bytes", []int64{mib}, target{ratioAtMost, 0.01}},
		{"allocs.resident", nil, target{ratioAtMost, 1.3}},
	}
}

// targetOf returns the target of a row, the zero target if it has none.
func targetOf(name string, size int64) target {
	for _, t := range targets() {
		before, after, wild := strings.Cut(t.name, "*")
		fits := name == t.name || wild && strings.HasPrefix(name, before) && strings.HasSuffix(name, after)
		if fits && (len(t.sizes) == 0 || slices.Contains(t.sizes, size)) {
			return t.target
		}
	}
	return target{}
}

// missed reports whether a row is on the wrong side of its target.
func (t target) missed(r row) bool {
	switch {
	case t.bound == valueAtLeast:
		return r.Value < t.value
	case t.bound == valueAtMost:
		return r.Value > t.value
	case r.Ratio == nil:
		return false
	case t.bound == ratioAtLeast:
		return *r.Ratio < t.value
	case t.bound == ratioAtMost:
		return *r.Ratio > t.value
	}
	return false
}

// String is the target as the table shows it.
func (t target) String() string {
	switch t.bound {
	case ratioAtLeast, valueAtLeast:
		return ">= " + t.valueText()
	case ratioAtMost, valueAtMost:
		return "<= " + t.valueText()
	}
	return "-"
}

// valueText marks a bound on the value, not the ratio.
func (t target) valueText() string {
	if t.bound == valueAtLeast || t.bound == valueAtMost {
		return number(t.value) + " abs"
	}
	return number(t.value)
}
