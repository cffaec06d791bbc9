package ps_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
)

// TestClientBacksOff: a client that does not reach a server tries less and less often.
func TestClientBacksOff(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	var at []time.Time
	var accepting sync.WaitGroup
	accepting.Go(func() { // it hangs up once, and then greets nobody
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			defer nc.Close()
			mu.Lock()
			if at = append(at, time.Now()); len(at) == 1 {
				_ = nc.Close()
			}
			mu.Unlock()
		}
	})
	t.Cleanup(accepting.Wait)
	t.Cleanup(func() { _ = l.Close() })
	c := newCluster(t, layersJob(ps.NoReplicas, 1, 100))
	c.serverWith("s1", func(cfg *ps.ServerConfig) { cfg.Advertise = l.Addr().String() })
	c.placed()
	w := c.worker("w")
	ctx, cancel := context.WithTimeout(c.ctx, 500*time.Millisecond)
	defer cancel()
	require.Error(t, w.Push(ctx, "l0", vector(100, -1)))
	eventually(t, "three pauses are long", func() bool {
		mu.Lock()
		defer mu.Unlock()
		n := len(at)
		return n > 3 && at[n-1].Sub(at[n-2]) >= 600*time.Millisecond && at[n-2].Sub(at[n-3]) >= 600*time.Millisecond && at[n-3].Sub(at[n-4]) >= 600*time.Millisecond
	})
}
