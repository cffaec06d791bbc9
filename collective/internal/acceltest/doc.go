// Package acceltest is for tests: it builds libraries that behave as those of the vendors,
// over memory of the host, and tests a binding with them.
//
// # Terms
//
// A fake is one file with the functions of a vendor's library and of its runtime, compiled
// from testdata with the same header as the binding. It counts what is not given back, and
// notes what its callers do wrong.
//
// # Smallest use
//
//	f := acceltest.Build(t, accelerator.NVIDIA)
//	lib := f.Open(t)
//
// # Concurrency
//
// Fakes are used by one test of a process at a time.
//
// # Errors
//
// Whatever goes wrong fails the test. Without gcc it is skipped.
package acceltest
