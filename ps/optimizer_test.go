package ps_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// reference is an optimizer in float64, written from the papers.
type reference struct {
	o                ps.Optimizer
	w, m, v, largest []float64
	t                float64
}

func newReference(o ps.Optimizer, w []float32) *reference {
	r := &reference{o: o, w: make([]float64, len(w)), m: make([]float64, len(w)), v: make([]float64, len(w)), largest: make([]float64, len(w))}
	for i, x := range w {
		r.w[i], r.v[i] = float64(x), o.InitialAccumulator
	}
	return r
}

func (r *reference) step(grad []float32) {
	r.t++
	for i, g32 := range grad {
		g := float64(g32)
		if r.o.Kind != ps.KindAdamW && r.o.Kind != ps.KindFTRL {
			g += r.o.WeightDecay * r.w[i]
		}
		switch r.o.Kind {
		case ps.KindSGD:
			r.w[i] -= r.o.LearningRate * g
		case ps.KindMomentum:
			r.m[i] = r.o.Momentum*r.m[i] + g
			r.w[i] -= r.o.LearningRate * r.m[i]
		case ps.KindNesterov:
			r.m[i] = r.o.Momentum*r.m[i] + g
			r.w[i] -= r.o.LearningRate * (g + r.o.Momentum*r.m[i])
		case ps.KindAdagrad:
			r.v[i] += g * g
			r.w[i] -= r.o.LearningRate * g / (math.Sqrt(r.v[i]) + r.o.Epsilon)
		case ps.KindFTRL:
			r.m[i] += g - (math.Sqrt(r.v[i]+g*g)-math.Sqrt(r.v[i]))/r.o.LearningRate*r.w[i]
			r.v[i] += g * g
			r.w[i] = 0
			if math.Abs(r.m[i]) > r.o.L1 {
				shrunk := r.m[i] - math.Copysign(r.o.L1, r.m[i])
				r.w[i] = -shrunk / ((r.o.Epsilon+math.Sqrt(r.v[i]))/r.o.LearningRate + r.o.WeightDecay)
			}
		default:
			if r.o.Kind == ps.KindAdamW {
				r.w[i] -= r.o.LearningRate * r.o.WeightDecay * r.w[i]
			}
			r.m[i] = r.o.Beta1*r.m[i] + (1-r.o.Beta1)*g
			r.v[i] = r.o.Beta2*r.v[i] + (1-r.o.Beta2)*g*g
			second := r.v[i]
			if r.o.Kind == ps.KindAMSGrad {
				r.largest[i] = max(r.largest[i], second)
				second = r.largest[i]
			}
			mean, variance := r.m[i]/(1-math.Pow(r.o.Beta1, r.t)), second/(1-math.Pow(r.o.Beta2, r.t))
			r.w[i] -= r.o.LearningRate * mean / (math.Sqrt(variance) + r.o.Epsilon)
		}
	}
}

func withDecay(o ps.Optimizer, wd float64) ps.Optimizer {
	o.WeightDecay = wd
	return o
}

func withAccumulator(o ps.Optimizer, start float64) ps.Optimizer {
	o.InitialAccumulator = start
	return o
}

// 100 steps of every optimizer on the servers, with a move in the middle, agree with
// a float64 reference: slots and step counts start at their own values and move.
func TestT26OptimizersAgainstReference(t *testing.T) {
	together(t)
	optimizers := map[string]ps.Optimizer{
		"sgd": ps.SGD(0.05), "sgd decay": withDecay(ps.SGD(0.05), 0.01),
		"momentum": ps.Momentum(0.05, 0.9), "nesterov": ps.Nesterov(0.05, 0.9),
		"adagrad": ps.Adagrad(0.1), "adam": ps.Adam(0.01), "adam decay": withDecay(ps.Adam(0.01), 0.01),
		"adamw": ps.AdamW(0.01, 0.05), "amsgrad": ps.AMSGrad(0.01), "amsgrad decay": withDecay(ps.AMSGrad(0.01), 0.01),
		"ftrl": ps.FTRL(0.1, 0, 0), "ftrl l1 l2": ps.FTRL(0.1, 1, 0.1),
		"ftrl started": withAccumulator(ps.FTRL(0.1, 0.5, 0), 0.1), "adagrad started": withAccumulator(ps.Adagrad(0.1), 0.3),
	}
	for name, o := range optimizers {
		for _, mode := range []ps.Mode{ps.ASP, ps.BSP} {
			t.Run(name+" "+mode.String(), func(t *testing.T) { optimizerRun(t, o, mode) })
		}
	}
}

