package mnist

import (
	"go/build"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeFolder makes the four files of a tiny data set in dir.
func writeFolder(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	pixels := make([]byte, 2*ImageSize)
	pixels[3], pixels[ImageSize+700] = 200, 255
	for _, name := range []string{trainImages, testImages} {
		writeGzip(t, filepath.Join(dir, name+".gz"), idx(imageMagic, []uint32{2, 28, 28}, pixels))
	}
	for _, name := range []string{trainLabels, testLabels} {
		writePlain(t, filepath.Join(dir, name), idx(labelMagic, []uint32{2}, []byte{7, 9}))
	}
}

func TestFindInModuleCache(t *testing.T) {
	dir, err := Find("")
	require.NoError(t, err)
	train, test, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, 60_000, train.Len())
	require.Equal(t, 10_000, test.Len())
	require.Equal(t, 5, train.Label(0))
	require.Equal(t, 7, test.Label(0))
	counts := [NumClasses]int{}
	for i := range train.Len() {
		counts[train.Label(i)]++
	}
	require.Equal(t, [NumClasses]int{5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949}, counts)
}

func TestFindGivenFolder(t *testing.T) {
	dir := t.TempDir()
	writeFolder(t, dir)
	found, err := Find(dir)
	require.NoError(t, err)
	require.Equal(t, dir, found)
	train, _, err := Load(found)
	require.NoError(t, err)
	require.Equal(t, 2, train.Len())
	positions, values := train.Pixels(1)
	require.Equal(t, []uint16{700}, positions)
	require.Equal(t, []byte{255}, values)
}

func TestFindWithoutGoCommand(t *testing.T) {
	cache := t.TempDir()
	version := filepath.Join(cache, "github.com", "petar", "!go!m!n!i!s!t@v1.2.3", "data")
	writeFolder(t, version)
	t.Setenv("GOMODCACHE", cache)
	t.Setenv("PATH", "")
	found, err := Find("")
	require.NoError(t, err)
	require.Equal(t, version, found)
}

func TestFindSaysWhatToDo(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	_, err := Find(absent)
	var missing *NotFoundError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, []string{absent}, missing.Tried)
	require.ErrorContains(t, err, "-data DIR")
	require.ErrorContains(t, err, absent)

	// Nothing in any cache and no go command.
	old := build.Default.GOPATH
	build.Default.GOPATH = t.TempDir()
	defer func() { build.Default.GOPATH = old }()
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("PATH", "")
	_, err = Find("")
	require.ErrorAs(t, err, &missing)
	require.ErrorContains(t, err, "-data DIR")
}

func TestCacheCandidates(t *testing.T) {
	cache := t.TempDir()
	module := filepath.Join(cache, "github.com", "petar", "!go!m!n!i!s!t@v0.")
	for _, minor := range []string{"1", "2", "3"} {
		require.NoError(t, os.MkdirAll(module+minor, 0o755))
	}
	require.Equal(t, []string{
		filepath.Join(module+"2", "data"), filepath.Join(module+"3", "data"), filepath.Join(module+"1", "data"),
	}, cacheCandidates([]string{cache}, "v0.2"))
	require.Empty(t, cacheCandidates([]string{t.TempDir()}, ""))
}
