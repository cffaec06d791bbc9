// Package mnisttest is for tests: it makes small copies of the MNIST files, so that programs
// which run as several processes do not spend their time on reading the rest.
//
// # Terms
//
// A copy has the first images and labels of the real files.
//
// # Smallest use
//
//	args := []string{"-data", mnisttest.Small(t, 4800, 1000)}
//
// # Concurrency
//
// Each copy is a folder of its own, which goes with the test.
//
// # Errors
//
// Whatever goes wrong ends the test.
package mnisttest
