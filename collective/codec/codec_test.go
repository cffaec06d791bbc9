package codec_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective/codec"
)

var formats = []codec.Format{
	codec.Float16, codec.BFloat16, codec.E4M3, codec.E5M2, codec.MXE4M3, codec.MXE5M2, codec.OneBit,
}

// normal has n normal numbers.
func normal(seed uint64, n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 3))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// through encodes and decodes.
func through(t testing.TB, f codec.Format, x []float32) []float32 {
	packed, y := make([]byte, f.EncodedLen(len(x))), make([]float32, len(x))
	require.NoError(t, f.Encode(packed, x))
	require.NoError(t, f.Decode(y, packed))
	return y
}

// relative is the distance of y to x, divided by the length of x.
func relative(x, y []float32) float64 {
	var wrong, square float64
	for i := range x {
		d := float64(x[i]) - float64(y[i])
		wrong += d * d
		square += float64(x[i]) * float64(x[i])
	}
	return math.Sqrt(wrong / square)
}

// TestErrors has the errors that the documentation tells, from below as well: a format that
// is better than it can be is not the one it says.
func TestErrors(t *testing.T) {
	bounds := map[codec.Format][2]float64{
		codec.Float16: {0.0001, 0.00025}, codec.BFloat16: {0.001, 0.002}, codec.E4M3: {0.02, 0.028},
		codec.E5M2: {0.04, 0.056}, codec.MXE4M3: {0.02, 0.03}, codec.MXE5M2: {0.04, 0.06}, codec.OneBit: {0.5, 0.65},
	}
	x := normal(1, 100_001)
	for _, f := range formats {
		got := relative(x, through(t, f, x))
		t.Logf("%v: %.5f", f, got)
		require.Greater(t, got, bounds[f][0], "%v", f)
		require.Less(t, got, bounds[f][1], "%v", f)
	}
}

// TestWideRange has blocks of very different sizes: each has a scale of its own.
func TestWideRange(t *testing.T) {
	x := normal(2, 64*codec.Block)
	for i := range x {
		x[i] *= float32(math.Ldexp(1, i/codec.Block*3-96))
	}
	for f, bound := range map[codec.Format]float64{codec.E4M3: 0.04, codec.E5M2: 0.08, codec.MXE4M3: 0.06, codec.MXE5M2: 0.09} {
		y := through(t, f, x)
		for i := 0; i < len(x); i += codec.Block {
			require.Less(t, relative(x[i:i+codec.Block], y[i:i+codec.Block]), bound, "%v, block %d", f, i/codec.Block)
		}
	}
}

func TestEncodedLen(t *testing.T) {
	want := map[codec.Format][]int{ // of 0, 1, 7, 8, 9, 32, 33, 128, 129, 1024 elements
		codec.Float16: {0, 2, 14, 16, 18, 64, 66, 256, 258, 2048},
		codec.E4M3:    {0, 5, 11, 12, 13, 36, 37, 132, 137, 1056},
		codec.MXE5M2:  {0, 2, 8, 9, 10, 33, 35, 132, 134, 1056},
		codec.OneBit:  {0, 5, 5, 5, 6, 8, 9, 20, 25, 160},
	}
	for f, lengths := range want {
		for i, n := range []int{0, 1, 7, 8, 9, 32, 33, 128, 129, 1024} {
			require.Equal(t, lengths[i], f.EncodedLen(n), "%v of %d", f, n)
		}
	}
	require.Zero(t, codec.Format(0).EncodedLen(8))
}

// TestLayout has the bytes of short slices: they are on the wire and in files.
func TestLayout(t *testing.T) {
	tests := []struct {
		format codec.Format
		x      []float32
		want   string
	}{
		{codec.Float16, []float32{1, -2}, "003c00c0"},
		{codec.BFloat16, []float32{1, -2}, "803f00c0"},
		{codec.E4M3, []float32{448, -2, 0, 1}, "0000803f" + "7ec00038"},
		{codec.E4M3, []float32{896, -4}, "00000040" + "7ec0"},
		{codec.E5M2, []float32{57344, -2, 1}, "0000803f" + "7bc03c"},
		{codec.MXE4M3, []float32{448, -2, 1}, "7f" + "7ec038"},
		{codec.MXE4M3, []float32{1}, "77" + "78"},
		{codec.MXE5M2, []float32{32768, 1}, "7f" + "783c"},
		{codec.OneBit, []float32{1, -3, 2, -2, 1, 1, 1, 1, -6}, "00000040" + "0a01"},
	}
	for _, tt := range tests {
		packed := make([]byte, tt.format.EncodedLen(len(tt.x)))
		require.NoError(t, tt.format.Encode(packed, tt.x))
		require.Equal(t, tt.want, hex.EncodeToString(packed), "%v of %v", tt.format, tt.x)
	}
}

