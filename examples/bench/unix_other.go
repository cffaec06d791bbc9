//go:build !linux

package main

// hasUnix says whether unix sockets and shared memory are measured: the product uses them
// on Linux.
const hasUnix = false

// unixAddress is not called.
func unixAddress() string { return "" }
