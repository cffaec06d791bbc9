// Package invariant holds assertions that only test builds pay for.
//
// # Terms
//
// An assertion states what the program believes to be always true, such as "one
// owner per epoch". It is not validation: bad input gets an error, and a false
// assertion is a fault of this module.
//
// # Smallest use
//
//	if invariant.Enabled {
//		invariant.Check(owners <= 1, "I2 one writer: shard %d has %d owners", id, owners)
//	}
//
// Built with the tag "invariants" [Enabled] is true and a false [Check] panics.
// Built without it [Enabled] is a constant false, so that the compiler drops the
// guarded block together with the evaluation of its arguments; an unguarded Check
// still evaluates them and then does nothing.
//
// # Concurrency, limits
//
// Check keeps no state and may be called from any goroutine. It does not block.
package invariant
