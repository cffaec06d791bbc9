//go:build amd64

package kernel

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestUnderEmulation runs the tests of this package for arm64 under an emulator, so that
// the NEON versions are compared with their twins on an amd64 machine too.
func TestUnderEmulation(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("builds for arm64 and emulates it")
	}
	emulator, err := exec.LookPath("qemu-aarch64")
	if err != nil {
		t.Skip("the NEON versions are not tested: there is no qemu-aarch64 (Debian package qemu-user)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "go", "test", "-short", "-exec", emulator, "./...")
	command.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
