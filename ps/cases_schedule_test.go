package ps_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/internal/table"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// The factors are those that the recursive get_lr of PyTorch's schedulers gives, computed step by
// step: LinearLR, CosineAnnealingLR, StepLR, ExponentialLR; the last rows are by hand.
func TestScheduleFactor(t *testing.T) {
	for name, c := range map[string]struct {
		schedule ps.Schedule
		want     []float64
	}{
		"zero":           {ps.Schedule{}, []float64{1, 1, 1}},
		"warm-up":        {ps.Schedule{Warmup: 4}, []float64{0.2, 0.4, 0.6000000000000001, 0.8, 1.0, 1.0, 1.0}},
		"linear":         {ps.Schedule{Kind: ps.ScheduleLinear, Clocks: 5, Floor: 0.1}, []float64{1, 0.8200000000000001, 0.6400000000000001, 0.4600000000000001, 0.2800000000000001, 0.1, 0.1, 0.1}},
		"cosine":         {ps.Schedule{Kind: ps.ScheduleCosine, Clocks: 6, Floor: 0.05}, []float64{1.0, 0.9363620667976085, 0.7625000000000001, 0.525, 0.28750000000000014, 0.11363793320239163, 0.05, 0.05, 0.05}},
		"step":           {ps.Schedule{Kind: ps.ScheduleStep, Clocks: 3, Gamma: 0.3}, []float64{1, 1, 1, 0.3, 0.3, 0.3, 0.09, 0.09}},
		"exponential":    {ps.Schedule{Kind: ps.ScheduleExponential, Gamma: 0.9}, []float64{1.0, 0.9, 0.81, 0.7290000000000001, 0.6561000000000001, 0.5904900000000002}},
		"inverse sqrt":   {ps.Schedule{Kind: ps.ScheduleInverseSqrt, Warmup: 4, Clocks: 4}, []float64{0.2, 0.4, 0.6, 0.8, 1.0, 0.8944271909999159, 0.816496580927726, 0.7559289460184544, 0.7071067811865476, 0.6666666666666666}},
		"warm-up cosine": {ps.Schedule{Kind: ps.ScheduleCosine, Warmup: 2, Clocks: 4}, []float64{0.3333333333333333, 0.6666666666666666, 1.0, 0.8535533905932737, 0.5, 0.14644660940672627, 0.0, 0.0}},
	} {
		t.Run(name, func(t *testing.T) {
			for clock, want := range c.want {
				require.InDelta(t, want, c.schedule.Factor(uint32(clock)), 1e-14, "clock %d", clock)
			}
			last := c.schedule.Factor(1<<32 - 1)
			require.True(t, last >= 0 && last <= 1, "%v", last)
			require.Zero(t, testing.AllocsPerRun(10, func() { last += c.schedule.Factor(5) }))
		})
	}
}

// A factor is the same as that much of the learning rate, in every rule that has a schedule.
func TestScheduleOfEveryRule(t *testing.T) {
	for _, o := range []ps.Optimizer{
		withDecay(ps.SGD(0.1), 0.01), ps.Momentum(0.1, 0.9), ps.Nesterov(0.1, 0.9), ps.Adagrad(0.1),
		ps.AdagradRow(0.1), withDecay(ps.Adam(0.1), 0.01), ps.AdamW(0.1, 0.01), ps.AMSGrad(0.1),
	} {
		t.Run(o.Kind.String(), func(t *testing.T) {
			const dim, factor = 19, 0.3
			less := o
			less.LearningRate *= factor
			var got [2][]float32
			for i, rule := range []table.Rule{o.RowRule(dim), less.RowRule(dim)} {
				slots := make([][]float32, len(rule.Slots))
				for k, s := range rule.Slots {
					slots[k] = vector(s.Elems, s.Start)
				}
				got[i] = vector(dim, 1)
				for step := range 3 {
					rule.Step(got[i], gradient("w", step, "x", dim), slots, uint64(step+1), []float64{factor, 1}[i])
				}
			}
			require.Equal(t, got[1], got[0])
			require.NotEqual(t, vector(dim, 1), got[0])
		})
	}
}

