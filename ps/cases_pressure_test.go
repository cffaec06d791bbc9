package ps_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
)

// Large pushes and large pulls of one client share a connection. Neither end may wait
// for the other to take what it writes while it does not read.
func TestPushesAndPullsDoNotBlockEachOther(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			settled(t)
			const n, rounds = 96 * ps.BlockElems, 8
			c := newCluster(t, sgdJob(layer("pushed", n), layer("pulled", n)), patient)
			c.serverOver("s1", network)
			w := c.worker("w")
			require.NoError(t, w.Pull(c.ctx, "pulled", make([]float32, n)))
			started := time.Now()
			parallel(t, 4, func(i int) error {
				x := make([]float32, n)
				for range rounds {
					if i%2 == 0 {
						if err := w.Push(c.ctx, "pushed", x); err != nil {
							return err
						}
					} else if err := w.Pull(c.ctx, "pulled", x); err != nil {
						return err
					}
				}
				return nil
			})
			bytes := 4 * rounds * 4 * n
			took := time.Since(started)
			t.Logf("%d MiB in %v", bytes>>20, took)
			require.Less(t, took, 8*time.Second, "a write that waits for its timeout of 10 s")
		})
	}
}
