package mnist

import (
	"math"

	"gonum.org/v1/gonum/blas/blas32"
)

// pixelScale maps a pixel from 0..255 to 0..1.
const pixelScale = 1.0 / 255

// Gradient computes the mean loss of the batch and its derivative by every
// parameter. grads belongs to the MLP and is valid until its next call;
// p is only read, and nothing is kept. It does not allocate.
//
// The error is a *ShapeError if p has a wrong length, the batch is empty, or a
// sample is not in the set.
func (m *MLP) Gradient(p Params, b Batch) (loss float32, grads Params, err error) {
	if err := m.check(p); err != nil {
		return 0, Params{}, err
	}
	if err := b.check(); err != nil {
		return 0, Params{}, err
	}
	m.prepare(p)
	for i := range m.grads {
		clear(m.grads[i])
	}
	clear(m.outWeightGrad)
	scale := 1 / float32(len(b.Samples))
	var sum float64
	for _, sample := range b.Samples {
		m.forward(p, b.Set, int(sample))
		sum += m.softmax(b.Set.Label(int(sample)), scale)
		m.backward(b.Set, int(sample))
	}
	m.storeOutputGrad()
	m.centreGrad()
	return float32(sum / float64(len(b.Samples))), m.grads, nil
}

// Accuracy returns the share of images of s that the model labels correctly,
// 0 to 1. The error is a *ShapeError if p has a wrong length or s is empty.
func (m *MLP) Accuracy(p Params, s *Set) (float64, error) {
	if err := m.check(p); err != nil {
		return 0, err
	}
	if s == nil || s.Len() == 0 {
		return 0, &ShapeError{What: "images of the set", Got: 0, Min: 1, Max: MaxImages}
	}
	m.prepare(p)
	correct := 0
	for i := range s.Len() {
		m.forward(p, s, i)
		if m.predicted() == s.Label(i) {
			correct++
		}
	}
	return float64(correct) / float64(s.Len()), nil
}

func (b Batch) check() error {
	if b.Set == nil || b.Set.Len() == 0 {
		return &ShapeError{What: "images of the set", Got: 0, Min: 1, Max: MaxImages}
	}
	if len(b.Samples) == 0 {
		return &ShapeError{What: "batch size", Got: 0, Min: 1, Max: b.Set.Len()}
	}
	for _, sample := range b.Samples {
		if sample < 0 || int(sample) >= b.Set.Len() {
			return &ShapeError{What: "index of a sample", Got: int(sample), Min: 0, Max: b.Set.Len() - 1}
		}
	}
	return nil
}

// prepare computes what all images of a call have in common: the transposed
// weights of the second layer, and the hidden units of an image without ink.
// With the mean m taken off, x enters the first layer as
// (x-m)W + b = xW + (b - mW): the image stays sparse.
func (m *MLP) prepare(p Params) {
	h, blas := m.hidden, blas32.Implementation()
	copy(m.blank, p[FC1Bias])
	for position, mean := range m.mean {
		row := position * h
		blas.Saxpy(h, -mean*pixelScale, p[FC1Weight][row:row+h], 1, m.blank, 1)
	}
	for i := range m.hidden {
		for class := range NumClasses {
			m.outWeight[class*m.hidden+i] = p[FC2Weight][i*NumClasses+class]
		}
	}
}

// storeOutputGrad transposes the gradient of the second layer back.
func (m *MLP) storeOutputGrad() {
	grad := m.grads[FC2Weight]
	for i := range m.hidden {
		for class := range NumClasses {
			grad[i*NumClasses+class] = m.outWeightGrad[class*m.hidden+i]
		}
	}
}

// centreGrad takes the mean off the gradient of the first layer. Its share is
// the same for each image, so that it is the mean times the sum of the
// derivatives by the hidden units, which is the gradient of the bias.
func (m *MLP) centreGrad() {
	h, blas := m.hidden, blas32.Implementation()
	for position, mean := range m.mean {
		row := position * h
		blas.Saxpy(h, -mean*pixelScale, m.grads[FC1Bias], 1, m.grads[FC1Weight][row:row+h], 1)
	}
}

// forward leaves the activations and the logits of image i in m. It adds up
// the weight rows of the inked pixels only.
func (m *MLP) forward(p Params, s *Set, i int) {
	h := m.hidden
	copy(m.activation, m.blank)
	weights, blas := p[FC1Weight], blas32.Implementation()
	positions, values := s.Pixels(i)
	for k, position := range positions {
		row := int(position) * h
		blas.Saxpy(h, float32(values[k])*pixelScale, weights[row:row+h], 1, m.activation, 1)
	}
	for j, v := range m.activation {
		m.activation[j] = max(v, 0)
	}
	for class := range NumClasses {
		m.logits[class] = p[FC2Bias][class] + blas.Sdot(h, m.outWeight[class*h:(class+1)*h], 1, m.activation, 1)
	}
}

// softmax turns the logits into their derivative of the loss times scale and
// returns the loss of the image.
func (m *MLP) softmax(label int, scale float32) float64 {
	highest := m.logits[0]
	for _, v := range m.logits[1:] {
		highest = max(highest, v)
	}
	var exps [NumClasses]float64
	var sum float64
	for class, v := range m.logits {
		exps[class] = math.Exp(float64(v - highest))
		sum += exps[class]
	}
	loss := math.Log(sum) - float64(m.logits[label]-highest)
	for class := range m.logits {
		m.logits[class] = float32(exps[class]/sum) * scale
	}
	m.logits[label] -= scale
	return loss
}

// backward adds the gradient of image i, whose derivative by the logits is in
// m.logits.
func (m *MLP) backward(s *Set, i int) {
	h, blas := m.hidden, blas32.Implementation()
	clear(m.delta)
	for class, d := range m.logits {
		column := class * h
		m.grads[FC2Bias][class] += d
		blas.Saxpy(h, d, m.activation, 1, m.outWeightGrad[column:column+h], 1)
		blas.Saxpy(h, d, m.outWeight[column:column+h], 1, m.delta, 1)
	}
	for j, v := range m.activation {
		if v <= 0 {
			m.delta[j] = 0
		}
	}
	blas.Saxpy(h, 1, m.delta, 1, m.grads[FC1Bias], 1)
	grad := m.grads[FC1Weight]
	positions, values := s.Pixels(i)
	for k, position := range positions {
		row := int(position) * h
		blas.Saxpy(h, float32(values[k])*pixelScale, m.delta, 1, grad[row:row+h], 1)
	}
}

func (m *MLP) predicted() int {
	best := 0
	for class, v := range m.logits {
		if v > m.logits[best] {
			best = class
		}
	}
	return best
}
