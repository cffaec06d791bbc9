// Package table holds the rows of one shard of an embedding table: weights and optimizer
// state by 64-bit id, made when an id is first pushed to.
//
// # Terms
//
// A table of Rows expected rows and Dim weights each is laid out over a virtual space of
// Rows buckets, Dim elements each. The hash of an id says which bucket its row belongs to
// ([shard.Bucket]); a bucket has any number of rows. A shard is a run of elements, cut into
// blocks of [BlockElems]. A block is the unit of transfer and of checkpoints: it has its
// own index and slab, and rows numbered from 0.
//
// # Smallest use
//
//	t := table.New(table.Config{Name: "users", Rows: 1e6, Dim: 16, End: 16e6, Rule: rule})
//	t.Push(ids, grads, now)
//	t.Pull(ids, weights)
//
// # Every id
//
// Every int64 is an id, whatever its sign. Ids must belong to the shard ([Table.Holds]).
//
// # The life of a row
//
// A row comes into being at a push, the first one or, with [Admission], a later one. It goes
// when it has not been pushed to for long ([Table.Expire]), when others need its room
// ([Eviction]) or when it is deleted; a later push makes it anew, with its first weights. Pulls
// are no touches: they make nothing and keep nothing alive. A row that waits for
// [Table.Close] neither expires nor is evicted.
//
// # Concurrency, determinism
//
// A table has no lock, goroutine, clock or random state. Its caller lets one goroutine at a
// time change it; [Table.Pull], [Table.Refuses], [Table.Read], [Table.Copy], [Table.Settle],
// [Table.Has], [Table.Holds], [Table.BlockOf] and the counts may run at the same time as each
// other. The same calls give the same bytes in the same order of rows; and a table that was
// filled from another with Read, Append, AppendWaiting and SetWaiting goes on like that one.
// Nothing depends on what these do not carry.
//
// The first weights of a row are a function of Init.Seed, Name, id and element.
//
// # Limits, errors
//
// A block has at most [MaxBlockRows] rows, or Config.BlockRows; [Table.Refuses] says of a push
// that it would go beyond. Pauses are
// bounded: nothing that grows is copied whole. Exceptions are ids whose hashes were made to be
// alike, which make one segment of the index slow, and the sums of one clock. What comes from
// outside, in Append and SetWaiting, is checked and gets an error; ids of another shard and
// slices of wrong length elsewhere are faults of the caller.
//
// # Memory
//
// A row takes its weights and slots, 8 bytes of id, 8 of state if the configuration needs
// it, and 5 to 11 of index. With Config.Sums a row takes 4 more, and its Dim elements again
// while it has a sum.
package table
