package codec_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective/codec"
)

// TestFeedbackLosesNothing: the mean of what is decoded of a constant gradient comes near to
// it as one over the number of steps.
func TestFeedbackLosesNothing(t *testing.T) {
	const n, steps = 5000, 100
	for _, f := range formats {
		var left codec.Feedback
		x, packed, y := normal(8, n), make([]byte, f.EncodedLen(n)), make([]float32, n)
		sum, mean := make([]float64, n), make([]float32, n)
		before := slices.Clone(x)
		for range steps {
			require.NoError(t, left.Encode(t.Context(), f, "w", packed, x))
			require.NoError(t, f.Decode(y, packed))
			for i := range sum {
				sum[i] += float64(y[i])
			}
		}
		require.Equal(t, before, x)
		for i := range mean {
			mean[i] = float32(sum[i] / steps)
		}
		once, got := relative(x, through(t, f, x)), relative(x, mean)
		t.Logf("%v: %.6f without, %.6f with", f, once, got)
		if f == codec.OneBit {
			require.Less(t, got, 0.1)
			continue
		}
		require.Less(t, got, 1.2*once/steps, "%v", f)
	}
}

// TestFeedbackBeginsAtZero where shape or place change, and keeps other tensors.
func TestFeedbackBeginsAtZero(t *testing.T) {
	var left codec.Feedback
	at := codec.Place{Rank: 1, Size: 4, Epoch: 2}
	rest := func(at codec.Place, tensors ...codec.Tensor) []float32 {
		h, err := left.Hold(t.Context(), at, tensors...)
		require.NoError(t, err)
		defer h.Release()
		return slices.Clone(h.Values)
	}
	fill := func() {
		h, err := left.Hold(t.Context(), at, codec.Tensor{Name: "a", Len: 2}, codec.Tensor{Name: "b", Len: 1})
		require.NoError(t, err)
		copy(h.Values, []float32{1, 2, 3})
		h.Release()
	}
	a, b := codec.Tensor{Name: "a", Len: 2}, codec.Tensor{Name: "b", Len: 1}
	fill()
	require.Equal(t, []float32{1, 2, 3}, rest(at, a, b))
	require.Equal(t, []float32{3, 1, 2}, rest(at, b, a), "another order, as another bucket would have")
	require.Equal(t, []float32{1, 2}, rest(at, a))
	require.Equal(t, []float32{0, 0, 0}, rest(at, codec.Tensor{Name: "a", Len: 3}))
	require.Equal(t, []float32{3}, rest(at, b))
	for _, other := range []codec.Place{{Rank: 1, Size: 4, Epoch: 3}, {Rank: 2, Size: 4, Epoch: 2}, {Rank: 1, Size: 3, Epoch: 2}, {Group: "other", Rank: 1, Size: 4, Epoch: 2}} {
		fill()
		require.Equal(t, []float32{0, 0, 0}, rest(other, a, b), "%v", other)
		require.Equal(t, []float32{0, 0}, rest(at, a), "what was dropped stays so")
	}
	fill()
	require.Equal(t, []codec.Tensor{a, b}, left.Tensors())
	left.Reset()
	require.Empty(t, left.Tensors())
	require.Equal(t, []float32{0, 0, 0}, rest(at, a, b))
}

// TestFeedbackStaysFinite: a step with NaN and infinities harms no later one.
func TestFeedbackStaysFinite(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, f := range formats {
		var left codec.Feedback
		x := normal(9, 300)
		packed, y := make([]byte, f.EncodedLen(len(x))), make([]float32, len(x))
		bad := slices.Clone(x)
		bad[0], bad[5], bad[200], bad[299] = inf, float32(math.NaN()), -inf, math.MaxFloat32
		require.NoError(t, left.Encode(t.Context(), f, "w", packed, bad))
		h, err := left.Hold(t.Context(), codec.Place{}, codec.Tensor{Name: "w", Len: 300})
		require.NoError(t, err)
		for i, r := range h.Values {
			require.Zero(t, r-r, "%v, element %d is %v", f, i, r)
		}
		copy(h.Values[7:], []float32{inf, float32(math.NaN())}) // nor does who holds it
		h.Release()
		require.NoError(t, left.Encode(t.Context(), f, "w", packed, x))
		require.NoError(t, f.Decode(y, packed))
		for i := range y[:299] {
			require.Zero(t, y[i]-y[i], "%v, element %d is %v", f, i, y[i])
		}
	}
}

func TestFeedbackRefuses(t *testing.T) {
	var left codec.Feedback
	long := string(make([]byte, codec.MaxNameBytes+1))
	require.ErrorIs(t, left.Encode(t.Context(), codec.E4M3, "", nil, nil), codec.ErrLength)
	require.ErrorIs(t, left.Encode(t.Context(), codec.E4M3, long, nil, nil), codec.ErrLength)
	require.ErrorIs(t, left.Encode(t.Context(), codec.E4M3, "w", make([]byte, 4), make([]float32, 1)), codec.ErrLength)
	require.ErrorIs(t, left.Encode(t.Context(), 99, "w", nil, nil), codec.ErrFormat)
	_, err := left.Hold(t.Context(), codec.Place{}, codec.Tensor{Name: "a", Len: 1}, codec.Tensor{Name: "a", Len: 1})
	require.ErrorIs(t, err, codec.ErrLength)
	_, err = left.Hold(t.Context(), codec.Place{}, codec.Tensor{Name: "a", Len: -1})
	require.ErrorIs(t, err, codec.ErrLength)
	require.Empty(t, left.Tensors())
}

