package ps_test

import (
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/elasticps/elasticps/internal/leak"
)

// company is the tests that run together.
var company struct {
	mu                sync.Mutex
	members           int // that have not ended
	goroutines, files int // before the first one
	temporary, old    string
}

// together is settled for tests that wait more than they work and measure nothing of
// the whole process: they run at the same time, after all others, and what they leave
// behind is looked for when the last one has ended. It must be called before anything
// that the test cleans up.
func together(t *testing.T) {
	t.Helper()
	company.mu.Lock()
	if company.members == 0 {
		begin(t)
	}
	company.members++
	company.mu.Unlock()
	t.Cleanup(func() {
		company.mu.Lock()
		defer company.mu.Unlock()
		if company.members--; company.members > 0 {
			return
		}
		requireSettled(t, company.goroutines, company.files, company.temporary)
		restore(t)
	})
	t.Parallel()
}

// begin notes the state before the first test. The environment is that of the whole
// process: t.Setenv is not for tests that run together.
func begin(t *testing.T) {
	dir, err := os.MkdirTemp("", "together")
	if err != nil {
		t.Fatal(err)
	}
	company.temporary, company.old = dir, os.Getenv("TMPDIR")
	if err := os.Setenv("TMPDIR", dir); err != nil {
		t.Fatal(err)
	}
	company.goroutines, company.files = runtime.NumGoroutine(), leak.OpenFiles(t)
}

func restore(t *testing.T) {
	if err := os.Setenv("TMPDIR", company.old); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(company.temporary); err != nil {
		t.Error(err)
	}
}
