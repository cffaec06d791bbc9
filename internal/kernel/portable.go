package kernel

import "math"

// The functions of package math differ in their last bits between architectures. These do
// not: every operation rounds by IEEE 754, and no product is fused with a sum. They are the
// Taylor series, as far as float64 can tell.

// logarithm returns the natural logarithm of a normal number above zero: of 2^e*m it is
// e*log(2) + 2*artanh((m-1)/(m+1)), with m between the roots of 1/2 and 2.
func logarithm(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	s := (m - 1) / (m + 1)
	square := float64(s * s) // below 0.172^2, so that the first term left out is below 2^-53
	series := next(square, 1.0/23, 1.0/21)
	series = next(square, series, 1.0/19)
	series = next(square, series, 1.0/17)
	series = next(square, series, 1.0/15)
	series = next(square, series, 1.0/13)
	series = next(square, series, 1.0/11)
	series = next(square, series, 1.0/9)
	series = next(square, series, 1.0/7)
	series = next(square, series, 1.0/5)
	series = next(square, series, 1.0/3)
	series = next(square, series, 1.0/1)
	return float64(float64(e)*math.Ln2) + float64(2*s*series)
}

// next is one step of Horner's rule, from the last coefficient to the first.
func next(x, sum, coefficient float64) float64 { return float64(x*sum) + coefficient }

// sineCosine returns sine and cosine of turns of the circle, a multiple of 2^-53 in [0, 1).
func sineCosine(turns float64) (sine, cosine float64) {
	quarter := math.Floor(4*turns + 0.5)
	x := float64(2 * math.Pi * (turns - quarter/4)) // at most an eighth of a turn, exact but for pi
	square := float64(x * x)                        // (pi/4)^20/20! is below 2^-53
	cosine = next(square, -1.0/6402373705728000, 1.0/20922789888000)
	cosine = next(square, cosine, -1.0/87178291200)
	cosine = next(square, cosine, 1.0/479001600)
	cosine = next(square, cosine, -1.0/3628800)
	cosine = next(square, cosine, 1.0/40320)
	cosine = next(square, cosine, -1.0/720)
	cosine = next(square, cosine, 1.0/24)
	cosine = next(square, cosine, -1.0/2)
	cosine = next(square, cosine, 1.0/1)
	sine = next(square, -1.0/121645100408832000, 1.0/355687428096000)
	sine = next(square, sine, -1.0/1307674368000)
	sine = next(square, sine, 1.0/6227020800)
	sine = next(square, sine, -1.0/39916800)
	sine = next(square, sine, 1.0/362880)
	sine = next(square, sine, -1.0/5040)
	sine = next(square, sine, 1.0/120)
	sine = next(square, sine, -1.0/6)
	sine = next(square, sine, 1.0/1)
	sine = float64(x * sine)
	switch quarter {
	case 1:
		return cosine, -sine
	case 2:
		return -sine, -cosine
	case 3:
		return -cosine, sine
	}
	return sine, cosine
}
