package kernel

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// EncodeFP16 converts src to IEEE 754 binary16 (float16): 11 significant bits, largest
// number 65504, least positive 2^-24. It rounds to the nearest number, from the middle to
// the one whose last bit is even, and from 65520 up to infinity. Zeros and infinities keep
// their signs. A NaN stays one, quiet, with its sign and the upper 10 bits of its fraction.
// Each element of dst is one number; for the wire, which is little endian, see
// [EncodeFP16Bytes].
func EncodeFP16(dst []uint16, src []float32) {
	for n := wideHalf(min(len(dst), len(src))); n > 0; n = wideHalf(min(len(dst), len(src))) {
		encodeFP16Wide(dst[:n], src[:n])
		dst, src = dst[n:], src[n:]
	}
	encodeFP16Generic(dst, src)
}

// DecodeFP16 converts float16 to float32, without loss. A NaN keeps its sign and fraction
// and becomes quiet.
func DecodeFP16(dst []float32, src []uint16) {
	for n := wideHalf(min(len(dst), len(src))); n > 0; n = wideHalf(min(len(dst), len(src))) {
		decodeFP16Wide(dst[:n], src[:n])
		dst, src = dst[n:], src[n:]
	}
	decodeFP16Generic(dst, src)
}

// EncodeBF16 converts src to bfloat16, the upper half of a float32: 8 significant bits and
// the exponents of float32. It rounds and treats infinities, zeros and NaN as
// [EncodeFP16] does; a NaN keeps the upper 7 bits of its fraction.
func EncodeBF16(dst []uint16, src []float32) {
	for n := widest(min(len(dst), len(src))); n > 0; n = widest(min(len(dst), len(src))) {
		encodeBF16Widest(dst[:n], src[:n])
		dst, src = dst[n:], src[n:]
	}
	for n := wide(min(len(dst), len(src))); n > 0; n = wide(min(len(dst), len(src))) {
		encodeBF16Wide(dst[:n], src[:n])
		dst, src = dst[n:], src[n:]
	}
	encodeBF16Generic(dst, src)
}

// DecodeBF16 converts bfloat16 to float32, without loss: every NaN keeps its bits.
func DecodeBF16(dst []float32, src []uint16) {
	for n := wide(min(len(dst), len(src))); n > 0; n = wide(min(len(dst), len(src))) {
		decodeBF16Wide(dst[:n], src[:n])
		dst, src = dst[n:], src[n:]
	}
	decodeBF16Generic(dst, src)
}

// EncodeFP16Bytes is [EncodeFP16] to the wire: two bytes for each number, the lower one
// first. It converts as many numbers as dst has room for. The address of dst may be odd,
// but then the conversion takes some ten times as long.
func EncodeFP16Bytes(dst []byte, src []float32) {
	if halves, ok := halvesOf(dst); ok {
		EncodeFP16(halves, src)
		return
	}
	for i, f := range src[:min(len(dst)/2, len(src))] {
		binary.LittleEndian.PutUint16(dst[2*i:], toFP16(f))
	}
}

// DecodeFP16Bytes is [DecodeFP16] from the wire, see [EncodeFP16Bytes].
func DecodeFP16Bytes(dst []float32, src []byte) {
	if halves, ok := halvesOf(src); ok {
		DecodeFP16(dst, halves)
		return
	}
	for i := range dst[:min(len(dst), len(src)/2)] {
		dst[i] = math.Float32frombits(fromFP16(binary.LittleEndian.Uint16(src[2*i:])))
	}
}

// EncodeBF16Bytes is [EncodeBF16] to the wire, see [EncodeFP16Bytes].
func EncodeBF16Bytes(dst []byte, src []float32) {
	if halves, ok := halvesOf(dst); ok {
		EncodeBF16(halves, src)
		return
	}
	for i, f := range src[:min(len(dst)/2, len(src))] {
		binary.LittleEndian.PutUint16(dst[2*i:], toBF16(f))
	}
}

// DecodeBF16Bytes is [DecodeBF16] from the wire, see [EncodeFP16Bytes].
func DecodeBF16Bytes(dst []float32, src []byte) {
	if halves, ok := halvesOf(src); ok {
		DecodeBF16(dst, halves)
		return
	}
	for i := range dst[:min(len(dst), len(src)/2)] {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

// halvesOf returns p as numbers of two bytes, and whether this machine may read them so:
// it has the lower byte first too, and p starts at an even address.
func halvesOf(p []byte) ([]uint16, bool) {
	start := unsafe.Pointer(unsafe.SliceData(p))
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 || uintptr(start)%2 != 0 {
		return nil, false
	}
	return unsafe.Slice((*uint16)(start), len(p)/2), true
}
