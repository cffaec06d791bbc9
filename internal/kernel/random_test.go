package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

type initializer struct {
	name string
	fill func(dst []float32, seed, stream uint64, first int64, scale float32)
}

var initializers = []initializer{{"Uniform", Uniform}, {"Normal", Normal}, {"TruncatedNormal", TruncatedNormal}}

func TestInitializersAreSplitInvariant(t *testing.T) {
	const size = 301
	for _, in := range initializers {
		for _, first := range []int64{0, 1, 1 << 40, math.MaxInt64 - size} {
			t.Run(fmt.Sprintf("%s/%d", in.name, first), func(t *testing.T) {
				whole := make([]float32, size)
				in.fill(whole, 7, Stream("dense1"), first, 0.5)
				rng := rand.New(rand.NewPCG(6, uint64(first)))
				for range 20 {
					pieces := make([]float32, size)
					for _, cut := range randomCuts(rng, size) {
						in.fill(pieces[cut[0]:cut[1]], 7, Stream("dense1"), first+int64(cut[0]), 0.5)
					}
					requireSameBits(t, whole, pieces)
				}
			})
		}
	}
}

// TestInitializerMoments checks a million values against the moments of the
// distribution; five standard errors are allowed, and the seed is fixed.
func TestInitializerMoments(t *testing.T) {
	const n = 1_000_000
	tests := []struct {
		initializer
		variance, fourth, bound float64
	}{
		{initializers[0], 1.0 / 3, 1.0 / 5, 1},
		{initializers[1], 1, 3, 8.6},
		// With phi and Phi of the normal distribution at 2: 1 - 4*phi/(2*Phi-1), and
		// three times that less 16*phi/(2*Phi-1).
		{initializers[2], 0.7737413, 1.4161883, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := make([]float32, n)
			tt.fill(x, 42, Stream("w"), 0, 1)
			var sum, square, fourth, neighbours float64
			for i, e := range widen(x) {
				sum += e
				square += e * e
				fourth += e * e * e * e
				neighbours += e * float64(x[(i+1)%n])
			}
			root := math.Sqrt(n)
			require.InDelta(t, 0, sum/n, 5*math.Sqrt(tt.variance)/root)
			require.InDelta(t, tt.variance, square/n, 5*math.Sqrt(tt.fourth-tt.variance*tt.variance)/root)
			require.InDelta(t, tt.fourth, fourth/n, 5*10/root)
			require.InDelta(t, 0, neighbours/n, 5*tt.variance/root)
			require.LessOrEqual(t, float64(MaxAbs(x)), tt.bound)
		})
	}
}

func TestInitializersDifferBySeedAndStream(t *testing.T) {
	for _, in := range initializers {
		t.Run(in.name, func(t *testing.T) {
			seen := make(map[[2]float32]bool)
			for seed := range uint64(10) {
				for _, layer := range []string{"", "a", "b", "ab", "ba"} {
					var x [2]float32
					in.fill(x[:], seed, Stream(layer), 0, 1)
					require.False(t, seen[x], "seed %d, layer %q repeats another", seed, layer)
					seen[x] = true
				}
			}
		})
	}
}

// TestDrawIsSplitMix64 compares with the published first outputs for seed 1234567.
func TestDrawIsSplitMix64(t *testing.T) {
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423} {
		require.Equal(t, want, Draw(1234567, uint64(i)))
	}
}

// TestInitializersAreFixed pins values, since a saved seed must mean the same weights
// in every later version. They were computed by an independent program.
func TestInitializersAreFixed(t *testing.T) {
	x := make([]float32, 3)
	Uniform(x, 1, Stream("w"), 0, 1)
	requireSameBits(t, []float32{0.02590346336364746, 0.7547206878662109, -0.7963175773620605}, x)
	Normal(x, 1, Stream("w"), 0, 1)
	require.InDeltaSlice(t, []float32{0.8290787211165691, -0.8048450204015468, 2.0592408843624868}, x, 1e-6)
	require.Equal(t, uint64(0xaf63dc4c8601ec8c), Stream("a"), "published FNV-1a test vector")
}

// TestInitializersAreTheSameEverywhere pins the bits of many values. The test runs for arm64
// as well, see TestUnderEmulation.
func TestInitializersAreTheSameEverywhere(t *testing.T) {
	for i, want := range []uint32{0x9247f55e, 0x9c00982a, 0x861c959f} {
		x := make([]float32, 10_000)
		initializers[i].fill(x, 3, Stream("w"), 1, 0.1)
		bytes := make([]byte, 0, 4*len(x))
		for _, e := range x {
			bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(e))
		}
		require.Equal(t, want, CRC32C(0, bytes), "%s", initializers[i].name)
	}
}

func TestPortableFunctions(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 100_000 {
		x := rng.Float64()
		if i < 100 {
			x = float64(i+1) / (1 << 53)
		}
		require.InEpsilon(t, math.Log(x), logarithm(x), 1e-14, "%v", x)
		turns := math.Floor(x*(1<<53)) / (1 << 53)
		sine, cosine := sineCosine(turns)
		wantSine, wantCosine := math.Sincos(2 * math.Pi * turns)
		require.InDelta(t, wantSine, sine, 2e-15, "%v", turns)
		require.InDelta(t, wantCosine, cosine, 2e-15, "%v", turns)
	}
	require.Zero(t, logarithm(1))
	for turns, want := range map[float64][2]float64{0: {0, 1}, 0.25: {1, 0}, 0.5: {0, -1}, 0.75: {-1, 0}} {
		sine, cosine := sineCosine(turns)
		require.Equal(t, want, [2]float64{sine + 0, cosine + 0})
	}
}

func TestInitializerScale(t *testing.T) {
	x := make([]float32, 10_000)
	Uniform(x, 1, 2, 0, 0.25)
	require.LessOrEqual(t, MaxAbs(x), float32(0.25))
	require.Greater(t, MaxAbs(x), float32(0.24))
	for _, in := range initializers {
		in.fill(x, 1, 2, 0, 0)
		require.Zero(t, MaxAbs(x))
		in.fill(nil, 1, 2, 1, 1)
	}
}
