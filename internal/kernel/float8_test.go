package kernel

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// format8 is a format of 8 bits as the tests see it.
type format8 struct {
	name         string
	fractionBits int
	bias         int
	infinity     byte // zero if there is none
	nan          byte
	largest      float64
	encode       func(dst []byte, src []float32, scale float32, s Saturation)
	decode       func(dst []float32, src []byte, scale float32)
}

func formats8() []format8 {
	return []format8{
		{"E4M3", 3, 7, 0, 0x7f, MaxE4M3, EncodeE4M3, DecodeE4M3},
		{"E5M2", 2, 15, 0x7c, 0x7e, MaxE5M2, EncodeE5M2, DecodeE5M2},
	}
}

var saturations = []Saturation{SatKeepNonFinite, SatFinite, NoSat}

// value is the number of a code by its definition, in float64, where it is exact.
func (f format8) value(code byte) float64 {
	exponent := int(code&0x7f) >> f.fractionBits
	significand := math.Ldexp(float64(int(code)&(1<<f.fractionBits-1)), -f.fractionBits)
	if exponent > 0 {
		significand++
	} else {
		exponent = 1
	}
	v := math.Ldexp(significand, exponent-f.bias)
	switch abs := code & 0x7f; {
	case abs == f.infinity && f.infinity != 0:
		v = math.Inf(1)
	case abs > f.infinity && f.infinity != 0, abs == f.nan:
		return math.NaN()
	}
	if code >= 0x80 {
		v = -v
	}
	return v
}

// nearest finds the code by search, with distances in float64.
func (f format8) nearest(x float32, s Saturation) byte {
	sign, abs := byte(math.Float32bits(x)>>24)&0x80, math.Abs(float64(x))
	beyond := f.infinity // what is too large without saturation
	if beyond == 0 {
		beyond = f.nan
	}
	top := byte(0x7b)
	if f.name == "E4M3" {
		top = 0x7e
	}
	switch {
	case x != x:
		return sign | f.nan
	case math.IsInf(abs, 0) && s == SatFinite:
		return sign | top
	case math.IsInf(abs, 0):
		return sign | beyond
	}
	abs = min(abs, 2*f.largest) // distances are exact
	best, distance := byte(0), math.Inf(1)
	for code := byte(0); code <= top+1; code++ {
		v := f.value(code)
		if code == top+1 { // the number that would follow
			v = 2*f.value(top) - f.value(top-1)
		}
		if d := math.Abs(abs - v); d < distance || d == distance && code%2 == 0 {
			best, distance = code, d
		}
	}
	if best > top {
		if s == NoSat {
			return sign | beyond
		}
		return sign | top
	}
	return sign | best
}

// TestFloat8Goldens has digests of what other implementations of the formats give, for all
// codes, all bfloat16 and all float16.
func TestFloat8Goldens(t *testing.T) { onEachPath(t, testFloat8Goldens) }

func testFloat8Goldens(t *testing.T) {
	brains, halves := make([]float32, 1<<16), make([]float32, 1<<16)
	DecodeBF16(brains, allCodes())
	DecodeFP16(halves, allCodes())
	goldens := map[string][5]string{ // decode; of bfloat16 without and with saturation; of float16
		"E4M3": {
			"422eccfaa21e72a6b26855bb10cdcfead6c1ce3262ecd813c99d8cbf9677f2e2",
			"ecbb201b2182a3e8e84f521d57c51ff379e8e5ec61141119005be7d672db0d98",
			"e0cedd5167de369d026366b0c5c0d5d7a5cdc0287499a0ad15ea6d90852eb04b",
			"66c4d3a1fa3d98587843222ccdff886e38b5726e83ae53c6eb66efa4eebd6e62",
			"c5f351be859fbbbf413d7597bc1d3baec1acb0c7cb1b8481c4e1a80f187c977c",
		},
		"E5M2": {
			"229a94c5f728edf2259da970a0e1dfb45cc1d69cce2b30e37659f3212ec4b8b9",
			"090ec74f2f7cc325aefd5b24d8a7db182ffbf980e5b9178e583b42669f409a76",
			"bd9b19e2e1fee4c9c1a1bcd80ae667c3def2408b6f6335f24ccd901ee4065705",
			"15ab0c3901962e79182e796eb712da5b395066c8bd00b5888a5e1c9125d56f24",
			"e7634e10fca5cdf8c6a85a98acfa4fdfef588f16036b29f1a6e0084ade266d8b",
		},
	}
	digest := func(b []byte) string {
		sum := sha256.Sum256(b)
		return hex.EncodeToString(sum[:])
	}
	for _, f := range formats8() {
		codes, decoded := make([]byte, 256), make([]float32, 256)
		for i := range codes {
			codes[i] = byte(i)
		}
		f.decode(decoded, codes, 1)
		var numbers []byte
		for _, x := range decoded {
			bits := math.Float32bits(x)
			if x != x {
				bits = 0x7fc00000
			}
			numbers = binary.LittleEndian.AppendUint32(numbers, bits)
		}
		got := [5]string{digest(numbers)}
		for i, grid := range [][]float32{brains, brains, halves, halves} {
			out := make([]byte, len(grid))
			f.encode(out, grid, 1, []Saturation{NoSat, SatKeepNonFinite}[i%2])
			got[1+i] = digest(out)
		}
		require.Equal(t, goldens[f.name], got, f.name)
	}
}

