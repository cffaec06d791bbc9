package codec

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/elasticps/elasticps/internal/kernel"
)

const (
	scaleBytes = 4
	// leastScale is the least normal float32, whose inverse is finite.
	leastScale = 1.0 / (1 << 126)

	group = 32 // elements that share a power of two
)

// narrow is one of the formats of 8 bits that the others are made of.
type narrow struct {
	e5m2     bool
	largest  float32
	exponent int // of the largest number
}

var (
	narrowE4M3 = narrow{false, kernel.MaxE4M3, 8}
	narrowE5M2 = narrow{true, kernel.MaxE5M2, 15}
)

func (f *narrow) encode(dst []byte, src []float32, scale float32) {
	if f.e5m2 {
		kernel.EncodeE5M2(dst, src, scale, kernel.SatKeepNonFinite)
	} else {
		kernel.EncodeE4M3(dst, src, scale, kernel.SatKeepNonFinite)
	}
}

func (f *narrow) decode(dst []float32, src []byte, scale float32) {
	if f.e5m2 {
		kernel.DecodeE5M2(dst, src, scale)
	} else {
		kernel.DecodeE4M3(dst, src, scale)
	}
}

// encodeScaled maps the largest absolute value of each block to the largest number of the
// format.
func (f *narrow) encodeScaled(dst []byte, src []float32) {
	for len(src) > 0 {
		n := min(len(src), Block)
		scale := scaleOf(largestFinite(src[:n]), f.largest)
		binary.LittleEndian.PutUint32(dst, math.Float32bits(scale))
		f.encode(dst[scaleBytes:scaleBytes+n], src[:n], 1/scale)
		src, dst = src[n:], dst[scaleBytes+n:]
	}
}

func (f *narrow) decodeScaled(dst []float32, src []byte) error {
	for done := 0; len(dst) > 0; {
		n := min(len(dst), Block)
		scale := math.Float32frombits(binary.LittleEndian.Uint32(src))
		if !(scale >= leastScale && scale*f.largest <= math.MaxFloat32) {
			return fmt.Errorf("%w: scale %g of the block at element %d, must be %g to %g",
				ErrCorrupt, scale, done, float32(leastScale), math.MaxFloat32/f.largest)
		}
		f.decode(dst[:n], src[scaleBytes:scaleBytes+n], scale)
		dst, src, done = dst[n:], src[scaleBytes+n:], done+n
	}
	return nil
}

// scaleOf is the scale of a block: what the largest number of the format stands for is
// finite, and so is the inverse.
func scaleOf(amax, largest float32) float32 {
	scale := max(amax/largest, leastScale)
	if scale*largest > math.MaxFloat32 {
		scale = math.Nextafter32(scale, 0)
	}
	return scale
}

// largestFinite is the largest absolute value among those that are finite.
func largestFinite(x []float32) float32 {
	if largest := kernel.MaxAbs(x); largest <= math.MaxFloat32 {
		return largest
	}
	var largest float32
	for _, e := range x {
		if abs := max(e, -e); abs > largest && abs <= math.MaxFloat32 {
			largest = abs
		}
	}
	return largest
}

// encodeGroups scales by a power of two, which brings the exponent of the largest absolute
// value to that of the largest number of the format; what is beyond that becomes it.
func (f *narrow) encodeGroups(dst []byte, src []float32) {
	for len(src) > 0 {
		n := min(len(src), group)
		code := groupScale(largestFinite(src[:n]), f.exponent)
		dst[0] = code
		f.encode(dst[1:1+n], src[:n], math.Float32frombits(uint32(254-int(code))<<23))
		src, dst = src[n:], dst[1+n:]
	}
}

func (f *narrow) decodeGroups(dst []float32, src []byte) {
	for len(dst) > 0 {
		n := min(len(dst), group)
		f.decode(dst[:n], src[1:1+n], powerOfTwo(src[0]))
		dst, src = dst[n:], src[1+n:]
	}
}

// groupScale is the exponent of the scale plus 127, not below zero: numbers without an
// exponent of their own are below that by any format.
func groupScale(amax float32, exponent int) byte {
	return byte(max(int(math.Float32bits(amax)>>23)-exponent, 0))
}

// powerOfTwo is the scale with that code: two to the code minus 127, or NaN.
func powerOfTwo(code byte) float32 {
	switch code {
	case 0:
		return math.Float32frombits(1 << 22)
	case 255:
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(code) << 23)
}
