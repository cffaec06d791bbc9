//go:build !unix

package main

import (
	"errors"
	"os"
)

// processKinds are the faults that this system can do to a process: it cannot stop one.
var processKinds = []kind{kill}

func suspend(*os.Process) error   { return errors.ErrUnsupported }
func continues(*os.Process) error { return errors.ErrUnsupported }
