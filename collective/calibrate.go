package collective

import (
	"context"
	"maps"
	"time"

	"github.com/elasticps/elasticps/collective/schedule"
)

// Sizes of a calibration. Of the rounds the fastest counts, on the mean of its repeats: a
// single call takes no time on a rank that comes last.
const (
	calibrationBytes   = 256 << 10
	calibrationRounds  = 3
	calibrationRepeats = 3
)

// settle waits for all ranks, so that none has a group that another one has not, and
// measures what the choice of algorithms needs.
func (g *Group) settle(ctx context.Context) error {
	local := map[int]int{}
	for _, node := range g.nodes {
		local[node]++
	}
	g.model = model{ // the order of what sockets of one host take
		Ranks: g.Size(), Nodes: len(local), Local: g.Size(), Far: 1,
		Latency: 20e-6, Gap: 5e-6, Byte: 1e-9, Spread: 1.2e-9, Combine: 0.1e-9,
	}
	for _, n := range local {
		g.model.Local = min(g.model.Local, n)
	}
	if len(local) > 1 {
		g.model.Far = 4 // what was measured is the slowest link; those within a node are not measured
	}
	forced := g.cfg.Algorithms
	err := g.Barrier(ctx)
	if err == nil && g.Size() > 1 && !g.cfg.NoCalibration {
		err = g.calibrate(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cfg.Algorithms, g.base, g.completed = forced, g.seq, 0
	return err
}

// calibrate fills the model. Nobody else uses the group yet.
func (g *Group) calibrate(ctx context.Context) error {
	n := g.Size()
	part, all := make([]uint8, calibrationBytes), make([]uint8, n*calibrationBytes)
	timed := func(a schedule.Algorithm, bytes int) (float64, error) {
		forced := maps.Clone(g.cfg.Algorithms)
		if forced == nil {
			forced = map[Collective]schedule.Algorithm{}
		}
		forced[AllGather] = a
		g.cfg.Algorithms = forced
		least := 0.0
		for round := range calibrationRounds {
			begin := time.Now()
			for range calibrationRepeats {
				if err := g.AllGather(ctx, Of(all[:n*bytes]), Of(part[:bytes])); err != nil {
					return 0, err
				}
			}
			if t := time.Since(begin).Seconds() / calibrationRepeats; round == 0 || t < least {
				least = t
			}
		}
		return least, nil
	}
	var took [4]float64
	for i, what := range []struct {
		algorithm schedule.Algorithm
		bytes     int
	}{{schedule.Ring, 1}, {schedule.Direct, 1}, {schedule.Ring, calibrationBytes}, {schedule.Direct, calibrationBytes}} {
		var err error
		if took[i], err = timed(what.algorithm, what.bytes); err != nil {
			return err
		}
	}
	begin := time.Now()
	combine(Float32, Sum, all[:calibrationBytes], part)
	bulk := float64((n - 1) * calibrationBytes)
	mine := []float64{
		took[0] / float64(n-1), took[1], max(took[2]-took[0], 0) / bulk, max(took[3]-took[1], 0) / bulk,
		time.Since(begin).Seconds() / calibrationBytes,
	}
	theirs := make([]float64, n*len(mine))
	if err := g.AllGather(ctx, Of(theirs), Of(mine)); err != nil {
		return err
	}
	mean := make([]float64, len(mine))
	for i, x := range theirs { // in the same order everywhere, so with the same result
		mean[i%len(mine)] += x / float64(n)
	}
	g.model.Latency, g.model.Byte, g.model.Spread, g.model.Combine = mean[0], mean[2], mean[3], mean[4]
	g.model.Gap = 0
	if n > 2 {
		g.model.Gap = max(mean[1]-mean[0], 0) / float64(n-2)
	}
	return nil
}