// TestFloat8DecodesAllCodes compares with the definition; every number comes back when it
// is encoded again.
func TestFloat8DecodesAllCodes(t *testing.T) { onEachPath(t, testFloat8DecodesAllCodes) }

func testFloat8DecodesAllCodes(t *testing.T) {
	for _, f := range formats8() {
		codes, decoded, again := make([]byte, 256), make([]float32, 256), make([]byte, 256)
		for i := range codes {
			codes[i] = byte(i)
		}
		f.decode(decoded, codes, 1)
		f.encode(again, decoded, 1, SatKeepNonFinite)
		for i, got := range decoded {
			want := f.value(byte(i))
			if want != want {
				require.True(t, got != got, "%s %#x: %v", f.name, i, got)
				require.Equal(t, f.nan, again[i]&0x7f)
				continue
			}
			require.Equal(t, math.Float64bits(want), math.Float64bits(float64(got)), "%s %#x", f.name, i)
			require.Equal(t, byte(i), again[i], f.name)
		}
	}
}

// boundaries are all numbers of a format, the middles between them, and the float32 on
// either side of both, of either sign, with what has no code.
func (f format8) boundaries() []float32 {
	src := []float32{float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32, 1e9, math.SmallestNonzeroFloat32}
	src = append(src, math.Float32frombits(0x7f800001), math.Float32frombits(0xffffffff), float32(math.NaN()))
	for code := byte(0); f.value(code) <= f.largest; code++ {
		v, next := f.value(code), f.value(code+1)
		if v == f.largest {
			next = 2*v - f.value(code-1)
		}
		for _, x := range []float32{float32(v), float32((v + next) / 2), float32(next)} {
			below, above := math.Nextafter32(x, -1), math.Nextafter32(x, math.MaxFloat32)
			src = append(src, x, below, above, -x, -below, -above)
		}
	}
	return src
}

func TestFloat8EncodesBoundaries(t *testing.T) { onEachPath(t, testFloat8EncodesBoundaries) }

func testFloat8EncodesBoundaries(t *testing.T) {
	for _, f := range formats8() {
		src := f.boundaries()
		src = append(src, src[:len(src)%32]...)
		got := make([]byte, len(src))
		for _, s := range saturations {
			f.encode(got, src, 1, s)
			for i, x := range src {
				require.Equal(t, f.nearest(x, s), got[i], "%s, %d: %g (%#08x)", f.name, s, x, math.Float32bits(x))
			}
		}
	}
}

// TestFloat8VersionsAgree draws bits and scales: the versions have the same codes and, but
// for NaN, the same float32.
func TestFloat8VersionsAgree(t *testing.T) {
	rounds := 100
	if testing.Short() || raceDetector {
		rounds = 5
	}
	rng := rand.New(rand.NewPCG(21, 0))
	for range rounds {
		size := rng.IntN(2000)
		scale := float32(math.Ldexp(1+rng.Float64(), rng.IntN(250)-126))
		bits := make([]byte, 4*size)
		for i := range size {
			b := rng.Uint32()
			if i%2 == 0 {
				b = math.Float32bits(float32(math.Ldexp(rng.Float64()-0.5, rng.IntN(40)-22)) / scale)
			}
			binary.LittleEndian.PutUint32(bits[4*i:], b)
		}
		requireFloat8Agree(t, bits, scale)
	}
}

func requireFloat8Agree(t *testing.T, bits []byte, scale float32) {
	t.Helper()
	src := make([]float32, len(bits)/4)
	for i := range src {
		src[i] = math.Float32frombits(binary.LittleEndian.Uint32(bits[4*i:]))
	}
	for _, f := range formats8() {
		for _, s := range saturations {
			var codes []byte
			var numbers []float32
			for i, path := range paths() {
				use(t, path)
				got := slices.Repeat([]byte{0xa5}, len(src)+8)
				f.encode(got[:len(src)], src, scale, s)
				decoded := make([]float32, len(src)+3)
				f.decode(decoded, got[:len(src)], scale)
				if i == 0 {
					codes, numbers = got, decoded
					continue
				}
				require.Equal(t, codes, got, "%s, %s, scale %g", f.name, path, scale)
				for i := range numbers {
					require.True(t, sameNumber(math.Float32bits(numbers[i]), math.Float32bits(decoded[i])),
						"%s, %s: %#x is %g or %g", f.name, path, got[i], numbers[i], decoded[i])
				}
			}
		}
	}
}

