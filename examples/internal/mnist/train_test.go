package mnist

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// adam is a plain Adam (Kingma, Ba 2015, algorithm 1) for the test below.
type adam struct {
	rate          float64
	steps         int
	first, second Params
}

func (a *adam) step(p, grads Params) {
	const beta1, beta2, epsilon = 0.9, 0.999, 1e-8
	a.steps++
	correction := math.Sqrt(1-math.Pow(beta2, float64(a.steps))) / (1 - math.Pow(beta1, float64(a.steps)))
	rate := float32(a.rate * correction)
	for l := range p {
		param, first, second := p[l], a.first[l], a.second[l]
		for i, g := range grads[l] {
			first[i] = beta1*first[i] + (1-beta1)*g
			second[i] = beta2*second[i] + (1-beta2)*g*g
			param[i] -= rate * first[i] / (float32(math.Sqrt(float64(second[i]))) + epsilon)
		}
	}
}

// TestTrainingOnStaleParameters trains as four asynchronous workers do: each
// gradient comes from parameters that have been updated 3 to 7 times since. The
// bound lies between what a quarter of the hidden units reaches in two epochs
// (95.79 %) and what it reaches there without the mean image (94.40 %).
func TestTrainingOnStaleParameters(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for seconds")
	}
	if underRace {
		t.Skip("trains for a quarter of a minute, on one goroutine")
	}
	const history = 10
	train, test := realSets(t)
	mlp, err := NewMLP(Config{Hidden: 64, Mean: train.Mean()})
	require.NoError(t, err)
	sampler := newSampler(t, train.Len(), 1, Phase{Epochs: 1, BatchSize: 64}, Phase{Epochs: 1, BatchSize: 512})
	params := mlp.Init(1)
	optimizer := adam{rate: 0.001, first: mlp.NewParams(), second: mlp.NewParams()}
	var past [history]Params
	for i := range past {
		past[i] = mlp.Init(1)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for step := range sampler.NumSteps() {
		stale := past[(step+history-4-rng.IntN(5))%history]
		_, grads, err := mlp.Gradient(stale, Batch{Set: train, Samples: sampler.Batch(step)})
		require.NoError(t, err)
		optimizer.step(params, grads)
		for l := range params {
			copy(past[step%history][l], params[l])
		}
	}
	accuracy, err := mlp.Accuracy(params, test)
	require.NoError(t, err)
	t.Logf("test accuracy %.2f %%", accuracy*100)
	require.Greater(t, accuracy, 0.951)
}
