package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// lengths has the empty slice, every remainder of the unrolled loops, and one
// length that is not small.
var lengths = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 1023}

func TestElementwiseMatchesTheDefinition(t *testing.T) {
	onEachPath(t, testElementwiseMatchesTheDefinition)
}

func testElementwiseMatchesTheDefinition(t *testing.T) {
	const a = 0.7
	tests := []struct {
		name string
		run  func(dst, x []float32)
		want func(dst, x float32) float32
	}{
		{"Add", Add, func(dst, x float32) float32 { return dst + x }},
		{"Axpy", func(dst, x []float32) { Axpy(dst, a, x) }, func(dst, x float32) float32 { return dst + float32(a*x) }},
		{"Scale", func(dst, _ []float32) { Scale(dst, a) }, func(dst, _ float32) float32 { return dst * a }},
		{"Fill", func(dst, _ []float32) { Fill(dst, a) }, func(_, _ float32) float32 { return a }},
	}
	for _, tt := range tests {
		for _, size := range lengths {
			t.Run(fmt.Sprintf("%s/%d", tt.name, size), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(3, uint64(size)))
				dst, x := randomSlice(rng, size), randomSlice(rng, size)
				want := make([]float32, size)
				for i := range want {
					want[i] = tt.want(dst[i], x[i])
				}
				pieces := slices.Clone(dst)
				tt.run(dst, x)
				requireSameBits(t, want, dst)
				for _, cut := range randomCuts(rng, size) {
					tt.run(pieces[cut[0]:cut[1]], x[cut[0]:cut[1]])
				}
				requireSameBits(t, want, pieces)
			})
		}
	}
}

func TestElementwiseSpecialValues(t *testing.T) { onEachPath(t, testElementwiseSpecialValues) }

func testElementwiseSpecialValues(t *testing.T) {
	inf, nan, negZero := float32(math.Inf(1)), float32(math.NaN()), float32(math.Copysign(0, -1))
	dst := []float32{negZero, negZero, inf, inf, nan, 1}
	Add(dst, []float32{negZero, 0, 1, -inf, 1, nan})
	requireSameBits(t, []float32{negZero, 0, inf}, dst[:3])
	for i, e := range dst[3:] {
		require.True(t, math.IsNaN(float64(e)), "element %d is %v", 3+i, e)
	}
	Scale(dst[:2], -1)
	requireSameBits(t, []float32{0, negZero}, dst[:2])
}

func TestAddOfItselfDoubles(t *testing.T) { onEachPath(t, testAddOfItselfDoubles) }

func testAddOfItselfDoubles(t *testing.T) {
	x := []float32{1, 2, 3, 4, 5}
	Add(x, x)
	require.Equal(t, []float32{2, 4, 6, 8, 10}, x)
}

func TestUnequalLengthsUseTheCommonPrefix(t *testing.T) {
	onEachPath(t, testUnequalLengthsUseTheCommonPrefix)
}

func testUnequalLengthsUseTheCommonPrefix(t *testing.T) {
	dst := []float32{1, 1, 1, 1, 1, 1, 1}
	Add(dst, []float32{1, 1, 1, 1, 1})
	Axpy(dst[:2], 1, []float32{1, 1, 9, 9})
	require.Equal(t, []float32{3, 3, 2, 2, 2, 1, 1}, dst)
	require.Equal(t, float32(5), Dot([]float32{1, 1, 1, 1, 1}, []float32{1, 1, 1, 1, 1, 1, 1, 1}))
}

func TestDot(t *testing.T) { onEachPath(t, testDot) }

func testDot(t *testing.T) {
	for _, size := range lengths {
		rng := rand.New(rand.NewPCG(4, uint64(size)))
		x, y := randomSlice(rng, size), randomSlice(rng, size)
		var want float64
		for i := range x {
			want += float64(x[i]) * float64(y[i])
		}
		require.InDelta(t, want, Dot(x, y), 1e-6*math.Sqrt(float64(size+1))*16, "length %d", size)
		require.Equal(t, Dot(x, y), Dot(slices.Clone(x), slices.Clone(y)))
	}
	require.True(t, math.IsNaN(float64(Dot([]float32{1, float32(math.NaN())}, []float32{1, 0}))))
}

