// Package storetest is the conformance suite of store.Store: what every
// implementation has to do, against whatever stands behind it.
//
// # Use
//
//	func TestMine(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { ... })
//	}
//
// # Terms and concurrency
//
// Each test opens a store of its own, which must be empty, and closes it. The
// tests run in parallel with one another, in real time: the whole suite takes
// about six seconds.
//
// # Consistency, errors and limits
//
// The suite holds an implementation to what package store states. Every wait
// has a deadline of 20 seconds, after which the test fails with what it waited
// for.
package storetest
