//go:build (amd64 || arm64) && !noasm

package kernel

import "github.com/elasticps/elasticps/internal/kernel/cpu"

// features is set once; tests set it to run every version.
var features = usable()

// usable returns what the processor has or, with the race detector, nothing: it does not
// see what assembly reads and writes.
func usable() cpu.Features {
	if raceDetector {
		return cpu.Features{}
	}
	return cpu.Detect()
}

const (
	lanes = 8
	// maxWide elements go to assembly at a time. A goroutine cannot be stopped there,
	// and the garbage collector would wait for it: this is at most some 20 µs, and
	// some 100 times the cost of the call.
	maxWide = 16 << 10
)
