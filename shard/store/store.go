package store

import (
	"context"
	"time"
)

// Limits that every implementation keeps.
const (
	// MaxKeyBytes is the longest key, in bytes; the shortest has one byte.
	MaxKeyBytes = 512
	// MaxValueBytes is the longest value, in bytes. A store whose servers take
	// less names its bound in a *LimitError.
	MaxValueBytes = 1 << 20
	// MinLeaseTTL and MaxLeaseTTL bound the life of a lease.
	MinLeaseTTL = time.Millisecond
	MaxLeaseTTL = 24 * time.Hour
)

// Revision numbers the changes of a store. It grows with each change, across
// restarts too; 0 means "no such key".
type Revision uint64

// LeaseID names a lease. 0 is no lease.
type LeaseID uint64

// Entry is one key with its value and the revision of its last change. A value
// may be empty; only an absent key has none.
type Entry struct {
	Key      string
	Value    []byte
	Revision Revision
}

// EventKind says what a watcher learns.
type EventKind uint8

// Kinds of events.
const (
	// Put means that Entry is the current state of its key.
	Put EventKind = iota + 1
	// Delete means that Entry.Key is gone since Entry.Revision.
	Delete
	// Synced comes once per watch, after the entries that existed when the
	// watch began and before later changes. Its Entry is empty.
	Synced
)

// Event is one message to a watcher.
type Event struct {
	Kind  EventKind
	Entry Entry
}

// KV reads and changes keys. Every method returns by the deadline of its
// context. Values are copied in both directions: the caller owns what it gets
// and may reuse what it gave.
type KV interface {
	// Get returns one entry, or an error that wraps ErrNotFound.
	Get(ctx context.Context, key string) (Entry, error)
	// List returns all entries whose key starts with prefix, sorted by key.
	List(ctx context.Context, prefix string) ([]Entry, error)
	// CompareAndSwap sets a key if its revision is still old, and returns the
	// new revision. old 0 means that the key must not exist; a nil value
	// deletes the key. If the revision is another one, nothing changes and
	// the error is a *ConflictError, which wraps ErrConflict. An error that
	// wraps ErrUnknown means that the change may or may not take place: read
	// before deciding. A key that is attached to a lease stays attached.
	CompareAndSwap(ctx context.Context, key string, old Revision, value []byte) (Revision, error)
}

// Watcher follows changes.
type Watcher interface {
	// Watch sends the current entries under prefix in the order of their
	// revisions, Synced, and then every change in the order of revisions.
	// A slow receiver never holds the store up: of several changes of one key
	// that it has not taken yet it gets the last alone. The channel closes
	// when ctx ends or the store closes.
	Watch(ctx context.Context, prefix string) (<-chan Event, error)
}

// Leaser hands out leases: a key attached to a lease vanishes when the lease
// ends.
type Leaser interface {
	// Grant starts a lease of the given duration.
	Grant(ctx context.Context, ttl time.Duration) (LeaseID, error)
	// KeepAlive starts the lease's duration anew. A lease that has ended gives
	// an error that wraps ErrLeaseNotFound.
	KeepAlive(ctx context.Context, lease LeaseID) error
	// Revoke ends a lease at once; its keys are deleted. A lease that has
	// ended gives an error that wraps ErrLeaseNotFound.
	Revoke(ctx context.Context, lease LeaseID) error
}

// Attacher ties keys to leases.
type Attacher interface {
	// CompareAndSwapLease is CompareAndSwap which also attaches the key to a
	// lease, in one step. A lease that has ended gives an error that wraps
	// ErrLeaseNotFound and changes nothing.
	CompareAndSwapLease(ctx context.Context, lease LeaseID, key string, old Revision, value []byte) (Revision, error)
}

// Store is a coordination store. All methods are safe for concurrent use and
// linearizable.
type Store interface {
	KV
	Watcher
	Leaser
	Attacher
	// Close releases the store and ends its watches. Later calls give errors
	// that wrap ErrClosed. Close twice is fine.
	Close() error
}
