package rows

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// plain is a table in memory under gradient descent with learning rate 1. What was not
// pushed has the id as its values.
type plain struct {
	rows   map[int64][]float32
	pulled []int64
	err    error
}

func (p *plain) row(id int64, dim int) []float32 {
	if r, ok := p.rows[id]; ok {
		return r
	}
	r := slices.Repeat([]float32{float32(id)}, dim)
	p.rows[id] = r
	return r
}

func (p *plain) PullRows(_ context.Context, _ string, ids []int64, dst []float32) error {
	p.pulled = slices.Clone(ids)
	for i, id := range ids {
		dim := len(dst) / len(ids)
		copy(dst[i*dim:(i+1)*dim], p.row(id, dim))
	}
	return p.err
}

func (p *plain) PushRows(_ context.Context, _ string, ids []int64, grads []float32) error {
	for i, id := range ids {
		dim := len(grads) / len(ids)
		for j, w := range p.row(id, dim) {
			p.rows[id][j] = w - grads[i*dim+j]
		}
	}
	return p.err
}

func TestBatch(t *testing.T) {
	p := &plain{rows: map[int64][]float32{}}
	b := NewBatch("t", 2)
	for range 2 { // the second step begins with clean gradients
		b.Reset()
		require.Zero(t, b.Len())
		require.Equal(t, []int{0, 1, 0, 2, 1}, []int{b.Add(7), b.Add(-3), b.Add(7), b.Add(0), b.Add(-3)})
		require.Equal(t, 3, b.Len())
		require.NoError(t, b.Pull(t.Context(), p))
		require.Equal(t, []int64{7, -3, 0}, p.pulled)
		b.Grad(0)[0]++
		b.Grad(0)[0]++
		b.Grad(2)[1]--
		require.NoError(t, b.Push(t.Context(), p))
	}
	require.Equal(t, map[int64][]float32{7: {3, 7}, -3: {-3, -3}, 0: {0, 2}}, p.rows)
	require.Equal(t, []float32{5, 7}, b.Row(0), "as pulled by the second step")

	// A row does not reach into its neighbour.
	require.Equal(t, 2, cap(b.Row(0)))
	require.Equal(t, 2, cap(b.Grad(1)))

	other := NewBatch("u", 2)
	other.Use(b.IDs())
	require.Equal(t, 3, other.Len())
	other.Zero()
	other.Grad(1)[0] = -1
	require.NoError(t, other.Push(t.Context(), p))
	require.Equal(t, []float32{-2, -3}, p.rows[-3], "in the place that it has in b")

	p.err = errors.New("gone")
	require.ErrorIs(t, b.Pull(t.Context(), p), p.err)
	require.ErrorIs(t, b.Push(t.Context(), p), p.err)
}
