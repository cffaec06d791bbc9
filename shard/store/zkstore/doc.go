// Package zkstore is a coordination store on the servers of a ZooKeeper
// ensemble: for clusters that run one already.
//
// # Terms
//
// Everything lies below a root, a node of ZooKeeper's; jobs that share an
// ensemble have a root each. A key is a node in root/keys, its name in
// percent-encoding. The journal, root/seq, holds the revision of the store and
// its recent changes: ZooKeeper tells the transaction of a change only to
// readers, and not that of a deletion. Every change is one transaction that
// writes the journal too, if nobody has written it since the change was decided
// upon. A lease is a node in root/leases which KeepAlive writes anew.
//
// # Use
//
//	s, err := zkstore.Open(ctx, zkstore.Config{Servers: []string{"10.0.0.1:2181"}, Root: "/jobs/ads"})
//	defer s.Close()
//
// # Consistency
//
// Changes are linearizable. Reads follow a sync, so they see every change that
// was complete when they began; ZooKeeper lets a leader that was deposed a
// moment ago, and does not know it yet, answer a sync as well. List is of one
// moment.
//
// A watch goes on where it was when its session ends, from the journal; if that
// does not go back so far, it compares the present state with what it told of:
// nothing is told twice and no last state is left out, but a key that was
// deleted meanwhile is reported with the revision of that comparison, which is
// later than that of its deletion.
//
// # Leases
//
// One of the open stores on a root, the sweeper, ends leases that have not been
// kept alive for their duration, by its own monotonic clock; clocks of hosts are
// not compared. A lease never ends early. It ends late by the time of a few
// requests; when the sweeper dies, by SessionTimeout and the duration once more,
// because the next one begins to count then; and if no store is open, not before
// one is.
//
// # Errors
//
// As in package store. store.ErrUnavailable when no server answers, or other
// writers are always faster, by the deadline or Timeout; of a change that was
// sent the error wraps store.ErrUnknown as well. Whatever may be done twice is
// tried again until then. store.ErrCorrupt when a call meets a node that no
// store has written: the error names it, it is left as it is, and neither
// watches nor calls for other keys are affected; only a damaged journal stops
// all changes. Refusals of permission are those of the client, such as
// zk.ErrNoAuth.
//
// # Concurrency
//
// All methods may be called from any number of goroutines. Changes of a whole
// root wait for one another, whichever processes they come from: that is fast
// enough for maps and memberships, and not for data.
//
// # Limits
//
// A request is at most MaxRequestBytes: a value 32 KiB less than that (1,015,807
// bytes with the default; store.MaxValueBytes from 1,081,344 on, which the
// servers must allow with jute.maxbuffer), and a lease has a key for each 4 KiB
// of the rest, 247 with the default. 65,536 leases. The names of all keys take 64
// MiB at most. MaxWatchers watches per store, each with a goroutine and a memory
// of the keys under its prefix. 256 requests wait for answers at a time. It is
// tested with version 3.8 of the servers.
//
// # References
//
// Hunt, Konar, Junqueira and Reed, ZooKeeper: Wait-free Coordination for
// Internet-scale Systems, USENIX ATC 2010, section 2.3 (sync and ordering).
package zkstore
