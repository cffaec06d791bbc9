//go:build (nccl || rccl || musa) && cgo && linux

package nccl

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/accelerator"
	"github.com/elasticps/elasticps/collective/internal/acceltest"
)

// soon is how late a call may return after its time on a machine that is busy with other
// things; a quiet one takes a few milliseconds. All other limits are ten times as long.
const soon = 2 * time.Second

// sum is an all-reduce of a few ones on a rank.
func sum(ctx context.Context, w *acceltest.World, r int, g *accelerator.Group) error {
	b, err := w.Put(ctx, r, accelerator.Float32, []float64{1, 1, 1})
	if err != nil {
		return err
	}
	if err := g.AllReduce(ctx, b, b, collective.Sum); err != nil {
		return err
	}
	n := float64(g.Size())
	return w.Want(ctx, r, b, []float64{n, n, n})
}

// within gives a function a context that ends soon, and fails if it returns late.
func within(t *testing.T, ctx context.Context, f func(ctx context.Context) error) error {
	const limit = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	err := f(ctx)
	t.Logf("%v after its time", time.Since(began)-limit)
	require.Less(t, time.Since(began), limit+soon)
	return err
}

// TestStuckCall waits for ranks that do not come: the call ends with its context, and the
// device is free for the next group.
func TestStuckCall(t *testing.T) {
	w := acceltest.Join(t, acceltest.Build(t, accelerator.NVIDIA).Open(t), 3, nil)
	w.Each(func(ctx context.Context, r int) error { return sum(ctx, w, r, w.Groups[r]) })
	b, err := w.Put(t.Context(), 0, accelerator.Float32, []float64{1})
	require.NoError(t, err)
	err = within(t, t.Context(), func(ctx context.Context) error { return w.Groups[0].AllReduce(ctx, b, b, collective.Max) })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, accelerator.ErrHung)
	var op *accelerator.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, accelerator.AllReduce, op.Operation)
	require.Equal(t, []int{0, 3, 2, 1}, []int{op.Rank, op.Size, int(op.Seq), op.Count})
	require.ErrorIs(t, w.Groups[0].Err(), context.DeadlineExceeded)
	require.ErrorIs(t, w.Groups[0].Barrier(t.Context()), context.DeadlineExceeded, "the first cause")
	for _, g := range w.Groups[1:] { // they hear of it from the library
		require.ErrorIs(t, g.Barrier(t.Context()), collective.ErrRankLost)
	}
	again := w.JoinAgain(nil)
	w.Each(func(ctx context.Context, r int) error { return sum(ctx, w, r, again[r]) })
}

// TestAbort ends a call from another goroutine.
func TestAbort(t *testing.T) {
	w := acceltest.Join(t, acceltest.Build(t, accelerator.NVIDIA).Open(t), 2, nil)
	g := w.Groups[0]
	b, err := w.Put(t.Context(), 0, accelerator.Float32, []float64{1})
	require.NoError(t, err)
	h, err := g.Start(t.Context(), accelerator.Call{Operation: accelerator.AllReduce, Dst: b, Src: b, Op: collective.Sum})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, h.Wait(ctx), context.DeadlineExceeded, "of the waiting alone")
	require.NoError(t, g.Err())
	began := time.Now()
	require.NoError(t, g.Abort())
	<-h.Done()
	require.Less(t, time.Since(began), soon)
	require.ErrorIs(t, h.Wait(t.Context()), collective.ErrAborted)
	require.NoError(t, g.Abort())
	require.NoError(t, g.Close())
	require.ErrorIs(t, g.AllReduce(t.Context(), b, b, collective.Sum), collective.ErrAborted)
}

// TestMismatch has ranks call different things.
func TestMismatch(t *testing.T) {
	w := acceltest.Join(t, acceltest.Build(t, accelerator.NVIDIA).Open(t), 3, nil)
	for r, err := range w.Errors(func(ctx context.Context, r int) error {
		b, err := w.Put(ctx, r, accelerator.Float32, make([]float64, 4+r/2))
		if err != nil {
			return err
		}
		return w.Groups[r].AllReduce(ctx, b, b, collective.Sum)
	}) {
		var call *accelerator.CallError
		require.ErrorAs(t, err, &call, "rank %d", r)
		require.Contains(t, []int{5, 6}, call.Code, "that they differ, or that another has gone because of it: %v", err)
	}
}

