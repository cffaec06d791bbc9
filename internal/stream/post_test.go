package stream_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/stream"
)

// Post returns although the peer does not read and another send is stuck in the socket;
// what it was given arrives behind that one.
func TestPostDoesNotWaitForThePeer(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			leakless(t)
			a, z := streamPair(t, network, stream.Config{})
			big := make([]byte, 64<<20)
			sent := make(chan error, 1)
			go func() { sent <- a.Send(big) }()
			view, err := z.Next(1) // the large one is on its way, and fills the socket
			require.NoError(t, err)
			require.Zero(t, view[0])
			within(t, "post", func() { require.NoError(t, a.Post([]byte("behind"))) })
			require.NoError(t, z.ReadFull(big[1:]))
			require.NoError(t, <-sent)
			view, err = z.Next(len("behind"))
			require.NoError(t, err)
			require.Equal(t, "behind", string(view))
		})
	}
}
