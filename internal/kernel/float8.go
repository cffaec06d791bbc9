package kernel

// Saturation says what becomes of numbers that a format of 8 bits has no room for.
type Saturation uint8

// The modes. NaN stays NaN in all of them.
const (
	// SatKeepNonFinite makes the largest number of those that are too large and keeps
	// infinities what they are, or NaN where the format has no infinity: who looks for
	// either finds it.
	SatKeepNonFinite Saturation = iota
	// SatFinite makes the largest number of infinities too.
	SatFinite
	// NoSat makes infinities of numbers that are too large, or NaN where the format has
	// none.
	NoSat
)

// Largest numbers of the formats of 8 bits.
const (
	MaxE4M3 = 448
	MaxE5M2 = 57344
)

// EncodeE4M3 converts src times scale, which is positive, to the format of OCP with 4
// significant bits, no infinity, and numbers from 2^-9 to 448. It rounds to the nearest
// number, from the middle to the one whose last bit is even, and keeps signs, of zero and NaN too,
// which has one code.
func EncodeE4M3(dst []byte, src []float32, scale float32, s Saturation) {
	clip, infinite := boundsE4M3(s)
	for n := wideGroup(min(len(dst), len(src))); n > 0; n = wideGroup(min(len(dst), len(src))) {
		encodeE4M3Wide(dst[:n], src[:n], scale, clip, infinite)
		dst, src = dst[n:], src[n:]
	}
	encodeE4M3Generic(dst, src, scale, clip, infinite)
}

// EncodeE5M2 is [EncodeE4M3] to the format of OCP with 3 significant bits, infinities, and
// numbers from 2^-16 to 57344.
func EncodeE5M2(dst []byte, src []float32, scale float32, s Saturation) {
	clip, infinite := boundsE5M2(s)
	for n := wideGroup(min(len(dst), len(src))); n > 0; n = wideGroup(min(len(dst), len(src))) {
		encodeE5M2Wide(dst[:n], src[:n], scale, clip, infinite)
		dst, src = dst[n:], src[n:]
	}
	encodeE5M2Generic(dst, src, scale, clip, infinite)
}

// DecodeE4M3 converts codes to float32, without loss, and multiplies them by scale.
func DecodeE4M3(dst []float32, src []byte, scale float32) {
	for n := widePair(min(len(dst), len(src))); n > 0; n = widePair(min(len(dst), len(src))) {
		decodeE4M3Wide(dst[:n], src[:n], scale)
		dst, src = dst[n:], src[n:]
	}
	decodeE4M3Generic(dst, src, scale)
}

// DecodeE5M2 is [DecodeE4M3] of the other format.
func DecodeE5M2(dst []float32, src []byte, scale float32) {
	for n := widePair(min(len(dst), len(src))); n > 0; n = widePair(min(len(dst), len(src))) {
		decodeE5M2Wide(dst[:n], src[:n], scale)
		dst, src = dst[n:], src[n:]
	}
	decodeE5M2Generic(dst, src, scale)
}

// boundsE4M3 is what absolute values are cut to, and above which they become NaN, as bits.
// What is cut to 480 rounds to the code of NaN, which follows that of 448.
func boundsE4M3(s Saturation) (clip, infinite uint32) {
	const largest, beyond = 0x43e00000, 0x43f00000 // 448, 480
	switch s {
	case NoSat:
		return beyond, sign32 - 1
	case SatFinite:
		return largest, infinity32
	}
	return largest, infinity32 - 1
}

// boundsE5M2 is boundsE4M3, with infinity for NaN.
func boundsE5M2(s Saturation) (clip, infinite uint32) {
	const largest, beyond = 0x47600000, 0x47800000 // 57344, 65536
	switch s {
	case NoSat:
		return beyond, sign32 - 1
	case SatFinite:
		return largest, sign32 - 1
	}
	return largest, infinity32 - 1
}
