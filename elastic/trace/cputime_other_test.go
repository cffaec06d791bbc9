//go:build !linux

package trace_test

import "time"

var started = time.Now()

// cpuTime is the time since the start, where that of a thread is not to be had.
func cpuTime() time.Duration { return time.Since(started) }