// TestErrors has the library fail in its various ways, by call, device, occurrence and code.
func TestErrors(t *testing.T) {
	errs := func(t *testing.T, faults string) ([]error, *acceltest.World) {
		t.Setenv("FAKE_CCL_FAIL", faults)
		w := acceltest.Join(t, acceltest.Build(t, accelerator.NVIDIA).Open(t), 2, nil)
		return w.Errors(func(ctx context.Context, r int) error { return sum(ctx, w, r, w.Groups[r]) }), w
	}
	t.Run("asynchronous", func(t *testing.T) {
		got, _ := errs(t, "async:1:1:2")
		var call *accelerator.CallError
		require.ErrorAs(t, got[1], &call)
		require.Equal(t, 2, call.Code)
		require.Equal(t, "error: as told", call.Text)
		require.ErrorIs(t, got[0], collective.ErrRankLost)
	})
	t.Run("at the call", func(t *testing.T) {
		got, w := errs(t, "AllReduce:0:1:3")
		var call *accelerator.CallError
		require.ErrorAs(t, got[0], &call)
		require.Equal(t, 3, call.Code)
		require.Error(t, w.Groups[0].Err())
	})
	t.Run("arguments", func(t *testing.T) {
		t.Setenv("FAKE_CCL_FAIL", "AllReduce:0:1:4")
		w := acceltest.Join(t, acceltest.Build(t, accelerator.NVIDIA).Open(t), 1, nil)
		require.ErrorIs(t, sum(t.Context(), w, 0, w.Groups[0]), collective.ErrArgument)
		require.NoError(t, w.Groups[0].Err(), "the group is as it was")
		require.NoError(t, sum(t.Context(), w, 0, w.Groups[0]))
	})
	t.Run("memory", func(t *testing.T) {
		t.Setenv("FAKE_CCL_FAIL", "alloc:0:1:2")
		d, err := acceltest.Build(t, accelerator.NVIDIA).Open(t).Device(t.Context(), 0)
		require.NoError(t, err)
		_, err = d.Alloc(t.Context(), 1<<20)
		require.EqualError(t, err, "accelerator: NVIDIA: allocate: code 2 (out of memory)")
	})
}

