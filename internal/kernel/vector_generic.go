package kernel

import "math"

// The loops take four elements at a time. Shrinking the slices, with their
// lengths in the loop's condition, is what lets the compiler drop every bounds
// check; wider steps gained nothing measurable.

func addGeneric(dst, x []float32) {
	for len(dst) >= 4 && len(x) >= 4 {
		dst[0] += x[0]
		dst[1] += x[1]
		dst[2] += x[2]
		dst[3] += x[3]
		dst, x = dst[4:], x[4:]
	}
	for i := range min(len(dst), len(x)) {
		dst[i] += x[i]
	}
}

func axpyGeneric(dst []float32, a float32, x []float32) {
	for len(dst) >= 4 && len(x) >= 4 {
		dst[0] += float32(a * x[0])
		dst[1] += float32(a * x[1])
		dst[2] += float32(a * x[2])
		dst[3] += float32(a * x[3])
		dst, x = dst[4:], x[4:]
	}
	for i := range min(len(dst), len(x)) {
		dst[i] += float32(a * x[i])
	}
}

func scaleGeneric(dst []float32, a float32) {
	for len(dst) >= 4 {
		dst[0] *= a
		dst[1] *= a
		dst[2] *= a
		dst[3] *= a
		dst = dst[4:]
	}
	for i := range dst {
		dst[i] *= a
	}
}

// numSums is the number of sums that the dot product keeps, see dotGeneric.
const numSums = 32

// dotGeneric goes on from the sums: element i of the whole belongs to sum i%32, and so
// do the last elements, which are fewer than 32. Halves are added until one sum is left.
func dotGeneric(x, y []float32, sums *[numSums]float32) float32 {
	for len(x) >= numSums && len(y) >= numSums {
		a, b := (*[numSums]float32)(x), (*[numSums]float32)(y)
		for i := range sums {
			sums[i] += float32(a[i] * b[i])
		}
		x, y = x[numSums:], y[numSums:]
	}
	for i := range min(len(x), len(y)) {
		sums[i] += float32(x[i] * y[i])
	}
	for half := numSums / 2; half > 0; half /= 2 {
		for i := range half {
			sums[i] += sums[i+half]
		}
	}
	return sums[0]
}

// maxAbsGeneric compares bit patterns: without the sign bit they order like the
// absolute values, with infinity above all numbers and every NaN above infinity.
func maxAbsGeneric(x []float32) float32 {
	const signless = 1<<31 - 1
	var m0, m1, m2, m3 uint32
	for len(x) >= 4 {
		m0 = max(m0, math.Float32bits(x[0])&signless)
		m1 = max(m1, math.Float32bits(x[1])&signless)
		m2 = max(m2, math.Float32bits(x[2])&signless)
		m3 = max(m3, math.Float32bits(x[3])&signless)
		x = x[4:]
	}
	for _, e := range x {
		m0 = max(m0, math.Float32bits(e)&signless)
	}
	return math.Float32frombits(max(m0, m1, m2, m3))
}

// allFiniteGeneric multiplies by zero, which gives zero for every finite number and
// NaN for all others; a sum that met a NaN stays NaN. Without a branch for each
// element this is twice as fast as testing exponents.
func allFiniteGeneric(x []float32) bool {
	var s0, s1, s2, s3 float32
	for len(x) >= 4 {
		s0 += float32(x[0] * 0)
		s1 += float32(x[1] * 0)
		s2 += float32(x[2] * 0)
		s3 += float32(x[3] * 0)
		x = x[4:]
	}
	for _, e := range x {
		s0 += float32(e * 0)
	}
	return (s0+s1)+(s2+s3) == 0
}