func TestScheduleRefused(t *testing.T) {
	for want, s := range map[string]ps.Schedule{
		"ps: adam: unknown schedule 6, have constant":                                   {Kind: 6},
		"ps: adam: Schedule cosine: Clocks 0, must be at least 1":                       {Kind: ps.ScheduleCosine},
		"ps: adam: Schedule inverse sqrt: Clocks 0, must be at least 1":                 {Kind: ps.ScheduleInverseSqrt},
		"ps: adam: Schedule linear: Floor 1.5, must be in [0, 1]":                       {Kind: ps.ScheduleLinear, Clocks: 1, Floor: 1.5},
		"ps: adam: Schedule step: Gamma 0, must be in (0, 1]":                           {Kind: ps.ScheduleStep, Clocks: 1},
		"ps: adam: Schedule exponential: Gamma NaN, must be in (0, 1]":                  {Kind: ps.ScheduleExponential, Gamma: math.NaN()},
		"ps: adam: Schedule exponential: Clocks 3, must be 0, it is not used":           {Kind: ps.ScheduleExponential, Clocks: 3, Gamma: 0.9},
		"ps: adam: Schedule constant: Floor 0.1, must be 0, it is not used":             {Warmup: 3, Floor: 0.1},
		"ps: ftrl: Schedule {Kind:constant Warmup:3 Clocks:0 Gamma:0 Floor:0}, must be": {Warmup: 3},
	} {
		o := ps.Adam(0.1)
		if want[:8] == "ps: ftrl" {
			o = ps.FTRL(0.1, 0, 0)
		}
		o.Schedule = s
		c := newCluster(t, layersJob(ps.NoReplicas, 1, 10))
		cfg := c.cfg
		cfg.Job.Optimizer = o
		_, err := ps.StartCoordinator(c.ctx, cfg)
		require.ErrorContains(t, err, want)
	}
}

// The description of a job without a schedule is what it was before there were any: a store
// goes on.
func TestScheduleNotInDigest(t *testing.T) {
	text, err := json.Marshal(ps.Adam(0.1))
	require.NoError(t, err)
	require.NotContains(t, string(text), "Schedule")
}

// scheduled is a job with one worker and what its parameters must be.
type scheduled struct {
	*cluster
	w     *ps.Worker
	o     ps.Optimizer
	steps map[string][]uint64 // of layers, or of each row
	want  map[string][][]float32
	clock uint32
	// between is what happens when a clock's pushes are there and it has not ended.
	between func()
}

const (
	scheduledElems = 200
	scheduledRows  = 40
	scheduledDim   = 3
)

// step pushes gradients of one clock: some layers and rows are pushed to in each, others now
// and then, so that their sums are applied in later ones.
func (s *scheduled) step() {
	require.Equal(s.t, s.clock, s.w.Clock())
	lr := s.o.LearningRate * s.o.Schedule.Factor(s.clock)
	clock := int(s.clock)
	for i, name := range []string{"a", "b"} {
		if clock%(3*i+1) == 0 {
			g := gradient(name, clock, name, scheduledElems)
			require.NoError(s.t, s.w.Push(s.ctx, name, g))
			s.steps[name][0]++
			x := s.want[name]
			kernel.Adam(x[0], g, x[1], x[2], kernel.NewAdam(lr, s.o.Beta1, s.o.Beta2, s.o.Epsilon, s.o.WeightDecay, s.steps[name][0]))
		}
	}
	rule := kernel.NewAdamSchedule(s.o.Beta1, s.o.Beta2, s.o.Epsilon, s.o.WeightDecay)
	var ids []int64
	for id := range int64(scheduledRows) {
		if clock%int(id%5+1) == 0 {
			ids = append(ids, id)
		}
	}
	g := gradient("t", clock, "t", int64(len(ids)*scheduledDim))
	require.NoError(s.t, s.w.PushRows(s.ctx, "t", ids, g))
	for i, id := range ids {
		s.steps["t"][id]++
		var x [3][]float32
		for k := range x {
			x[k] = s.want["t"][k][id*scheduledDim : (id+1)*scheduledDim]
		}
		kernel.Adam(x[0], g[i*scheduledDim:(i+1)*scheduledDim], x[1], x[2], rule.At(lr, s.steps["t"][id]))
	}
	s.between()
	require.NoError(s.t, s.w.Tick(s.ctx))
	s.clock++
}

