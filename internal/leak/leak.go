package leak

import (
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"
)

// Check fails the test if goroutines or file descriptors are left at its end, after all
// cleanups registered later. They may take patience to go.
func Check(tb testing.TB, patience time.Duration) {
	tb.Helper()
	warm, err := net.Listen("tcp", "127.0.0.1:0") // the poller's own descriptors exist from now on
	if err == nil {
		err = warm.Close()
	}
	if err != nil {
		tb.Fatal(err)
	}
	goroutines, files := runtime.NumGoroutine(), OpenFiles(tb)
	tb.Cleanup(func() {
		ok := func() bool { return runtime.NumGoroutine() <= goroutines && OpenFiles(tb) <= files }
		poll := time.NewTicker(time.Millisecond)
		defer poll.Stop()
		for end := time.Now().Add(patience); !ok() && time.Now().Before(end); {
			<-poll.C
		}
		if !ok() {
			stacks := make([]byte, 1<<16)
			stacks = stacks[:runtime.Stack(stacks, true)]
			tb.Errorf("goroutines %d, were %d; files %d, were %d\n%s", runtime.NumGoroutine(), goroutines, OpenFiles(tb), files, stacks)
		}
	})
}

// OpenFiles counts the descriptors of the process, 0 where the system does not list them.
func OpenFiles(tb testing.TB) int {
	tb.Helper()
	d, err := os.Open("/proc/self/fd")
	if os.IsNotExist(err) {
		return 0 // not Linux: the goroutines tell
	}
	if err != nil {
		tb.Fatal(err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil && err != io.EOF {
		tb.Fatal(err)
	}
	return len(names)
}
