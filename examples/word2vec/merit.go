package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gonum.org/v1/gonum/blas/blas32"

	"github.com/elasticps/elasticps/examples/internal/rows"
)

// randomsPerPair is with how many random words a held-out pair is compared.
const randomsPerPair = 10

// vectors are those of all words, one after the other.
type vectors struct {
	dim     int
	in, out []float32
}

func pullVectors(ctx context.Context, c rows.Client, numWords, dim int) (v vectors, err error) {
	ids := make([]int64, numWords)
	for i := range ids {
		ids[i] = int64(i)
	}
	v = vectors{dim: dim, in: make([]float32, numWords*dim), out: make([]float32, numWords*dim)}
	if err := c.PullRows(ctx, inputTable, ids, v.in); err != nil {
		return v, err
	}
	return v, c.PullRows(ctx, outputTable, ids, v.out)
}

// dot is the product of a vector of x and one of y.
func (v vectors) dot(x []float32, i int32, y []float32, j int32) float32 {
	a, b := x[int(i)*v.dim:][:v.dim], y[int(j)*v.dim:][:v.dim]
	return blas32.Implementation().Sdot(v.dim, a, 1, b, 1)
}

// score is how well a word fits near an input.
func (v vectors) score(input, word int32) float32 { return v.dot(v.in, input, v.out, word) }

// merit says how often a word that is near another one in a held-out text scores higher
// than a word drawn by its frequency, equal scores counted half: the area under the ROC
// curve, per input (Fawcett, 2006). A score without any use reaches 0.5. The baseline is
// the frequency of the word as its score. The pairs are those of the windows of training,
// with no word left out.
func (v vectors) merit(c *corpus, reach int, seed uint64) (model, baseline float64, numPairs int) {
	rng := rand.New(rand.NewPCG(seed, math.MaxUint64))
	random := newDistribution(c.counts, 1)
	var byModel, byCount float64
	for _, text := range c.held {
		for at, input := range text {
			begin, end := around(at, len(text), reach, rng)
			for i := begin; i < end; i++ {
				if i == at {
					continue
				}
				word := text[i]
				score := v.score(input, word)
				numPairs++
				for range randomsPerPair {
					other := random.draw(rng)
					byModel += beats(score, v.score(input, other))
					byCount += beats(c.counts[word], c.counts[other])
				}
			}
		}
	}
	n := float64(max(numPairs, 1) * randomsPerPair)
	return byModel / n, byCount / n, numPairs
}

// beats is 1 if a is greater than b, 0 if it is less and a half if they are equal.
func beats[T cmp.Ordered](a, b T) float64 {
	return float64(1+cmp.Compare(a, b)) / 2
}

// normalize makes all input vectors of length 1, so that their products are cosines.
func (v vectors) normalize() {
	for begin := 0; begin < len(v.in); begin += v.dim {
		x := v.in[begin:][:v.dim]
		if norm := blas32.Implementation().Snrm2(v.dim, x, 1); norm > 0 {
			blas32.Implementation().Sscal(v.dim, 1/norm, x, 1)
		}
	}
}

// nearest returns the k words whose input vectors have the largest cosines with that of a
// word, the largest first. The vectors must be normalized. Words that occur less often than
// minCount are passed over: their vectors have hardly left their random beginnings.
func (v vectors) nearest(c *corpus, word int32, k int, minCount int64) []int32 {
	var others []int32
	for i, n := range c.counts {
		if n >= minCount && int32(i) != word {
			others = append(others, int32(i))
		}
	}
	cosine := func(i int32) float32 { return v.dot(v.in, word, v.in, i) }
	slices.SortFunc(others, func(a, b int32) int { return cmp.Or(cmp.Compare(cosine(b), cosine(a)), cmp.Compare(a, b)) })
	return others[:min(k, len(others))]
}

// neighbours describes the words nearest to some, one line each. Words that the corpus has
// not are passed over.
func (v vectors) neighbours(c *corpus, of []string, k int, minCount int64) string {
	var text strings.Builder
	for _, name := range of {
		word := slices.Index(c.words, name)
		if word < 0 {
			continue
		}
		fmt.Fprintf(&text, "  %-12s", name)
		for _, i := range v.nearest(c, int32(word), k, minCount) {
			fmt.Fprintf(&text, " %s %.2f", c.words[i], v.dot(v.in, int32(word), v.in, i))
		}
		text.WriteByte('\n')
	}
	return text.String()
}
