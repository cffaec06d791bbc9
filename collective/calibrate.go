package collective

import (
	"context"
	"maps"
	"time"

	"github.com/elasticps/elasticps/collective/schedule"
)

// Sizes of a calibration, in bytes and repetitions, of which the fastest counts.
const (
	calibrationBytes   = 256 << 10
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
		Latency: 20e-6, Gap: 5e-6, Byte: 1e-9, Combine: 0.1e-9,
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
		for i := range calibrationRepeats {
			begin := time.Now()
			if err := g.AllGather(ctx, Of(all[:n*bytes]), Of(part[:bytes])); err != nil {
				return 0, err
			}
			if t := time.Since(begin).Seconds(); i == 0 || t < least {
				least = t
			}
		}
		return least, nil
	}
	ring, err := timed(schedule.Ring, 1)
	if err != nil {
		return err
	}
	burst, err := timed(schedule.Direct, 1)
	if err != nil {
		return err
	}
	bulk, err := timed(schedule.Ring, calibrationBytes)
	if err != nil {
		return err
	}
	begin := time.Now()
	combine(Float32, Sum, all[:calibrationBytes], part)
	mine := []float64{
		ring / float64(n-1), burst, max(bulk-ring, 0) / float64((n-1)*calibrationBytes), time.Since(begin).Seconds() / calibrationBytes,
	}
	theirs := make([]float64, n*len(mine))
	if err := g.AllGather(ctx, Of(theirs), Of(mine)); err != nil {
		return err
	}
	mean := make([]float64, len(mine))
	for i, x := range theirs { // in the same order everywhere, so with the same result
		mean[i%len(mine)] += x / float64(n)
	}
	g.model.Latency, g.model.Byte, g.model.Combine = mean[0], mean[2], mean[3]
	g.model.Gap = 0
	if n > 2 {
		g.model.Gap = max(mean[1]-mean[0], 0) / float64(n-2)
	}
	return nil
}
