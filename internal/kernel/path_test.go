package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// onEachPath runs a test with the twins and, where there is one, with the wide version.
func onEachPath(t *testing.T, test func(t *testing.T)) {
	for _, path := range paths() {
		t.Run(path, func(t *testing.T) {
			use(t, path)
			test(t)
		})
	}
}

// operation is a kernel as the comparison of the two versions sees it. Run works on x,
// takes scalars from s and returns the bits of a scalar result, if there is one.
type operation struct {
	name string
	run  func(x [5][]float32, s [8]float32) uint32
}

func operations() []operation {
	params := func(s [8]float32, decay, shrink float32) AdamParams {
		return AdamParams{s[0], s[1], s[2], s[3], s[4], s[5], s[6], decay, shrink}
	}
	plain := func(name string, run func(x [5][]float32, s [8]float32)) operation {
		return operation{name, func(x [5][]float32, s [8]float32) uint32 { run(x, s); return 0 }}
	}
	return []operation{
		plain("Add", func(x [5][]float32, _ [8]float32) { Add(x[0], x[1]) }),
		plain("AddSelf", func(x [5][]float32, _ [8]float32) { Add(x[0], x[0]) }),
		plain("Axpy", func(x [5][]float32, s [8]float32) { Axpy(x[0], s[0], x[1]) }),
		plain("Scale", func(x [5][]float32, s [8]float32) { Scale(x[0], s[0]) }),
		plain("SGD", func(x [5][]float32, s [8]float32) { SGD(x[0], x[1], s[0], 0) }),
		plain("SGDDecay", func(x [5][]float32, s [8]float32) { SGD(x[0], x[1], s[0], s[7]) }),
		plain("Momentum", func(x [5][]float32, s [8]float32) { Momentum(x[0], x[1], x[2], s[0], s[1], 0) }),
		plain("MomentumDecay", func(x [5][]float32, s [8]float32) { Momentum(x[0], x[1], x[2], s[0], s[1], s[7]) }),
		plain("Nesterov", func(x [5][]float32, s [8]float32) { Nesterov(x[0], x[1], x[2], s[0], s[1], 0) }),
		plain("NesterovDecay", func(x [5][]float32, s [8]float32) { Nesterov(x[0], x[1], x[2], s[0], s[1], s[7]) }),
		plain("Adagrad", func(x [5][]float32, s [8]float32) { Adagrad(x[0], x[1], x[2], s[0], s[1], 0) }),
		plain("AdagradDecay", func(x [5][]float32, s [8]float32) { Adagrad(x[0], x[1], x[2], s[0], s[1], s[7]) }),
		plain("Adam", func(x [5][]float32, s [8]float32) { Adam(x[0], x[1], x[2], x[3], params(s, 0, s[7])) }),
		plain("AdamDecay", func(x [5][]float32, s [8]float32) { Adam(x[0], x[1], x[2], x[3], params(s, s[7], 0)) }),
		plain("AdamW", func(x [5][]float32, s [8]float32) { AdamW(x[0], x[1], x[2], x[3], params(s, s[7], 0)) }),
		plain("AdamWDecay", func(x [5][]float32, s [8]float32) { AdamW(x[0], x[1], x[2], x[3], params(s, 0, s[7])) }),
		plain("AMSGrad", func(x [5][]float32, s [8]float32) { AMSGrad(x[0], x[1], x[2], x[3], x[4], params(s, 0, 0)) }),
		plain("AMSGradDecay", func(x [5][]float32, s [8]float32) { AMSGrad(x[0], x[1], x[2], x[3], x[4], params(s, s[7], 0)) }),
		plain("FTRL", func(x [5][]float32, s [8]float32) { FTRL(x[0], x[1], x[2], x[3], s[0], s[1], s[2], s[3]) }),
		plain("FTRLPlain", func(x [5][]float32, s [8]float32) { FTRL(x[0], x[1], x[2], x[3], s[0], 0, 0, 0) }),
		plain("AdagradRow", func(x [5][]float32, s [8]float32) { AdagradRow(x[0], x[1], x[2], s[0], s[1], 0) }),
		{"Dot", func(x [5][]float32, _ [8]float32) uint32 { return math.Float32bits(Dot(x[0], x[1])) }},
		{"MaxAbs", func(x [5][]float32, _ [8]float32) uint32 { return math.Float32bits(MaxAbs(x[0])) }},
		{"AllFinite", func(x [5][]float32, _ [8]float32) uint32 {
			if AllFinite(x[0]) {
				return 1
			}
			return 0
		}},
	}
}

// margin elements before and after each slice must stay as they are.
const margin = 8