// TestPieces: a slice that is cut at multiples of Block gives the same bytes, and elements
// around it are not touched.
func TestPieces(t *testing.T) {
	for _, f := range formats {
		for _, n := range []int{0, 1, 31, 32, 33, 127, 128, 129, 1000, 5003} {
			x := normal(uint64(n), n)
			whole := slices.Repeat([]byte{0xa5}, f.EncodedLen(n)+4)
			require.NoError(t, f.Encode(whole[:f.EncodedLen(n)], x))
			require.Equal(t, slices.Repeat([]byte{0xa5}, 4), whole[f.EncodedLen(n):])
			var pieces []byte
			for done := 0; done < n; done += 3 * codec.Block {
				piece := x[done:min(done+3*codec.Block, n)]
				packed := make([]byte, f.EncodedLen(len(piece)))
				require.NoError(t, f.Encode(packed, piece))
				pieces = append(pieces, packed...)
			}
			require.Equal(t, string(whole[:f.EncodedLen(n)]), string(pieces), "%v of %d", f, n)
		}
	}
}

// TestNonFinite: what is not finite comes out so at its place, and the other elements of its
// block as if it were zero, but for OneBit.
func TestNonFinite(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, f := range formats {
		x := normal(4, 2*codec.Block+7)
		quiet := slices.Clone(x)
		special := map[int]float32{3: nan, 40: inf, 41: -inf, 2*codec.Block + 6: inf}
		for i, v := range special {
			x[i], quiet[i] = v, 0
		}
		y, want := through(t, f, x), through(t, f, quiet)
		for i := range x {
			block := i / codec.Block
			switch v, bad := special[i]; {
			case f == codec.OneBit && block != 1:
				require.True(t, y[i] != y[i], "%v, element %d is %v", f, i, y[i])
			case bad && (v != v || f == codec.E4M3 || f == codec.MXE4M3):
				require.True(t, y[i] != y[i], "%v, element %d is %v", f, i, y[i])
			case bad:
				require.Equal(t, v, y[i], "%v, element %d", f, i)
			default:
				require.Equal(t, want[i], y[i], "%v, element %d", f, i)
			}
		}
	}
}

// TestExtremes: the largest and least numbers of float32 have scales that work.
func TestExtremes(t *testing.T) {
	for _, f := range formats[2:6] {
		for _, size := range []float64{math.MaxFloat32, math.MaxFloat32 / 2, 1e38, 1e-30, 0x1p-126, 0x1p-140, 0x1p-149, 0} {
			x := make([]float32, 50)
			for i := range x {
				x[i] = float32(size) * float32(i%3-1)
			}
			for i, y := range through(t, f, x) {
				bound := 0.13 * math.Abs(float64(x[i])) // saturation of MX takes an eighth
				if size < 0x1p-120 {
					bound = 0x1p-134 // the last place of the least scale
				}
				require.InDelta(t, x[i], y, bound, "%v of %g", f, x[i])
			}
		}
	}
}

func TestBadLengths(t *testing.T) {
	for _, f := range formats {
		x := make([]float32, 200)
		n := f.EncodedLen(len(x))
		for _, wrong := range []int{0, 1, n - 1, n + 1} {
			require.ErrorIs(t, f.Encode(make([]byte, wrong), x), codec.ErrLength)
			require.ErrorIs(t, f.Decode(x, make([]byte, wrong)), codec.ErrLength)
			require.ErrorIs(t, f.EncodeRest(make([]byte, wrong), x), codec.ErrLength)
		}
	}
	for _, f := range []codec.Format{0, codec.OneBit + 1, 255} {
		require.ErrorIs(t, f.Encode(nil, nil), codec.ErrFormat)
		require.ErrorIs(t, f.Decode(nil, nil), codec.ErrFormat)
		require.NotEmpty(t, f.String())
	}
}

