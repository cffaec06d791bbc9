//go:build !noasm

package kernel

import (
	"testing"

	"github.com/elasticps/elasticps/internal/kernel/cpu"
)

// paths names the versions that this machine and build can run.
func paths() []string {
	if cpu.Detect().NEON {
		return []string{"generic", "neon"}
	}
	return []string{"generic"}
}

// use selects a version until the test or benchmark ends.
func use(tb testing.TB, path string) {
	before := features
	tb.Cleanup(func() { features = before })
	features = cpu.Features{NEON: path == "neon"}
}
