package main

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/examples/internal/rows"
)

// fixed are tables whose rows do not change. It keeps what was pushed.
type fixed struct {
	dim    int
	rows   map[string]map[int64][]float32
	pushed map[string]map[int64][]float32
}

func newFixed(dim int) *fixed {
	return &fixed{dim: dim, rows: map[string]map[int64][]float32{}, pushed: map[string]map[int64][]float32{}}
}

// row is the row of a table: drawn when it is first asked for.
func (f *fixed) row(table string, id int64) []float32 {
	if f.rows[table] == nil {
		f.rows[table] = map[int64][]float32{}
	}
	r, ok := f.rows[table][id]
	if !ok {
		rng := rand.New(rand.NewPCG(uint64(len(table)), uint64(id)))
		for range f.dim {
			r = append(r, float32(rng.NormFloat64()))
		}
		f.rows[table][id] = r
	}
	return r
}

func (f *fixed) PullRows(_ context.Context, table string, ids []int64, dst []float32) error {
	for i, id := range ids {
		copy(dst[i*f.dim:], f.row(table, id))
	}
	return nil
}

func (f *fixed) PushRows(_ context.Context, table string, ids []int64, grads []float32) error {
	if f.pushed[table] == nil {
		f.pushed[table] = map[int64][]float32{}
	}
	for i, id := range ids {
		dim := len(grads) / len(ids)
		f.pushed[table][id] = append([]float32(nil), grads[i*dim:(i+1)*dim]...)
	}
	return nil
}

// TestGradient compares the gradient of two windows, with words that are in both, with
// differences of the loss.
func TestGradient(t *testing.T) {
	const dim = 3
	f := newFixed(dim)
	noise := newDistribution([]int64{1, 1, 1, 1, 1, 1}, 0.75)
	loss := func() float64 {
		w := newWindows(dim)
		rng := rand.New(rand.NewPCG(1, 2))
		w.add([]int32{0, 1, 2, 1}, 1, 0, 4, 2, noise, rng)
		w.add([]int32{2, 1}, 0, 0, 2, 2, noise, rng)
		w.add([]int32{5}, 0, 0, 1, 2, noise, rng) // no window
		require.Len(t, w.ends, 2)
		for _, b := range []*rows.Batch{w.in, w.out} {
			require.NoError(t, b.Pull(t.Context(), f))
		}
		w.seen.Zero()
		sum := w.gradient()
		for _, b := range []*rows.Batch{w.in, w.out, w.seen} {
			require.NoError(t, b.Push(t.Context(), f))
		}
		return sum
	}
	require.Positive(t, loss())
	analytic := f.pushed
	require.Equal(t, map[int64][]float32{1: {-1}, 2: {-1}}, analytic[seenTable])
	const h = 1e-2
	for _, table := range []string{inputTable, outputTable} {
		for id, grad := range analytic[table] {
			for j, g := range grad {
				x := &f.row(table, id)[j]
				at := *x
				f.pushed = map[string]map[int64][]float32{}
				*x = at + h
				up := loss()
				*x = at - h
				down := loss()
				*x = at
				require.InDelta(t, (up-down)/(2*h), float64(g), 2e-3, "%s row %d element %d", table, id, j)
			}
		}
	}
}

func TestLogistic(t *testing.T) {
	for _, score := range []float32{-900, -3, -0.5, 0, 0.5, 3, 900} {
		sigmoid := 1 / (1 + math.Exp(-float64(score)))
		g, likely := logistic(score, true)
		require.InDelta(t, sigmoid, likely, 1e-12)
		require.InDelta(t, sigmoid-1, float64(g), 1e-6)
		g, likely = logistic(score, false)
		require.InDelta(t, 1-sigmoid, likely, 1e-12)
		require.InDelta(t, sigmoid, float64(g), 1e-6)
	}
}