// TestBadScales has every scale that no encoder writes.
func TestBadScales(t *testing.T) {
	for _, bits := range []string{"00000000", "0000007f", "01000000", "ffff7f00", "0000807f", "0000c07f", "000080bf", "ffff7f7f"} {
		scale, err := hex.DecodeString(bits)
		require.NoError(t, err)
		for _, f := range []codec.Format{codec.E4M3, codec.E5M2} {
			if bits == "0000007f" { // 1.7e38
				require.ErrorIs(t, f.Decode(make([]float32, 1), append(scale, 1)), codec.ErrCorrupt)
				continue
			}
			err := f.Decode(make([]float32, 129), append(append(make([]byte, 0, 200), good(f)...), append(scale, 1)...))
			require.ErrorIs(t, err, codec.ErrCorrupt, "%v %s", f, bits)
			require.ErrorContains(t, err, "element 128")
		}
	}
	for _, bits := range []string{"00000080", "0000807f", "0100c07f", "0000c0ff"} {
		scale, err := hex.DecodeString(bits)
		require.NoError(t, err)
		require.ErrorIs(t, codec.OneBit.Decode(make([]float32, 3), append(scale, 1)), codec.ErrCorrupt, bits)
	}
	require.ErrorIs(t, codec.OneBit.Decode(make([]float32, 3), []byte{0, 0, 0, 0, 8}), codec.ErrCorrupt)
	require.NoError(t, codec.OneBit.Decode(make([]float32, 3), []byte{0, 0, 0, 0, 7}))
}

// good is an encoded block.
func good(f codec.Format) []byte {
	packed := make([]byte, f.EncodedLen(codec.Block))
	if err := f.Encode(packed, normal(1, codec.Block)); err != nil {
		panic(err)
	}
	return packed
}

// TestRestIsFinite: nothing is left of what is not.
func TestRestIsFinite(t *testing.T) {
	for _, f := range formats {
		x := normal(5, 2000)
		x[3], x[1500], x[1999] = float32(math.NaN()), float32(math.Inf(1)), -math.MaxFloat32
		require.NoError(t, f.EncodeRest(make([]byte, f.EncodedLen(len(x))), x))
		for i, r := range x {
			require.Zero(t, r-r, "%v, element %d is %v", f, i, r)
		}
	}
}

// TestEncodeRest: what was decoded and what is left are what was encoded.
func TestEncodeRest(t *testing.T) {
	for _, f := range formats {
		for _, n := range []int{0, 1, 130, 3000} {
			x := normal(5, n)
			rest, packed, want := slices.Clone(x), make([]byte, f.EncodedLen(n)), make([]byte, f.EncodedLen(n))
			require.NoError(t, f.EncodeRest(packed, rest))
			require.NoError(t, f.Encode(want, x))
			require.Equal(t, want, packed)
			for i, y := range through(t, f, x) {
				require.Equal(t, x[i]-y, rest[i], "%v, element %d", f, i)
			}
		}
	}
}

func TestAllocatesNothing(t *testing.T) {
	x := normal(6, 3000)
	for _, f := range formats {
		packed := make([]byte, f.EncodedLen(len(x)))
		require.Zero(t, testing.AllocsPerRun(10, func() {
			_ = f.Encode(packed, x)
			_ = f.Decode(x, packed)
			_ = f.EncodeRest(packed, x)
		}), "%v", f)
	}
}

// FuzzDecode: any bytes are decoded or refused, and what is decoded and finite is encoded.
func FuzzDecode(f *testing.F) {
	for _, format := range formats {
		f.Add(uint8(format), uint16(codec.Block), good(format))
	}
	f.Add(uint8(codec.OneBit), uint16(3), []byte{0, 0, 0, 0, 8})
	f.Add(uint8(99), uint16(0), []byte{})
	f.Fuzz(func(t *testing.T, which uint8, n uint16, data []byte) {
		format, x := codec.Format(which), make([]float32, n)
		err := format.Decode(x, data)
		if err != nil {
			known := errors.Is(err, codec.ErrFormat) || errors.Is(err, codec.ErrLength) || errors.Is(err, codec.ErrCorrupt)
			require.True(t, known, err)
			return
		}
		require.True(t, format.Valid())
		require.Len(t, data, format.EncodedLen(int(n)))
		for i, y := range through(t, format, x) {
			finite := x[i]-x[i] == 0
			if !finite && y-y == 0 {
				t.Fatalf("%v lost %v at element %d", format, x[i], i)
			}
		}
	})
}

func BenchmarkCodec(b *testing.B) {
	for _, f := range formats {
		x := normal(7, 64<<10)
		packed, rest := make([]byte, f.EncodedLen(len(x))), make([]float32, len(x))
		require.NoError(b, f.Encode(packed, x)) // for Decode alone
		for name, run := range map[string]func() error{
			"Encode":     func() error { return f.Encode(packed, x) },
			"Decode":     func() error { return f.Decode(x, packed) },
			"EncodeRest": func() error { copy(rest, x); return f.EncodeRest(packed, rest) },
		} {
			b.Run(fmt.Sprintf("%s/%v", name, f), func(b *testing.B) {
				b.SetBytes(int64(4*len(x) + len(packed)))
				for b.Loop() {
					if err := run(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
