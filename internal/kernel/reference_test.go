package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// step is one optimizer as the tests see it: run does a step in float32, and
// reference does the same step for one element in float64, written from the papers
// and not from the kernels.
type step struct {
	name      string
	slots     int
	run       func(w, g []float32, slots [][]float32, t uint64)
	reference func(w, g float64, slots []float64, t float64) float64
}

const (
	lr    = 0.01
	mu    = 0.9
	beta1 = 0.9
	beta2 = 0.999
	eps   = 1e-8
	l1    = 0.3
)

func steps() []step {
	var all []step
	for _, decay := range []float64{0, 0.01} {
		suffix := ""
		if decay != 0 {
			suffix = "+decay"
		}
		all = append(all, gradientSteps(suffix, decay)...)
		all = append(all, adamSteps(suffix, decay)...)
	}
	return all
}

func gradientSteps(suffix string, decay float64) []step {
	wd := float32(decay)
	return []step{
		{"SGD" + suffix, 0, func(w, g []float32, _ [][]float32, _ uint64) {
			SGD(w, g, lr, wd)
		}, func(w, g float64, _ []float64, _ float64) float64 {
			return w - lr*(g+decay*w)
		}},
		{"Momentum" + suffix, 1, func(w, g []float32, s [][]float32, _ uint64) {
			Momentum(w, g, s[0], lr, mu, wd)
		}, func(w, g float64, s []float64, _ float64) float64 {
			s[0] = mu*s[0] + g + decay*w
			return w - lr*s[0]
		}},
		{"Nesterov" + suffix, 1, func(w, g []float32, s [][]float32, _ uint64) {
			Nesterov(w, g, s[0], lr, mu, wd)
		}, func(w, g float64, s []float64, _ float64) float64 {
			g += decay * w
			s[0] = mu*s[0] + g
			return w - lr*(g+mu*s[0])
		}},
		{"Adagrad" + suffix, 1, func(w, g []float32, s [][]float32, _ uint64) {
			Adagrad(w, g, s[0], lr, eps, wd)
		}, func(w, g float64, s []float64, _ float64) float64 {
			g += decay * w
			s[0] += g * g
			return w - lr*g/(math.Sqrt(s[0])+eps)
		}},
		{"FTRL" + suffix, 2, func(w, g []float32, s [][]float32, _ uint64) {
			FTRL(w, g, s[0], s[1], lr, 1, l1, wd)
		}, func(w, g float64, s []float64, _ float64) float64 {
			s[0] += g - (math.Sqrt(s[1]+g*g)-math.Sqrt(s[1]))/lr*w
			s[1] += g * g
			if math.Abs(s[0]) <= l1 {
				return 0
			}
			return -(s[0] - math.Copysign(l1, s[0])) / ((1+math.Sqrt(s[1]))/lr + decay)
		}},
	}
}

func adamSteps(suffix string, decay float64) []step {
	moments := func(g float64, s []float64, t float64) float64 {
		s[0] = beta1*s[0] + (1-beta1)*g
		s[1] = beta2*s[1] + (1-beta2)*g*g
		mHat := s[0] / (1 - math.Pow(beta1, t))
		vHat := s[1] / (1 - math.Pow(beta2, t))
		return lr * mHat / (math.Sqrt(vHat) + eps)
	}
	return []step{
		{"Adam" + suffix, 2, func(w, g []float32, s [][]float32, t uint64) {
			Adam(w, g, s[0], s[1], NewAdam(lr, beta1, beta2, eps, decay, t))
		}, func(w, g float64, s []float64, t float64) float64 {
			return w - moments(g+decay*w, s, t)
		}},
		{"AdamW" + suffix, 2, func(w, g []float32, s [][]float32, t uint64) {
			AdamW(w, g, s[0], s[1], NewAdam(lr, beta1, beta2, eps, decay, t))
		}, func(w, g float64, s []float64, t float64) float64 {
			return w - lr*decay*w - moments(g, s, t)
		}},
		{"AMSGrad" + suffix, 3, func(w, g []float32, s [][]float32, t uint64) {
			AMSGrad(w, g, s[0], s[1], s[2], NewAdam(lr, beta1, beta2, eps, decay, t))
		}, func(w, g float64, s []float64, t float64) float64 {
			moments(g+decay*w, s, t)
			s[2] = max(s[2], s[1])
			return w - lr*s[0]/(1-math.Pow(beta1, t))/(math.Sqrt(s[2]/(1-math.Pow(beta2, t)))+eps)
		}},
	}
}

