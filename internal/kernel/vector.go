package kernel

import "math"

// Add adds x to dst element by element: dst[i] += x[i]. It neither blocks nor
// allocates, and reads x only.
func Add(dst, x []float32) {
	for n := wide(min(len(dst), len(x))); n > 0; n = wide(min(len(dst), len(x))) {
		addWide(dst[:n], x[:n])
		dst, x = dst[n:], x[n:]
	}
	addGeneric(dst, x)
}

// Axpy adds a times x to dst element by element: dst[i] += a*x[i], the product
// rounded to float32 before the sum.
func Axpy(dst []float32, a float32, x []float32) {
	for n := wide(min(len(dst), len(x))); n > 0; n = wide(min(len(dst), len(x))) {
		axpyWide(dst[:n], a, x[:n])
		dst, x = dst[n:], x[n:]
	}
	axpyGeneric(dst, a, x)
}

// Scale multiplies dst by a in place.
func Scale(dst []float32, a float32) {
	for n := wide(len(dst)); n > 0; n = wide(len(dst)) {
		scaleWide(dst[:n], a)
		dst = dst[n:]
	}
	scaleGeneric(dst, a)
}

// Fill sets every element of dst to value.
func Fill(dst []float32, value float32) {
	for i := range dst {
		dst[i] = value
	}
}

// Dot returns the sum of x[i]*y[i], zero for empty slices. It accumulates in
// float32 in an order fixed by the length, so its error grows with the length
// divided by the number of its accumulators (32).
func Dot(x, y []float32) float32 {
	var sums [numSums]float32
	for n := wide(min(len(x), len(y))); n >= numSums; n = wide(min(len(x), len(y))) {
		n -= n % numSums
		dotWide(x[:n], y[:n], &sums)
		x, y = x[n:], y[n:]
	}
	return dotGeneric(x, y, &sums)
}

// MaxAbs returns the largest absolute value in x: zero for an empty slice, NaN
// when any element is NaN.
func MaxAbs(x []float32) float32 {
	var largest uint32 // bits order like absolute values, see maxAbsGeneric
	for n := wide(len(x)); n > 0; n = wide(len(x)) {
		largest = max(largest, maxAbsWide(x[:n]))
		x = x[n:]
	}
	return math.Float32frombits(max(largest, math.Float32bits(maxAbsGeneric(x))))
}

// AllFinite reports whether no element of x is NaN or infinite. It is true for an
// empty slice.
func AllFinite(x []float32) bool {
	const infinity = 0x7f800000 // the bits of NaN are above it
	for n := wide(len(x)); n > 0; n = wide(len(x)) {
		if maxAbsWide(x[:n]) >= infinity {
			return false
		}
		x = x[n:]
	}
	return allFiniteGeneric(x)
}