// compare runs an operation with every version on copies of the buffers, of which the
// slices are all but the margins and one to five further elements at the front (so
// that the slices are unaligned each in its own way), and wants the same bits all over.
func compare(t *testing.T, op operation, buffers [5][]float32, scalars [8]float32) {
	t.Helper()
	var want [5][]float32
	var wantResult uint32
	for i, path := range paths() {
		use(t, path)
		var got, x [5][]float32
		for j, b := range buffers {
			got[j] = append([]float32(nil), b...)
			x[j] = got[j][margin+j : len(b)-margin-4+j]
		}
		result := op.run(x, scalars)
		if i == 0 {
			want, wantResult = got, result
			continue
		}
		require.True(t, sameNumber(wantResult, result), "%s: want %#x, got %#x", op.name, wantResult, result)
		for j := range want {
			for k := range want[j] {
				a, b := math.Float32bits(want[j][k]), math.Float32bits(got[j][k])
				if !sameNumber(a, b) {
					require.Failf(t, "bits differ", "%s, slice %d, element %d of %d: want %#x, got %#x", op.name, j, k, len(want[j]), a, b)
				}
			}
		}
	}
}

// sameNumber compares bits, except that one NaN is as good as another.
func sameNumber(a, b uint32) bool {
	isNaN := func(bits uint32) bool { return bits&(1<<31-1) > 0x7f800000 }
	return a == b || isNaN(a) && isNaN(b)
}

// pickers draw values: ordinary ones, denormals and what becomes of them, any bits, and
// the special ones among ordinary ones.
var pickers = []struct {
	name string
	draw func(rng *rand.Rand) float32
}{
	{"normal", func(rng *rand.Rand) float32 { return float32(rng.NormFloat64()) }},
	{"positive", func(rng *rand.Rand) float32 { return rng.Float32() }},
	{"small", func(rng *rand.Rand) float32 {
		return math.Float32frombits(rng.Uint32() & (1<<31 | 1<<24 - 1))
	}},
	{"any", func(rng *rand.Rand) float32 { return math.Float32frombits(rng.Uint32()) }},
	{"special", func(rng *rand.Rand) float32 {
		special := []uint32{
			0, 1 << 31, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffc00123,
			1, 0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x3f800000,
		}
		if rng.IntN(3) > 0 {
			return float32(rng.NormFloat64())
		}
		return math.Float32frombits(special[rng.IntN(len(special))])
	}},
}

// TestVersionsHaveTheSameBits has all lengths around the unrolled loops, and one that
// takes several calls of the wide version.
func TestVersionsHaveTheSameBits(t *testing.T) {
	repeats := 200 // of the shortest
	if raceDetector {
		repeats = 20
	}
	sizes := []int{16<<10 - 1, 16 << 10, 3*16<<10 + 45}
	for size := range 68 {
		sizes = append(sizes, size)
	}
	for _, op := range operations() {
		for _, picker := range pickers {
			t.Run(fmt.Sprintf("%s/%s", op.name, picker.name), func(t *testing.T) {
				for _, size := range sizes {
					rng := rand.New(rand.NewPCG(8, uint64(size)))
					for range max(1, repeats/(size+1)) {
						var buffers [5][]float32
						for i := range buffers {
							buffers[i] = make([]float32, size+2*margin+4)
							for k := range buffers[i] {
								buffers[i][k] = picker.draw(rng)
							}
						}
						var scalars [8]float32
						for i := range scalars {
							scalars[i] = picker.draw(rng)
						}
						compare(t, op, buffers, scalars)
					}
				}
			})
		}
	}
}

// TestWideLengthsDiffer gives each slice its own length: the shortest counts.
func TestWideLengthsDiffer(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 0))
	for _, op := range operations() {
		for range 200 {
			lengths := [5]int{rng.IntN(70), rng.IntN(70), rng.IntN(70), rng.IntN(70), rng.IntN(70)}
			cut := operation{op.name, func(x [5][]float32, s [8]float32) uint32 {
				for i := range x {
					x[i] = x[i][:lengths[i]]
				}
				return op.run(x, s)
			}}
			var buffers [5][]float32
			for i := range buffers {
				buffers[i] = randomSlice(rng, 70+2*margin+4)
			}
			compare(t, cut, buffers, [8]float32(randomSlice(rng, 8)))
		}
	}
}

// FuzzVersions takes scalars and elements of all slices from bits that the fuzzer picks.
func FuzzVersions(f *testing.F) {
	for which := range operations() {
		f.Add(uint8(which), make([]byte, 4*(8+5*20)))
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		var numbers []float32
		for ; len(data) >= 4 && len(numbers) < 1<<12; data = data[4:] {
			bits := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
			numbers = append(numbers, math.Float32frombits(bits))
		}
		var scalars [8]float32
		numbers = numbers[copy(scalars[:], numbers):]
		size := len(numbers) / 5
		var buffers [5][]float32
		for i := range buffers {
			buffers[i] = make([]float32, size+2*margin+4)
			copy(buffers[i][margin+i:], numbers[i*size:(i+1)*size])
		}
		all := operations()
		compare(t, all[int(which)%len(all)], buffers, scalars)
	})
}
