// Package collective lets the ranks of a group combine and exchange buffers: all-reduce and
// its relatives, between goroutines of one process, processes of one host, and hosts.
//
// # Terms
//
// A group has ranks 0 to n-1, each a [Group] value in some process, which make the same
// calls in the same order. A call combines or moves a [Buffer], the elements of a slice of
// one [Type]. Groups that follow each other when ranks die or come are told apart by their
// epoch. A member is a rank over all these groups; its name stays, its rank may change.
//
// # Smallest use
//
//	g, err := collective.Join(ctx, collective.Config{Rank: rank, Size: 4, Addresses: addresses})
//	err = g.AllReduce(ctx, collective.Of(grad), collective.Of(grad), collective.Average)
//	err = g.Close()
//
// # Order and failure
//
// Calls of one group are carried out one after the other in the order in which they were
// made, from whatever goroutine; [Group.Start] returns before the call has ended. Messages
// ([Group.Send], [Group.Recv]) are apart from that order. Different groups have nothing to
// do with each other and work at the same time.
//
// Every frame carries epoch, number and kind of its call, type, operation, root, algorithm
// and count. What differs between ranks is an error on all of them that names two ranks
// and what each called: when the first frame of the call arrives, or, where none does,
// after a tenth of a second. A rank that had done its part of such a call before, such as
// the root of a broadcast, gets the error from its next call.
//
// The first failure ends a group on all ranks: a rank dies or is silent for
// Config.PeerTimeout, the context of a call ends, ranks differ, somebody aborts. All calls
// then return that cause. [Group.Shrink] makes a group, of the next epoch, of those that
// are left; its members have a group if and only if all of them came, but for those that
// die in the meantime. A call that failed may have been completed on some ranks and not on
// others ([Group.Completed] tells how far each came): the program goes back to values that
// all ranks have, or lets one of them broadcast its own.
//
// # Smaller groups
//
// [Group.Split] makes groups of some ranks each, [Group.Parallel] those of a job that is
// divided by tensor, data and pipeline, as package topology says. Each has a name, epochs
// and failures of its own.
//
// # Results
//
// The result of an all-reduce has the same bits on all ranks. Which order elements are
// combined in depends on the algorithm, which is chosen by size and by what was fastest among
// the first calls of a size, so that the last bits of a float sum may change when tensors are
// fused or split, among those first calls, and from one run to the next; Config.Deterministic
// fixes the order to that of the ranks. Sums of float16 and bfloat16 are made in float32 in any
// case.
//
// # Compression
//
// [Group.AllReduceCompressed], or [Call].Compression, sends float32 in a format of package
// collective/codec: in half of the bytes or a quarter. Every element is rounded twice, for any
// number of ranks; where nodes have several ranks, only on its way between nodes. Its bits depend
// on where it lies among blocks of codec.Block elements and on the number of ranks, and are the
// same on all of them. With a [codec.Feedback] what rounding loses is made good in later calls; it
// begins anew with each group. [Group.Traffic] counts the bytes.
//
// # Algorithms
//
// Package collective/schedule has them. A group measures latency and bandwidth when it
// begins, and its ranks agree on the numbers. All-reduces, reduce-scatters, all-gathers and
// barriers then try what may be the fastest by these: the first calls of each size (power of two
// of the bytes) take turns, the ranks compare how long they took, and stay with one. Who
// measures a group makes some hundred calls of a size first; the other operations take the
// least estimated time. Config.Algorithms overrides that, Config.NoCalibration leaves the
// measurements and the turns out. Compressed calls are Hierarchical where there are several
// nodes, all of several ranks, else Direct.
//
// # Vendors' libraries
//
// A program may have the library of a vendor beside a group. [Group.Select] says which of
// the two a tensor goes by, the same on all ranks, from what each rank says that it has
// (Config.Offer): one that lacks the library makes all of them do without. [SelectScheme]
// says whether a model is trained by all-reduce or on parameter servers.
//
// # Connections
//
// Ranks of one process ([Local]) use each other's slices where they are. Ranks of one host
// share memory where the system is Linux (files without a name, whose length is sealed, handed
// over by the unix socket that connects them: nothing is left by a process that dies), else
// use unix sockets; others use TCP, with several connections for data. So do ranks of one host
// that do not reach each other's unix sockets, as in containers of one name; two that cannot map
// each other's memory use sockets. When all ranks share memory, an all-reduce needs no messages.
// Ranks find each other in a coordination store or by a list of addresses. Both ends of each connection prove that
// they know Config.Secret; only loopback addresses are listened on unless TLS is on or the
// caller says otherwise.
//
// # Concurrency, ownership, blocking
//
// All methods are safe from any goroutine. Buffers belong to a call until it returns, or
// its Handle is done, and nothing is kept afterwards. Memory of [Group.Alloc] is the caller's
// until [Buffer.Free], or Close of the last group. Calls block until the rank's part is
// complete, at most until their context ends or Config.Timeout has passed.
//
// # Errors
//
// [OpError] says which call failed on which rank and how far it came; it wraps the cause:
// [RankError], [MismatchError], the end of the context, [ErrAborted] or [ErrClosed].
// [ErrArgument] is local to the rank: nothing was sent, and the group is as it was. So it is
// after [ErrMemory], which all ranks have.
//
// # Limits
//
// At most [schedule.MaxRanks] ranks. Frames have at most 1 MiB. A group holds, beside what
// calls bring, a segment for each peer (at most 1 MiB) and for some operations a copy of
// the buffer: reduce-scatter by ring, reduce on other ranks than the root, operations in
// place by algorithms that fold (Direct: one part of n); for compressed calls twice what the
// buffer is packed to. There are n-1 times 3 connections to a rank or more, for each group; a
// rank listens once, whatever number of groups it is in. A rank that shares memory has at
// most 64 mates, 1 MiB for all and 64 KiB to 1 MiB for each of them.
//
// # References
//
// See package collective/schedule. Half precision: IEEE 754-2019. HMAC: RFC 2104.
package collective
