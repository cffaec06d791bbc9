package ps_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Pulls that time out at any moment do not hold up the push that comes after them.
func TestPushAfterPullsThatTimeOut(t *testing.T) {
	const n = 4 << 20
	c := newCluster(t, sgdJob(layer("x", n)))
	c.server("s1")
	w := c.worker("w")
	dst, grad := make([]float32, n), make([]float32, n)
	require.NoError(t, w.Push(c.ctx, "x", grad)) // waits for the placement
	for i := range 40 {
		ctx, cancel := context.WithTimeout(c.ctx, time.Duration(50+30*i)*time.Microsecond)
		_ = w.Pull(ctx, "x", dst) // may be in time
		cancel()
		began := time.Now()
		require.NoError(t, w.Push(c.ctx, "x", grad))
		require.Less(t, time.Since(began), 3*time.Second, "push after a pull of %d µs", 50+30*i)
	}
}
