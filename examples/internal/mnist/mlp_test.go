package mnist

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// randomSet makes images of which one pixel in five is not zero.
func randomSet(numImages int, seed uint64) *Set {
	rng := rand.New(rand.NewPCG(seed, 0))
	pixels := make([]byte, numImages*ImageSize)
	labels := make([]byte, numImages)
	for i := range pixels {
		if rng.IntN(5) == 0 {
			pixels[i] = byte(rng.IntN(256))
		}
	}
	for i := range labels {
		labels[i] = byte(rng.IntN(NumClasses))
	}
	return newSet(pixels, labels)
}

// referenceLoss computes the mean loss in float64, with dense loops.
func referenceLoss(p [NumLayers][]float64, hidden int, mean []float32, b Batch) float64 {
	var sum float64
	for _, sample := range b.Samples {
		activation := append([]float64(nil), p[FC1Bias]...)
		var image [ImageSize]float64
		positions, values := b.Set.Pixels(int(sample))
		for k, position := range positions {
			image[position] = float64(values[k])
		}
		for position, v := range image {
			for j := range hidden {
				activation[j] += (v - float64(mean[position])) / 255 * p[FC1Weight][position*hidden+j]
			}
		}
		logits := append([]float64(nil), p[FC2Bias]...)
		for j, v := range activation {
			for class := range NumClasses {
				logits[class] += max(v, 0) * p[FC2Weight][j*NumClasses+class]
			}
		}
		var exps float64
		for _, v := range logits {
			exps += math.Exp(v)
		}
		sum += math.Log(exps) - logits[b.Set.Label(int(sample))]
	}
	return sum / float64(len(b.Samples))
}

func inFloat64(p Params) (out [NumLayers][]float64) {
	for i, layer := range p {
		for _, v := range layer {
			out[i] = append(out[i], float64(v))
		}
	}
	return out
}

// TestGradientAgainstDifferences checks loss and derivatives against central
// differences of a float64 computation that shares no code with the model.
func TestGradientAgainstDifferences(t *testing.T) {
	set := randomSet(5, 3)
	t.Run("plain", func(t *testing.T) { checkGradient(t, set, nil) })
	t.Run("centred", func(t *testing.T) { checkGradient(t, set, set.Mean()) })
}

func checkGradient(t *testing.T, set *Set, meanImage []float32) {
	const hidden, delta = 19, 1e-6
	mean := make([]float32, ImageSize)
	copy(mean, meanImage)
	mlp, err := NewMLP(Config{Hidden: hidden, Mean: meanImage})
	require.NoError(t, err)
	params := mlp.Init(11)
	rng := rand.New(rand.NewPCG(8, 0))
	for _, bias := range []int{FC1Bias, FC2Bias} {
		for i := range params[bias] {
			params[bias][i] = float32(rng.NormFloat64()) * 0.1
		}
	}
	batch := Batch{Set: set, Samples: []int32{4, 0, 2, 2}}
	// Twice: the second run must not see what the first left in the buffers.
	_, _, err = mlp.Gradient(params, Batch{Set: set, Samples: []int32{1}})
	require.NoError(t, err)
	loss, grads, err := mlp.Gradient(params, batch)
	require.NoError(t, err)

	reference := inFloat64(params)
	require.InDelta(t, referenceLoss(reference, hidden, mean, batch), float64(loss), 1e-5)
	for l, layer := range mlp.Layers() {
		stride := max(1, layer.Len()/200)
		nonZero := 0
		for i := 0; i < layer.Len(); i += stride {
			at := reference[l][i]
			reference[l][i] = at + delta
			above := referenceLoss(reference, hidden, mean, batch)
			reference[l][i] = at - delta
			below := referenceLoss(reference, hidden, mean, batch)
			reference[l][i] = at
			want := (above - below) / (2 * delta)
			require.InDelta(t, want, float64(grads[l][i]), 1e-5+1e-4*math.Abs(want), "%s[%d]", layer.Name, i)
			if math.Abs(want) > 1e-3 {
				nonZero++
			}
		}
		require.Positive(t, nonZero, "%s is compared where it is not zero", layer.Name)
	}
}

