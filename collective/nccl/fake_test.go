//go:build (nccl || rccl || musa) && cgo && linux

package nccl

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/accelerator"
	"github.com/elasticps/elasticps/collective/internal/acceltest"
)

func TestSmoke(t *testing.T) {
	f := acceltest.Build(t, accelerator.NVIDIA)
	l := f.Open(t)
	w := acceltest.Join(t, l, 4, nil)
	w.Each(func(ctx context.Context, r int) error {
		b, err := w.Put(ctx, r, accelerator.Float32, []float64{1, 2, float64(r)})
		if err != nil {
			return err
		}
		if err := w.Groups[r].AllReduce(ctx, b, b, collective.Sum); err != nil {
			return err
		}
		return w.Want(ctx, r, b, []float64{4, 8, 6})
	})
	w.Each(func(_ context.Context, r int) error { return w.Groups[r].Close() })
	require.NoError(t, l.Close())
}
