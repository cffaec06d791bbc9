package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
)

// format is a format of 16 bits as the tests see it: the kernels, and what defines it.
type format struct {
	name         string
	fractionBits int
	bias         int
	encode       func(dst []uint16, src []float32)
	decode       func(dst []float32, src []uint16)
	encodeBytes  func(dst []byte, src []float32)
	decodeBytes  func(dst []float32, src []byte)
	// quiets says whether decoding makes a signalling NaN quiet.
	quiets bool
}

func formats() []format {
	return []format{
		{"FP16", 10, 15, EncodeFP16, DecodeFP16, EncodeFP16Bytes, DecodeFP16Bytes, true},
		{"BF16", 7, 127, EncodeBF16, DecodeBF16, EncodeBF16Bytes, DecodeBF16Bytes, false},
	}
}

func (f format) infinity() uint16 { return 1<<15 - 1<<f.fractionBits }
func (f format) quiet() uint16    { return 1 << (f.fractionBits - 1) }
func (f format) isNaN(h uint16) bool {
	return h&(1<<15-1) > f.infinity()
}

// value is the number with that code, from the definition of IEEE 754, in float64, where
// it is exact.
func (f format) value(code uint16) float64 {
	exponent := int(code>>f.fractionBits) & (1<<(15-f.fractionBits) - 1)
	fraction := float64(code & (1<<f.fractionBits - 1))
	significand := math.Ldexp(fraction, -f.fractionBits) + 1
	if exponent == 0 {
		significand--
		exponent = 1
	}
	v := math.Ldexp(significand, exponent-f.bias)
	if code&(1<<15-1) == f.infinity() {
		v = math.Inf(1)
	}
	if code>>15 != 0 {
		v = -v
	}
	return v
}

// values are the numbers from zero to infinity, whose indexes are their codes.
func (f format) values() []float64 {
	all := make([]float64, int(f.infinity())+1)
	for code := range all {
		all[code] = f.value(uint16(code))
	}
	return all
}

// nearest finds the code by search among all numbers, with distances in float64, where
// they are exact. What infinity stands for when it comes to distances is the number that
// would follow the largest.
func (f format) nearest(values []float64, x float32) uint16 {
	bits := math.Float32bits(x)
	sign := uint16(bits>>16) & (1 << 15)
	if x != x {
		fraction := uint16(bits >> (23 - f.fractionBits) & (1<<f.fractionBits - 1))
		return sign | f.infinity() | f.quiet() | fraction
	}
	abs := math.Abs(float64(x))
	if math.IsInf(abs, 0) {
		return sign | f.infinity()
	}
	above := sort.SearchFloat64s(values, abs)
	if values[above] == abs {
		return sign | uint16(above)
	}
	upper := values[above]
	if math.IsInf(upper, 0) {
		upper = 2*values[above-1] - values[above-2]
	}
	down, up := abs-values[above-1], upper-abs
	if down < up || down == up && above%2 == 1 {
		above--
	}
	return sign | uint16(above)
}

// allCodes has every code once.
func allCodes() []uint16 {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	return all
}

// TestHalvesDecodeAllCodes also encodes again: every code comes back, a signalling NaN as
// the quiet one of the same sign and fraction.
func TestHalvesDecodeAllCodes(t *testing.T) { onEachPath(t, testHalvesDecodeAllCodes) }

func testHalvesDecodeAllCodes(t *testing.T) {
	for _, f := range formats() {
		t.Run(f.name, func(t *testing.T) {
			codes := allCodes()
			decoded, again := make([]float32, len(codes)), make([]uint16, len(codes))
			f.decode(decoded, codes)
			f.encode(again, decoded)
			for code, got := range decoded {
				code := uint16(code)
				if !f.isNaN(code) {
					require.Equal(t, math.Float64bits(f.value(code)), math.Float64bits(float64(got)), "code %#04x", code)
					require.Equal(t, code, again[code])
					continue
				}
				want := uint32(code>>15)<<31 | 0xff<<23 | uint32(code)<<(23-f.fractionBits)&(1<<23-1)
				if f.quiets {
					want |= 1 << 22
				}
				require.Equal(t, want, math.Float32bits(got), "code %#04x", code)
				require.Equal(t, code|f.quiet(), again[code])
			}
		})
	}
}

// TestHalvesEncodeBoundaries has every number of the format, the middle between it and the
// next, and the float32 on either side of both, of either sign.
func TestHalvesEncodeBoundaries(t *testing.T) { onEachPath(t, testHalvesEncodeBoundaries) }

