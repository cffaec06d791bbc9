// Package ranks runs a program as the ranks of a group, each a process of its own on this
// host.
//
// # Terms
//
// The first rank is the process that was started. It starts the others: the same program with
// the same arguments, told by the environment which rank it is.
//
// # Smallest use
//
//	g, stop, err := ranks.Join(ctx, ranks.Config{Size: 4, Args: args, Stderr: stderr})
//	defer func() { err = errors.Join(err, stop()) }()
//
// in all processes alike: with the environment of Join the others take part.
//
// # Concurrency
//
// Join blocks until all ranks are there. What it returns is a collective.Group.
//
// # Errors
//
// They are those of package collective and of the processes that were started: one that fails
// is a lost rank to the others, and its own words are on Stderr.
package ranks
