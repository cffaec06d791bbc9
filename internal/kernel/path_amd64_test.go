//go:build !noasm

package kernel

import (
	"testing"

	"github.com/elasticps/elasticps/internal/kernel/cpu"
)

// paths names the versions that this machine and build can run.
func paths() []string {
	all := []string{"generic"}
	if usable := cpu.Detect(); usable.AVX512 {
		all = append(all, "avx2", "avx512")
	} else if usable.AVX2 {
		all = append(all, "avx2")
	}
	return all
}

// use selects a version until the test or benchmark ends.
func use(tb testing.TB, path string) {
	before := features
	tb.Cleanup(func() { features = before })
	features = cpu.Detect()
	switch path {
	case "generic":
		features = cpu.Features{}
	case "avx2":
		features.AVX512, features.Multiply = false, false
	}
}
