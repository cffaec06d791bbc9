package kernel

import "math"

// Bits of float32.
const (
	sign32     = 1 << 31
	infinity32 = 0xff << 23 // the bits of NaN, without the sign, are above it
)

// Bits of the two formats of 16 bits: both have the sign on top.
const (
	sign16       = 1 << 15
	infinityFP16 = 0x1f << 10
	quietFP16    = 1 << 9
	quietBF16    = 1 << 6
)

func encodeFP16Generic(dst []uint16, src []float32) {
	for i := range min(len(dst), len(src)) {
		dst[i] = toFP16(src[i])
	}
}

func decodeFP16Generic(dst []float32, src []uint16) {
	for i := range min(len(dst), len(src)) {
		dst[i] = math.Float32frombits(fromFP16(src[i]))
	}
}

func encodeBF16Generic(dst []uint16, src []float32) {
	for i := range min(len(dst), len(src)) {
		dst[i] = toBF16(src[i])
	}
}

func decodeBF16Generic(dst []float32, src []uint16) {
	for i := range min(len(dst), len(src)) {
		dst[i] = math.Float32frombits(uint32(src[i]) << 16)
	}
}

// toFP16 rounds to the nearest float16 and from the middle to the even one. Two of its
// cases let an addition do the rounding. Normal numbers get half of the last place that
// stays, less one bit where that place is even: a carry goes on into the exponent, as it
// should. Denormals are multiples of 2^-24, and so are the float32 between 1/2 and 1.
func toFP16(f float32) uint16 {
	const (
		dropped       = 23 - 10              // bits of the fraction
		rebias        = (127 - 15) << 23     // exponents differ by that
		overflow      = (127+16)<<23 - 1<<12 // 65520 is as far from 65504 as from 2^16
		leastNormal   = (127 - 14) << 23
		oneHalf       = 0.5
		oneHalfAsBits = (127 - 1) << 23
	)
	bits := math.Float32bits(f)
	sign, abs := uint16(bits>>16)&sign16, bits&^sign32
	switch {
	case abs > infinity32:
		return sign | infinityFP16 | quietFP16 | uint16(abs>>dropped)&(1<<10-1)
	case abs >= overflow:
		return sign | infinityFP16
	case abs < leastNormal:
		return sign | uint16(math.Float32bits(math.Float32frombits(abs)+oneHalf)-oneHalfAsBits)
	default:
		odd := abs >> dropped & 1
		return sign | uint16((abs-rebias+1<<(dropped-1)-1+odd)>>dropped)
	}
}

// fromFP16 returns the bits of the float32, so that NaN passes through no conversion. A
// signalling NaN becomes quiet.
func fromFP16(h uint16) uint32 {
	const (
		added     = 23 - 10
		rebias    = (127 - 15) << 23
		leastUnit = 1.0 / (1 << 24)
	)
	sign, abs := uint32(h&sign16)<<16, uint32(h&^sign16)
	switch {
	case abs > infinityFP16:
		return sign | infinity32 | quietFP16<<added | abs<<added
	case abs == infinityFP16:
		return sign | infinity32
	case abs < 1<<10:
		return sign | math.Float32bits(float32(abs)*leastUnit)
	default:
		return sign | (abs<<added + rebias)
	}
}

// toBF16 takes the upper half, rounded as in toFP16; the carry also makes infinity of
// what is above the largest number.
func toBF16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&^sign32 > infinity32 {
		return uint16(bits>>16) | quietBF16
	}
	odd := bits >> 16 & 1
	return uint16((bits + 1<<15 - 1 + odd) >> 16)
}
