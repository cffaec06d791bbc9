//go:build !noasm

package kernel

// wide returns how many of the next n elements the AVX2 version is to process; the
// rest is for the twin once it is zero.
func wide(n int) int {
	if !features.AVX2 {
		return 0
	}
	return min(n, maxWide) &^ (lanes - 1)
}

// widest is wide for the AVX-512 version, which only [EncodeBF16] has: there it gains half.
// On a processor that works on 512 bits in two halves (Zen 4) each other kernel gained less
// than a tenth, both on 256 KiB and on 64 MiB, and several lost.
func widest(n int) int {
	if !features.AVX512 {
		return 0
	}
	return min(n, maxWide) &^ (2*lanes - 1)
}

// wideHalf is wide for the conversions to and from float16.
func wideHalf(n int) int {
	if !features.F16C {
		return 0
	}
	return wide(n)
}

// wideGroup is wide for the conversions to 8 bits.
func wideGroup(n int) int { return wide(n) &^ (4*lanes - 1) }

// widePair is wideHalf for the conversions from 8 bits, which go by float16.
func widePair(n int) int { return wideHalf(n) &^ (2*lanes - 1) }

// minFold is the number of bytes from which on folding is faster than the twin; the
// assembly needs 64.
const minFold = 192

// fold returns how many of the next n bytes the folding CRC-32C is to take.
func fold(n int) int {
	if n < minFold || !features.Multiply {
		return 0
	}
	return min(n, maxFold)
}
