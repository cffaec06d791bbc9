// Package schedule says who sends what to whom in a collective operation, as data: for
// each rank a list of steps. It moves nothing itself; package collective carries the
// steps out.
//
// # Terms
//
// The n ranks of a group have buffers of as many elements. A [Step] of a rank sends a
// [Range] of its buffer to one rank and receives one from another, which replaces what is
// there or is combined with it. A fold combines the contributions of all ranks in the
// order of the ranks, whatever the size.
//
// # Smallest use
//
//	plan, err := schedule.AllReduce(schedule.Ring, 0, schedule.Shape{Ranks: 4, Count: 1000})
//	for _, step := range plan.Steps { ... }
//
// # Order
//
// A rank performs its steps in order. Sends do not wait: what is sent is what the buffer
// holds when its step comes, and it must not change until the receiver has used it, which
// no plan needs to wait for except where a step sends what it receives into. Frames from
// one rank to another arrive in the order in which they were sent, and are expected in
// that order: the k-th receive from a rank is the k-th send of that rank to this one, of
// the same length.
//
// # Cost
//
// S is the bytes of the buffer, n the ranks, alpha the latency of a message and beta the
// time of a byte; sent are the bytes that leave the busiest rank.
//
//	algorithm           messages in a row     sent              order of the sum
//	Flat                1 (n-1 at once)       (n-1) S           by rank
//	Direct              2 (n-1 at once)       2 (n-1)/n S       by rank
//	RecursiveDoubling   log2 n (+2)           log2 n S          as a tree
//	HalvingDoubling     2 log2 n (+2)         2 (n-1)/n S (+2S) as a tree
//	Ring                2 (n-1)               2 (n-1)/n S       rotated by the part
//	Tree                2 log2 n              log2 n S          as a tree
//	Chain               2 (n-1), pipelined    2 S               by distance
//	Hierarchical        2 + 2 (nodes-1)       as Ring, less of it between nodes
//
// What is in parentheses is added where n is no power of two.
//
// # Concurrency, errors
//
// Everything is a pure function of its arguments. Errors name the argument and its bound.
//
// # References
//
// R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication
// operations in MPICH, IJHPCA 2005 (recursive doubling, halving-doubling, binomial
// trees). P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of
// workstations, JPDC 2009 (ring).
package schedule
