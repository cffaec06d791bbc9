package checkpoint

import (
	"context"
	"fmt"
	"io"
	"strings"
)

// Storage keeps named objects that never change once they are there. A folder (Folder) is
// one, a bucket (package s3store) another; package storagetest holds others to the same.
// All methods may be called from any number of goroutines, block until the work is done or
// ctx has ended, and take names as CheckObject allows them.
type Storage interface {
	// Put makes an object of exactly size bytes, which write writes. The object is durable
	// and visible, whole, when Put returns nil; until then and after an error of write it is not
	// there, or still the one that was there before. After an error of the storage it is one of
	// those or the whole new one. Writers of different objects do not disturb each other. Put
	// calls write at most once and returns its error as it is or wrapped.
	Put(ctx context.Context, name string, size int64, write func(io.Writer) error) error
	// Read fills p with the bytes from offset on. An object that does not exist gives an
	// error that wraps ErrNotFound, one that ends earlier io.ErrUnexpectedEOF.
	Read(ctx context.Context, name string, offset int64, p []byte) error
	// List returns the objects whose names begin with prefix, sorted by name. What is left of
	// a Put that did not come to its end is listed too if the storage keeps it: its name ends
	// in PartialSuffix.
	List(ctx context.Context, prefix string) ([]Object, error)
	// Remove deletes an object, or what List shows of an unfinished one. That it is gone
	// already is no error.
	Remove(ctx context.Context, name string) error
}

// Object is one row of a List.
type Object struct {
	Name  string
	Bytes int64
}

// PartialSuffix ends the names under which a storage lists what is left of an interrupted
// Put. No object may have such a name.
const PartialSuffix = ".partial"

// Limits of names.
const (
	// MaxObjectBytes is the longest name of an object, in bytes.
	MaxObjectBytes = 512
	// MaxFileNameBytes is the longest part of a name between slashes.
	MaxFileNameBytes = 128
)

// CheckObject returns an error unless name may name an object: parts of 1 to
// MaxFileNameBytes letters, digits, '.', '-' and '_' that do not begin with '.', separated
// by slashes, at most MaxObjectBytes bytes in all, and not ending in PartialSuffix.
func CheckObject(name string) error {
	if len(name) > MaxObjectBytes {
		return fmt.Errorf("checkpoint: object name of %d bytes, limit %d", len(name), MaxObjectBytes)
	}
	if strings.HasSuffix(name, PartialSuffix) {
		return fmt.Errorf("checkpoint: object name %q ends in %q, which is for unfinished ones", name, PartialSuffix)
	}
	for part := range strings.SplitSeq(name, "/") {
		if err := checkPart(part); err != nil {
			return fmt.Errorf("checkpoint: object name %q: %w", name, err)
		}
	}
	return nil
}

func checkPart(part string) error {
	if len(part) < 1 || len(part) > MaxFileNameBytes {
		return fmt.Errorf("part of %d bytes, must be 1 to %d", len(part), MaxFileNameBytes)
	}
	for i := range len(part) {
		c := part[i]
		plain := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
		if !plain && (c != '.' || i == 0) {
			return fmt.Errorf("byte %q at %d of part %q, must be a letter, a digit, '-', '_' or '.', the last not at the start", c, i, part)
		}
	}
	return nil
}