func testHalvesEncodeBoundaries(t *testing.T) {
	for _, f := range formats() {
		t.Run(f.name, func(t *testing.T) {
			values := f.values()
			var src []float32
			for code, v := range values[:len(values)-1] {
				next := values[code+1]
				if math.IsInf(next, 0) {
					next = 2*v - values[code-1]
				}
				for _, x := range []float32{float32(v), float32((v + next) / 2)} {
					below, above := math.Nextafter32(x, -1), math.Nextafter32(x, math.MaxFloat32)
					src = append(src, x, below, above, -x, -below, -above)
				}
			}
			requireNearest(t, f, values, src)
		})
	}
}

// TestHalvesEncodeValues are known from the formats: limits, ties, zeros, denormals, NaN.
func TestHalvesEncodeValues(t *testing.T) { onEachPath(t, testHalvesEncodeValues) }

func testHalvesEncodeValues(t *testing.T) {
	tests := []struct {
		bits       uint32
		fp16, bf16 uint16
	}{
		{0x00000000, 0x0000, 0x0000},
		{0x80000000, 0x8000, 0x8000},
		{0x3f800000, 0x3c00, 0x3f80}, // 1
		{0xc0000000, 0xc000, 0xc000}, // -2
		{0x477fe000, 0x7bff, 0x4780}, // 65504, the largest float16
		{0x477fefff, 0x7bff, 0x4780}, // just below 65520
		{0x477ff000, 0x7c00, 0x4780}, // 65520
		{0x7f7f0000, 0x7c00, 0x7f7f}, // the largest bfloat16
		{0x7f7f7fff, 0x7c00, 0x7f7f},
		{0x7f7f8000, 0x7c00, 0x7f80},
		{0xff7fffff, 0xfc00, 0xff80}, // the least float32
		{0x3f801000, 0x3c00, 0x3f80}, // ties of float16
		{0x3f803000, 0x3c02, 0x3f80},
		{0x3f808000, 0x3c04, 0x3f80}, // ties of bfloat16
		{0x3f818000, 0x3c0c, 0x3f82},
		{0x38800000, 0x0400, 0x3880}, // 2^-14, the least normal float16
		{0x387fe000, 0x0400, 0x3880}, // rounds up to it
		{0x387fdfff, 0x03ff, 0x3880},
		{0x33800000, 0x0001, 0x3380}, // 2^-24, the least float16
		{0x33000000, 0x0000, 0x3300}, // half of that, a tie
		{0x33000001, 0x0001, 0x3300},
		{0x00000001, 0x0000, 0x0000}, // the least float32
		{0x00008000, 0x0000, 0x0000}, // half of the least bfloat16, a tie
		{0x00008001, 0x0000, 0x0001},
		{0x7f800000, 0x7c00, 0x7f80},
		{0xff800000, 0xfc00, 0xff80},
		{0x7fc00000, 0x7e00, 0x7fc0},
		{0x7f800001, 0x7e00, 0x7fc0}, // signalling, the fraction is lost
		{0xffffffff, 0xffff, 0xffff},
		{0xffa02000, 0xff01, 0xffe0}, // signalling, the upper fraction stays
	}
	for _, tt := range tests {
		for _, size := range []int{1, 8, 17} { // the twin, the wide versions, both
			src, dst := make([]float32, size), make([]uint16, size)
			Fill(src, math.Float32frombits(tt.bits))
			EncodeFP16(dst, src)
			require.Equal(t, slices.Repeat([]uint16{tt.fp16}, size), dst, "float16 of %#08x", tt.bits)
			EncodeBF16(dst, src)
			require.Equal(t, slices.Repeat([]uint16{tt.bf16}, size), dst, "bfloat16 of %#08x", tt.bits)
		}
	}
}

