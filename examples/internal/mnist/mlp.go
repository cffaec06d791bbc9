package mnist

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

const (
	// DefaultHidden is the number of hidden units of a zero Config.
	DefaultHidden = 256
	// MaxHidden limits the number of hidden units.
	MaxHidden = 4096
)

// Indices of the layers in Params and in what MLP.Layers returns.
const (
	FC1Weight = iota
	FC1Bias
	FC2Weight
	FC2Bias
	NumLayers
)

// Params holds one slice per layer, in the order of MLP.Layers; a weight matrix
// is stored row by row, one row per input unit. Gradients have the same form.
type Params [NumLayers][]float32

// Layer names a layer of the model and its shape (inputs x outputs for a
// matrix, outputs for a bias).
type Layer struct {
	Name  string
	Shape []int
}

// Len returns the number of elements of the layer.
func (l Layer) Len() int {
	n := 1
	for _, side := range l.Shape {
		n *= side
	}
	return n
}

// Config describes an MLP. The zero value is the model of the examples,
// 784-256-10.
type Config struct {
	// Hidden is the number of hidden units, 1 to MaxHidden; 0 means
	// DefaultHidden.
	Hidden int
	// Mean is subtracted from every image before it enters the model: one value
	// for each of the ImageSize pixels, in units of pixel values (0 to 255), such as
	// Set.Mean returns; nil means none. It takes the largest curvature out of the loss,
	// so that much higher learning rates stay stable when gradients are stale.
	// NewMLP copies it.
	Mean []float32
}

// ShapeError says that a size does not fit the model.
type ShapeError struct {
	// What names the thing that has the wrong size.
	What string
	// Got is its size; Min and Max are the bounds, both allowed.
	Got, Min, Max int
}

// Error names the thing, its size and the bound.
func (e *ShapeError) Error() string {
	if e.Min == e.Max {
		return fmt.Sprintf("mnist: %s is %d, want %d", e.What, e.Got, e.Min)
	}
	return fmt.Sprintf("mnist: %s is %d, want %d to %d", e.What, e.Got, e.Min, e.Max)
}

// Batch names images of a set by their index.
type Batch struct {
	Set     *Set
	Samples []int32
}

// MLP is a perceptron with one hidden layer of rectified linear units and a
// softmax output, trained with the cross-entropy loss. It owns the buffers of
// one computation and no parameters; every goroutine needs its own.
type MLP struct {
	hidden int
	mean   []float32
	grads  Params

	// The second layer is used by column: its transposed copy turns ten-element
	// vector operations into operations over all hidden units.
	outWeight     []float32 // NumClasses x hidden
	outWeightGrad []float32 // NumClasses x hidden
	blank         []float32 // hidden units of an image of zeros, before rectification
	activation    []float32 // hidden units of one image
	delta         []float32 // loss by pre-activation of the hidden units of one image
	logits        [NumClasses]float32
}

// NewMLP returns an MLP for the configuration, or a *ShapeError.
func NewMLP(cfg Config) (*MLP, error) {
	if cfg.Hidden < 0 || cfg.Hidden > MaxHidden {
		return nil, &ShapeError{What: "number of hidden units", Got: cfg.Hidden, Min: 0, Max: MaxHidden}
	}
	if cfg.Mean != nil && len(cfg.Mean) != ImageSize {
		return nil, &ShapeError{What: "length of the mean image", Got: len(cfg.Mean), Min: ImageSize, Max: ImageSize}
	}
	if cfg.Hidden == 0 {
		cfg.Hidden = DefaultHidden
	}
	m := &MLP{
		hidden:        cfg.Hidden,
		mean:          slices.Clone(cfg.Mean),
		blank:         make([]float32, cfg.Hidden),
		outWeight:     make([]float32, NumClasses*cfg.Hidden),
		outWeightGrad: make([]float32, NumClasses*cfg.Hidden),
		activation:    make([]float32, cfg.Hidden),
		delta:         make([]float32, cfg.Hidden),
	}
	m.grads = m.NewParams()
	return m, nil
}

// Layers returns names and shapes of the layers, in the order of Params.
func (m *MLP) Layers() [NumLayers]Layer {
	return [NumLayers]Layer{
		FC1Weight: {Name: "fc1.weight", Shape: []int{ImageSize, m.hidden}},
		FC1Bias:   {Name: "fc1.bias", Shape: []int{m.hidden}},
		FC2Weight: {Name: "fc2.weight", Shape: []int{m.hidden, NumClasses}},
		FC2Bias:   {Name: "fc2.bias", Shape: []int{NumClasses}},
	}
}

// NewParams returns parameters of the right lengths, all zero.
func (m *MLP) NewParams() Params {
	var p Params
	for i, layer := range m.Layers() {
		p[i] = make([]float32, layer.Len())
	}
	return p
}

// Init returns initial parameters: weights from a normal distribution with
// variance 2/inputs (He et al. 2015) for the hidden layer and 1/inputs for the
// output, biases zero. The same seed gives the same parameters.
func (m *MLP) Init(seed uint64) Params {
	p := m.NewParams()
	rng := rand.New(rand.NewPCG(seed, 0))
	fill := func(weights []float32, variance float64) {
		scale := math.Sqrt(variance)
		for i := range weights {
			weights[i] = float32(rng.NormFloat64() * scale)
		}
	}
	fill(p[FC1Weight], 2.0/ImageSize)
	fill(p[FC2Weight], 1.0/float64(m.hidden))
	return p
}

// check reports the first layer of p that has the wrong length.
func (m *MLP) check(p Params) error {
	for i, layer := range m.Layers() {
		if want := layer.Len(); len(p[i]) != want {
			return &ShapeError{What: "length of " + layer.Name, Got: len(p[i]), Min: want, Max: want}
		}
	}
	return nil
}
