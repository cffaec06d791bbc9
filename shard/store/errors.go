package store

import (
	"errors"
	"fmt"
	"time"
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
	// ErrCorrupt means that what the store's file or servers hold is damaged or
	// was not written by a store.
	ErrCorrupt = errors.New("store: damaged or foreign data")
	// ErrUnavailable means that the store's servers did not answer in time: it
	// is worth trying again. Unless the error wraps ErrUnknown as well, nothing
	// has changed.
	ErrUnavailable = errors.New("store: no answer from the servers")
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

// CheckPrefix returns a *LimitError if the prefix is longer than any key.
func CheckPrefix(prefix string) error {
	if len(prefix) > MaxKeyBytes {
		return &LimitError{"prefix length in bytes", int64(len(prefix)), 0, MaxKeyBytes}
	}
	return nil
}

// CheckTTL returns a *LimitError if a lease may not have this duration.
func CheckTTL(ttl time.Duration) error {
	if ttl < MinLeaseTTL || ttl > MaxLeaseTTL {
		return &LimitError{"lease duration in nanoseconds", int64(ttl), int64(MinLeaseTTL), int64(MaxLeaseTTL)}
	}
	return nil
}
