//go:build !noasm

package kernel

import (
	"testing"

	"github.com/elasticps/elasticps/internal/kernel/cpu"
)

// paths names the versions that this machine and build can run.
func paths() []string {
	if cpu.AVX2() {
		return []string{"generic", "avx2"}
	}
	return []string{"generic"}
}

// use selects a version until the test or benchmark ends.
func use(tb testing.TB, path string) {
	before := useAVX2
	tb.Cleanup(func() { useAVX2 = before })
	useAVX2 = path == "avx2"
}
