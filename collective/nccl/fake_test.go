//go:build (nccl || rccl || musa) && cgo && linux

package nccl

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/accelerator"
	"github.com/elasticps/elasticps/collective/internal/acceltest"
)

// family is the vendors whose libraries have the same functions.
var family = []accelerator.Vendor{accelerator.NVIDIA, accelerator.AMD, accelerator.MooreThreads}

// TestOperations compares all operations of all types with their definition.
func TestOperations(t *testing.T) {
	for _, v := range family {
		for _, n := range []int{1, 2, 3, 4} {
			if testing.Short() && (n == 2 || n == 4) || v != accelerator.NVIDIA && n != 3 {
				continue
			}
			t.Run(fmt.Sprintf("%v/%d", v, n), func(t *testing.T) {
				w := acceltest.Join(t, acceltest.Build(t, v, "VERSION=22809").Open(t), n, nil)
				w.Reductions(0, 1, 5)
				w.Movements(0, 1, 5)
				w.Messages(3000)
				if n > 1 {
					w.Refusals()
				}
				w.Each(func(_ context.Context, r int) error { return w.Groups[r].Close() })
			})
		}
	}
}

// TestManyElements crosses the borders of what the fake and copies move at a time.
func TestManyElements(t *testing.T) {
	w := acceltest.Join(t, acceltest.Build(t, accelerator.NVIDIA).Open(t), 2, nil)
	const n = 300_001
	values := [][]float64{acceltest.Values(accelerator.Float32, 0, n), acceltest.Values(accelerator.Float32, 1, n)}
	w.Each(func(ctx context.Context, r int) error {
		b, err := w.Put(ctx, r, accelerator.Float32, values[r])
		if err != nil {
			return err
		}
		if err := w.Groups[r].AllReduce(ctx, b, b, collective.Average); err != nil {
			return err
		}
		return w.Want(ctx, r, b, acceltest.Reduced(accelerator.Float32, collective.Average, values))
	})
}

// TestOldVersion has neither float8 nor an average, but sums of scaled elements, of which
// averages of floats are made.
func TestOldVersion(t *testing.T) {
	f := acceltest.Build(t, accelerator.NVIDIA, "VERSION=2803", "NO_OPTIONAL", "PREMUL_SUM")
	l := f.Open(t)
	able := l.Capabilities()
	require.Equal(t, "2.8.3", able.Version.String())
	require.NoError(t, able.Supports(accelerator.AllReduce, accelerator.Float16, collective.Average))
	for _, kind := range []accelerator.Type{accelerator.Int32, accelerator.BFloat16, accelerator.Float8E4M3} {
		require.ErrorIs(t, able.Supports(accelerator.AllReduce, kind, collective.Average), accelerator.ErrUnsupported, "%v", kind)
	}
	require.False(t, able.Shrink || able.AllToAll)
	w := acceltest.Join(t, l, 3, nil)
	w.Reductions(4)
	w.Movements(4)
	w.Each(func(_ context.Context, r int) error { return w.Groups[r].Close() })
}
