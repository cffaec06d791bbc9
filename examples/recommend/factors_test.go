package main

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// fixed are tables whose rows do not change. It keeps what was pushed.
type fixed struct {
	rows, pushed map[string]map[int64][]float32
}

func (f *fixed) row(table string, id int64, dim int) []float32 {
	if f.rows[table] == nil {
		f.rows[table] = map[int64][]float32{}
	}
	r, ok := f.rows[table][id]
	if !ok {
		rng := rand.New(rand.NewPCG(uint64(len(table)), uint64(id)))
		for range dim {
			r = append(r, float32(rng.NormFloat64()))
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
	dim := len(grads) / len(ids)
	f.pushed[table] = map[int64][]float32{}
	for i, id := range ids {
		f.pushed[table][id] = append([]float32(nil), grads[i*dim:(i+1)*dim]...)
	}
	return nil
}

// TestGradient compares the gradients with differences of the loss, for a user and an item
// that come up twice.
func TestGradient(t *testing.T) {
	const dim, decay = 2, 0.1
	batch := []rating{{1, 1, 3}, {1, 2, 5}, {2, 2, 1}}
	f := &fixed{rows: map[string]map[int64][]float32{}, pushed: map[string]map[int64][]float32{}}
	m := newFactorization(dim, 3, decay)
	loss := func() (sum float64) {
		predictions, err := m.predict(t.Context(), f, batch)
		require.NoError(t, err)
		for i, r := range batch {
			p, q := f.row(userTable, r.user, dim+1), f.row(itemTable, r.item, dim+1)
			want := 3 + p[2] + q[2] + p[0]*q[0] + p[1]*q[1]
			require.InDelta(t, want, predictions[i], 1e-5)
			d := float64(want - r.value)
			sum += d * d / 2
			for k := range dim + 1 {
				sum += decay / 2 * float64(p[k]*p[k]+q[k]*q[k])
			}
		}
		return sum
	}
	loss()
	require.NoError(t, m.learn(t.Context(), f, batch))
	require.Len(t, f.pushed, 2)
	for table, grads := range f.pushed {
		require.Len(t, grads, 2)
		for id, grad := range grads {
			for k, g := range grad {
				const h = 1e-2
				x := &f.row(table, id, dim+1)[k]
				at := *x
				*x = at + h
				up := loss()
				*x = at - h
				down := loss()
				*x = at
				require.InDelta(t, (up-down)/(2*h), float64(g), 5e-3, "%s row %d element %d", table, id, k)
			}
		}
	}
}

func TestItemMeans(t *testing.T) {
	train := []rating{{1, 1, 5}, {2, 1, 5}, {1, 2, 1}, {2, 2, 1}} // mean 3
	test := []rating{{3, 1, 0}, {3, 2, 0}, {3, 9, 0}}
	require.InDeltaSlice(t, []float32{13.0 / 3, 5.0 / 3, 3}, itemMeans(train, test), 1e-6)
}
