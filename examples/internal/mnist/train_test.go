package mnist

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

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
	optimizer := NewAdam(mlp, 0.001)
	var past [history]Params
	for i := range past {
		past[i] = mlp.Init(1)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for step := range sampler.NumSteps() {
		stale := past[(step+history-4-rng.IntN(5))%history]
		_, grads, err := mlp.Gradient(stale, Batch{Set: train, Samples: sampler.Batch(step)})
		require.NoError(t, err)
		optimizer.Step(params, grads)
		for l := range params {
			copy(past[step%history][l], params[l])
		}
	}
	accuracy, err := mlp.Accuracy(params, test)
	require.NoError(t, err)
	t.Logf("test accuracy %.2f %%", accuracy*100)
	require.Greater(t, accuracy, 0.951)
}
