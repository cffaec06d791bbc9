// Package shard describes a model, cuts it into shards, says which parameter
// server owns which shard, and moves shards between servers without losing or
// doubling an update.
//
// It is pure: values in, values out. It starts no goroutine, reads no clock and
// does no I/O, so the same code is run by the actors, by a seeded simulator and
// by the fuzzer.
//
// # Terms
//
// A layer is a named tensor; a shard is a range of one layer; a map gives each
// shard an owner and an epoch, which grows with each change of the owner. A
// push is the update of a shard by one worker incarnation under a sequence
// number. A follower has every acknowledged update and may take the owner's
// place. A move (Migration) takes a shard from its source to its target. Each
// move of a shard is one attempt, numbered across successes and failures.
//
// # Use
//
//	shards, err := shard.Partition(model, shard.PartitionOptions{})
//	m, err := shard.Place(shards, servers)
//	moves, err := shard.Rebalance(m, shards, moreServers)
//
//	move, effects, err := shard.Begin(record, "server-4")
//	for !move.Done() {
//		event := perform(effects) // a call to a server, or a compare-and-swap
//		next, more, err := move.Step(event)
//		if err != nil {
//			continue // a late event: await the effect under way
//		}
//		move, effects = next, more
//	}
//
// # The move
//
// Owner, followers and pending move of a shard are one Record under one key of the
// coordination store, and the store is the truth. A move that succeeds does
//
//	write Pending   store   compare-and-swap
//	Prepare         target  allocate a copy
//	Follow          source  stream the shard, forward pushes behind it
//	Freeze          source  stop acknowledging until all have everything
//	Commit          store   owner = target at epoch+1
//	Activate        target  serve
//	Release         source  answer Moved, free
//	clear Pending   store
//
// A switch (KindSwitch) is a move to a follower: nothing is prepared or streamed, and
// the source is demoted to a follower before the target serves. A replication
// (KindReplicate) ends with a Commit that adds the target to Followers, and a Settle
// that tells the owner. From the end of Follow on the owner waits for the target's
// confirmations, so Followers never names a server that lacks an acknowledged update.
//
// Before the commit every failure leads to PersistAbort, Thaw, Discard and
// clear: the source serves on at its epoch. After the commit and before
// Activate, the source still holds the frozen state; if the target dies and nobody
// follows, the shard is committed back to the source at epoch+2. After Activate there is
// only forward. PersistAbort comes before Thaw because a commit may still be on
// its way to the store, from this coordinator or from one that was replaced: the
// swap changes the revision, and that commit fails.
//
// Record.Promote gives a shard to a follower at the next epoch, whatever is pending;
// Record.Drop takes a follower that is lost from the set, before its owner may go on
// without it (EffectKeep, EffectSettle); Record.Refill gives a shard that nobody has any
// more to a server that fills it from a checkpoint.
//
// A coordinator that restarts lists the records and calls Resume for each that
// has a Pending. Two coordinators at once do no harm: the store takes the swap
// of one, and servers refuse orders of an attempt that is over (Copy).
//
// # Invariants
//
//   - I1 exactly once: Windows tells first pushes from repeated ones, in memory
//     bounded by pushes in flight; it moves with the shard.
//   - I2 one writer: Copy.MayAcknowledge is true on at most one live server that gets the
//     confirmations of all that Copy.Awaits.
//   - I3 no acknowledged update lost: every member of Followers has them all.
//   - I5 all or nothing: a move that does not end as Moved leaves the source
//     serving, unless servers died (Lost), and the next move is not blocked.
//
// # Concurrency
//
// Values may be read from any number of goroutines and must not be changed
// meanwhile. Window and Windows belong to one goroutine.
//
// # Errors and limits
//
// Sentinels are wrapped and name the thing and the bound: ErrInvalidModel,
// ErrPartition, ErrInvalidMap, ErrPlace, ErrMoveRefused (*MoveError with a
// Refusal), ErrUnexpectedEvent, ErrRefused, ErrRecord, ErrWindowFormat. The
// limits are the constants Max...; sizes are in bytes, ranges in elements.
//
// # References
//
// Li et al., Scaling Distributed Machine Learning with the Parameter Server,
// OSDI 2014, sections 4.1 (vector clocks and server membership) and 4.3
// (consistent hashing and key ranges). Graham, Bounds on Multiprocessing Timing
// Anomalies, SIAM J. Appl. Math. 17(2), 1969 (longest processing time first).
// Ongaro and Ousterhout, In Search of an Understandable Consensus Algorithm,
// USENIX ATC 2014, section 8 (client sessions that make retries exactly once).
package shard
