package trace_test

import (
	"syscall"
	"time"
	"unsafe"
)

// cpuTime is the processor time of this thread: what a decision takes, whatever else the
// machine does.
func cpuTime() time.Duration {
	const threadCPUTime = 3 // CLOCK_THREAD_CPUTIME_ID
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadCPUTime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(errno)
	}
	return time.Duration(ts.Nano())
}
