package collective_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/codec"
)

// With feedback the mean of many steps of one gradient comes to what it would be without
// rounding: the distance is that of one call divided by the steps.
func TestCompressedFeedback(t *testing.T) {
	const n, steps = 4, 100
	count, formats := 6_001, codecs
	if collective.RaceEnabled {
		count, formats = 1_001, []codec.Format{codec.E4M3}
	}
	for name, change := range map[string]func(int, *collective.Config){"one node": nil, "two nodes": byNode(0, 1, 0, 1)} {
		t.Run(name, func(t *testing.T) { checkFeedback(t, found(t, n, change), count, steps, formats) })
	}
}

func checkFeedback(t *testing.T, groups []*collective.Group, count, steps int, formats []codec.Format) {
	n := len(groups)
	x := gaussians(n, count)
	for _, op := range []collective.Op{collective.Sum, collective.Average} {
		for _, f := range formats {
			once := distance(sumOf(x, op), compressed(t, groups, x, op, true, plain(f)))
			left := make([]codec.Feedback, n)
			sum := make([]float64, count)
			for range steps {
				got := compressed(t, groups, x, op, true, func(rank int) collective.Compression {
					return collective.Compression{Format: f, Feedback: &left[rank], Name: "x"}
				})
				for i, v := range got {
					sum[i] += float64(v)
				}
			}
			mean := make([]float32, count)
			for i := range mean {
				mean[i] = float32(sum[i] / float64(steps))
			}
			got := distance(sumOf(x, op), mean)
			t.Logf("%v %v: %.6f once, %.6f with feedback", op, f, once, got)
			if f == codec.OneBit {
				require.Less(t, got, 0.2)
				continue
			}
			require.Less(t, got, 1.15*once/float64(steps), "%v, %v", op, f)
		}
	}
}

// Case 16: weights that are stepped with compressed gradients stay the same on all ranks, and
// come to where those of full gradients do.
func TestCase16WeightsStayEqual(t *testing.T) {
	const n, count, steps = 3, 1_000, 50
	formats := codecs
	if collective.RaceEnabled {
		formats = codecs[2:3]
	}
	groups := found(t, n, nil)
	targets := gaussians(n, count) // rank r wants weights like these; together their mean
	for _, f := range formats {
		weights := make([][]float32, n)
		onAll(t, n, func(rank int) error {
			var left codec.Feedback
			w, grad := make([]float32, count), make([]float32, count)
			for range steps {
				for i := range grad {
					grad[i] = w[i] - targets[rank][i]
				}
				c := collective.Compression{Format: f, Feedback: &left, Name: "w"}
				if err := groups[rank].AllReduceCompressed(background(t), grad, grad, collective.Average, c); err != nil {
					return err
				}
				for i := range w {
					w[i] -= 0.2 * grad[i]
				}
			}
			weights[rank] = w
			return nil
		})
		for rank := range weights {
			require.Equal(t, digestOf(weights[0]), digestOf(weights[rank]), "%v, rank %d", f, rank)
		}
		bound := 0.01
		if f == codec.OneBit {
			bound = 0.35
		}
		require.Less(t, distance(sumOf(targets, collective.Average), weights[0]), bound, "%v", f)
	}
}

// Gradients in buckets are what they would be one by one; names keep the feedback of a tensor
// when buckets change, and another group begins without.
func TestCompressedGradients(t *testing.T) {
	leakless(t)
	sizes, names := []int{1000, 10, 0, 5000, 300, 1}, []string{"f", "e", "d", "c", "b", "a"}
	const n = 4
	groups := found(t, n, nil)
	left := make([]codec.Feedback, n)
	var sums [n][]float64 // of the results of tensor 3
	want := sumOf(gaussians(n, sizes[3]), collective.Average)
	step := func(bucketBytes, steps int) {
		onAll(t, n, func(rank int) error {
			sync, err := collective.NewGradients(collective.GradientsConfig{
				Group: groups[rank], Sizes: sizes, BucketBytes: bucketBytes, Names: names,
				Compression: collective.Compression{Format: codec.E4M3, Feedback: &left[rank], Name: "model/"},
			})
			if err != nil {
				return err
			}
			for range steps {
				grads := make([][]float32, len(sizes))
				for i, size := range sizes {
					grads[i] = gaussians(n, size)[rank]
					if err := sync.Ready(background(t), i, grads[i]); err != nil {
						return err
					}
				}
				if err := sync.Wait(background(t)); err != nil {
					return err
				}
				if sums[rank] == nil {
					sums[rank] = make([]float64, sizes[3])
				}
				for i, v := range grads[3] {
					sums[rank][i] += float64(v)
				}
			}
			return nil
		})
	}
	step(8000, 10)
	step(100, 10)
	step(1<<20, 20)
	for rank := range n {
		require.Equal(t, sums[0], sums[rank])
		mean := make([]float32, len(want))
		for i, v := range sums[rank] {
			mean[i] = float32(v / 40)
		}
		require.Less(t, distance(want, mean), 0.04/40, "rank %d: feedback was lost on the way", rank)
		require.Equal(t, codec.Tensor{Name: "model/a", Len: 1}, left[rank].Tensors()[0])
		require.Len(t, left[rank].Tensors(), len(sizes))
	}
}

// A group that follows another one begins without what rounding has lost in that.
func TestCompressedFeedbackEndsWithTheGroup(t *testing.T) {
	leakless(t)
	const n, count = 3, 2000
	groups := found(t, n, nil)
	left := make([]codec.Feedback, n)
	with := func(rank int) collective.Compression {
		return collective.Compression{Format: codec.E5M2, Feedback: &left[rank], Name: "x"}
	}
	x := gaussians(n, count)
	first := compressed(t, groups, x, collective.Sum, true, with)
	second := compressed(t, groups, x, collective.Sum, true, with)
	require.NotEqual(t, first, second)
	_ = groups[2].Close()
	next := make([]*collective.Group, 2)
	onAll(t, 2, func(rank int) error {
		var err error
		next[rank], err = groups[rank].Shrink(background(t), 2)
		return err
	})
	defer closeAll(next)
	fresh := compressed(t, found(t, 2, nil), x[:2], collective.Sum, true, plain(codec.E5M2))
	require.Equal(t, fresh, compressed(t, next, x[:2], collective.Sum, true, with))
}
