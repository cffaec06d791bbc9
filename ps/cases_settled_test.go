package ps_test

import (
	"bytes"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/elasticps/elasticps/internal/leak"
)

// settled makes a test fail that leaves goroutines, file descriptors or temporary
// files behind. It must be called before anything that the test cleans up.
func settled(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	goroutines, files := runtime.NumGoroutine(), leak.OpenFiles(t)
	t.Cleanup(func() { requireSettled(t, goroutines, files, dir) })
}

// requireSettled waits until there are no more goroutines and files than before, and
// requires that nothing is left in the folder.
func requireSettled(t *testing.T, goroutines, files int, dir string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		g, f := runtime.NumGoroutine(), leak.OpenFiles(t)
		if g <= goroutines && f <= files {
			break
		}
		if time.Now().After(deadline) {
			var stacks bytes.Buffer
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			t.Errorf("left over: %d goroutines (began with %d), %d files (began with %d)\n%s", g, goroutines, f, files, stacks.String())
			break
		}
		runtime.Gosched()
		runtime.GC() // closes nothing that should have been closed: no finalizers here
		<-time.After(5 * time.Millisecond)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left over in the temporary folder: %v %v", left, err)
	}
}
