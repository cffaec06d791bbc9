package main

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/blas/blas32"

	"github.com/elasticps/elasticps/examples/internal/rows"
)

// windows are the windows of one step. In each, the words around a target predict it and
// not the negatives, which they share (Ji et al., Parallelizing Word2Vec in Shared and
// Distributed Memory, 2016): fewer rows travel for as many pairs.
type windows struct {
	in, out *rows.Batch // input and output vectors
	seen    *rows.Batch // how often a word was a target
	inputs  []int       // places in in, of all windows
	outputs []int       // places in out: of each window its target, then the negatives
	ends    []int       // of each window: where its inputs end
	targets []int       // places in seen, of each window
	text    []int32     // the words that stay of the text they are from
}

func newWindows(dim int) *windows {
	return &windows{in: rows.NewBatch(inputTable, dim), out: rows.NewBatch(outputTable, dim), seen: rows.NewBatch(seenTable, 1)}
}

func (w *windows) reset() {
	w.in.Reset()
	w.out.Reset()
	w.seen.Reset()
	w.inputs, w.outputs, w.ends, w.targets = w.inputs[:0], w.outputs[:0], w.ends[:0], w.targets[:0]
}

// add appends the window from begin to end around the word at a position, with so many
// negatives. A window without another word is none.
func (w *windows) add(text []int32, at, begin, end, numNegatives int, noise *distribution, rng *rand.Rand) {
	if end-begin < 2 {
		return
	}
	for i := begin; i < end; i++ {
		if i != at {
			w.inputs = append(w.inputs, w.in.Add(int64(text[i])))
		}
	}
	w.ends = append(w.ends, len(w.inputs))
	w.targets = append(w.targets, w.seen.Add(int64(text[at])))
	w.outputs = append(w.outputs, w.out.Add(int64(text[at])))
	for range numNegatives {
		negative := noise.draw(rng)
		for negative == text[at] {
			negative = noise.draw(rng)
		}
		w.outputs = append(w.outputs, w.out.Add(int64(negative)))
	}
}

// gradient adds the gradients of all windows to those of their rows, and returns the sum
// of the losses of all pairs of an input and a target: the negative logarithm of how likely
// the model holds the target and no negative to belong to the input.
func (w *windows) gradient() (loss float64) {
	begin, perWindow := 0, 0
	if len(w.ends) > 0 {
		perWindow = len(w.outputs) / len(w.ends)
	}
	blas := blas32.Implementation()
	for k, end := range w.ends {
		for _, input := range w.inputs[begin:end] {
			x, gx := w.in.Row(input), w.in.Grad(input)
			likely := 1.0
			for i, output := range w.outputs[k*perWindow : (k+1)*perWindow] {
				y, gy := w.out.Row(output), w.out.Grad(output)
				g, p := logistic(blas.Sdot(len(x), x, 1, y, 1), i == 0)
				likely *= p
				blas.Saxpy(len(x), g, y, 1, gx, 1)
				blas.Saxpy(len(x), g, x, 1, gy, 1)
			}
			loss -= math.Log(max(likely, math.SmallestNonzeroFloat64))
		}
		begin = end
		w.seen.Grad(w.targets[k])[0]-- // a gradient: the row counts up
	}
	return loss
}

// logistic returns how likely a score makes the truth, and the derivative of the logistic
// loss, which is the negative logarithm of that, by the score.
func logistic(score float32, positive bool) (g float32, likely float64) {
	p := 1 / (1 + math.Exp(-float64(score)))
	if positive {
		return float32(p - 1), p
	}
	return float32(p), 1 - p
}
