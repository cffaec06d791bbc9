package main

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/elasticps/elasticps/examples/internal/mnist"
)

// sizes are the units of the model, from the pixels to the classes: four layers of weights.
var sizes = [...]int{mnist.ImageSize, 256, 128, 64, mnist.NumClasses}

// layer is one fully connected layer, with rectified units but for the last one. Weights and
// gradients are parts of those of their part.
type layer struct {
	in, out         int
	last            bool
	weight, bias    []float32
	dweight, dbias  []float32
	inputs, outputs [][]float32 // by micro-batch; rows one after the other
	down            [][]float32 // gradients of the inputs
}

// part is some neighbouring layers of the model: what a stage computes, or all of it.
type part struct {
	layers []*layer
	rows   int
	values []float32 // all parameters of the layers
	grads  []float32
	speed  []float32 // of the momentum
	feed   *feed
	scale  float32 // of the loss of one image
	loss   float64 // since it was last taken
}

// newPart returns layers first to end-1 with their first weights, which depend on nothing but
// seed and layer, for micro-batches of so many rows.
func newPart(first, end, rows, micros int, seed uint64) *part {
	p := &part{rows: rows}
	n := 0
	for i := first; i < end; i++ {
		n += (sizes[i] + 1) * sizes[i+1]
	}
	p.values, p.grads, p.speed = make([]float32, n), make([]float32, n), make([]float32, n)
	at := 0
	cut := func(n int) (values, grads []float32) {
		at += n
		return p.values[at-n : at : at], p.grads[at-n : at : at]
	}
	for i := first; i < end; i++ {
		l := &layer{in: sizes[i], out: sizes[i+1], last: i == len(sizes)-2}
		l.weight, l.dweight = cut(l.in * l.out)
		l.bias, l.dbias = cut(l.out)
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		scale := math.Sqrt(2 / float64(l.in)) // He et al. 2015
		for k := range l.weight {
			l.weight[k] = float32(random.NormFloat64() * scale)
		}
		l.inputs = make([][]float32, micros)
		for range micros {
			l.outputs = append(l.outputs, make([]float32, rows*l.out))
			l.down = append(l.down, make([]float32, rows*l.in))
		}
		p.layers = append(p.layers, l)
	}
	return p
}

func matrix(rows, columns int, data []float32) blas32.General {
	return blas32.General{Rows: rows, Cols: columns, Stride: columns, Data: data}
}

// forward computes the outputs of a micro-batch.
func (l *layer) forward(micro, rows int, in []float32) []float32 {
	l.inputs[micro] = in
	out := l.outputs[micro]
	for r := range rows {
		copy(out[r*l.out:], l.bias)
	}
	blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, matrix(rows, l.in, in), matrix(l.in, l.out, l.weight), 1, matrix(rows, l.out, out))
	if !l.last {
		for i, v := range out {
			out[i] = max(v, 0)
		}
	}
	return out
}

// backward adds to the gradients of the weights and returns that of the inputs, which nobody
// needs of the first layer.
func (l *layer) backward(micro, rows int, grad []float32) []float32 {
	out := l.outputs[micro]
	for i := range grad {
		if !l.last && out[i] <= 0 {
			grad[i] = 0
		}
		l.dbias[i%l.out] += grad[i]
	}
	g := matrix(rows, l.out, grad)
	blas32.Gemm(blas.Trans, blas.NoTrans, 1, matrix(rows, l.in, l.inputs[micro]), g, 1, matrix(l.in, l.out, l.dweight))
	if l.in == mnist.ImageSize {
		return nil
	}
	blas32.Gemm(blas.NoTrans, blas.Trans, 1, g, matrix(l.in, l.out, l.weight), 0, matrix(rows, l.in, l.down[micro]))
	return l.down[micro]
}

// Forward makes a part the work of a stage.
func (p *part) Forward(micro int, in []float32) ([]float32, error) {
	if in == nil {
		in = p.feed.pixels(micro)
	}
	for _, l := range p.layers {
		in = l.forward(micro, p.rows, in)
	}
	if p.isLast() {
		return nil, nil
	}
	return in, nil
}

// Backward makes a part the work of a stage.
func (p *part) Backward(micro int, grad []float32) ([]float32, error) {
	if p.isLast() {
		grad = p.layers[len(p.layers)-1].outputs[micro]
		p.softmax(grad, p.feed.labels(micro))
	}
	for i := len(p.layers) - 1; i >= 0; i-- {
		grad = p.layers[i].backward(micro, p.rows, grad)
	}
	return grad, nil
}

func (p *part) isLast() bool { return p.layers[len(p.layers)-1].last }

// softmax turns outputs into their derivatives of the loss, and adds to that.
func (p *part) softmax(out []float32, labels []int) {
	for r, label := range labels {
		row := out[r*mnist.NumClasses : (r+1)*mnist.NumClasses]
		highest, sum := row[0], 0.0
		for _, v := range row {
			highest = max(highest, v)
		}
		for _, v := range row {
			sum += math.Exp(float64(v - highest))
		}
		p.loss += (math.Log(sum) - float64(row[label]-highest)) * float64(p.scale)
		for i, v := range row {
			row[i] = float32(math.Exp(float64(v-highest))/sum) * p.scale
		}
		row[label] -= p.scale
	}
}

// step takes one step with the gradients, and clears them.
func (p *part) step(rate, momentum float32) {
	for i, g := range p.grads {
		p.speed[i] = momentum*p.speed[i] + g
		p.values[i] -= rate * p.speed[i]
	}
	clear(p.grads)
}

// correct counts the images of a feed's micro-batch 0 that the part, which is all of the model,
// labels correctly.
func (p *part) correct() int {
	in := p.feed.pixels(0)
	for _, l := range p.layers {
		in = l.forward(0, p.rows, in)
	}
	n := 0
	for r, label := range p.feed.labels(0) {
		row := in[r*mnist.NumClasses : (r+1)*mnist.NumClasses]
		best := 0
		for i, v := range row {
			if v > row[best] {
				best = i
			}
		}
		if best == label {
			n++
		}
	}
	return n
}

// feed gives the micro-batches of one replica.
type feed struct {
	set     *mnist.Set
	rows    int
	samples []int32     // of the replica in this step
	images  [][]float32 // by micro-batch
}

func newFeed(set *mnist.Set, rows, micros int) *feed {
	f := &feed{set: set, rows: rows}
	for range micros {
		f.images = append(f.images, make([]float32, rows*mnist.ImageSize))
	}
	return f
}

func (f *feed) share(micro int) []int32 { return f.samples[micro*f.rows : (micro+1)*f.rows] }

func (f *feed) pixels(micro int) []float32 {
	x := f.images[micro]
	clear(x)
	for r, sample := range f.share(micro) {
		positions, values := f.set.Pixels(int(sample))
		for k, position := range positions {
			x[r*mnist.ImageSize+int(position)] = float32(values[k]) / 255
		}
	}
	return x
}

func (f *feed) labels(micro int) []int {
	list := make([]int, 0, f.rows)
	for _, sample := range f.share(micro) {
		list = append(list, f.set.Label(int(sample)))
	}
	return list
}
