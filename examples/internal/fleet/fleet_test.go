package fleet

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

func job() ps.Job {
	return ps.Job{
		Model:     shard.Model{Layers: []shard.Layer{{Name: "t", Sparse: true, Shape: []int{1000, 4}}}},
		Optimizer: ps.SGD(1), Replicas: ps.NoReplicas, MaxShardBytes: 4000,
	}
}

// TestScale pushes while servers come and go, and finds every push in the end.
func TestScale(t *testing.T) {
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	f, err := Start(ctx, Config{Name: "scale", Job: job(), NumServers: 2, Out: &out, Began: time.Now()})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }() // a second time

	scaled := make(chan struct{})
	pushes := make([]int, 2)
	go func() {
		defer close(scaled)
		if err := errors.Join(f.Scale(ctx, 3), f.Scale(ctx, 1)); err != nil {
			t.Error(err)
		}
	}()
	ids := []int64{-1, 0, 1 << 62}
	grads := make([]float32, 12)
	for i := range grads {
		grads[i] = -1
	}
	require.NoError(t, f.Train(ctx, len(pushes), func(ctx context.Context, i int, w *ps.Worker) error {
		for {
			if err := w.PushRows(ctx, "t", ids, grads); err != nil {
				return err
			}
			pushes[i]++
			select {
			case <-scaled:
				return nil
			default:
			}
		}
	}))
	got := make([]float32, 12)
	require.NoError(t, f.Client().PullRows(ctx, "t", ids, got))
	for _, x := range got {
		require.EqualValues(t, pushes[0]+pushes[1], x)
	}
	rows, err := f.Rows(ctx)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.EqualValues(t, 3, rows[0].Rows)
	servers, moves, err := f.History(ctx)
	require.NoError(t, err)
	most := 0
	for _, s := range servers {
		most = max(most, s.Count)
	}
	require.Equal(t, []int{2, 3, 1}, []int{servers[0].Count, most, servers[len(servers)-1].Count})
	require.NotEmpty(t, moves)
	require.NoError(t, f.Close())
	require.Contains(t, out.String(), "Scaled PS: 2→3")
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 10*time.Second, 10*time.Millisecond)
}

func TestTrainFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f, err := Start(ctx, Config{Name: "fails", Job: job(), Began: time.Now()})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	wrong := errors.New("wrong")
	err = f.Train(ctx, 2, func(ctx context.Context, i int, _ *ps.Worker) error {
		if i == 0 {
			return wrong
		}
		<-ctx.Done() // the other one's error ends it
		return ctx.Err()
	})
	require.ErrorIs(t, err, wrong)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "worker-0: wrong")
}

func TestStartFails(t *testing.T) {
	bad := job()
	bad.Optimizer = ps.Optimizer{}
	_, err := Start(t.Context(), Config{Name: "bad", Job: bad})
	require.ErrorContains(t, err, "fleet: start: ps: Job.Optimizer: ps: no optimizer is set")
}
