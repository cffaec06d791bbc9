//go:build hccl && cgo && linux

package hccl

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/accelerator"
	"github.com/elasticps/elasticps/collective/internal/acceltest"
)

// TestOperations compares all operations of all types with their definition.
func TestOperations(t *testing.T) {
	for name, macros := range map[string][]string{"all functions": nil, "old": {"NO_OPTIONAL"}} {
		t.Run(name, func(t *testing.T) {
			l := acceltest.Build(t, accelerator.Ascend, macros...).Open(t)
			able := l.Capabilities()
			require.Equal(t, macros == nil, able.Abort)
			require.Equal(t, "1.16.0", able.Version.String())
			w := acceltest.Join(t, l, 3, nil)
			w.Reductions(0, 1, 5)
			w.Movements(0, 1, 5)
			w.Messages(3000)
			w.Refusals()
			w.Each(func(_ context.Context, r int) error { return w.Groups[r].Close() })
		})
	}
}

// sum is an all-reduce of a one on a rank.
func sum(ctx context.Context, w *acceltest.World, r int, g *accelerator.Group) error {
	b, err := w.Put(ctx, r, accelerator.Float32, []float64{1})
	if err != nil {
		return err
	}
	if err := g.AllReduce(ctx, b, b, collective.Sum); err != nil {
		return err
	}
	return w.Want(ctx, r, b, []float64{float64(g.Size())})
}

// TestStuckCall empties the stream of a call whose time is over, and joins anew.
func TestStuckCall(t *testing.T) {
	l := acceltest.Build(t, accelerator.Ascend).Open(t)
	shared := map[int]*accelerator.Stream{}
	w := acceltest.Join(t, l, 2, nil)
	for r, d := range w.Devices {
		s, err := d.NewStream(t.Context())
		require.NoError(t, err)
		shared[r] = s
	}
	w.Groups = w.JoinAgain(func(c *accelerator.GroupConfig) { c.Stream = shared[c.Rank] })
	b, err := w.Put(t.Context(), 0, accelerator.Float32, []float64{1})
	require.NoError(t, err)
	behind := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	h, err := w.Groups[0].Start(ctx, accelerator.Call{Operation: accelerator.AllReduce, Dst: b, Src: b, Op: collective.Sum})
	require.NoError(t, err)
	go func() { behind <- shared[0].Sync(t.Context()) }()
	require.ErrorIs(t, h.Wait(t.Context()), context.DeadlineExceeded)
	if err := <-behind; err != nil { // it may have come after the stream was emptied
		require.ErrorIs(t, err, collective.ErrAborted)
	}
	require.Less(t, time.Since(began), 2*time.Second, "much later than 100 ms, on a busy machine")
	exchange := acceltest.Exchange(2)
	w.Each(func(ctx context.Context, r int) error {
		next, err := w.Groups[r].Shrink(ctx, nil, exchange[r])
		if err != nil {
			return err
		}
		if err := sum(ctx, w, r, next); err != nil {
			return err
		}
		return next.Close()
	})
}

// TestStuckForGood has no way to empty a stream: the call returns, and the group says that it
// cannot be ended until the other ranks come.
func TestStuckForGood(t *testing.T) {
	w := acceltest.Join(t, acceltest.Build(t, accelerator.Ascend, "NO_OPTIONAL").Open(t), 2, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, w.Groups[0].Barrier(ctx), context.DeadlineExceeded)
	require.ErrorIs(t, w.Groups[0].Close(), accelerator.ErrHung)
	require.NoError(t, w.Groups[1].Barrier(t.Context()), "which is what rank 0 waits in")
}

// TestMissingRank waits in the library, which cannot be stopped, until it gives up.
func TestMissingRank(t *testing.T) {
	t.Setenv("FAKE_HCCL_TIMEOUT", "1500")
	l := acceltest.Build(t, accelerator.Ascend).Open(t)
	d, err := l.Device(t.Context(), 0)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = d.Join(ctx, accelerator.GroupConfig{Rank: 0, Size: 2, Exchange: acceltest.Exchange(1)[0]})
	require.ErrorIs(t, err, collective.ErrMissing)
	require.Less(t, time.Since(began), time.Second, "before the library gives up")
	require.ErrorIs(t, l.Close(), accelerator.ErrHung, "a thread is in the library")
}

// TestMissingRankTwice has the device go on meanwhile.
func TestMissingRankTwice(t *testing.T) {
	t.Setenv("FAKE_HCCL_TIMEOUT", "300")
	w := acceltest.Join(t, acceltest.Build(t, accelerator.Ascend).Open(t), 2, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := w.Devices[0].Join(ctx, accelerator.GroupConfig{Rank: 0, Size: 2, Exchange: acceltest.Exchange(1)[0]})
	require.ErrorIs(t, err, collective.ErrMissing)
	w.Each(func(ctx context.Context, r int) error { return sum(ctx, w, r, w.Groups[r]) })
	_, err = w.Devices[0].Join(t.Context(), accelerator.GroupConfig{Rank: 0, Size: 2, Exchange: acceltest.Exchange(2)[0]})
	require.ErrorIs(t, err, context.DeadlineExceeded, "of the library")
	var call *accelerator.CallError
	require.ErrorAs(t, err, &call)
	require.Equal(t, 9, call.Code)
}

// TestErrors reports what happens to others and on the device.
func TestErrors(t *testing.T) {
	t.Setenv("FAKE_CCL_FAIL", "async:1:1:21,alloc:0:2:207001")
	w := acceltest.Join(t, acceltest.Build(t, accelerator.Ascend).Open(t), 2, nil)
	errs := w.Errors(func(ctx context.Context, r int) error {
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		return w.Groups[r].Barrier(ctx)
	})
	require.ErrorIs(t, errs[1], collective.ErrRankLost)
	require.Error(t, errs[0])
	_, err := w.Devices[0].Alloc(t.Context(), 1)
	require.ErrorContains(t, err, "code 207001 (recent error of ACL)")
}

// TestNoLibrary looks for libraries by the environment.
func TestNoLibrary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libascendcl.so")
	t.Setenv("ACL_SO_PATH", path)
	_, err := Open(accelerator.Config{})
	require.ErrorIs(t, err, accelerator.ErrLibraryNotFound)
	require.ErrorContains(t, err, path)
}
