package shard_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/shard"
)

// TestPromoteKeepsTheOthers: whoever takes over may be dead as well; the other followers
// have every acknowledged update too.
func TestPromoteKeepsTheOthers(t *testing.T) {
	r := shard.Record{
		Assignment: shard.Assignment{Shard: 1, Owner: "a", Epoch: 4, Attempt: 7},
		Followers:  shard.FollowersOf("b", "c", "d"), Set: 9,
	}
	_, err := r.Promote("e")
	require.ErrorIs(t, err, shard.ErrRecord)
	for _, next := range []shard.ServerID{"c", "b", "d"} {
		before := r
		r, err = r.Promote(next)
		require.NoError(t, err)
		require.NoError(t, r.Validate())
		require.Equal(t, shard.Assignment{Shard: 1, Owner: next, Epoch: before.Assignment.Epoch + 1, Attempt: before.Assignment.Attempt + 1}, r.Assignment)
		require.Equal(t, before.Followers.Without(next), r.Followers)
		require.Equal(t, before.Set+1, r.Set)
	}
	require.Zero(t, r.Followers.Len())
}
