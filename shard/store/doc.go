// Package store is the coordination store: a small set of keys that holds the
// shard map and the membership of a job, and survives the processes that write
// to it.
//
// # Terms
//
// An entry is a key, a value and the revision of its last change; revisions
// grow through the whole store. A compare-and-swap changes a key only if its
// revision is still the expected one. A lease is a span of time that its holder
// extends; keys attached to it vanish when it ends. A watch follows the keys
// under a prefix.
//
// # Use
//
//	s, err := store.NewMemory(store.Config{})
//	rev, err := s.CompareAndSwap(ctx, "shard/7", 0, value) // must not exist
//	rev, err = s.CompareAndSwap(ctx, "shard/7", rev, newValue)
//
// Memory lives in this process; the packages below keep the same in a file
// (boltstore), in etcd (etcdstore) and in ZooKeeper (zkstore).
//
// # Consistency
//
// Every implementation is linearizable and passes the suite in storetest. A
// watch sends the current state, then Synced, then changes in the order of
// revisions; a slow receiver skips states, never the last one of a key.
//
// # Concurrency
//
// All methods may be called from any number of goroutines.
//
// # Errors
//
// Callers branch on ErrNotFound, ErrConflict (*ConflictError has the current
// revision), ErrUnknown (read before deciding), ErrUnavailable (try again),
// ErrClosed, ErrLeaseNotFound, ErrLimit (*LimitError), ErrLocked and
// ErrCorrupt. A context that ends gives its error.
//
// # Limits
//
// Keys have 1 to 512 bytes, values up to 1 MiB, leases last 1 ms to 24 h. A
// Memory store holds by default 1,048,576 keys, 256 MiB, 65,536 leases and
// 4,096 watches.
//
// # References
//
// Burrows, The Chubby Lock Service for Loosely-Coupled Distributed Systems,
// OSDI 2006, section 2.8 (sessions and leases). Gray and Cheriton, Leases: An
// Efficient Fault-Tolerant Mechanism for Distributed File Cache Consistency,
// SOSP 1989.
package store
