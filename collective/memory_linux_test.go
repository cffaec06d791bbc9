package collective_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
)

// Where the system gives memory to one rank and none to the other, both have the error, and the
// group goes on. (There are no descriptors left but one.)
func TestAllocWithoutMemory(t *testing.T) {
	leakless(t)
	groups := found(t, 2, overMemory(t, nil))
	free := useUpDescriptors(t, 1)
	errs := errorsOf(2, func(rank int) error {
		_, err := groups[rank].Alloc(background(t), collective.Uint8, 100)
		return err
	})
	free()
	for rank, err := range errs {
		require.ErrorIs(t, err, collective.ErrMemory, "rank %d", rank)
	}
	onAll(t, 2, func(rank int) error { return sumOnes(background(t), groups[rank], 100_000) })
	allocAll[float32](t, groups, collective.Float32, 100)
}

// useUpDescriptors leaves so many until the returned func is called.
func useUpDescriptors(t *testing.T, left int) (free func()) {
	t.Helper()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 200, Max: limit.Max}))
	var files []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		files = append(files, f)
	}
	require.Greater(t, len(files), left)
	for _, f := range files[:left] {
		require.NoError(t, f.Close())
	}
	return func() {
		for _, f := range files[left:] {
			_ = f.Close() // nothing was written to it
		}
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	}
}
