// Package sim runs the protocol of replicas, moves and failover of package shard in
// simulated jobs: servers, coordinators, workers, a store and a network under faults, all
// of which follow from one seed.
//
// # What runs
//
// The machines are the real ones: shard.Migration, shard.Copy, shard.Record and
// shard.Windows. The shells around them, which package ps has with sockets and goroutines,
// are written anew in virtual time, as small as they can be: streams between servers with
// their leases, a coordinator that drives moves, promotes and drops followers, clients that
// try again.
//
// Messages are lost, doubled, late and overtaken. Parties are cut off from each other, one
// way or both. Servers crash and come back empty, or hang and go on. Workers come back as
// other incarnations, and servers hear which of them still exist. Two coordinators work at
// once, hang, and stop between two steps. The store goes away, and its answers are lost.
// Clocks drift apart. Some faults are aimed: a server crashes between serving and saying
// so, a promoted shard is moved on at once. In worlds of their own (NewTwins) other processes
// are started under the names of servers that live, and those come back when they were
// replaced.
//
// Not simulated are the optimizer and the order in which it adds, the clocks of BSP, frames
// and their bounds on the wire, checkpoints (a shard that is lost begins anew where an order
// to fill it arrives, late perhaps, or twice), and several streams on one connection: here
// each has its own lease.
//
// # What is checked
//
//   - I1 exactly once: no copy ever takes a push twice, its window knows what it has, and no
//     worker that lives is fenced.
//   - I2 one writer: one server answers at one epoch, and none after a later one has. A frozen
//     owner may still answer what it was asked before.
//   - I3 no acknowledged update lost: every follower in the record has whatever was
//     acknowledged or read; and no write of the record gives up the last complete copy, but
//     on what was so when the coordinator saw it. What is lost otherwise is counted.
//   - I4 pulls are linearizable: parameters here only ever add, so each block is a set that
//     grows. A test has the histories judged by porcupine as well.
//   - I5 after the last fault every shard comes to rest, served and with its followers.
//   - I6 a copy that has caught up equals its owner's, push windows included.
//   - I7 queues are bounded.
//
// # Use
//
//	go test ./internal/sim -run TestFresh -sim.duration 2m
//	go test ./internal/sim -run TestSeeds -sim.seed 42
//
// The first tries seeds that nobody has tried, and prints for one that fails the command
// that repeats it and the end of its log. The second prints the whole log of one seed.
// TestFreshTwins and TestTwins do the same for the worlds of NewTwins. A line of a log has the
// virtual time, who does something, and what: "store:" is a write that took place, with the
// record after it; an arrow goes from a copy, or a phase of a move, before to that after; the
// last line names the invariant. Whoever looks for a cause begins at the server of the last
// line and goes back through what happened to its copy.
//
// Mutants are deliberate faults in the shells; a test has for each of them a seed that shows
// it. They are also what was learned from the simulation: most of them were faults of the
// shells, or could have been.
//
// # Concurrency, errors and limits
//
// A World belongs to one goroutine; any number of them may run at once. Run returns the first
// violation, whose text begins with the invariant. A schedule takes about a millisecond for
// 2500 events, of at most 5 servers, 2 shards and 3 workers.
//
// # References
//
// Zhou and others, FoundationDB: A Distributed Unbundled Transactional Key Value Store,
// SIGMOD 2021, section 4 (deterministic simulation). Groce and others, Swarm Testing, ISSTA
// 2012 (each seed leaves some kinds of faults out). Gray and Cheriton, Leases: An Efficient
// Fault-Tolerant Mechanism for Distributed File Cache Consistency, SOSP 1989. Herlihy and
// Wing, Linearizability: A Correctness Condition for Concurrent Objects, TOPLAS 1990.
package sim
