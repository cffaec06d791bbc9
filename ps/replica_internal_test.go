package ps

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/shard"
)

// TestDeposedOwnerEndsAllStreams: an owner that is none any more has no follower left.
func TestDeposedOwnerEndsAllStreams(t *testing.T) {
	r := servingReplica(t, 1)
	s := &Server{}
	var streams []*followerStream
	r.copy.Followers, r.copy.Set = shard.FollowersOf("a", "b", "c"), 1
	for _, id := range r.copy.Followers.IDs() {
		f := newFollowerStream(r, 1)
		mine, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		f.p = &peer{
			to: id, conn: stream.New(mine, stream.Config{}), missed: func() {},
			streams: map[shard.ID]*followerStream{r.spec.ID: f},
		}
		streams = append(streams, f)
	}
	r.streams = append(r.streams, streams...)
	require.NoError(t, s.take(r, shard.Effect{Kind: shard.EffectDepose, Epoch: 2, Attempt: 1, Peer: "a"}))
	for _, f := range streams {
		require.True(t, f.ended, "stream to %s", f.p.to)
		require.Error(t, f.p.conn.Err())
	}
	require.Empty(t, r.streams)
}

// TestRetainWaitsForFollowers: a new owner changes nothing while it looks for the
// followers of its predecessor: their state must be the same then.
func TestRetainWaitsForFollowers(t *testing.T) {
	r := servingReplica(t, 1)
	require.Equal(t, shard.Fresh, r.windows.Admit(5, 1, 0))
	r.gathering = 1
	r.retain(retain{Horizon: 10})
	require.Zero(t, r.changes)
	r.gathering = 0
	r.retain(retain{Horizon: 10})
	require.Equal(t, uint64(1), r.changes)
}
