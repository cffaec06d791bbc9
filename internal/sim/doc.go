// Package sim runs the protocol of replicas, moves and failover of package shard in
// simulated jobs: servers, coordinators, workers, a store and a network under faults, all
// of which follow from one seed.
//
// # What runs
//
// shard.Migration, shard.Copy, shard.Record and shard.Windows are the real ones. The shells
// around them (streams between servers, the coordinator that drives moves and promotes
// followers, clients that try again) are written anew here, as small as they can be, in
// virtual time. Messages are lost, doubled, late and overtaken; parties are cut off, one way
// or both; servers crash and come back empty, hang and go on; two coordinators work at once;
// the store goes away, and its answers are lost; clocks drift apart.
//
// # What is checked
//
//   - I1 exactly once: no copy ever takes a push twice, and its window knows what it has.
//   - I2 one writer: one server answers at one epoch, and none after a later one has.
//   - I3 no acknowledged update lost: every follower in the record has whatever was
//     acknowledged or read; no write of the record gives up the last complete copy unless
//     two have died; what is lost otherwise is counted.
//   - I4 pulls are linearizable: parameters here only ever add, so each block is a set that grows.
//   - I5 after the last fault every shard comes to rest, served and with its followers.
//   - I6 a copy that has caught up equals its owner's, push windows included.
//   - I7 queues are bounded.
//
// # Use
//
//	go test ./internal/sim -sim.duration 2m
//	go test ./internal/sim -run TestSeeds -sim.seed 42
//
// The second prints the log of one seed. Mutants are deliberate faults in the shells; a test
// checks that the simulator finds them.
//
// # Concurrency and limits
//
// A World belongs to one goroutine; any number of them may run at once. The optimizer, the
// clocks of BSP and the frames on the wire are not simulated.
//
// # References
//
// Zhou and others, FoundationDB: A Distributed Unbundled Transactional Key Value Store,
// SIGMOD 2021, section 4 (deterministic simulation). Groce and others, Swarm Testing, ISSTA
// 2012 (each seed leaves some kinds of faults out).
package sim
