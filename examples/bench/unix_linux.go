package main

import "crypto/rand"

// hasUnix says whether unix sockets and shared memory are measured: the product uses them
// on Linux.
const hasUnix = true

// unixAddress is a new address in the abstract namespace, which leaves no file.
func unixAddress() string { return "@elasticps-bench-" + rand.Text() }
