package cpu

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSwitch(t *testing.T) {
	all := detect()
	tests := []struct {
		value string
		want  Features
	}{
		{"", all},
		{"anything else", all},
		{AVX2, Features{AVX2: all.AVX2, F16C: all.F16C, NEON: all.NEON}},
		{Generic, Features{}},
	}
	for _, tt := range tests {
		t.Run(tt.value, func(t *testing.T) {
			t.Setenv(Variable, tt.value)
			require.Equal(t, tt.want, Detect())
		})
	}
}

// TestDetectionAgreesWithTheSystem: what the system does not have is not detected, and
// what it has is, unless the build tag noasm says otherwise.
func TestDetectionAgreesWithTheSystem(t *testing.T) {
	if runtime.GOARCH == "arm64" {
		require.Equal(t, Features{NEON: assembly}, detect())
		return
	}
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Skip("no /proc/cpuinfo")
	}
	has := func(flags ...string) bool {
		for _, flag := range flags {
			if !strings.Contains(string(text), " "+flag+" ") {
				return false
			}
		}
		return assembly
	}
	avx512 := has("avx512f", "avx512bw", "avx512dq", "avx512vl")
	require.Equal(t, Features{
		AVX2:     has("avx2"),
		F16C:     has("avx2", "f16c"),
		AVX512:   avx512,
		Multiply: avx512 && has("vpclmulqdq"),
	}, detect())
}
