package main

import (
	"math"
	"math/rand/v2"
	"sort"
)

// distribution draws words in proportion to a power of their counts.
type distribution struct {
	upTo []float64 // sum of the weights up to and with each word
}

// newDistribution returns the distribution of counts raised to power. With 1 it is that of
// the words of the corpus; word2vec draws its negatives with 0.75.
func newDistribution(counts []int64, power float64) *distribution {
	d := &distribution{upTo: make([]float64, len(counts))}
	sum := 0.0
	for i, n := range counts {
		sum += math.Pow(float64(n), power)
		d.upTo[i] = sum
	}
	return d
}

// draw returns one word.
func (d *distribution) draw(rng *rand.Rand) int32 {
	last := len(d.upTo) - 1
	at := sort.SearchFloat64s(d.upTo, rng.Float64()*d.upTo[last])
	return int32(min(at, last))
}

// keeping returns the probability with which each word stays in a text: the more a word
// has above the share threshold of all words, the more often it is left out. Threshold 0
// keeps all. The formula is that of the published word2vec program, which differs from
// the one in Mikolov et al., NIPS 2013, section 2.3.
func keeping(counts []int64, threshold float64) []float32 {
	total := 0.0
	for _, n := range counts {
		total += float64(n)
	}
	keep := make([]float32, len(counts))
	for i, n := range counts {
		keep[i] = 1
		if threshold > 0 && n > 0 {
			r := threshold * total / float64(n)
			keep[i] = float32(min(1, math.Sqrt(r)+r))
		}
	}
	return keep
}

// subsample appends the words of text that stay to dst.
func subsample(dst, text []int32, keep []float32, rng *rand.Rand) []int32 {
	for _, word := range text {
		if keep[word] >= 1 || rng.Float32() < keep[word] {
			dst = append(dst, word)
		}
	}
	return dst
}

// around returns the bounds of the window around position at of a text of n words: up to
// reach words on each side, how many is drawn, so that near words count more.
func around(at, n, reach int, rng *rand.Rand) (begin, end int) {
	r := 1 + rng.IntN(reach)
	return max(0, at-r), min(n, at+r+1)
}
