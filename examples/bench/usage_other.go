//go:build !unix

package main

import "time"

// processorTime is not known here, and not asked for.
func processorTime() time.Duration { return 0 }
