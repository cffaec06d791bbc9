package main

import (
	"math"
	"math/rand/v2"
)

// Distributions of ids.
const (
	uniform = "uniform"
	zipf    = "zipf" // with exponent 1
)

// numBatches is how many different batches of ids there are, so that what is measured is not
// a few rows that stay in cache.
const numBatches = 256

// batchesOf returns batches of ids below n.
func batchesOf(distribution string, n int) [][]int64 {
	random := rand.New(rand.NewPCG(1, 2))
	draw := func() int64 { return random.Int64N(int64(n)) }
	if distribution == zipf {
		draw = func() int64 { return zipfRank(random, n) - 1 }
	}
	batches := make([][]int64, numBatches)
	for i := range batches {
		batches[i] = make([]int64, batchIDs)
		for k := range batches[i] {
			batches[i][k] = draw()
		}
	}
	return batches
}

// zipfRank draws k of 1 to n with a probability proportional to 1/k: a number whose
// logarithm is uniform, taken as often as its integer part needs (rejection; package
// math/rand has exponents above 1 only).
func zipfRank(random *rand.Rand, n int) int64 {
	for {
		k := math.Floor(math.Exp(random.Float64() * math.Log(float64(n)+1)))
		// The integer part is k with a probability proportional to log(1+1/k), which is
		// below 1/k, most of all at 1.
		if k <= float64(n) && random.Float64() < math.Ln2/(k*math.Log1p(1/k)) {
			return int64(k)
		}
	}
}

// distinctShare is which part of the ids of a batch are different from each other.
func distinctShare(batches [][]int64) float64 {
	distinct, all := 0, 0
	for _, ids := range batches {
		seen := map[int64]bool{}
		for _, id := range ids {
			seen[id] = true
		}
		distinct += len(seen)
		all += len(ids)
	}
	return float64(distinct) / float64(all)
}
