package ps

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/shard"
)

// TestPeersAreForgotten: of a follower's run that has ended, or was never reached, nothing
// stays with its owner.
func TestPeersAreForgotten(t *testing.T) {
	mine, theirs := net.Pipe()
	defer theirs.Close()
	s, to := serverWithPeer(stream.New(mine, stream.Config{}))
	slot := s.peers[peerKey{run: to.Run}]
	p := <-slot
	s.forget(p)
	require.Len(t, s.peers, 1, "somebody is about to replace it")
	slot <- p
	p.fail(net.ErrClosed)
	s.forget(p)
	require.Empty(t, s.peers)

	s.stop(ErrClosed)
	f := newFollowerStream(&replica{spec: shard.Shard{ID: 7}}, 1)
	require.ErrorIs(t, s.attach(t.Context(), serverInfo{ID: "other", Run: 2}, f), ErrClosed)
	require.Empty(t, s.peers)
	s.running.Wait()
}
