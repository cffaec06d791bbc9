//go:build !noasm

package kernel

import "github.com/elasticps/elasticps/internal/kernel/cpu"

// useAVX2 is set once; tests set it to run both versions. The race detector does not
// see what assembly reads and writes, so with it the twins run.
var useAVX2 = !raceDetector && cpu.AVX2()

const (
	lanes = 8
	// maxWide elements go to assembly at a time. A goroutine cannot be stopped there,
	// and the garbage collector would wait for it: this is at most some 20 µs, and
	// some 100 times the cost of the call.
	maxWide = 16 << 10
)

// wide returns how many of the next n elements the AVX2 version is to process; the
// rest is for the twin once it is zero.
func wide(n int) int {
	if !useAVX2 {
		return 0
	}
	return min(n, maxWide) &^ (lanes - 1)
}
