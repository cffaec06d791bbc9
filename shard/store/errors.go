package store

import (
	"errors"
	"fmt"
)

// Errors that callers branch on.
var (
	// ErrNotFound means that the key does not exist.
	ErrNotFound = errors.New("store: key not found")
	// ErrConflict means that the key's revision is not the expected one.
	ErrConflict = errors.New("store: revision conflict")
	// ErrUnknown means that the outcome of a change is not known: it may or
	// may not take place.
	ErrUnknown = errors.New("store: outcome unknown")
	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("store: closed")
	// ErrLeaseNotFound means that the lease ended or never was.
	ErrLeaseNotFound = errors.New("store: lease not found")
	// ErrLimit means that a size or number is out of its bounds.
	ErrLimit = errors.New("store: limit exceeded")
	// ErrLocked means that another process holds the store's file.
	ErrLocked = errors.New("store: file is locked by another process")
	// ErrCorrupt means that the store's file is damaged or not a store.
	ErrCorrupt = errors.New("store: file is damaged or foreign")
)

// ConflictError says which revision was expected and which one the key has (0:
// the key does not exist). It wraps ErrConflict.
type ConflictError struct {
	Key          string
	Old, Current Revision
}

// Error names the key and both revisions.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("store: key %.64q: revision is %d, expected %d", e.Key, e.Current, e.Old)
}

// Unwrap returns ErrConflict.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// LimitError says which thing is out of its bounds. It wraps ErrLimit.
type LimitError struct {
	Thing           string
	Value           int64
	AtLeast, AtMost int64
}

// Error names the thing, its value and its bounds.
func (e *LimitError) Error() string {
	return fmt.Sprintf("store: %s is %d, must be %d to %d", e.Thing, e.Value, e.AtLeast, e.AtMost)
}

// Unwrap returns ErrLimit.
func (e *LimitError) Unwrap() error { return ErrLimit }

// CheckKey returns a *LimitError if the key is empty or too long.
func CheckKey(key string) error {
	if len(key) < 1 || len(key) > MaxKeyBytes {
		return &LimitError{"key length in bytes", int64(len(key)), 1, MaxKeyBytes}
	}
	return nil
}

// CheckValue returns a *LimitError if the value is too long.
func CheckValue(value []byte) error {
	if len(value) > MaxValueBytes {
		return &LimitError{"value length in bytes", int64(len(value)), 0, MaxValueBytes}
	}
	return nil
}
