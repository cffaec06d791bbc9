package main

import (
	"math"
	"math/rand/v2"
	"sync/atomic"

	"github.com/elasticps/elasticps/shard"
)

// The planted model. Its logits have a standard deviation of about 1.3, one part from the
// weights and one from the factors, and its clicks are about as rare as Criteo's.
const (
	plantedDim    = 4
	plantedWeight = 0.15 // standard deviation of a weight
	plantedFactor = 0.13 // of an element of a factor
	plantedBias   = -1.4
)

// planted is a log whose clicks are drawn from a known model: a factorization machine over
// the same features, whose weights and factors are functions of the seed and the feature.
type planted struct {
	seed  uint64
	total int64
	taken atomic.Int64
}

func (p *planted) skipped() int64 { return 0 }

// next draws samples. What they are depends on their place in the log alone.
func (p *planted) next(batch []sample) (int, error) {
	end := p.taken.Add(int64(len(batch)))
	begin := end - int64(len(batch))
	n := max(0, min(end, p.total)-begin)
	for i := range batch[:n] {
		rng := rand.New(rand.NewPCG(p.seed, uint64(begin)+uint64(i)))
		batch[i] = p.draw(rng)
	}
	return int(n), nil
}

// draw draws the fields and then, from what the model says about them, the click.
func (p *planted) draw(rng *rand.Rand) (s sample) {
	for i := range numIntegers {
		if rng.Float64() < missingShare(i) {
			s.missing |= 1 << i
			continue
		}
		// Counts: many small ones, few large ones.
		s.integers[i] = int64(math.Exp(float64(i%5)+1.5*rng.NormFloat64())) - 1
	}
	for i, size := range categorySizes() {
		if rng.Float64() < missingShare(numIntegers+i) {
			s.missing |= 1 << (numIntegers + i)
			continue
		}
		// Zipf's law: the logarithm of the rank is uniform.
		rank := int64(math.Exp(rng.Float64() * math.Log(float64(size)+1)))
		s.categories[i] = uint32(shard.Hash(int64(i)<<32 | rank))
	}
	s.best = p.probability(&s.record)
	s.click = rng.Float64() < s.best
	return s
}

// probability is what the planted model says about a click.
func (p *planted) probability(r *record) float64 {
	var ids [numFields]int64
	r.features(&ids)
	logit := plantedBias
	var sum [plantedDim]float64
	for _, id := range ids {
		logit += plantedWeight * p.normal(id, plantedDim)
		for k := range sum {
			x := plantedFactor * p.normal(id, k)
			sum[k] += x
			logit -= x * x / 2
		}
	}
	for _, x := range sum {
		logit += x * x / 2
	}
	return 1 / (1 + math.Exp(-logit))
}

// normal is element k of what the model has for a feature: about normally distributed, with
// mean 0 and deviation 1, and a function of its arguments: a sum of four uniform numbers.
func (p *planted) normal(id int64, k int) float64 {
	h := shard.Hash(int64(shard.Hash(id^int64(p.seed))) + int64(k))
	sum := 0.0
	for range 4 {
		sum += float64(h & 0xffff)
		h >>= 16
	}
	const mean, deviation = 2 * 0xffff, 0xffff * 0.57735 // of four: sqrt(4/12)
	return (sum - mean) / deviation
}

// missingShare is how often a field is missing.
func missingShare(i int) float64 { return [...]float64{0, 0.05, 0.2, 0, 0.4}[i%5] }

// categorySizes are how many values each category has: from a few to more than there will
// be samples of most of them.
func categorySizes() [numCategories]int {
	return [...]int{
		1400, 550, 100_000, 60_000, 300, 20, 12_000, 600, 3, 40_000, 5_000, 90_000, 3_000,
		26, 11_000, 70_000, 10, 4_500, 2_000, 4, 80_000, 17, 15, 50_000, 90, 40_000,
	}
}
