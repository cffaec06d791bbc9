package wire

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// The encoding of values is part of the header, and protected by its checksum.
func TestHeaderEncoding(t *testing.T) {
	var b [HeaderBytes]byte
	for _, encoding := range []uint8{0, 1, 2, 3, 77, 255} {
		in := sample()
		in.Encoding = encoding
		in.Encode(b[:])
		var out Header
		require.NoError(t, out.Decode(b[:]))
		require.Equal(t, in, out)
		b[5]++
		require.ErrorIs(t, out.Decode(b[:]), ErrChecksum)
	}
}

// Floats is the inverse of Bytes and shares its memory; it refuses what lies unaligned
// or is no whole number of values.
func TestFloats(t *testing.T) {
	x := []float32{1, -2, float32(math.Inf(1)), float32(math.NaN()), float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32}
	b := Bytes(x)
	require.Len(t, b, 4*len(x))
	got, ok := Floats(b)
	require.True(t, ok)
	require.Len(t, got, len(x))
	for i := range x {
		require.Equal(t, math.Float32bits(x[i]), math.Float32bits(got[i]))
	}
	got[0] = 5
	require.Equal(t, float32(5), x[0], "one memory")
	b[3] ^= 0x80
	require.Equal(t, float32(-5), got[0])

	for from := range 4 {
		for n := range 10 {
			got, ok := Floats(b[from : from+n])
			switch {
			case n == 0:
				require.True(t, ok)
				require.Empty(t, got)
			case from == 0 && n%4 == 0:
				require.True(t, ok)
				require.Len(t, got, n/4)
			default:
				require.False(t, ok, "%d bytes at %d", n, from)
			}
		}
	}
	got, ok = Floats(nil)
	require.True(t, ok)
	require.Empty(t, got)
}

// A checksum over parts is that of the whole.
func TestExtend(t *testing.T) {
	b := make([]byte, 1000)
	for i := range b {
		b[i] = byte(i * i)
	}
	whole := Sum(b)
	for _, cut := range []int{0, 1, 7, 8, 255, 999, 1000} {
		require.Equal(t, whole, Extend(Extend(0, b[:cut]), b[cut:]), "cut at %d", cut)
		require.Equal(t, whole, Sum(b[:cut], b[cut:]))
	}
}
