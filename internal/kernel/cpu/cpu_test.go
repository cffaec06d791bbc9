package cpu

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSwitch(t *testing.T) {
	tests := []struct {
		value string
		want  bool
	}{
		{"", hasAVX2()},
		{"anything else", hasAVX2()},
		{Generic, false},
	}
	for _, tt := range tests {
		t.Run(tt.value, func(t *testing.T) {
			t.Setenv(Variable, tt.value)
			require.Equal(t, tt.want, AVX2())
		})
	}
}

// TestDetectionAgreesWithTheSystem: what the system does not have is not detected, and
// what it has is, unless the build tag noasm says otherwise.
func TestDetectionAgreesWithTheSystem(t *testing.T) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Skip("no /proc/cpuinfo")
	}
	require.Equal(t, assembly && strings.Contains(string(text), " avx2 "), hasAVX2())
}