// TestLibraryThatHangs keeps the thread of the device in a call.
func TestLibraryThatHangs(t *testing.T) {
	t.Setenv("FAKE_CCL_FAIL", "block:0:1:2000")
	w := acceltest.Join(t, acceltest.Build(t, accelerator.NVIDIA).Open(t), 1, nil)
	b, err := w.Put(t.Context(), 0, accelerator.Float32, []float64{1})
	require.NoError(t, err)
	err = within(t, t.Context(), func(ctx context.Context) error { return w.Groups[0].AllReduce(ctx, b, b, collective.Sum) })
	require.ErrorIs(t, err, accelerator.ErrHung)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// TestMissingRank joins with a rank too few, and then with all.
func TestMissingRank(t *testing.T) {
	l := acceltest.Build(t, accelerator.NVIDIA).Open(t)
	w := acceltest.Join(t, l, 3, nil)
	exchange := acceltest.Exchange(3)
	for r, err := range w.Errors(func(ctx context.Context, r int) error {
		if r == 2 {
			return context.DeadlineExceeded
		}
		return within(t, ctx, func(ctx context.Context) error {
			_, err := w.Devices[r].Join(ctx, accelerator.GroupConfig{Rank: r, Size: 3, Exchange: exchange[r]})
			return err
		})
	}) {
		require.ErrorIs(t, err, context.DeadlineExceeded, "rank %d", r)
	}
	again := w.JoinAgain(nil)
	w.Each(func(ctx context.Context, r int) error { return sum(ctx, w, r, again[r]) })
}

// TestNoID has rank 0 fail before the exchange: nobody waits for it.
func TestNoID(t *testing.T) {
	t.Setenv("FAKE_CCL_FAIL", "GetUniqueId:0:1:2")
	l := acceltest.Build(t, accelerator.NVIDIA).Open(t)
	exchange := acceltest.Exchange(2)
	w := &acceltest.World{T: t, Devices: make([]*accelerator.Device, 2)}
	errs := w.Errors(func(ctx context.Context, r int) error {
		d, err := l.Device(ctx, r)
		if err != nil {
			return err
		}
		_, err = d.Join(ctx, accelerator.GroupConfig{Rank: r, Size: 2, Exchange: exchange[r]})
		return err
	})
	var call *accelerator.CallError
	require.ErrorAs(t, errs[0], &call)
	require.Equal(t, "unique id", call.Call)
	require.ErrorIs(t, errs[1], collective.ErrMissing)
}

// TestShrink loses a rank and goes on, by the library and by an exchange.
func TestShrink(t *testing.T) {
	for name, macros := range map[string][]string{"library": nil, "exchange": {"NO_OPTIONAL"}} {
		t.Run(name, func(t *testing.T) {
			l := acceltest.Build(t, accelerator.NVIDIA, macros...).Open(t)
			require.Equal(t, name == "library", l.Capabilities().Shrink)
			w := acceltest.Join(t, l, 4, func(c *accelerator.GroupConfig) { c.Elastic = true })
			w.Each(func(ctx context.Context, r int) error { return sum(ctx, w, r, w.Groups[r]) })
			require.NoError(t, w.Groups[1].Abort()) // dies
			ranks := []int{0, 2, 3}
			exchange := acceltest.Exchange(3)
			if name == "library" {
				exchange = make([]accelerator.Exchange, 3)
			}
			next := make([]*accelerator.Group, 4)
			w.Each(func(ctx context.Context, r int) error {
				if r == 1 {
					return nil
				}
				if err := sum(ctx, w, r, w.Groups[r]); !errors.Is(err, collective.ErrRankLost) {
					return err
				}
				var err error
				next[r], err = w.Groups[r].Shrink(ctx, []int{1}, exchange[max(0, r-1)])
				if err != nil {
					return err
				}
				return sum(ctx, w, r, next[r])
			})
			for i, r := range ranks {
				require.Equal(t, []int{i, 3}, []int{next[r].Rank(), next[r].Size()})
				require.Error(t, w.Groups[r].Err())
			}
			w.Each(func(_ context.Context, r int) error {
				if r == 1 {
					return nil
				}
				return next[r].Close()
			})
			_, err := w.Groups[0].Shrink(t.Context(), []int{0}, nil)
			require.ErrorIs(t, err, collective.ErrArgument)
		})
	}
}

// TestClose closes things twice, in the wrong order, and under a call.
func TestClose(t *testing.T) {
	l := acceltest.Build(t, accelerator.NVIDIA).Open(t)
	w := acceltest.Join(t, l, 2, nil)
	_, err := l.Device(t.Context(), 0)
	require.ErrorIs(t, err, collective.ErrArgument, "in use")
	_, err = l.Device(t.Context(), 8)
	require.ErrorIs(t, err, collective.ErrArgument)
	b, err := w.Put(t.Context(), 0, accelerator.Float32, []float64{1})
	require.NoError(t, err)
	h, err := w.Groups[0].Start(t.Context(), accelerator.Call{Operation: accelerator.AllReduce, Dst: b, Src: b, Op: collective.Sum})
	require.NoError(t, err)
	require.NoError(t, w.Devices[0].Close())
	require.NoError(t, w.Devices[0].Close())
	require.ErrorIs(t, h.Wait(t.Context()), collective.ErrClosed)
	require.NoError(t, w.Groups[0].Close())
	require.NoError(t, w.Groups[0].Abort())
	_, err = w.Devices[0].Alloc(t.Context(), 1)
	require.ErrorIs(t, err, collective.ErrClosed)
	require.ErrorIs(t, w.Groups[0].AllReduce(t.Context(), b, b, collective.Sum), collective.ErrClosed)
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	_, err = l.Device(t.Context(), 0)
	require.ErrorIs(t, err, collective.ErrClosed)
	_, err = w.Devices[1].Alloc(t.Context(), 1)
	require.ErrorIs(t, err, collective.ErrClosed)
}

// TestManyCallers uses two groups of the same devices from many goroutines. The fake notes
// calls that meet.
func TestManyCallers(t *testing.T) {
	w := acceltest.Join(t, acceltest.Build(t, accelerator.NVIDIA).Open(t), 3, nil)
	other := w.JoinAgain(nil)
	w.Each(func(ctx context.Context, r int) error {
		buffers := make([]accelerator.Buffer, 16)
		var handles []*accelerator.Handle
		for i := range buffers {
			var err error
			if buffers[i], err = w.Put(ctx, r, accelerator.Int32, []float64{float64(i + r)}); err != nil {
				return err
			}
		}
		for i, b := range buffers { // begun in the same order, by turns of the groups
			g := []*accelerator.Group{w.Groups[r], other[r]}[i%2]
			h, err := g.Start(ctx, accelerator.Call{Operation: accelerator.AllReduce, Dst: b, Src: b, Op: collective.Sum})
			if err != nil {
				return err
			}
			handles = append(handles, h)
		}
		var all sync.WaitGroup
		errs := make([]error, len(buffers))
		for i, h := range handles {
			all.Go(func() {
				if errs[i] = h.Wait(ctx); errs[i] == nil {
					errs[i] = w.Want(ctx, r, buffers[i], []float64{float64(3*i + 3)})
				}
			})
		}
		all.Wait()
		return errors.Join(errs...)
	})
}

// TestCopies copies in the background and in the foreground.
func TestCopies(t *testing.T) {
	d, err := acceltest.Build(t, accelerator.NVIDIA).Open(t).Device(t.Context(), 0)
	require.NoError(t, err)
	h, err := d.AllocHost(t.Context(), 1<<10)
	require.NoError(t, err)
	m, err := d.Alloc(t.Context(), 1<<10)
	require.NoError(t, err)
	s, err := d.NewStream(t.Context())
	require.NoError(t, err)
	copy(h.Bytes(), "from the host")
	b, err := m.Elements(accelerator.Uint8).Part(0, 512)
	require.NoError(t, err)
	in, err := s.StartCopyIn(t.Context(), b, h.Bytes()[:512])
	require.NoError(t, err)
	out, err := s.StartCopyOut(t.Context(), h.Bytes()[512:], b)
	require.NoError(t, err)
	require.NoError(t, in.Wait(t.Context()))
	require.NoError(t, out.Wait(t.Context()))
	require.Equal(t, h.Bytes()[:512], h.Bytes()[512:])
	got := make([]byte, 512)
	require.NoError(t, s.CopyOut(t.Context(), got, b))
	require.Equal(t, "from the host", string(got[:13]))
	_, err = s.StartCopyIn(t.Context(), b, got)
	require.ErrorIs(t, err, collective.ErrArgument, "not memory of a Host")
	require.ErrorIs(t, s.CopyIn(t.Context(), b, got[1:]), collective.ErrArgument)
	require.NoError(t, s.Sync(t.Context()))
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, h.Free(t.Context()))
	require.NoError(t, m.Free(t.Context()))
}

