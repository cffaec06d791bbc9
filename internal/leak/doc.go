// Package leak is for tests: it fails those that leave goroutines or file descriptors
// behind.
//
// # Terms
//
// What is left at the end of a test, after all its cleanups, and was not there when it
// began to look, is a leak.
//
// # Smallest use
//
//	leak.Check(t, 10*time.Second) // first of all
//
// # Concurrency
//
// Tests that look may not run in parallel with others of their process.
//
// # Errors
//
// A leak fails the test, with the stacks of all goroutines.
package leak