// TestHalvesEncodeRandom draws ten million numbers, half of them any bit pattern of float32
// and half from the range of float16, on which the versions and the definition must agree.
func TestHalvesEncodeRandom(t *testing.T) {
	rounds := 611
	if testing.Short() || raceDetector {
		rounds = 12
	}
	for _, f := range formats() {
		t.Run(f.name, func(t *testing.T) {
			values := f.values()
			rng := rand.New(rand.NewPCG(15, 0))
			src := make([]float32, 16<<10)
			for range rounds {
				for i := range src {
					src[i] = math.Float32frombits(rng.Uint32())
					if i%2 == 0 { // exponents from 2^-27 to 2^17, all of which float16 has or nearly
						src[i] = float32(math.Ldexp(1+rng.Float64(), rng.IntN(44)-27))
					}
				}
				requireNearest(t, f, values, src)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// requireNearest wants the definition's code of each element from all versions.
func requireNearest(t *testing.T, f format, values []float64, src []float32) {
	t.Helper()
	want := make([]uint16, len(src))
	for i, x := range src {
		want[i] = f.nearest(values, x)
	}
	for _, path := range paths() {
		use(t, path)
		got := make([]uint16, len(src))
		f.encode(got, src)
		for i := range want {
			if want[i] != got[i] {
				require.Failf(t, "codes differ", "%s: %g (%#08x): want %#04x, got %#04x",
					path, src[i], math.Float32bits(src[i]), want[i], got[i])
			}
		}
	}
}

// TestHalvesTakeAnyLength has the lengths around the loops and the calls, unequal lengths,
// and slices of bytes at even and odd addresses; nothing around dst is written.
func TestHalvesTakeAnyLength(t *testing.T) { onEachPath(t, testHalvesTakeAnyLength) }

func testHalvesTakeAnyLength(t *testing.T) {
	const guard = 0xa5
	sizes := []int{16<<10 - 1, 16 << 10, 2*16<<10 + 45}
	for size := range 68 {
		sizes = append(sizes, size)
	}
	for _, f := range formats() {
		for _, size := range sizes {
			rng := rand.New(rand.NewPCG(16, uint64(size)))
			numbers, codes := randomSlice(rng, size+3), make([]uint16, size+3)
			f.encode(codes[:size], numbers) // the shorter one counts
			require.Equal(t, []uint16{0, 0, 0}, codes[size:], "%s, %d", f.name, size)
			decoded := make([]float32, size+3)
			f.decode(decoded, codes[:size])
			require.Equal(t, []float32{0, 0, 0}, decoded[size:], "%s, %d", f.name, size)
			for offset := range 4 {
				wire := slices.Repeat([]byte{guard}, 2*size+8)
				f.encodeBytes(wire[offset:offset+2*size+1], numbers[:size+1]) // half a number has no room
				for i, code := range codes[:size] {
					require.Equal(t, code, binary.LittleEndian.Uint16(wire[offset+2*i:]), "%s, %d of %d", f.name, i, size)
				}
				require.Equal(t, slices.Repeat([]byte{guard}, offset), wire[:offset])
				require.Equal(t, slices.Repeat([]byte{guard}, 8-offset), wire[offset+2*size:])
				fromWire := make([]float32, size+3)
				f.decodeBytes(fromWire, wire[offset:offset+2*size])
				requireSameBits(t, decoded, fromWire)
			}
		}
	}
}

func TestHalvesAllocateNothing(t *testing.T) { onEachPath(t, testHalvesAllocateNothing) }

func testHalvesAllocateNothing(t *testing.T) {
	wire, x := make([]byte, 201), make([]float32, 100)
	for _, f := range formats() {
		for offset := range 2 {
			require.Zero(t, testing.AllocsPerRun(10, func() {
				f.encodeBytes(wire[offset:], x)
				f.decodeBytes(x, wire[offset:])
			}))
		}
	}
	runtime.KeepAlive(wire)
}

// FuzzHalves compares the versions with the definition.
func FuzzHalves(f *testing.F) {
	f.Add([]byte{0, 0, 0xc0, 0x7f, 1, 0, 0x80, 0x7f, 0, 0xf0, 0x7f, 0x47})
	f.Add(make([]byte, 4*40))
	tables := make(map[string][]float64)
	for _, format := range formats() {
		tables[format.name] = format.values()
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var src []float32
		for ; len(data) >= 4 && len(src) < 1<<12; data = data[4:] {
			src = append(src, math.Float32frombits(binary.LittleEndian.Uint32(data)))
		}
		for _, format := range formats() {
			requireNearest(t, format, tables[format.name], src)
		}
	})
}

// BenchmarkHalves reports the bytes of float32 per second; half as many are on the other
// side.
func BenchmarkHalves(b *testing.B) {
	for _, f := range formats() {
		for _, size := range benchSizes {
			x, codes := make([]float32, size), make([]uint16, size)
			Uniform(x, 1, 2, 0, 1)
			f.encode(codes, x)
			for _, direction := range []struct {
				name string
				run  func()
			}{
				{"Encode", func() { f.encode(codes, x) }},
				{"Decode", func() { f.decode(x, codes) }},
			} {
				for _, path := range paths() {
					b.Run(fmt.Sprintf("%s%s/%dKiB/%s", direction.name, f.name, size*4>>10, path), func(b *testing.B) {
						use(b, path)
						b.SetBytes(int64(size) * 4)
						for b.Loop() {
							direction.run()
						}
					})
				}
			}
		}
	}
}