// TestOptimizersMatchFloat64 runs 100 steps. Each step adds one rounding of the
// weight, at most 2^-24 of it, and the slots carry roundings of their own: 100 steps
// must stay within 100*2^-23 = 1.2e-5 of the reference, relative to weights of size one.
func TestOptimizersMatchFloat64(t *testing.T) { onEachPath(t, testOptimizersMatchFloat64) }

func testOptimizersMatchFloat64(t *testing.T) {
	const size, numSteps, tolerance = 103, 100, 1.2e-5
	for _, s := range steps() {
		t.Run(s.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			w := randomSlice(rng, size)
			want := widen(w)
			slots := newSlots(s.slots, size)
			wantSlots := make([][]float64, size)
			for i := range wantSlots {
				wantSlots[i] = make([]float64, s.slots)
			}
			for n := 1; n <= numSteps; n++ {
				g := randomSlice(rng, size)
				s.run(w, g, slots, uint64(n))
				for i := range want {
					want[i] = s.reference(want[i], float64(g[i]), wantSlots[i], float64(n))
				}
			}
			require.InDeltaSlice(t, want, widen(w), tolerance)
		})
	}
}

// TestOptimizersConverge minimizes (w-3)^2: a sign error in any step diverges.
func TestOptimizersConverge(t *testing.T) { onEachPath(t, testOptimizersConverge) }

func testOptimizersConverge(t *testing.T) {
	for _, s := range gradientAndAdamWithoutDecay() {
		t.Run(s.name, func(t *testing.T) {
			w, slots := []float32{-1}, newSlots(s.slots, 1)
			for n := uint64(1); n <= 1000; n++ {
				s.run(w, []float32{2 * (w[0] - 3)}, slots, n)
			}
			before := float32(16) // (-1-3)^2
			require.Less(t, (w[0]-3)*(w[0]-3), before*0.9)
		})
	}
}

func gradientAndAdamWithoutDecay() []step {
	return append(gradientSteps("", 0), adamSteps("", 0)...)
}

func TestOptimizersAreSplitInvariant(t *testing.T) { onEachPath(t, testOptimizersAreSplitInvariant) }

func testOptimizersAreSplitInvariant(t *testing.T) {
	const size = 67
	for _, s := range steps() {
		t.Run(s.name, func(t *testing.T) {
			for seed := range uint64(20) {
				rng := rand.New(rand.NewPCG(seed, 0))
				whole := randomSlice(rng, size)
				pieces := slices.Clone(whole)
				wholeSlots, pieceSlots := newSlots(s.slots, size), newSlots(s.slots, size)
				for n := uint64(1); n <= 3; n++ {
					g := randomSlice(rng, size)
					s.run(whole, g, wholeSlots, n)
					for _, cut := range randomCuts(rng, size) {
						s.run(pieces[cut[0]:cut[1]], g[cut[0]:cut[1]], cutSlots(pieceSlots, cut), n)
					}
				}
				requireSameBits(t, whole, pieces)
				for i := range wholeSlots {
					requireSameBits(t, wholeSlots[i], pieceSlots[i])
				}
			}
		})
	}
}

func TestOptimizersPropagateNaN(t *testing.T) { onEachPath(t, testOptimizersPropagateNaN) }

func testOptimizersPropagateNaN(t *testing.T) {
	for _, s := range steps() {
		t.Run(s.name, func(t *testing.T) {
			nan := float32(math.NaN())
			w, slots := []float32{1, 1, 1, 1, 1}, newSlots(s.slots, 5)
			s.run(w, []float32{1, nan, 1, 1, nan}, slots, 1)
			for i, e := range w {
				require.Equal(t, i == 1 || i == 4, math.IsNaN(float64(e)), "element %d is %v", i, e)
			}
		})
	}
}

func TestOptimizersTakeUnequalLengths(t *testing.T) { onEachPath(t, testOptimizersTakeUnequalLengths) }

func testOptimizersTakeUnequalLengths(t *testing.T) {
	for _, s := range steps() {
		t.Run(s.name, func(t *testing.T) {
			s.run(nil, nil, newSlots(s.slots, 0), 1)
			w := []float32{1, 1, 1, 1, 1, 1}
			s.run(w, []float32{1, 1, 1, 1, 1}, newSlots(s.slots, 6), 1)
			require.NotEqual(t, float32(1), w[4])
			require.Equal(t, float32(1), w[5], "beyond the common prefix")
		})
	}
}

