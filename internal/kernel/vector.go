package kernel

// Add adds x to dst element by element: dst[i] += x[i]. It neither blocks nor
// allocates, and reads x only.
func Add(dst, x []float32) {
	addGeneric(dst, x)
}

// Axpy adds a times x to dst element by element: dst[i] += a*x[i], the product
// rounded to float32 before the sum.
func Axpy(dst []float32, a float32, x []float32) {
	axpyGeneric(dst, a, x)
}

// Scale multiplies dst by a in place.
func Scale(dst []float32, a float32) {
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
// divided by the number of its accumulators (four).
func Dot(x, y []float32) float32 {
	return dotGeneric(x, y)
}

// MaxAbs returns the largest absolute value in x: zero for an empty slice, NaN
// when any element is NaN.
func MaxAbs(x []float32) float32 {
	return maxAbsGeneric(x)
}

// AllFinite reports whether no element of x is NaN or infinite. It is true for an
// empty slice.
func AllFinite(x []float32) bool {
	return allFiniteGeneric(x)
}
