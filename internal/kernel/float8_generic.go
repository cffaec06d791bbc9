package kernel

import "math"

// Codes of the formats of 8 bits, which have the sign on top.
const (
	sign8        = 1 << 7
	nanE4M3      = 0x7f
	infinityE5M2 = 0x7c
	nanE5M2      = 0x7e
)

func encodeE4M3Generic(dst []byte, src []float32, scale float32, clip, infinite uint32) {
	for i := range min(len(dst), len(src)) {
		dst[i] = toE4M3(src[i], scale, clip, infinite)
	}
}

func encodeE5M2Generic(dst []byte, src []float32, scale float32, clip, infinite uint32) {
	for i := range min(len(dst), len(src)) {
		dst[i] = toE5M2(src[i], scale, clip, infinite)
	}
}

func decodeE4M3Generic(dst []float32, src []byte, scale float32) {
	for i := range min(len(dst), len(src)) {
		dst[i] = math.Float32frombits(fromE4M3(src[i])) * scale
	}
}

func decodeE5M2Generic(dst []float32, src []byte, scale float32) {
	for i := range min(len(dst), len(src)) {
		dst[i] = math.Float32frombits(fromFP16(uint16(src[i])<<8)) * scale
	}
}

// toE4M3 rounds as toFP16 does. Denormals are multiples of 2^-9, and so are the float32
// between 2^14 and 2^15.
func toE4M3(f, scale float32, clip, infinite uint32) byte {
	const (
		dropped     = 23 - 3
		rebias      = (127 - 7) << 23
		leastNormal = (127 - 6) << 23
		magic       = 1 << 14
		magicBits   = (127 + 14) << 23
	)
	sign, abs := byte(math.Float32bits(f)>>24)&sign8, math.Float32bits(f*scale)&^sign32
	if abs > infinite {
		return sign | nanE4M3
	}
	if abs = min(abs, clip); abs < leastNormal {
		return sign | byte(math.Float32bits(math.Float32frombits(abs)+magic)-magicBits)
	}
	odd := abs >> dropped & 1
	return sign | byte((abs-rebias+1<<(dropped-1)-1+odd)>>dropped)
}

// toE5M2 is toE4M3 for a format with infinities and denormals that are multiples of 2^-16.
func toE5M2(f, scale float32, clip, infinite uint32) byte {
	const (
		dropped     = 23 - 2
		rebias      = (127 - 15) << 23
		leastNormal = (127 - 14) << 23
		magic       = 1 << 7
		magicBits   = (127 + 7) << 23
	)
	sign, abs := byte(math.Float32bits(f)>>24)&sign8, math.Float32bits(f*scale)&^sign32
	switch {
	case abs > infinity32:
		return sign | nanE5M2
	case abs > infinite:
		return sign | infinityE5M2
	}
	if abs = min(abs, clip); abs < leastNormal {
		return sign | byte(math.Float32bits(math.Float32frombits(abs)+magic)-magicBits)
	}
	odd := abs >> dropped & 1
	return sign | byte((abs-rebias+1<<(dropped-1)-1+odd)>>dropped)
}

// fromE4M3 returns the bits of the float32.
func fromE4M3(code byte) uint32 {
	const (
		added     = 23 - 3
		rebias    = (127 - 7) << 23
		leastUnit = 1.0 / (1 << 9)
	)
	sign, abs := uint32(code&sign8)<<24, uint32(code&^sign8)
	switch {
	case abs == nanE4M3:
		return sign | infinity32 | 1<<22
	case abs < 1<<3:
		return sign | math.Float32bits(float32(abs)*leastUnit)
	default:
		return sign | (abs<<added + rebias)
	}
}
