package main

import (
	"context"
	"fmt"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/schedule"
)

// choiceSizes are where the automatic choice of an algorithm is compared with each algorithm.
func choiceSizes() []int64 {
	return []int64{kib, 4 * kib, 16 * kib, 32 * kib, 64 * kib, 128 * kib, 256 * kib, 512 * kib, mib, 4 * mib, 16 * mib, 64 * mib}
}

// fixed are the algorithms of an all-reduce over a transport. What sends everything to
// everybody, or down a tree as one piece after the other has come up, is left out where it
// would take the time of all others together.
func fixed(transport string, size int64) []schedule.Algorithm {
	list := []schedule.Algorithm{schedule.Direct, schedule.RecursiveDoubling, schedule.HalvingDoubling, schedule.Ring}
	if size <= mib {
		list = append(list, schedule.Flat, schedule.Tree)
	}
	if transport == transportShared {
		list = append(list, schedule.Shared)
	}
	return list
}

// tune makes as many calls of a size as a group may need to find its algorithm by them. There
// is nothing to find for an all-reduce in shared memory, a broadcast and an all-to-all.
func (c *crewOfRanks) tune(ctx context.Context, op collective.Collective, size int64) error {
	shares := c.transport == transportShared || c.transport == transportAlloc
	if op == collective.Broadcast || op == collective.AllToAll || op == collective.AllReduce && shares {
		return nil
	}
	return c.order(ctx, size, min(max(64*mib/size, 100), 1000), op)
}

func choiceFamily(transport string) family {
	name := "allreduce.choice." + transport
	return family{
		[]string{name},
		func(b *bench, ctx context.Context) error { return b.measureChoice(ctx, transport, name) },
	}
}

// measureChoice compares groups that choose their algorithm with groups that have one, all
// of them there at the same time.
func (b *bench) measureChoice(ctx context.Context, transport, name string) error {
	b.retire()
	crews := map[schedule.Algorithm]*crewOfRanks{}
	for _, a := range append(fixed(transport, 0), 0) {
		c, err := startRanks(ctx, transport, b.secret, b.stderr, a)
		if err != nil {
			return err
		}
		defer c.close(ctx)
		crews[a] = c
	}
	for _, size := range choiceSizes() {
		if err := b.compareChoice(ctx, crews, transport, name, size); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) compareChoice(ctx context.Context, crews map[schedule.Algorithm]*crewOfRanks, transport, name string, size int64) error {
	algorithms := append(fixed(transport, size), 0)
	series := make([][][]float64, len(algorithms))
	if err := crews[0].tune(ctx, collective.AllReduce, size); err != nil {
		return err
	}
	for range b.repeats() {
		for i, a := range algorithms {
			t := turn{crews[a].bandwidth(collective.AllReduce, size), &series[i]}
			if err := t.take(ctx, b.probeTime()/2); err != nil {
				return err
			}
		}
	}
	chosen := series[len(series)-1][0]
	best := 0
	for i := range len(series) - 1 {
		if median(series[i][0]) > median(series[best][0]) {
			best = i
		}
	}
	r := compared(name, size, "GB/s", 1e-9, chosen, series[best][0])
	r.Note = fmt.Sprintf("%d ranks, best: %v", numRanks, algorithms[best])
	return b.out.add(r)
}

// force is the configuration of a group that has one algorithm for its all-reduces.
func force(a schedule.Algorithm) map[collective.Collective]schedule.Algorithm {
	if a == 0 {
		return nil
	}
	return map[collective.Collective]schedule.Algorithm{collective.AllReduce: a}
}
