package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// pairs is a corpus in which words 0 and 1 are always near each other, and 2 and 3 are.
func pairs() *corpus {
	c := &corpus{words: []string{"a", "b", "c", "d"}, counts: []int64{300, 300, 200, 200}}
	for range 500 {
		c.held = append(c.held, []int32{0, 1}, []int32{2, 3})
	}
	return c
}

func TestMerit(t *testing.T) {
	c := pairs()
	knows := vectors{dim: 2, in: []float32{1, 0, 1, 0, 0, 1, 0, 1}, out: []float32{1, 0, 2, 0, 0, 1, 0, 2}}
	model, baseline, n := knows.merit(c, 1, 1)
	require.Equal(t, 2000, n)
	// From a word the true one is the other of its pair. Input 0 has 1 above all others; for
	// input 1 the true word 0 scores 1: below word 1, above 2 and 3; and the same for 2 and 3.
	// A draw is 0 or 1 with 0.3 each, 2 or 3 with 0.2 each; equal scores count half.
	want := (0.3*1 + 0.3*0.5 + 0.4*1 + // input 0
		0.3*0.5 + 0.3*0 + 0.4*1 + // input 1
		0.2*1 + 0.2*0.5 + 0.6*1 + // input 2
		0.2*0.5 + 0.2*0 + 0.6*1) / 4 // input 3
	require.InDelta(t, want, model, 0.02)
	require.InDelta(t, (0.5*0.6+1*0.4+0*0.6+0.5*0.4)/2, baseline, 0.02)

	ignorant := vectors{dim: 2, in: make([]float32, 8), out: make([]float32, 8)}
	model, _, _ = ignorant.merit(c, 1, 1)
	require.Equal(t, 0.5, model)
	_, _, n = ignorant.merit(&corpus{counts: []int64{1, 1}}, 1, 1)
	require.Zero(t, n)
}

func TestNeighbours(t *testing.T) {
	v := vectors{dim: 2, in: []float32{2, 0, 3, 0.3, 0, 4, 0, 0}}
	v.normalize()
	require.Equal(t, []float32{1, 0}, v.in[:2])
	require.Equal(t, []float32{0, 0}, v.in[6:], "a vector of zeros stays")
	c := pairs()
	require.Equal(t, []int32{1, 2}, v.nearest(c, 0, 2, 1))
	require.Equal(t, []int32{1}, v.nearest(c, 0, 9, 250), "rare words are passed over")
	require.Equal(t, "  b            a 1.00 c 0.10\n", v.neighbours(c, []string{"b", "unknown"}, 2, 1))
}

func TestAudit(t *testing.T) {
	tr := newTrainer(options{epochs: 1, dim: 1}, pairs())
	f := newFixed(1)
	copy(tr.seen, []int64{5, 0, 7, 2})
	for id, n := range []float32{5, 0, 4, 3} {
		f.row(seenTable, int64(id))[0] = n
	}
	lost, doubled, err := tr.audit(t.Context(), f)
	require.NoError(t, err)
	require.EqualValues(t, 3, lost)
	require.EqualValues(t, 1, doubled)
}