// TestSGDIsExactOnIntegers is the ground of invariant I8.
func TestSGDIsExactOnIntegers(t *testing.T) { onEachPath(t, testSGDIsExactOnIntegers) }

func testSGDIsExactOnIntegers(t *testing.T) {
	w := []float32{16777215, -16777215, 0, 5, float32(math.Copysign(0, -1))}
	SGD(w, []float32{16777215, -16777214, 7, 0, 0}, 1, 0)
	requireSameBits(t, []float32{0, -1, -7, 5, float32(math.Copysign(0, -1))}, w)
}

// TestSGDRoundsTheProduct uses operands whose fused result differs.
func TestSGDRoundsTheProduct(t *testing.T) { onEachPath(t, testSGDRoundsTheProduct) }

func testSGDRoundsTheProduct(t *testing.T) {
	a := float32(1 + 1.0/(1<<12))
	product := a * a // 1 + 2^-11 + 2^-24 rounds to 1 + 2^-11
	for _, size := range []int{1, 4, 7} {
		w, g := make([]float32, size), make([]float32, size)
		Fill(w, product)
		Fill(g, a)
		SGD(w, g, a, 0)
		requireSameBits(t, make([]float32, size), w)
	}
}

// Rows have one sum; and a divisor of zero leaves a weight of FTRL at zero.
func TestAdagradRow(t *testing.T) { onEachPath(t, testAdagradRow) }

func testAdagradRow(t *testing.T) {
	for _, decay := range []float64{0, 0.01} {
		for _, size := range lengths[1:] {
			rng := rand.New(rand.NewPCG(1, 2))
			w, sum := randomSlice(rng, size), []float32{0.5}
			want, wantSum := widen(w), 0.5
			for range 100 {
				g := randomSlice(rng, size)
				AdagradRow(w, g, sum, lr, eps, float32(decay))
				squares := 0.0
				for i, e := range g {
					grad := float64(e) + decay*want[i]
					squares += grad * grad
				}
				wantSum += squares / float64(size)
				for i, e := range g {
					want[i] -= lr * (float64(e) + decay*want[i]) / (math.Sqrt(wantSum) + eps)
				}
			}
			require.InDeltaSlice(t, want, widen(w), 2e-5, "length %d, decay %v", size, decay)
			require.InEpsilon(t, wantSum, sum[0], 1e-5)
		}
	}
	AdagradRow(nil, nil, nil, lr, eps, 0)
	w := []float32{1, 2}
	FTRL(w, []float32{0, 3}, make([]float32, 2), make([]float32, 2), lr, 0, 0, 0)
	require.Zero(t, w[0])
	require.Less(t, w[1], float32(2))
}

// A schedule gives what NewAdam gives, at any step.
func TestAdamSchedule(t *testing.T) {
	s := NewAdamSchedule(0.9, 0.999, 1e-8, 0.01)
	for _, step := range []uint64{0, 1, 2, 127, 128, 129, 1000, 16_383, 16_384, 1 << 20, 1<<31 - 1, math.MaxUint64} {
		want, got := NewAdam(0.001, 0.9, 0.999, 1e-8, 0.01, step), s.At(0.001, step)
		require.InEpsilon(t, want.StepSize, got.StepSize, 1e-6, "step %d", step)
		require.InEpsilon(t, want.RootScale, got.RootScale, 1e-6, "step %d", step)
		got.StepSize, got.RootScale = want.StepSize, want.RootScale
		require.Equal(t, want, got)
	}
	none := NewAdamSchedule(0, 0, 1, 0)
	require.Equal(t, NewAdam(1, 0, 0, 1, 0, 7), none.At(1, 7))
}

func TestNewAdam(t *testing.T) {
	p := NewAdam(0.001, 0.9, 0.999, 1e-8, 0.01, 1)
	require.InDelta(t, 0.01, p.StepSize, 1e-8)
	require.InDelta(t, math.Sqrt(1000), p.RootScale, 1e-4)
	require.Equal(t, p, NewAdam(0.001, 0.9, 0.999, 1e-8, 0.01, 0), "step zero is step one")
	late := NewAdam(0.001, 0.9, 0.999, 1e-8, 0.01, math.MaxUint64)
	require.Equal(t, float32(0.001), late.StepSize)
	require.Equal(t, float32(1), late.RootScale)
}
