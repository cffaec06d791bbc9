// Command bench measures what a parameter server of this module does on this machine,
// and what the machine itself gives for the same work, in one run:
//
//	go run ./examples/bench
//
// Each figure stands beside its limit: for sockets a raw stream, or a raw round trip,
// of plain Go code between the same two processes; for parameters in the same process
// the plain loop over a plain buffer. Limit and product are measured in turns, and
// the ratio is that of the two medians, so that the drift of the machine cancels.
//
// # Terms
//
// A row is one figure at one size: its value, its limit, the ratio, how often it was
// measured and the range. A probe is one measurement, of a fifth of a second or so. GB
// are 1e9 bytes, sizes are powers of two. A target is one of the ratio or, where it says
// "abs", of the value. A row whose target is missed says "below".
//
// # What is measured
//
// The client and each server are processes of their own where sockets are measured; the
// raw stream's other end is in the server's process. All pushes are float32 gradients
// that plain SGD applies, exactly once, under ASP, with the default size of shards.
//
//	push.T pull.T        goodput over T: tcp, unix, or local (the same process); one
//	                     client, as many operations in flight as the row says
//	push.tcp.fp16        time of a push that travels in 16 bits, against one in 32
//	push.latency pull.latency  one operation in flight, p50 and p99
//	push.rate            64-byte pushes per second of one client
//	pushpull.workers.N   N workers together that push and then pull 1 MiB
//	optimizer.*          steps over 64 MiB, bytes read and written per second
//	optimizer.adam.cache Adam in cache, against the pure-Go version of it
//	codec.*              conversion of float32 to and from 16 and 8 bits
//	allocs.*             allocations of client and server, resident memory of a server
//	allreduce.T          all-reduce of four ranks over T: tcp, unix, shm, alloc (shared memory,
//	                     with the buffers in it) or inproc (all ranks in one process): bytes
//	                     of the buffer per second, against the raw streams of all ranks to
//	                     their next ones at the same time, over 2(n-1); for shm and alloc
//	                     against copies of a buffer in each process at the same time, for
//	                     inproc against those of one to all others
//	allreduce.T.busbw    the same times 2(n-1)/n: what passes each rank's port in one direction
//	allreduce.T.latency  one of 1 KiB, p50 and p99
//	reducescatter.T allgather.T alltoall.T broadcast.T  the same for other operations, whose
//	                     bound is the raw streams over n-1. Bytes are those of the whole buffer,
//	                     of all parts where ranks have parts. Over tcp, unix and shm
//	OP.T.busbw           times (n-1)/n; for a broadcast times 1
//	allreduce.choice.T   the algorithm that a group chooses against the best one of all, after
//	                     as many calls as it may need to find that out
//	migrate              goodput of moving a shard while four workers push to it and to
//	                     others, with a millisecond of thought between two pushes
//	migrate.freeze       how long the shard acknowledged nothing, as the product reports
//	migrate.gap          the same as a worker sees it that pushes to the shard in a loop
//	migrate.others       pushes per second to shards that do not move, of those before
//	replicas.push        pushes of 4 MiB that one follower confirms, of those without one
//	replicas.latency     one push of 4 KiB to eight shards on three servers, each with a
//	                     follower, beside the same without
//	failover             from SIGKILL of a server to the end of the first push to all shards
//	checkpoint.write     full checkpoints of one server, against a plain file that is synced
//	rows.OP.T.N.D.IDS    rows per second, as they were asked for: operation, transport,
//	                     rows of the table, elements of a row, and whether ids are uniform
//	                     or follow Zipf's law with exponent 1. One client, batches of 4096
//	                     ids; Adagrad, but SGD for the table of 10,000 rows. The limit is a
//	                     raw stream of the bytes that travel, each row of a batch once
//	rows.memory.*        bytes for each row of a whole server process with 10 million of
//	                     them, against weights and slots
//	redis.*              with -redis ADDRESS: values of 64 bytes of a Redis server, which
//	                     are read and set in batches of 4096, the next ones sent before
//	                     the answer has come
//
// # Output
//
// A table on the standard output, and with -json FILE one JSON object per line with
// name, size (bytes), value, unit, limit, ratio, repeats, range (least and greatest
// value) and, where there is something to say, note. Limit and ratio are null where
// the row has none. The program ends with 0 whether targets are met or not, 1 after
// an error, 2 after a wrong flag, 130 after Ctrl-C.
//
// # Limits
//
// Loopback only: what a real network adds is not measured. Whatever else runs on the
// machine is measured as well; on Linux the last line says how much that was, and
// above a few percent the figures are worth little. Unix sockets need Linux.
package main
