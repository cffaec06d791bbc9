package mnisttest

import (
	"compress/gzip"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/examples/internal/mnist"
)

// Small returns a folder with the first images of both sets.
func Small(tb testing.TB, numTrain, numTest int) string {
	tb.Helper()
	from, err := mnist.Find("")
	require.NoError(tb, err)
	to := tb.TempDir()
	cut(tb, from, to, "train-images-idx3-ubyte", 16, mnist.ImageSize, numTrain)
	cut(tb, from, to, "train-labels-idx1-ubyte", 8, 1, numTrain)
	cut(tb, from, to, "t10k-images-idx3-ubyte", 16, mnist.ImageSize, numTest)
	cut(tb, from, to, "t10k-labels-idx1-ubyte", 8, 1, numTest)
	return to
}

// cut copies the first n items of an idx file, whose header has the number of items
// behind the magic number.
func cut(tb testing.TB, from, to, name string, headerBytes, itemBytes, n int) {
	tb.Helper()
	file, err := os.Open(filepath.Join(from, name+".gz"))
	require.NoError(tb, err)
	defer file.Close()
	packed, err := gzip.NewReader(file)
	require.NoError(tb, err)
	content := make([]byte, headerBytes+n*itemBytes)
	_, err = io.ReadFull(packed, content)
	require.NoError(tb, err)
	binary.BigEndian.PutUint32(content[4:], uint32(n))
	require.NoError(tb, os.WriteFile(filepath.Join(to, name), content, 0o600))
}