// TestFeedbackFromManyGoroutines: who holds a tensor has it alone, and Save sees whole ones.
func TestFeedbackFromManyGoroutines(t *testing.T) {
	var left codec.Feedback
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 200 {
				h, err := left.Hold(t.Context(), codec.Place{}, codec.Tensor{Name: "a", Len: 10})
				if err != nil {
					t.Error(err)
					return
				}
				for i := range h.Values {
					h.Values[i]++
				}
				h.Release()
			}
		})
	}
	wait.Go(func() {
		for range 50 {
			var other codec.Feedback
			bytes, err := left.Save(t.Context())
			if err == nil {
				err = other.Load(bytes)
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	wait.Wait()
	h, err := left.Hold(t.Context(), codec.Place{}, codec.Tensor{Name: "a", Len: 10})
	require.NoError(t, err)
	require.Equal(t, slices.Repeat([]float32{1600}, 10), h.Values)
	h.Release()
}

func savedBytes(t testing.TB, left *codec.Feedback) []byte {
	bytes, err := left.Save(t.Context())
	require.NoError(t, err)
	return bytes
}

func saved(t testing.TB) (codec.Place, []byte) {
	var left codec.Feedback
	at := codec.Place{Rank: 2, Size: 3, Epoch: 9}
	h, err := left.Hold(t.Context(), at, codec.Tensor{Name: "b", Len: 3}, codec.Tensor{Name: "a", Len: 1}, codec.Tensor{Name: "empty", Len: 0})
	require.NoError(t, err)
	copy(h.Values, []float32{1, -2, 3, 4})
	h.Release()
	return at, savedBytes(t, &left)
}

// TestSaveAndLoad: residuals go on at the same rank of as many, in a group of any epoch, and
// the next time only in that one.
func TestSaveAndLoad(t *testing.T) {
	at, bytes := saved(t)
	for _, tt := range []struct {
		at   codec.Place
		want []float32
	}{
		{at, []float32{1, -2, 3, 4}},
		{codec.Place{Group: "after a restart", Rank: 2, Size: 3, Epoch: 1}, []float32{1, -2, 3, 4}},
		{codec.Place{Rank: 1, Size: 3, Epoch: 9}, []float32{0, 0, 0, 0}},
		{codec.Place{Rank: 2, Size: 4, Epoch: 9}, []float32{0, 0, 0, 0}},
	} {
		var left codec.Feedback
		require.NoError(t, left.Load(bytes))
		require.Equal(t, bytes, savedBytes(t, &left))
		for _, epoch := range []uint64{tt.at.Epoch, tt.at.Epoch, 77} {
			h, err := left.Hold(t.Context(), codec.Place{Rank: tt.at.Rank, Size: tt.at.Size, Epoch: epoch}, codec.Tensor{Name: "b", Len: 3}, codec.Tensor{Name: "a", Len: 1})
			require.NoError(t, err)
			if epoch == 77 {
				require.Equal(t, []float32{0, 0, 0, 0}, h.Values)
			} else {
				require.Equal(t, tt.want, h.Values, "%v", tt.at)
			}
			h.Release()
		}
	}
}

// TestLoadRefuses every byte that is changed, and every length; the residuals stay.
func TestLoadRefuses(t *testing.T) {
	_, bytes := saved(t)
	var left codec.Feedback
	require.NoError(t, left.Load(bytes))
	for i := range bytes {
		require.ErrorIs(t, left.Load(bytes[:i]), codec.ErrCorrupt)
		bad := slices.Clone(bytes)
		bad[i] ^= 4
		require.ErrorIs(t, left.Load(bad), codec.ErrCorrupt, "byte %d", i)
	}
	require.ErrorIs(t, left.Load(append(slices.Clone(bytes), 0)), codec.ErrCorrupt)
	require.Equal(t, bytes, savedBytes(t, &left))
}

// TestHoldEndsWithItsContext: who waits for a tensor does not do so for ever.
func TestHoldEndsWithItsContext(t *testing.T) {
	var left codec.Feedback
	h, err := left.Hold(t.Context(), codec.Place{}, codec.Tensor{Name: "a", Len: 1})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		_, err := left.Hold(ctx, codec.Place{}, codec.Tensor{Name: "b", Len: 1}, codec.Tensor{Name: "a", Len: 1})
		result <- err
	}()
	cancel()
	require.ErrorIs(t, <-result, context.Canceled)
	_, err = left.Save(ctx)
	require.ErrorIs(t, err, context.Canceled)
	h.Release()
	h, err = left.Hold(ctx, codec.Place{}, codec.Tensor{Name: "a", Len: 1})
	require.NoError(t, err, "nobody else has it")
	h.Release()
}
