// Package ps is the elastic parameter server: servers that hold the shards of a
// model and apply gradients to them, workers that push and pull, and a coordinator
// that knows who owns what and moves shards between servers while both go on.
//
// # Terms
//
// A [Job] is a model, an optimizer and a consistency mode. Its layers are cut into
// shards (package shard), and a shard into blocks of [BlockElems] parameters. A
// shard has one owner at a time, at an epoch that grows with each change. A push is
// identified by the worker's incarnation, the shard and a sequence number. A follower is a
// server that has a copy of a shard, a few messages behind its owner. A dataset is a number of
// records, cut into ranges; the workers go through all of them once per epoch of the data,
// which has nothing to do with the epoch of a shard.
//
// # Smallest use
//
//	node, _ := actor.Start(ctx, actor.Config{})
//	coord, _ := ps.StartCoordinator(ctx, ps.CoordinatorConfig{Node: node, Job: job})
//	server, _ := ps.StartServer(ctx, ps.ServerConfig{Node: node, ID: "ps-0", Coordinator: coord.Ref()})
//	worker, _ := ps.StartWorker(ctx, ps.ClientConfig{Node: node, Name: "w0", Coordinator: coord.Ref()})
//	err := worker.Push(ctx, "fc1.weight", grad)
//	err = worker.Pull(ctx, "fc1.weight", weights)
//	err = worker.Tick(ctx)
//
// # Guarantees
//
// A push that returned nil has been applied exactly once, whatever was retried, moved or
// restarted meanwhile: each shard remembers, in a window bounded by the pushes in flight, which
// sequence numbers it has applied, and the window moves with the shard. Only one server at a
// time may acknowledge pushes of a shard: frames carry the epoch, and a server that is not the
// owner at that epoch refuses and says who is. A worker's pull sees its own acknowledged pushes
// (under BSP from the next clock on). A move that fails leaves the shard where it was.
//
// Under ASP and SSP a push is applied when it arrives. Under BSP the pushes of one clock are
// summed in the order of their arrival and applied as one optimizer step when the clock is
// over. If the sums are exact, as with integers below 2^24, the result has the same bits
// whatever moved.
//
// # Followers and failover
//
// With followers (Job.Replicas, one by default) a push is acknowledged when the owner and all
// followers have it, and a pull returns only what all of them have. When a server dies, its
// followers take over with every acknowledged push: at once if the death is known, within about
// a second if the server merely does not answer. Workers notice a pause and nothing else. A
// server that was taken for dead and comes back acknowledges nothing and serves no read.
// Missing followers are replaced in the background. Shards whose servers are all known to be
// dead go back to the last checkpoint, and [Failover] says what was lost.
//
// If a server is started again while an earlier process of its name still lives, the new process
// takes its place for good as soon as the earlier one seems to be down. The earlier one gives up
// its shards, and takes part again only when it is started anew.
//
// An owner that answers the coordinator, but for twice the suspicion time of their nodes, a second
// by default, is out of reach of more clients than it serves, hands its shards over to the followers
// that those clients can reach.
//
// # Checkpoints
//
// A checkpoint (CheckpointConfig, [Admin.Checkpoint]) has each shard at one instant, and under
// BSP all shards at the end of the same clock: a worker that does not tick holds it up. A job
// whose store is new can start from one, on any number of servers. A server without a storage
// for them is refused at its start. Package ps/checkpoint reads and exports them.
//
// # Datasets
//
// A job with datasets ([Dataset]) hands out ranges of their records to its workers
// ([Worker.NextRange], [Worker.FinishRange]); the field calls this dynamic data sharding. A range
// belongs to one worker until that worker finishes it, leaves or dies; in the last two cases
// another worker gets it. So each record is trained on in a finished range exactly once per
// epoch, and perhaps once more in part, by a worker that died. To know which pushes of a dead
// worker were applied, make a range the work of one clock under BSP.
//
// A range whose FinishRange has returned is in the coordination store, and is never handed out
// again; with a store in memory only as long as the coordinator's process lives. A coordinator
// that takes over hands out free ranges at once, and those that earlier members may still have
// when all of them are back, or after 10 s.
//
// A checkpoint has the progress of the datasets. Under BSP it has the pushes of exactly the
// ranges that it counts as finished, if no range is longer than a clock. Otherwise it has all
// pushes of those, and perhaps some of others.
//
// # Coordinators
//
// The coordinator may run on any of several nodes ([StandBy]): a lease of the store elects one,
// and another takes its place within LeaseTTL and about a second of its death. Pushes and pulls
// go on meanwhile. Clocks of BSP and SSP wait; so does a shard that is frozen for a move, or
// whose owner or follower has died as well.
//
// An elected coordinator that cannot renew its lease, because the store is away for longer than
// LeaseTTL less a second, ends. One that was not elected ([StartCoordinator]) goes on without the
// store. The two must not be mixed: one that was not elected ends with [ErrDeposed] when
// another is. Without the store neither gives a shard another owner, nor takes a new server or
// member in: they wait. Leases are measured on the monotonic clock, which on most systems stands
// still while a machine is suspended: when such a coordinator goes on, servers and store tell it
// that another one leads.
//
// # Tables
//
// A sparse layer (shard.Layer.Sparse) is an embedding table: rows found by int64 ids, of which a
// batch touches a few ([Client.PullRows], [Client.PushRows]). Ids are spread by hash over
// shards, which are replicated, moved, saved and restored like all others; the blocks of a
// shard are ranges of hash values. A row comes into being at its first push, or as [Table]
// says. Until then a pull returns its initial value, a pure function of Initializer.Seed, the
// name of the table and the id, and stores nothing. Each row has its own optimizer state and
// its own step count. Adam is lazy: a row that is not pushed to does not step.
//
// What holds for the blocks of a dense layer holds for the rows of one frame: they are applied,
// or deleted ([Client.DeleteRows]), together and exactly once. Under BSP the gradients of a
// clock are summed row by row, and with exact sums the bits do not depend on what moved. With
// Table.AdmitAfter or Table.MaxRows they do depend on the order in which pushes of one clock
// arrive. Status.Tables says how many rows there are, how many were evicted, deleted or have
// expired, and how many gradients were dropped, and why.
//
// # Concurrency and blocking
//
// All exported methods are safe from any goroutine. Calls that wait take a context;
// without a deadline they use the configured timeout, or 30 s. Slices stay the caller's and
// are not kept after a call has returned. Within one node a push reads the caller's
// slice and a pull fills it directly; between processes they travel as frames of
// internal/wire over a unix socket on the same machine, over TCP between machines and
// wherever ServerConfig.TLS or Advertise is set.
//
// Requests of at most 16 KiB have a connection of their own to each server; larger ones
// share ClientConfig.Streams others. Requests under way at the same time are gathered
// into few system calls; one alone is sent at once.
//
// Layer.Wire halves the bytes that travel for a layer, or quarters those of its gradients; state
// keeps its precision. ClientConfig.Feedback adds what rounding has lost of a dense layer's
// gradient to the next push.
//
// # Errors
//
// Sentinels such as [ErrUnknownLayer] and [ErrUnavailable] say what kind of failure
// it was, [OpError] where; [Retryable] whether repeating may help. They keep their
// identity between processes.
//
// # Limits
//
//   - A worker has at most shard.WindowSize pushes to one shard outstanding. One operation has
//     at most 64 frames of 256 KiB under way, one connection 1024. One call on rows has at most
//     [MaxCallRows] ids.
//   - A server holds for each connection at most 512 KiB of input and 1 MiB of replies, and stops
//     reading from a client that does not take its replies.
//   - At most 16 frames of a shard and 64 of a connection wait to be sent to a follower; at most
//     4096 replies of a shard and 16 pulled blocks of a client wait for a follower's
//     confirmation, and 1024 requests for a frozen shard. What is beyond is asked for again.
//   - An owner with followers serves only under leases of 400 ms that they renew. If the round
//     trip to a follower is above about 350 ms, no lease is left on arrival, and the shard
//     stands still.
//   - With more than one follower, those that were not promoted are filled anew after a failover.
//   - A block of a table is streamed, saved and copied whole. With far more rows than
//     Layer.Shape[0] says, blocks grow in proportion, and with them the memory held for them and
//     the time that pushes wait while one is sent.
//   - A worker has at most 64 ranges of a dataset that are not finished, all workers together
//     32,768. Status.Tables has the first 32 tables of the model.
//
// # References
//
// M. Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI
// 2014. Q. Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel
// Parameter Server, NIPS 2013. A. Renz-Wieland et al., Dynamic Parameter Allocation
// in Parameter Servers, VLDB 2020.
package ps