func TestMaxAbs(t *testing.T) { onEachPath(t, testMaxAbs) }

func testMaxAbs(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	require.Zero(t, MaxAbs(nil))
	require.Equal(t, float32(3), MaxAbs([]float32{1, -3, 2}))
	require.Equal(t, inf, MaxAbs([]float32{1, -inf, 2, 3, 4}))
	require.False(t, math.Signbit(float64(MaxAbs([]float32{float32(math.Copysign(0, -1))}))))
	for _, size := range lengths {
		for at := range min(size, 20) {
			x := make([]float32, size)
			x[at] = -7
			require.Equal(t, float32(7), MaxAbs(x), "length %d, element %d", size, at)
			x[at] = nan
			x[(at+1)%size] = nan
			require.True(t, math.IsNaN(float64(MaxAbs(x))), "length %d, element %d", size, at)
		}
	}
}

func TestAllFinite(t *testing.T) { onEachPath(t, testAllFinite) }

func testAllFinite(t *testing.T) {
	for _, size := range lengths {
		x := randomSlice(rand.New(rand.NewPCG(5, uint64(size))), size)
		for i := range x {
			x[i] *= math.MaxFloat32 / 8
		}
		require.True(t, AllFinite(x), "length %d", size)
		for at := range min(size, 20) {
			for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				y := slices.Clone(x)
				y[at] = float32(bad)
				require.False(t, AllFinite(y), "length %d, element %d is %v", size, at, bad)
			}
		}
	}
	require.True(t, AllFinite([]float32{math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32}))
}

// TestNothingAllocates holds the kernels to what their package says.
func TestNothingAllocates(t *testing.T) { onEachPath(t, testNothingAllocates) }

func testNothingAllocates(t *testing.T) {
	w, g, m, v := make([]float32, 99), make([]float32, 99), make([]float32, 99), make([]float32, 99)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		Axpy(w, 2, g)
		Prefetch(g)
		Uniform(g, 1, 2, 3, 4)
		Normal(g, 1, 2, 3, 4)
		Adam(w, g, m, v, NewAdam(lr, beta1, beta2, eps, 0, 1))
	}))
}

// TestPrefetch asks for slices of any length at any place: it must not fault.
func TestPrefetch(t *testing.T) { onEachPath(t, testPrefetch) }

func testPrefetch(*testing.T) {
	x := make([]float32, 1000)
	for begin := range 40 {
		for end := begin; end < len(x); end += 37 {
			Prefetch(x[begin:end])
		}
	}
	Prefetch(x[len(x):])
	Prefetch[float32](nil)
	Prefetch([]struct{}{{}})
}

func randomSlice(rng *rand.Rand, size int) []float32 {
	x := make([]float32, size)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// randomCuts returns bounds of pieces, some of them empty, that cover [0, size).
func randomCuts(rng *rand.Rand, size int) [][2]int {
	var cuts [][2]int
	begin := 0
	for begin < size {
		end := min(size, begin+rng.IntN(12))
		cuts = append(cuts, [2]int{begin, end})
		begin = end
	}
	return cuts
}

func newSlots(count, size int) [][]float32 {
	slots := make([][]float32, count)
	for i := range slots {
		slots[i] = make([]float32, size)
	}
	return slots
}

func cutSlots(slots [][]float32, cut [2]int) [][]float32 {
	pieces := make([][]float32, len(slots))
	for i := range slots {
		pieces[i] = slots[i][cut[0]:cut[1]]
	}
	return pieces
}

func widen(x []float32) []float64 {
	wide := make([]float64, len(x))
	for i, e := range x {
		wide[i] = float64(e)
	}
	return wide
}

func requireSameBits(t *testing.T, want, got []float32) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			require.Failf(t, "bits differ", "element %d of %d: want %v, got %v", i, len(want), want[i], got[i])
		}
	}
}
