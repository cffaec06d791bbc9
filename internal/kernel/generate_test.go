package kernel

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestGeneratedFilesAreCurrent runs go generate on a copy of the generators and wants
// the committed files, byte for byte. Where the generators do not build, for want of
// the modules they need, there is nothing to compare.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the generators")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	golang := func(dir string, args ...string) ([]byte, error) {
		command := exec.CommandContext(ctx, "go", args...)
		command.Dir = dir
		return command.CombinedOutput()
	}
	if out, err := golang("asm", "build", "-o", t.TempDir(), "./..."); err != nil {
		t.Skipf("the generators do not build here: %v\n%s", err, out)
	}
	scratch := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(scratch, "asm"), os.DirFS("asm")))
	require.NoError(t, os.Mkdir(filepath.Join(scratch, "cpu"), 0o755))
	directives, err := os.ReadFile("generate.go")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(scratch, "generate.go"), directives, 0o600))
	out, err := golang(scratch, "generate", "generate.go")
	require.NoError(t, err, "%s", out)
	for _, name := range []string{
		"kernel_amd64.s", "kernel_amd64.go", "crc_amd64.s", "crc_amd64.go",
		"kernel_arm64.s", "kernel_arm64.go", "cpu/cpuid_amd64.s", "cpu/cpuid_amd64.go",
	} {
		want, err := os.ReadFile(filepath.Join(scratch, name))
		require.NoError(t, err)
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "%s is not what go generate writes: run it", name)
	}
}