// TestFloat8ScaleIsFused: it is the code of the product as float32 has it.
func TestFloat8ScaleIsFused(t *testing.T) { onEachPath(t, testFloat8ScaleIsFused) }

func testFloat8ScaleIsFused(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 0))
	for _, f := range formats8() {
		src, product := randomSlice(rng, 1000), make([]float32, 1000)
		want, got := make([]byte, 1000), make([]byte, 1000)
		for _, scale := range []float32{1.0 / 3, 448, 1e-3} {
			copy(product, src)
			Scale(product, scale)
			f.encode(want, product, 1, SatKeepNonFinite)
			f.encode(got, src, scale, SatKeepNonFinite)
			require.Equal(t, want, got)
		}
	}
}

func TestFloat8TakesAnyLength(t *testing.T) { onEachPath(t, testFloat8TakesAnyLength) }

func testFloat8TakesAnyLength(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 0))
	src := randomSlice(rng, 3*16<<10)
	for _, f := range formats8() {
		whole := make([]byte, len(src))
		for i := range src {
			f.encode(whole[i:], src[i:i+1], 1, NoSat)
		}
		for _, size := range []int{0, 1, 15, 16, 31, 32, 33, 63, 64, 65, 127, 129, 16<<10 - 1, 16<<10 + 33, len(src)} {
			got := slices.Repeat([]byte{0xa5}, size+8)
			f.encode(got[1:1+size], src, 1, NoSat) // the shorter one counts
			require.Equal(t, whole[:size], got[1:1+size])
			require.Equal(t, slices.Repeat([]byte{0xa5}, 7), got[1+size:])
			require.Equal(t, byte(0xa5), got[0])
			decoded := make([]float32, size+5)
			f.decode(decoded, whole[:size], 1)
			require.Equal(t, make([]float32, 5), decoded[size:])
			for i := range size {
				require.Equal(t, float32(f.value(whole[i])), decoded[i])
			}
		}
		require.Zero(t, testing.AllocsPerRun(10, func() { f.encode(whole, src, 1, NoSat); f.decode(src, whole, 1) }))
	}
}

// FuzzFloat8 compares the versions, and the twin with the definition.
func FuzzFloat8(f *testing.F) {
	f.Add([]byte{0, 0, 0xe8, 0x43, 1, 0, 0x80, 0x3a, 0, 0, 0xc0, 0x7f, 0, 0, 0x80, 0x7f}, float32(1))
	f.Add(make([]byte, 4*40), float32(448))
	f.Fuzz(func(t *testing.T, data []byte, scale float32) {
		if !(scale > 0) || scale > math.MaxFloat32 {
			scale = 1
		}
		data = data[:min(len(data), 1<<12)]
		requireFloat8Agree(t, data, scale)
		for ; len(data) >= 4; data = data[4:] {
			x := math.Float32frombits(binary.LittleEndian.Uint32(data))
			for _, f := range formats8() {
				for _, s := range saturations {
					var code [1]byte
					f.encode(code[:], []float32{x}, 1, s)
					require.Equal(t, f.nearest(x, s), code[0], "%s of %g", f.name, x)
				}
			}
		}
	})
}

// BenchmarkFloat8 reports all bytes, five for each element.
func BenchmarkFloat8(b *testing.B) {
	for _, f := range formats8() {
		for _, size := range benchSizes {
			x, codes := make([]float32, size), make([]byte, size)
			Uniform(x, 1, 2, 0, 1)
			f.encode(codes, x, 448, SatKeepNonFinite)
			for _, direction := range []struct {
				name string
				run  func()
			}{
				{"Encode", func() { f.encode(codes, x, 448, SatKeepNonFinite) }},
				{"Decode", func() { f.decode(x, codes, 1.0/448) }},
			} {
				for _, path := range withoutWidest() {
					b.Run(fmt.Sprintf("%s%s/%dKiB/%s", direction.name, f.name, size*4>>10, path), func(b *testing.B) {
						use(b, path)
						b.SetBytes(int64(size) * 5)
						for b.Loop() {
							direction.run()
						}
					})
				}
			}
		}
	}
}
