// Package storetest is the conformance suite of store.Store: what every
// implementation has to do, against whatever stands behind it.
//
// # Use
//
//	func TestMine(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { ... })
//	}
//
// RunOutages tests a store that has servers: a Proxy in front of one of them
// cuts its connections, or lets them fall silent, while keys change.
//
// # Terms and concurrency
//
// Each test opens stores of its own, which must be empty, and closes them. The
// tests run in parallel with one another, in real time: Run takes about six
// seconds, RunOutages about fifteen.
//
// # Consistency, errors and limits
//
// The suite holds an implementation to what package store states; the longest
// value may be up to a tenth shorter if the error names that bound. Every wait
// has a deadline, 20 seconds in Run and 40 in RunOutages, after which the test
// fails with what it waited for.
package storetest
