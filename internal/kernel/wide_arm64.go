//go:build !noasm

package kernel

// wide returns how many of the next n elements the NEON version is to process; the
// rest is for the twin once it is zero.
func wide(n int) int {
	if !features.NEON {
		return 0
	}
	return min(n, maxWide) &^ (lanes - 1)
}

// wideHalf is wide: every arm64 processor converts to and from float16.
func wideHalf(n int) int { return wide(n) }
