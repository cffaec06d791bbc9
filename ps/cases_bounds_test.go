package ps_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// T8, degenerate: sizes and ranges at and over their edges.
func TestT8Degenerate(t *testing.T) {
	settled(t)
	job := ps.Job{
		Model: shard.Model{Layers: []shard.Layer{
			layer("scalar"), layer("one", 1), layer("empty", 0), layer("no rows", 0, 5), layer("no columns", 5, 0),
			layer("column", 4, 1), layer("row", 1, 4), layer("table", 4, 3),
		}},
		Optimizer: ps.SGD(1),
	}
	everywhere(t, func(t *testing.T, options ...option) {
		c := newCluster(t, job, options...)
		for i := range 9 { // more servers than layers with elements
			c.server(shard.ServerID(fmt.Sprint("s", i)))
		}
		w := c.worker("w")
		for name, n := range map[string]int{"scalar": 1, "one": 1, "empty": 0, "no rows": 0, "no columns": 0, "column": 4, "row": 4, "table": 12} {
			require.NoError(t, w.Push(c.ctx, name, vector(n, -1)), name)
			got := vector(n, 7)
			require.NoError(t, w.PushPull(c.ctx, name, vector(n, -1), got), name)
			require.Equal(t, vector(n, 2), got, name)
			for _, wrong := range []int{n + 1, max(n-1, 0), 2*n + 1, 0} {
				if wrong == n {
					continue
				}
				require.ErrorIs(t, w.Push(c.ctx, name, make([]float32, wrong)), ps.ErrLength, "%s %d", name, wrong)
				require.ErrorIs(t, w.Pull(c.ctx, name, make([]float32, wrong)), ps.ErrLength, "%s %d", name, wrong)
				require.ErrorIs(t, w.PushPull(c.ctx, name, vector(n, -1)[:0:0], make([]float32, wrong)), ps.ErrLength, "%s %d", name, wrong)
			}
		}
		c.rowsAtTheEdges(w)
		c.oneOwner()
	})
}

// rowsAtTheEdges: layer table has 4 rows of 3, all 2.
func (c *cluster) rowsAtTheEdges(w *ps.Worker) {
	t := c.t
	require.NoError(t, w.PushRange(c.ctx, "table", 0, nil))
	require.NoError(t, w.PushRange(c.ctx, "table", 4, []float32{}), "no rows behind the last")
	require.NoError(t, w.PullRange(c.ctx, "no columns", 5, nil))
	require.NoError(t, w.PushRange(c.ctx, "empty", 0, nil))
	for _, x := range []struct{ first, elems int }{
		{-1, 3}, {4, 3}, {5, 0}, {3, 6}, {0, 15}, {0, 4}, {1, 2}, {-1 << 62, 3}, {1<<62 - 1, 3},
	} {
		require.ErrorIs(t, w.PushRange(c.ctx, "table", x.first, make([]float32, x.elems)), ps.ErrLength, "%v", x)
		require.ErrorIs(t, w.PullRange(c.ctx, "table", x.first, make([]float32, x.elems)), ps.ErrLength, "%v", x)
	}
	require.ErrorIs(t, w.PullRange(c.ctx, "empty", 0, make([]float32, 1)), ps.ErrLength)
	require.ErrorIs(t, w.PullRange(c.ctx, "no rows", 0, make([]float32, 5)), ps.ErrLength)
	require.NoError(t, w.PushRange(c.ctx, "table", 3, vector(3, -1)))
	require.NoError(t, w.PushRange(c.ctx, "scalar", 0, vector(1, -1)))
	got := make([]float32, 12)
	require.NoError(t, w.Pull(c.ctx, "table", got))
	require.Equal(t, append(vector(9, 2), vector(3, 3)...), got, "nothing but the last row has changed")
}

// T11, use before init: a typed error, and the server lives.
func TestT11UseBeforeInit(t *testing.T) {
	settled(t)
	assigned := layer("assigned", 300)
	assigned.Init.Kind = shard.Assigned
	job := ps.Job{Model: shard.Model{Layers: []shard.Layer{assigned, layer("zeros", 5)}}, Optimizer: ps.SGD(1)}
	everywhere(t, func(t *testing.T, options ...option) {
		c := newCluster(t, job, options...)
		w := c.worker("w")
		ctx, cancel := context.WithTimeout(c.ctx, 200*time.Millisecond)
		defer cancel()
		err := w.Push(ctx, "zeros", vector(5, -1)) // before there is any server
		require.ErrorIs(t, err, ps.ErrNotPlaced)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, ps.Retryable(err))
		require.NotContains(t, err.Error(), `server ""`)
		early := make(chan error, 1)
		go func() { early <- w.Push(c.ctx, "zeros", vector(5, -1)) }() // waits for one

		c.server("s1")
		require.NoError(t, <-early)
		for _, name := range []string{"unknown", "", "zeros ", "ZEROS"} {
			require.ErrorIs(t, w.Push(c.ctx, name, vector(5, 1)), ps.ErrUnknownLayer)
			require.ErrorContains(t, w.Push(c.ctx, name, vector(5, 1)), `, the model has "`+c.cfg.Job.Model.Layers[0].Name+`"`)
			require.ErrorIs(t, w.Pull(c.ctx, name, vector(5, 1)), ps.ErrUnknownLayer)
			require.ErrorIs(t, w.PushPull(c.ctx, name, vector(5, 1), vector(5, 1)), ps.ErrUnknownLayer)
			require.ErrorIs(t, w.PushRange(c.ctx, name, 0, vector(5, 1)), ps.ErrUnknownLayer)
			require.ErrorIs(t, w.PullRange(c.ctx, name, 0, vector(5, 1)), ps.ErrUnknownLayer)
			require.ErrorIs(t, w.Assign(c.ctx, name, vector(5, 1)), ps.ErrUnknownLayer)
		}
		for range 3 {
			require.ErrorIs(t, w.Push(c.ctx, "assigned", vector(300, -1)), ps.ErrNotInitialized)
			require.ErrorIs(t, w.Pull(c.ctx, "assigned", vector(300, 0)), ps.ErrNotInitialized)
			require.ErrorIs(t, w.PullRange(c.ctx, "assigned", 7, vector(1, 0)), ps.ErrNotInitialized)
		}
		require.ErrorIs(t, w.Assign(c.ctx, "zeros", vector(5, 1)), ps.ErrConflict)
		c.server("s2")
		c.move(0, "s2") // what is not initialized moves as such
		require.ErrorIs(t, w.Pull(c.ctx, "assigned", vector(300, 0)), ps.ErrNotInitialized)
		require.NoError(t, w.Assign(c.ctx, "assigned", vector(300, 40)))
		require.NoError(t, c.worker("w2").Assign(c.ctx, "assigned", vector(300, 50)), "the first one wins")
		got := make([]float32, 300)
		require.NoError(t, w.PushPull(c.ctx, "assigned", vector(300, -2), got))
		require.Equal(t, vector(300, 42), got)
		require.NoError(t, w.Pull(c.ctx, "zeros", got[:5]))
		require.Equal(t, vector(5, 1), got[:5], "the push that timed out was not applied later")
	})
}
