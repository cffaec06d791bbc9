package ps_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// benchSizes are numbers of parameters: 4 KiB, 256 KiB, 4 MiB.
var benchSizes = []int{1 << 10, 1 << 16, 1 << 20}

// Push and pull of one worker on one server, plain SGD applied: within one node, and
// over a socket of this machine with client and server in one process.
func BenchmarkPushPull(b *testing.B) {
	for name, options := range map[string][]option{"local": {oneNode}, "socket": nil} {
		for _, n := range benchSizes {
			job := ps.Job{Model: shard.Model{Layers: []shard.Layer{layer("x", n)}}, Optimizer: ps.SGD(1)}
			x := make([]float32, n)
			b.Run(fmt.Sprintf("push/%s/%dKiB", name, n>>8), func(b *testing.B) {
				c := newCluster(b, job, options...)
				c.server("s1")
				w := c.worker("w")
				require.NoError(b, w.Push(c.ctx, "x", x)) // waits for the placement
				b.SetBytes(int64(4 * n))
				b.ReportAllocs()
				for b.Loop() {
					if err := w.Push(c.ctx, "x", x); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(fmt.Sprintf("pull/%s/%dKiB", name, n>>8), func(b *testing.B) {
				c := newCluster(b, job, options...)
				c.server("s1")
				w := c.worker("w")
				require.NoError(b, w.Push(c.ctx, "x", x)) // waits for the placement
				b.SetBytes(int64(4 * n))
				b.ReportAllocs()
				for b.Loop() {
					if err := w.Pull(c.ctx, "x", x); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
