//go:build nccl && cgo && linux

package nccl

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/accelerator"
	"github.com/elasticps/elasticps/collective/internal/acceltest"
)

// openReal opens the vendor's library, or skips the test where it or a device is missing.
func openReal(t *testing.T) *accelerator.Library {
	l, err := Open(accelerator.Config{})
	if err != nil {
		t.Skipf("no devices on this system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	able := l.Capabilities()
	t.Logf("%v, version %v, %d devices, float8 sums: %v, shrink: %v", able.Vendor, able.Version, l.Devices(),
		able.Supports(accelerator.AllReduce, accelerator.Float8E4M3, collective.Sum) == nil, able.Shrink)
	return l
}

// realRanks is one for each device.
func realRanks(l *accelerator.Library) int { return min(l.Devices(), 8) }

// TestRealOperations compares all operations of all types with their definition, on the
// devices of this machine, with a rank on each. Sums of float8 need devices that have it.
func TestRealOperations(t *testing.T) {
	l := openReal(t)
	w := acceltest.Join(t, l, realRanks(l), nil)
	w.Reductions(1, 1000)
	w.Movements(1, 1000)
	if l.Devices() > 1 {
		w.Messages(1 << 20)
		w.Refusals()
	}
	w.Each(func(_ context.Context, r int) error { return w.Groups[r].Close() })
}

// TestRealStuckCall waits for ranks that do not come, on all devices but one: calls end with
// their context, and the devices are free again.
func TestRealStuckCall(t *testing.T) {
	l := openReal(t)
	if l.Devices() < 2 {
		t.Skip("one device")
	}
	w := acceltest.Join(t, l, realRanks(l), nil)
	w.Each(func(ctx context.Context, r int) error { return sum(ctx, w, r, w.Groups[r]) })
	w.Each(func(ctx context.Context, r int) error {
		if r == 0 {
			return nil
		}
		b, err := w.Put(ctx, r, accelerator.Float32, []float64{1})
		if err != nil {
			return err
		}
		err = within(t, ctx, func(ctx context.Context) error { return w.Groups[r].AllReduce(ctx, b, b, collective.Sum) })
		require.ErrorIs(t, err, context.DeadlineExceeded, "rank %d", r)
		return nil
	})
	require.NoError(t, w.Groups[0].Abort())
	again := w.JoinAgain(nil)
	w.Each(func(ctx context.Context, r int) error { return sum(ctx, w, r, again[r]) })
}

// TestRealMissingRank gives up a group whose other rank never comes, on one device.
func TestRealMissingRank(t *testing.T) {
	l := openReal(t)
	d, err := l.Device(t.Context(), 0)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	_, err = d.Join(ctx, accelerator.GroupConfig{Rank: 0, Size: 2, Exchange: acceltest.Exchange(1)[0]})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	t.Logf("gave up after %v: %v", time.Since(began), err)
	g, err := d.Join(t.Context(), accelerator.GroupConfig{Rank: 0, Size: 1, Exchange: acceltest.Exchange(1)[0]})
	require.NoError(t, err)
	require.NoError(t, g.Barrier(t.Context()))
	require.NoError(t, g.Close())
}

// TestRealLibraryWithoutDevices loads the vendor's library, where there is one without a
// driver, with a runtime of ours: what is bound is there.
func TestRealLibraryWithoutDevices(t *testing.T) {
	f := acceltest.Build(t, accelerator.NVIDIA)
	c := f.Config()
	c.Library = ""
	l, err := Open(c)
	if err != nil {
		t.Skipf("no library on this system: %v", err)
	}
	able := l.Capabilities()
	t.Logf("%+v", able)
	require.True(t, able.Version.AtLeast(accelerator.Version{Major: 2, Minor: 14}))
	require.True(t, able.Abort && able.Fuse)
	require.NoError(t, able.Supports(accelerator.AllReduce, accelerator.BFloat16, collective.Average))
	require.NoError(t, l.Close())
}
