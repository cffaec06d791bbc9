package stream_test

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/stream"
)

func randomBytes(n int) []byte {
	b, rng := make([]byte, n), rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// SendNow does not wait for a peer that does not read. What it writes is behind what was sent
// before and in front of the rest, which its caller sends; a reader that knows of the rest
// gets all of it too.
func TestSendNow(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			leakless(t)
			a, z := streamPair(t, network, stream.Config{ReadAhead: 64})
			sockets := runtime.GOOS == "linux" && network != "pipe" && network != "tls"
			all := randomBytes(48 << 20) // more than a kernel has room for
			const posted, head = 5000, 64
			require.NoError(t, a.Post(all[:posted]))
			n, can := a.SendNow(all[posted:2*posted], nil) // what was posted may still be on its way
			require.Equal(t, sockets, can)
			n += posted
			if sockets {
				require.NoError(t, a.Flush())
			}
			begin := n
			within(t, "sends that do not wait", func() {
				for k := 1; k > 0; n += k {
					k, _ = a.SendNow(all[n:n+head], all[n+head:])
				}
			})
			require.Equal(t, sockets, n > begin)
			require.Less(t, n, len(all))
			sent := make(chan error, 1)
			go func() { sent <- a.Send(all[n:]) }()
			within(t, "all bytes", func() {
				piece := make([]byte, 100_000)
				for at := 0; at < len(all); {
					part := piece[:min(len(piece), len(all)-at)]
					require.NoError(t, z.ReadPart(part, len(all)-at-len(part)))
					require.True(t, bytes.Equal(all[at:at+len(part)], part), "at %d", at)
					at += len(part)
				}
			})
			require.NoError(t, <-sent)

			n, _ = a.SendNow(all[:1], all[:9])
			require.Equal(t, sockets, n == 10)
			require.NoError(t, a.Close())
			n, _ = a.SendNow(all[:1], all[:9])
			require.Zero(t, n)
		})
	}
}
