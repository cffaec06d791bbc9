package main

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// pairwise is the definition of the AUC.
func pairwise(list []scored) float64 {
	sum, n := 0.0, 0.0
	for _, a := range list {
		for _, b := range list {
			if a.click && !b.click {
				n++
				switch {
				case a.score > b.score:
					sum++
				case a.score == b.score:
					sum += 0.5
				}
			}
		}
	}
	return sum / n
}

func TestAUC(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, values := range []int{1, 2, 5, 1000} { // few values: many ties
		var list []scored
		for range 300 {
			score := rng.IntN(values)
			list = append(list, scored{float32(score), rng.IntN(values+1) <= score})
		}
		want := pairwise(list)
		require.InDelta(t, want, auc(list), 1e-12)
	}
	require.Equal(t, 1.0, auc([]scored{{3, true}, {1, false}, {2, false}}))
	require.Equal(t, 0.0, auc([]scored{{1, true}, {3, false}}))
	nan := float32(math.NaN())
	require.Equal(t, 0.35, auc([]scored{{nan, true}, {1, false}, {nan, false}, {2, true}, {1, false}, {3, false}, {4, false}}), "no number is the lowest score")
	require.Equal(t, 0.5, auc(nil))
	require.Equal(t, 0.5, auc([]scored{{1, true}}))
	require.Equal(t, 0.5, auc([]scored{{1, false}}))
}

func TestValidation(t *testing.T) {
	var out bytes.Buffer
	v := &validation{size: 3, out: &out}
	batch := []sample{
		{record: record{click: true}, best: 0.9},
		{best: 0.1},
		{record: record{click: true}, best: 0.2},
		{best: 0.5},
	}
	v.add(batch, []float32{0, 1, 2, 0})
	require.Equal(t, "samples 0 to 3: AUC 0.5000 of 1.0000 that are possible\n", out.String())
	v.add([]sample{{record: record{click: true}, best: math.NaN()}}, []float32{1})
	all, last := v.result()
	require.Equal(t, 0.5, last.AUC)
	require.Equal(t, 1.0, *last.BestAUC)
	require.Len(t, all, 2)
	require.Equal(t, window{Samples: 2, AUC: 1}, all[1], "the best is not known of all of them")
	require.Contains(t, out.String(), "samples 3 to 5: AUC 1.0000\n")

	short := &validation{size: 10, out: &out}
	short.add(batch, []float32{3, 1, 2, 0})
	_, last = short.result()
	require.Equal(t, 4, last.Samples)
	require.Equal(t, 1.0, last.AUC)
	require.Equal(t, 0.75, *last.BestAUC)
}
