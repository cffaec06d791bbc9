package kernel

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func randomBytes(rng *rand.Rand, size int) []byte {
	p := make([]byte, size)
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	return p
}

// TestCRC32CValues are the examples of RFC 3720, section B.4, and the check value of the
// catalogue of parametrised CRC algorithms.
func TestCRC32CValues(t *testing.T) { onEachPath(t, testCRC32CValues) }

func testCRC32CValues(t *testing.T) {
	ascending := make([]byte, 32)
	for i := range ascending {
		ascending[i] = byte(i)
	}
	tests := []struct {
		name string
		p    []byte
		want uint32
	}{
		{"empty", nil, 0},
		{"check", []byte("123456789"), 0xe3069283},
		{"zeros", make([]byte, 32), 0x8a9136aa},
		{"ones", bytes.Repeat([]byte{0xff}, 32), 0x62a8ab43},
		{"ascending", ascending, 0x46dd794e},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, CRC32C(0, tt.p)) })
	}
}

// TestCRC32C compares with package hash/crc32 at every length up to 4096, at offsets
// that change with it, then at lengths that take several calls of the wide version.
func TestCRC32C(t *testing.T) { onEachPath(t, testCRC32C) }

func testCRC32C(t *testing.T) {
	table := crc32.MakeTable(crc32.Castagnoli)
	rng := rand.New(rand.NewPCG(10, 0))
	data := randomBytes(rng, 1<<20+4096)
	check := func(sum uint32, offset, size int) {
		p := data[offset : offset+size : offset+size]
		want := crc32.Update(sum, table, p)
		require.Equal(t, want, CRC32C(sum, p), "%d bytes at offset %d", size, offset)
		dst := bytes.Repeat([]byte{0xa5}, size+2*margin)
		require.Equal(t, want, CopyCRC32C(sum, dst[margin:margin+size], p), "%d bytes at offset %d", size, offset)
		require.True(t, bytes.Equal(p, dst[margin:margin+size]), "%d bytes at offset %d", size, offset)
		frame := bytes.Repeat([]byte{0xa5}, margin)
		require.True(t, bytes.Equal(frame, dst[:margin]) && bytes.Equal(frame, dst[margin+size:]), "written beyond %d bytes", size)
	}
	for size := range 4097 {
		check(rng.Uint32(), rng.IntN(64), size)
	}
	for offset := range 64 {
		check(rng.Uint32(), offset, 1023)
	}
	for _, size := range []int{64<<10 - 1, 256 << 10, 256<<10 + 1, 256<<10 + 65, 1 << 20} {
		check(0, rng.IntN(64), size)
	}
}

// TestCRC32CInParts sums random pieces one after the other.
func TestCRC32CInParts(t *testing.T) { onEachPath(t, testCRC32CInParts) }

func testCRC32CInParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 0))
	for range 200 {
		whole := randomBytes(rng, rng.IntN(8<<10))
		dst := make([]byte, len(whole))
		var sum, copied uint32
		for begin := 0; begin < len(whole); {
			end := min(len(whole), begin+rng.IntN(1<<rng.IntN(12)))
			sum = CRC32C(sum, whole[begin:end])
			copied = CopyCRC32C(copied, dst[begin:end], whole[begin:end])
			begin = end
		}
		require.Equal(t, CRC32C(0, whole), sum)
		require.Equal(t, sum, copied)
		require.True(t, bytes.Equal(whole, dst))
	}
}

// TestCRC32CSeesEveryBit flips each bit of a message that takes all loops.
func TestCRC32CSeesEveryBit(t *testing.T) { onEachPath(t, testCRC32CSeesEveryBit) }

func testCRC32CSeesEveryBit(t *testing.T) {
	p := randomBytes(rand.New(rand.NewPCG(12, 0)), 256+64+8+1)
	sum := CRC32C(0, p)
	for bit := range 8 * len(p) {
		p[bit/8] ^= 1 << (bit % 8)
		require.NotEqual(t, sum, CRC32C(0, p), "bit %d", bit)
		p[bit/8] ^= 1 << (bit % 8)
	}
}

func TestCopyCRC32CTakesTheCommonPrefix(t *testing.T) {
	onEachPath(t, testCopyCRC32CTakesTheCommonPrefix)
}

func testCopyCRC32CTakesTheCommonPrefix(t *testing.T) {
	src := randomBytes(rand.New(rand.NewPCG(13, 0)), 300)
	dst := make([]byte, 400)
	require.Equal(t, CRC32C(0, src), CopyCRC32C(0, dst, src))
	require.True(t, bytes.Equal(src, dst[:300]))
	require.Equal(t, CRC32C(0, src[:200]), CopyCRC32C(0, make([]byte, 200), src))
	require.Equal(t, uint32(7), CopyCRC32C(7, nil, src))
}

// FuzzCRC32C compares with package hash/crc32, in one piece and in two.
func FuzzCRC32C(f *testing.F) {
	f.Add(uint32(0), []byte{}, uint16(0))
	f.Add(uint32(1), make([]byte, 64), uint16(63))
	f.Add(^uint32(0), make([]byte, 1000), uint16(500))
	f.Fuzz(func(t *testing.T, sum uint32, p []byte, cut uint16) {
		at := min(int(cut), len(p))
		want := crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), p)
		for _, path := range paths() {
			use(t, path)
			require.Equal(t, want, CRC32C(sum, p))
			require.Equal(t, want, CRC32C(CRC32C(sum, p[:at]), p[at:]))
			dst := make([]byte, len(p))
			require.Equal(t, want, CopyCRC32C(sum, dst, p))
			require.True(t, bytes.Equal(p, dst))
		}
	})
}

// BenchmarkCRC32C has the sum, and the copy with it in one pass and in two.
func BenchmarkCRC32C(b *testing.B) {
	sums := []struct {
		name string
		run  func(dst, src []byte)
	}{
		{"Sum", func(_, src []byte) { CRC32C(0, src) }},
		{"CopySum", func(dst, src []byte) { CopyCRC32C(0, dst, src) }},
		{"CopyThenSum", func(dst, src []byte) { copy(dst, src); CRC32C(0, dst) }},
	}
	for _, s := range sums {
		for _, size := range []int{64, 128, 256, 512, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 64 << 20} {
			for _, path := range paths() {
				if path == "avx2" {
					continue // has no version of its own
				}
				b.Run(fmt.Sprintf("%s/%dB/%s", s.name, size, path), func(b *testing.B) {
					use(b, path)
					dst, src := make([]byte, size), randomBytes(rand.New(rand.NewPCG(14, 0)), size)
					b.SetBytes(int64(size))
					for b.Loop() {
						s.run(dst, src)
					}
				})
			}
		}
	}
}