// TestMissingFunction has a library that is too old.
func TestMissingFunction(t *testing.T) {
	f := acceltest.Build(t, accelerator.NVIDIA, "NO_REDUCE")
	_, err := Open(f.Config())
	require.ErrorIs(t, err, accelerator.ErrSymbolMissing)
	var symbol *accelerator.SymbolError
	require.ErrorAs(t, err, &symbol)
	require.Equal(t, accelerator.SymbolError{Name: "ncclReduce", Library: f.Path, VersionCode: 23007}, *symbol)
}

// TestMetaX has a library with Moore Threads' names.
func TestMetaX(t *testing.T) {
	f := acceltest.Build(t, accelerator.MooreThreads, "METAX")
	_, err := Open(f.Config())
	require.ErrorIs(t, err, accelerator.ErrForeign)
	require.ErrorContains(t, err, f.Path)
}

// TestNoDevice has the libraries but nothing to use them with.
func TestNoDevice(t *testing.T) {
	t.Setenv("FAKE_CCL_DEVICES", "0")
	_, err := Open(acceltest.Build(t, accelerator.NVIDIA).Config())
	require.ErrorIs(t, err, accelerator.ErrNoDevice)
}

// TestNoLibrary looks for libraries by the environment.
func TestNoLibrary(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"CUDA_SO_PATH", "HIP_SO_PATH", "MUSART_SO_PATH"} {
		t.Setenv(name, filepath.Join(dir, name))
	}
	_, err := Open(accelerator.Config{})
	require.True(t, errors.Is(err, accelerator.ErrLibraryNotFound) || errors.Is(err, accelerator.ErrNotBuilt))
	var missing *accelerator.NotFoundError
	require.ErrorAs(t, err, &missing)
	require.Len(t, missing.Tried, 1)
	require.Contains(t, missing.Tried[0], dir)
	_, err = Open(accelerator.Config{Library: "libnccl.so.2"})
	require.ErrorIs(t, err, collective.ErrArgument, "a path for three vendors")
}