func (s *scheduled) check(when string) {
	s.t.Helper()
	for _, name := range []string{"a", "b"} {
		got := make([]float32, scheduledElems)
		require.NoError(s.t, s.w.Pull(s.ctx, name, got))
		require.Equal(s.t, s.want[name][0], got, "layer %s %s", name, when)
	}
	ids := make([]int64, scheduledRows)
	for i := range ids {
		ids[i] = int64(i)
	}
	got := make([]float32, scheduledRows*scheduledDim)
	require.NoError(s.t, s.w.PullRows(s.ctx, "t", ids, got))
	require.Equal(s.t, s.want["t"][0], got, "table %s", when)
}

// Training with a schedule, and without, gives the bits of a local reference in all modes:
// across moves, the death of an owner, whose followers go on, and a checkpoint that another run
// is restored from. Most clocks are trained without a look at the parameters, which under BSP
// would close them.
func TestScheduleSameBits(t *testing.T) {
	for _, mode := range []ps.Consistency{{Mode: ps.BSP}, {Mode: ps.SSP, Staleness: 2}, {Mode: ps.ASP}} {
		for _, schedule := range []ps.Schedule{{}, {Kind: ps.ScheduleCosine, Warmup: 3, Clocks: 11, Floor: 0.01}} {
			t.Run(fmt.Sprint(mode.Mode, " ", schedule.Kind), func(t *testing.T) { scheduledRun(t, mode, schedule) })
		}
	}
}

func scheduledRun(t *testing.T, mode ps.Consistency, schedule ps.Schedule) {
	settled(t)
	o := ps.Adam(0.013)
	o.Schedule = schedule
	job := ps.Job{
		Model:     shard.Model{Layers: []shard.Layer{layer("a", scheduledElems), layer("b", scheduledElems), zeroTable("t", 1000, scheduledDim)}},
		Optimizer: o, Consistency: mode, Replicas: 1,
	}
	folder := checkpoint.Folder(t.TempDir())
	c := newCluster(t, job, saving(folder), patient)
	all := map[shard.ServerID]*ps.Server{}
	for _, id := range []shard.ServerID{"s1", "s2", "s3"} {
		all[id] = c.server(id)
	}
	c.placed()
	s := &scheduled{
		cluster: c, w: c.worker("w"), o: o,
		steps: map[string][]uint64{"a": {0}, "b": {0}, "t": make([]uint64, scheduledRows)}, want: map[string][][]float32{}, between: func() {},
	}
	for name, n := range map[string]int{"a": scheduledElems, "b": scheduledElems, "t": scheduledRows * scheduledDim} {
		s.want[name] = [][]float32{make([]float32, n), make([]float32, n), make([]float32, n)}
	}
	train := func(n int) {
		for range n {
			s.step()
		}
	}
	train(2)
	c.spread("s1", "s2", "s3")
	train(3)
	s.check("after the moves")
	c.protected()
	train(1)
	dead := c.status().Map.Assignments[0].Owner
	require.NoError(t, all[dead].Close())
	train(3)
	s.check("after the death")
	c.protected()
	c.server("s4")
	s.between = func() { // a server that has got sums, and no push, closes them for the checkpoint
		for _, a := range c.status().Map.Assignments {
			c.move(a.Shard, "s4")
		}
	}
	if mode.Mode == ps.BSP {
		c.saveAtEnd(true, s.step)
	} else {
		train(1)
		c.save(true)
	}
	s.between = func() {}
	require.NoError(t, s.w.Leave(c.ctx))

	s.cluster = newCluster(t, job, saving(folder, restoring(ps.RestoreLatest)), patient)
	s.servers(2)
	s.w = s.worker("again")
	s.check("after the restore")
	s.clock = s.w.Clock()
	train(4)
	s.check("at the end")
	require.GreaterOrEqual(t, s.clock, uint32(14))
}
