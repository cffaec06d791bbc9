// Package starved is for tests: it holds bounds on real time to the time in which the
// machine had a processor for the test.
//
// # Terms
//
// A goroutine that sleeps for a millisecond and wakes up later than two after it began to has
// waited for a processor. The sum of that is how long the test was starved.
//
// # Smallest use
//
//	m := starved.Watch(t)
//	...
//	m.Less(m.Took(), time.Second)
//
// # Concurrency
//
// Less may be called by the goroutine of the test only.
//
// # Errors
//
// What takes as long as the bound and the time waited since Watch fails the test. Where the
// bound alone was not kept, the test says so with -v.
package starved
