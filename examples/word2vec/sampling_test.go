package main

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDistribution(t *testing.T) {
	const n = 200_000
	counts := []int64{1, 0, 16, 81}
	d := newDistribution(counts, 0.75) // weights 1, 0, 8, 27
	rng := rand.New(rand.NewPCG(1, 2))
	drawn := make([]float64, len(counts))
	for range n {
		drawn[d.draw(rng)]++
	}
	for i, weight := range []float64{1, 0, 8, 27} {
		p := weight / 36
		require.InDelta(t, n*p, drawn[i], 5*math.Sqrt(n*p*(1-p)), "five standard deviations of word %d", i)
	}
}

func TestKeeping(t *testing.T) {
	counts := []int64{90_000, 9_900, 100}
	keep := keeping(counts, 1e-3)
	// sqrt(0.001/0.9) + 0.001/0.9, and the same with 0.099.
	require.InDeltaSlice(t, []float64{0.034444, 0.110605, 1}, []float64{float64(keep[0]), float64(keep[1]), float64(keep[2])}, 1e-5)
	require.Equal(t, []float32{1, 1, 1}, keeping(counts, 0))

	text := make([]int32, 10_000)
	rng := rand.New(rand.NewPCG(1, 2))
	require.InDelta(t, 344, len(subsample(nil, text, keep, rng)), 5*math.Sqrt(344))
	require.Equal(t, []int32{7, 2, 2}, subsample([]int32{7}, []int32{2, 2}, keep, rng), "rare words stay")
}

func TestAround(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	lengths := map[int]int{}
	for range 1000 {
		begin, end := around(10, 20, 3, rng)
		require.Equal(t, end-11, 10-begin)
		lengths[end-11]++
		begin, end = around(0, 2, 3, rng)
		require.Equal(t, [2]int{0, 2}, [2]int{begin, end})
	}
	require.Len(t, lengths, 3)
	require.Subset(t, []int{1, 2, 3}, keys(lengths))
}

func keys(m map[int]int) (list []int) {
	for k := range m {
		list = append(list, k)
	}
	return list
}
