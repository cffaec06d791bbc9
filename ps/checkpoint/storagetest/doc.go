// Package storagetest is the conformance suite of checkpoint.Storage: what every implementation
// has to do, against whatever stands behind it.
//
// # Use
//
//	func TestMine(t *testing.T) {
//		storagetest.Run(t, func(t *testing.T) checkpoint.Storage { ... })
//	}
//
// # Terms and concurrency
//
// Each test opens a storage of its own, which must be empty. The tests run in parallel with one
// another.
//
// # Errors and limits
//
// The suite holds an implementation to what checkpoint.Storage states. The largest object has
// 40 MiB. Every wait has a deadline of 60 seconds.
package storagetest
