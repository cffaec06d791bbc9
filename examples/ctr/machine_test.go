package main

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// fixed are the layers of a machine that do not change. It keeps what was pushed.
type fixed struct {
	bias   float32
	rows   map[string]map[int64][]float32
	pushed map[string]map[int64][]float32
}

func (f *fixed) Pull(_ context.Context, _ string, dst []float32) error {
	dst[0] = f.bias
	return nil
}

func (f *fixed) Push(ctx context.Context, layer string, grad []float32) error {
	return f.PushRows(ctx, layer, []int64{0}, grad)
}

func (f *fixed) row(table string, id int64, dim int) []float32 {
	r, ok := f.rows[table][id]
	if !ok {
		rng := rand.New(rand.NewPCG(uint64(dim), uint64(id)))
		for range dim {
			r = append(r, float32(0.2*rng.NormFloat64()))
		}
		if f.rows[table] == nil {
			f.rows[table] = map[int64][]float32{}
		}
		f.rows[table][id] = r
	}
	return r
}

func (f *fixed) PullRows(_ context.Context, table string, ids []int64, dst []float32) error {
	dim := len(dst) / len(ids)
	for i, id := range ids {
		copy(dst[i*dim:], f.row(table, id, dim))
	}
	return nil
}

func (f *fixed) PushRows(_ context.Context, table string, ids []int64, grads []float32) error {
	if f.pushed[table] == nil {
		f.pushed[table] = map[int64][]float32{}
	}
	dim := len(grads) / len(ids)
	for i, id := range ids {
		f.pushed[table][id] = append([]float32(nil), grads[i*dim:(i+1)*dim]...)
	}
	return nil
}

// TestMachine compares the logits of two samples with their definition, and the gradients
// with differences of the loss.
func TestMachine(t *testing.T) {
	const dim = 3
	samples, err := readAll(&planted{seed: 1, total: 2}, 2)
	require.NoError(t, err)
	samples[0].click, samples[1].click = true, false
	f := &fixed{bias: -0.3, rows: map[string]map[int64][]float32{}, pushed: map[string]map[int64][]float32{}}
	m := newMachine(dim)
	loss := func() (sum float64) {
		require.NoError(t, m.pull(t.Context(), f, samples))
		for i, s := range samples {
			y := m.logit(i)
			require.InDelta(t, naive(f, s, dim), float64(y), 1e-4)
			m.learn(i, y, s.click)
			z := float64(y)
			if s.click {
				z = -z
			}
			sum += math.Log1p(math.Exp(z))
		}
		require.NoError(t, m.push(t.Context(), f))
		return sum
	}
	loss()
	analytic := f.pushed
	f.pushed = map[string]map[int64][]float32{}
	slope := func(x *float32) float64 {
		const h = 1e-2
		at := *x
		*x = at + h
		up := loss()
		*x = at - h
		down := loss()
		*x = at
		return (up - down) / (2 * h)
	}
	require.InDelta(t, slope(&f.bias), float64(analytic[biasLayer][0][0]), 1e-3)
	var ids [numFields]int64
	samples[1].features(&ids)
	for _, id := range ids {
		require.InDelta(t, slope(&f.row(weightTable, id, 1)[0]), float64(analytic[weightTable][id][0]), 1e-3)
		for k := range dim {
			require.InDelta(t, slope(&f.row(factorTable, id, dim)[k]), float64(analytic[factorTable][id][k]), 2e-3)
		}
	}
}

// naive is the logit by its definition, pair by pair.
func naive(f *fixed, s sample, dim int) float64 {
	var ids [numFields]int64
	s.features(&ids)
	y := float64(f.bias)
	for i, a := range ids {
		y += float64(f.row(weightTable, a, 1)[0])
		for _, b := range ids[:i] {
			for k, x := range f.row(factorTable, a, dim) {
				y += float64(x) * float64(f.row(factorTable, b, dim)[k])
			}
		}
	}
	return y
}
