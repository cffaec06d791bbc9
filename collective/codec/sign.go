package codec

import (
	"encoding/binary"
	"fmt"
	"math"
)

// noNumber stands for a block with an element that is not finite.
const noNumber = 0x7fc00000

const largestBits = 0x7f7fffff // of a finite float32 without a sign

// encodeSigns writes the mean of the absolute values of each block and its signs.
func encodeSigns(dst []byte, src []float32) {
	for len(src) > 0 {
		n := min(len(src), Block)
		bytes := (n + 7) / 8
		binary.LittleEndian.PutUint32(dst, meanAbs(src[:n]))
		signs(dst[scaleBytes:scaleBytes+bytes], src[:n])
		src, dst = src[n:], dst[scaleBytes+bytes:]
	}
}

// meanAbs is the bits of the mean of the absolute values. Four sums in float64 have room for
// all of float32.
func meanAbs(x []float32) uint32 {
	var s0, s1, s2, s3 float64
	rest := x
	for ; len(rest) >= 4; rest = rest[4:] {
		s0 += math.Abs(float64(rest[0]))
		s1 += math.Abs(float64(rest[1]))
		s2 += math.Abs(float64(rest[2]))
		s3 += math.Abs(float64(rest[3]))
	}
	for _, e := range rest {
		s0 += math.Abs(float64(e))
	}
	mean := float32((s0 + s1 + s2 + s3) / float64(len(x)))
	if !(mean <= math.MaxFloat32) {
		return noNumber
	}
	return math.Float32bits(mean)
}

// signs packs the sign bits.
func signs(dst []byte, src []float32) {
	for i := range dst {
		var b uint32
		for k, e := range src[8*i : min(8*i+8, len(src))] {
			b |= math.Float32bits(e) >> 31 << k
		}
		dst[i] = byte(b)
	}
}

func decodeSigns(dst []float32, src []byte) error {
	for done := 0; len(dst) > 0; {
		n := min(len(dst), Block)
		bytes := (n + 7) / 8
		mean := binary.LittleEndian.Uint32(src)
		if mean != noNumber && mean > largestBits {
			return fmt.Errorf("%w: mean %g of the block at element %d, must be 0 to %g",
				ErrCorrupt, math.Float32frombits(mean), done, math.MaxFloat32)
		}
		codes := src[scaleBytes : scaleBytes+bytes]
		if n%8 > 0 && codes[bytes-1]>>(n%8) != 0 {
			return fmt.Errorf("%w: %d signs of the block at element %d, the byte of the last has more", ErrCorrupt, n, done)
		}
		for i, b := range codes {
			for k := range dst[8*i : min(8*i+8, n)] {
				dst[8*i+k] = math.Float32frombits(mean | uint32(b)>>k<<31)
			}
		}
		dst, src, done = dst[n:], src[scaleBytes+bytes:], done+n
	}
	return nil
}
