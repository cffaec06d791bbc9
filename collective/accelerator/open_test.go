//go:build nccl && rccl && musa && hccl && cgo && linux

package accelerator

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoLibraryOfAnyVendor is a program with all tags on a host without any library: it says
// what it has tried for each.
func TestNoLibraryOfAnyVendor(t *testing.T) {
	dir := t.TempDir()
	missing := map[Vendor]string{NVIDIA: "CUDA_SO_PATH", AMD: "HIP_SO_PATH", MooreThreads: "MUSART_SO_PATH", Ascend: "ACL_SO_PATH"}
	for _, name := range missing {
		t.Setenv(name, filepath.Join(dir, name))
	}
	l, err := Open(Config{})
	require.Nil(t, l)
	require.ErrorIs(t, err, ErrLibraryNotFound)
	require.NotErrorIs(t, err, ErrNotBuilt)
	for v, name := range missing {
		require.ErrorContains(t, err, v.String())
		require.ErrorContains(t, err, filepath.Join(dir, name))
	}
}
