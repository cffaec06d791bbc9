package collective

import (
	"context"
	"maps"
	"runtime"
	"time"

	"github.com/elasticps/elasticps/collective/schedule"
)

// Sizes of a calibration. Of the rounds the fastest counts, on the mean of its repeats: a
// single call takes no time on a rank that comes last.
const (
	calibrationBytes   = 256 << 10
	calibrationMiddle  = 32 << 10 // more than is sent without a hand-over
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
	g.cfg.Algorithms = nil
	all, err := g.agree(ctx, g.shared.complete(), !g.cfg.NoCalibration)
	g.cfg.Algorithms = forced
	g.model.Shared = all[0]
	if err == nil && g.Size() > 1 && all[1] {
		err = g.calibrate(ctx)
		g.contests = map[kind]*contest{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cfg.Algorithms, g.base, g.completed = forced, g.seq, 0
	return err
}

// agree waits for all ranks and reports which of what is asked is true on all.
func (g *Group) agree(ctx context.Context, yes ...bool) ([]bool, error) {
	x := make([]uint8, len(yes))
	for i := range yes {
		if yes[i] {
			x[i] = 1
		}
	}
	err := g.do(ctx, Call{Collective: Barrier, Dst: Of(x), Src: Of(x), Op: Min})
	for i := range yes {
		yes[i] = x[i] == 1
	}
	return yes, err
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
		return fastest(calibrationRounds, calibrationRepeats, func() error { return g.AllGather(ctx, Of(all[:n*bytes]), Of(part[:bytes])) })
	}
	sizes := []int{1, calibrationMiddle, calibrationBytes}
	var ring, burst [3]float64
	for i, bytes := range sizes {
		var err error
		if ring[i], err = timed(schedule.Ring, bytes); err != nil {
			return err
		}
		if burst[i], err = timed(schedule.Direct, bytes); err != nil {
			return err
		}
	}
	begin := time.Now()
	combine(Float32, Sum, all[:calibrationBytes], part)
	latency, handover, perByte := line(ring, float64(n-1), float64(n-1))
	once, handovers, spread := line(burst, 1, float64(n-1))
	mine := []float64{latency, handover, perByte, once, handovers, spread, time.Since(begin).Seconds() / calibrationBytes, g.crowd()}
	mean, err := g.mean(ctx, mine)
	if err != nil {
		return err
	}
	m := &g.model
	m.Latency, m.Handover, m.Byte, m.Handovers, m.Spread, m.Combine, m.Crowd = mean[0], mean[1], mean[2], mean[4], mean[5], mean[6], mean[7]
	m.Gap = 0
	if n > 2 {
		m.Gap = max(mean[3]-mean[0], 0) / float64(n-2)
	}
	return nil
}

// crowd is how many ranks share a processor of this host.
func (g *Group) crowd() float64 {
	return float64(g.roster.on(g.origin.self.Host)) / float64(runtime.GOMAXPROCS(0))
}

// mean is the mean of each figure over the ranks, the same on all.
func (g *Group) mean(ctx context.Context, mine []float64) ([]float64, error) {
	theirs := make([]float64, g.Size()*len(mine))
	if err := g.AllGather(ctx, Of(theirs), Of(mine)); err != nil {
		return nil, err
	}
	mean := make([]float64, len(mine))
	for i, x := range theirs { // in the same order everywhere, so with the same result
		mean[i%len(mine)] += x / float64(g.Size())
	}
	return mean, nil
}

// fastest is the time of a call in the fastest of so many rounds of so many calls.
func fastest(rounds, repeats int, call func() error) (float64, error) {
	least := 0.0
	for round := range rounds {
		begin := time.Now()
		for range repeats {
			if err := call(); err != nil {
				return 0, err
			}
		}
		if t := time.Since(begin).Seconds() / float64(repeats); round == 0 || t < least {
			least = t
		}
	}
	return least, nil
}

// line fits times of messages of one byte, calibrationMiddle and calibrationBytes, so many
// in a row and so many in all: the latency of one, what a large one adds, and the time of
// a byte.
func line(took [3]float64, inRow, inAll float64) (latency, handover, perByte float64) {
	latency = took[0] / inRow
	perByte = max(took[2]-took[1], 0) / (inAll * (calibrationBytes - calibrationMiddle))
	handover = max((took[1]-perByte*inAll*calibrationMiddle)/inRow-latency, 0)
	return latency, handover, perByte
}