func TestGradientAllocatesNothing(t *testing.T) {
	set := randomSet(64, 1)
	mlp, err := NewMLP(Config{Mean: set.Mean()})
	require.NoError(t, err)
	params := mlp.Init(1)
	sampler := newSampler(t, set.Len(), 1, Phase{Epochs: 10, BatchSize: 16})
	step := 0
	require.Zero(t, testing.AllocsPerRun(20, func() {
		if _, _, err := mlp.Gradient(params, Batch{Set: set, Samples: sampler.Batch(step)}); err != nil {
			t.Error(err)
		}
		step++
	}))
}

func TestLayers(t *testing.T) {
	mlp, err := NewMLP(Config{})
	require.NoError(t, err)
	require.Equal(t, [NumLayers]Layer{
		{Name: "fc1.weight", Shape: []int{784, 256}},
		{Name: "fc1.bias", Shape: []int{256}},
		{Name: "fc2.weight", Shape: []int{256, 10}},
		{Name: "fc2.bias", Shape: []int{10}},
	}, mlp.Layers())
	require.Equal(t, mlp.Init(4), mlp.Init(4))
	require.NotEqual(t, mlp.Init(4), mlp.Init(5))
	for i, layer := range mlp.Layers() {
		require.Len(t, mlp.NewParams()[i], layer.Len())
	}
}

func TestUntrainedModelGuesses(t *testing.T) {
	set := randomSet(500, 2)
	mlp, err := NewMLP(Config{Hidden: 32})
	require.NoError(t, err)
	zero := mlp.NewParams()
	loss, _, err := mlp.Gradient(zero, Batch{Set: set, Samples: []int32{0, 1, 2}})
	require.NoError(t, err)
	require.InDelta(t, math.Log(NumClasses), float64(loss), 1e-6)
	zero[FC2Bias][3] = 1 // now it always says 3
	accuracy, err := mlp.Accuracy(zero, set)
	require.NoError(t, err)
	threes := 0
	for i := range set.Len() {
		if set.Label(i) == 3 {
			threes++
		}
	}
	require.Equal(t, float64(threes)/500, accuracy)
}

func TestShapesAreChecked(t *testing.T) {
	set := randomSet(3, 1)
	mlp, err := NewMLP(Config{Hidden: 8})
	require.NoError(t, err)
	good := Batch{Set: set, Samples: []int32{0}}
	short := mlp.NewParams()
	short[FC2Weight] = short[FC2Weight][1:]
	for text, tc := range map[string]struct {
		params Params
		batch  Batch
	}{
		"length of fc2.weight is 79, want 80":     {short, good},
		"length of fc1.weight is 0, want 6272":    {Params{}, good},
		"batch size is 0, want 1 to 3":            {mlp.NewParams(), Batch{Set: set}},
		"index of a sample is 3, want 0 to 2":     {mlp.NewParams(), Batch{Set: set, Samples: []int32{1, 3}}},
		"index of a sample is -1, want 0 to 2":    {mlp.NewParams(), Batch{Set: set, Samples: []int32{-1}}},
		"images of the set is 0, want 1 to 10485": {mlp.NewParams(), Batch{Samples: []int32{0}}},
	} {
		_, _, err := mlp.Gradient(tc.params, tc.batch)
		var shape *ShapeError
		require.ErrorAs(t, err, &shape)
		require.ErrorContains(t, err, "mnist: "+text)
	}
	_, err = mlp.Accuracy(short, set)
	require.ErrorContains(t, err, "length of fc2.weight")
	_, err = mlp.Accuracy(mlp.NewParams(), nil)
	require.ErrorContains(t, err, "images of the set is 0")
	_, err = NewMLP(Config{Mean: make([]float32, 3)})
	require.ErrorContains(t, err, "length of the mean image is 3, want 784")
	for _, hidden := range []int{-1, MaxHidden + 1} {
		_, err = NewMLP(Config{Hidden: hidden})
		require.ErrorContains(t, err, "want 0 to 4096")
	}
}

func TestMean(t *testing.T) {
	pixels := make([]byte, 4*ImageSize)
	pixels[5], pixels[ImageSize+5], pixels[ImageSize+783] = 255, 1, 6
	mean := newSet(pixels, make([]byte, 4)).Mean()
	require.Len(t, mean, ImageSize)
	want := make([]float32, ImageSize)
	want[5], want[783] = 64, 1.5
	require.Equal(t, want, mean)
}
