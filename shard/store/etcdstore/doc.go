// Package etcdstore is a coordination store on the servers of an etcd cluster:
// for jobs of many hosts whose ownership must outlive any one of them.
//
// # Terms
//
// Everything lies under a root, a prefix of etcd's keys: the key "shard/7" of a
// store with the root "elasticps/" is etcd's key "elasticps/shard/7", and its
// value is the value as it is. Jobs that share a cluster have a root each.
// Revisions are etcd's, leases are etcd's.
//
// # Use
//
//	s, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{"10.0.0.1:2379"}, Root: "jobs/ads/"})
//	defer s.Close()
//
// # Consistency
//
// Linearizable: each change is one transaction that compares the key's
// modification revision; reads are etcd's linearizable ones.
//
// A watch goes on where it was when its connection, or the server it was
// connected to, is lost. If etcd has compacted what it missed, it compares the
// present state with what it told of: nothing is told twice and no last state
// is left out, but a key that was deleted meanwhile is reported with the
// revision of that comparison, which is later than that of its deletion.
//
// # Leases
//
// etcd counts in seconds: a duration is rounded up to whole ones, and the
// servers raise it to their own minimum, 2 s with their default election
// timeout. A lease may end up to about a second late, and after a change of
// etcd's leader it starts anew; it never ends early. Close leaves leases to run
// out.
//
// # Errors
//
// As in package store. store.ErrUnavailable when no server answers, by the
// deadline or Timeout; of a change that was sent the error wraps
// store.ErrUnknown as well. Reads and KeepAlive are tried again until then;
// changes are not. store.ErrLimit also when the servers refuse a request as
// too large (their --max-request-bytes) or have no room. store.ErrCorrupt when
// a listing meets an etcd key under the root that no store can have written,
// longer than store.MaxKeyBytes or equal to the root itself; watches pass over
// such keys, and the others are not affected.
//
// # Concurrency
//
// All methods may be called from any number of goroutines.
//
// # Limits
//
// MaxWatchers watches per store, each with a goroutine and a memory of the keys
// under its prefix; List is one response, of at most 2 GiB. Keys, values and
// leases as in package store. It is tested with version 3.4 of the
// servers.
//
// # References
//
// The etcd documentation, "KV API guarantees" and "etcd API: Watch, Lease".
package etcdstore
