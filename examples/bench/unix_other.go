//go:build !linux

package main

// hasUnix says whether unix sockets are measured: the product uses them on Linux.
const hasUnix = false

// unixAddress is not called.
func unixAddress() string { return "" }
