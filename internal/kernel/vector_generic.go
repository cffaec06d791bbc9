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

// dotGeneric goes on from four sums: element i of the whole belongs to sum i%4, except
// for the last one to three elements, which belong to the first.
func dotGeneric(x, y []float32, sums [4]float32) float32 {
	s0, s1, s2, s3 := sums[0], sums[1], sums[2], sums[3]
	for len(x) >= 4 && len(y) >= 4 {
		s0 += float32(x[0] * y[0])
		s1 += float32(x[1] * y[1])
		s2 += float32(x[2] * y[2])
		s3 += float32(x[3] * y[3])
		x, y = x[4:], y[4:]
	}
	for i := range min(len(x), len(y)) {
		s0 += float32(x[i] * y[i])
	}
	return (s0 + s1) + (s2 + s3)
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
