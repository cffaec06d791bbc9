//go:build unix

package main

import (
	"os"
	"syscall"
)

// processKinds are the faults that this system can do to a process.
var processKinds = []kind{kill, stop}

func suspend(p *os.Process) error   { return p.Signal(syscall.SIGSTOP) }
func continues(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
