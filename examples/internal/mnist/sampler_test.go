package mnist

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func newSampler(t testing.TB, numImages int, seed uint64, phases ...Phase) *Sampler {
	t.Helper()
	sampler, err := NewSampler(numImages, phases, seed)
	require.NoError(t, err)
	return sampler
}

func TestEveryEpochHasEachImageOnce(t *testing.T) {
	for _, tc := range []struct {
		images int
		phases []Phase
		steps  int
	}{
		{1, []Phase{{2, 1}}, 2},
		{10, []Phase{{1, 3}}, 4},
		{12, []Phase{{2, 4}, {1, 5}, {3, 12}}, 2*3 + 3 + 3},
		{60_000, []Phase{{3, 64}, {1, 512}}, 3*938 + 118},
	} {
		sampler := newSampler(t, tc.images, 5, tc.phases...)
		require.Equal(t, tc.steps, sampler.NumSteps())
		byEpoch := make([][]int32, sampler.NumEpochs())
		for step := range tc.steps {
			epoch := sampler.Epoch(step)
			byEpoch[epoch] = append(byEpoch[epoch], sampler.Batch(step)...)
		}
		for _, seen := range byEpoch {
			slices.Sort(seen)
			require.Len(t, seen, tc.images)
			require.Len(t, slices.Compact(seen), tc.images)
			require.EqualValues(t, 0, seen[0])
			require.EqualValues(t, tc.images-1, seen[tc.images-1])
		}
	}
}

func TestStepsOfPhases(t *testing.T) {
	sampler := newSampler(t, 10, 1, Phase{1, 4}, Phase{2, 10})
	for step, want := range []struct{ epoch, size int }{{0, 4}, {0, 4}, {0, 2}, {1, 10}, {2, 10}, {3, 0}} {
		require.Equal(t, want.epoch, sampler.Epoch(step), "step %d", step)
		require.Len(t, sampler.Batch(step), want.size, "step %d", step)
	}
	require.Nil(t, sampler.Batch(-1))
	require.Zero(t, sampler.Epoch(-1))
}

func TestStepIsTheSameBatchForEveryWorker(t *testing.T) {
	phase := Phase{Epochs: 20, BatchSize: 30}
	a, b, other := newSampler(t, 1000, 1, phase), newSampler(t, 1000, 1, phase), newSampler(t, 1000, 2, phase)
	want := slices.Clone(a.Batch(40))
	b.Batch(0)
	b.Batch(500)
	require.Equal(t, want, b.Batch(40))
	require.NotEqual(t, want, other.Batch(40))
	require.NotEqual(t, want, b.Batch(40+34), "epochs are shuffled anew")
}

func TestSamplerBounds(t *testing.T) {
	for _, tc := range []struct {
		images int
		phases []Phase
		texts  []string
	}{
		{0, []Phase{{1, 1}}, []string{"images of the set is 0, want 1 to 1048576"}},
		{10, nil, []string{"number of phases is 0"}},
		{10, []Phase{{1, 0}, {1, 11}, {0, 1}}, []string{
			"batch size of phase 0 is 0, want 1 to 10",
			"batch size of phase 1 is 11, want 1 to 10",
			"number of epochs of phase 2 is 0, want 1 to 65534",
		}},
		{10, []Phase{{MaxEpochs, 1}, {1, 1}}, []string{"number of epochs of phase 1 is 1, want"}},
	} {
		_, err := NewSampler(tc.images, tc.phases, 1)
		var shape *ShapeError
		require.ErrorAs(t, err, &shape)
		for _, text := range tc.texts {
			require.ErrorContains(t, err, text)
		}
	}
}