func optimizerRun(t *testing.T, o ps.Optimizer, mode ps.Mode) {
	t.Parallel()
	const n = 301
	l := shard.Layer{Name: "x", Shape: []int{n}, Init: shard.Initializer{Kind: shard.Uniform, Scale: 0.5, Seed: 3}}
	job := ps.Job{Model: shard.Model{Layers: []shard.Layer{l}}, Optimizer: o, Consistency: ps.Consistency{Mode: mode}}
	c := newCluster(t, job, oneNode)
	c.server("s1")
	c.server("s2")
	w := c.worker("w")
	got := make([]float32, n)
	require.NoError(t, w.Pull(c.ctx, "x", got))
	require.NotZero(t, got[0])
	ref := newReference(o, got)
	rng := rand.New(rand.NewPCG(1, 2))
	grad := make([]float32, n)
	for step := range 100 {
		for i := range grad {
			grad[i] = float32(rng.NormFloat64())
		}
		require.NoError(t, w.Push(c.ctx, "x", grad))
		require.NoError(t, w.Tick(c.ctx))
		ref.step(grad)
		if step == 50 {
			_, err := c.swapOwners("s1", "s2")
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Pull(c.ctx, "x", got))
	for i := range got {
		require.InDelta(t, ref.w[i], got[i], 2e-4, "element %d", i)
	}
}

func TestJobIsRefused(t *testing.T) {
	model := shard.Model{Layers: []shard.Layer{layer("x", 3)}}
	nan := ps.SGD(math.NaN())
	tests := map[string]struct {
		job  ps.Job
		want string
	}{
		"no layers":       {ps.Job{Optimizer: ps.SGD(1)}, "0 layers"},
		"no optimizer":    {ps.Job{Model: model}, "Job.Optimizer: ps: no optimizer is set"},
		"unknown rule":    {ps.Job{Model: model, Optimizer: ps.Optimizer{Kind: 99}}, "Job.Optimizer: ps: unknown optimizer 99"},
		"layer without":   {ps.Job{Model: model, Optimizer: ps.SGD(1), Optimizers: map[string]ps.Optimizer{"x": {}}}, `layer "x": ps: no optimizer is set`},
		"NaN rate":        {ps.Job{Model: model, Optimizer: nan}, "LearningRate NaN"},
		"infinite rate":   {ps.Job{Model: model, Optimizer: ps.SGD(math.Inf(1))}, "LearningRate +Inf"},
		"beta":            {ps.Job{Model: model, Optimizer: ps.Optimizer{Kind: ps.KindAdam, LearningRate: 1, Beta1: 1, Epsilon: 1}}, "Beta1 1, must be in [0, 1)"},
		"accumulator":     {ps.Job{Model: model, Optimizer: withAccumulator(ps.Adagrad(1), -1)}, "InitialAccumulator -1, must be at least 0"},
		"ftrl":            {ps.Job{Model: model, Optimizer: ps.FTRL(0, -1, 0)}, "L1 -1, must be at least 0"},
		"ftrl rate":       {ps.Job{Model: model, Optimizer: ps.FTRL(0, 0, 0)}, "LearningRate 0, must be above 0"},
		"rows":            {ps.Job{Model: model, Optimizer: ps.AdagradRow(1)}, "adagrad by row is for sparse layers"},
		"staleness":       {ps.Job{Model: model, Optimizer: ps.SGD(1), Consistency: ps.Consistency{Staleness: 3}}, "staleness 3 with ASP"},
		"mode":            {ps.Job{Model: model, Optimizer: ps.SGD(1), Consistency: ps.Consistency{Mode: 9}}, "consistency mode 9"},
		"shard bytes":     {ps.Job{Model: model, Optimizer: ps.SGD(1), MaxShardBytes: -1}, "MaxShardBytes -1"},
		"dtype":           {ps.Job{Model: shard.Model{Layers: []shard.Layer{{Name: "x", Shape: []int{3}, DType: shard.Float64}}}, Optimizer: ps.SGD(1)}, "float64"},
		"negative shape":  {ps.Job{Model: shard.Model{Layers: []shard.Layer{layer("x", -1)}}, Optimizer: ps.SGD(1)}, "-1"},
		"duplicate layer": {ps.Job{Model: shard.Model{Layers: []shard.Layer{layer("x", 1), layer("x", 2)}}, Optimizer: ps.SGD(1)}, "both named"},
	}
	c := newCluster(t, ps.Job{Model: model, Optimizer: ps.SGD(1)}, oneNode)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ps.StartCoordinator(context.Background(), ps.CoordinatorConfig{Node: c.home, Job: tt.job})
			require.ErrorContains(t, err, tt.want)
		})
	}
}
