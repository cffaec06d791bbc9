package shard_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/shard"
)

// TestDeny: a server that has said that it has nothing of a shard takes no order of that
// attempt any more, to fill it or to serve, but those of the next.
func TestDeny(t *testing.T) {
	at := func(attempt uint64) shard.Assignment {
		return shard.Assignment{Shard: 7, Owner: "a", Epoch: 4, Attempt: attempt}
	}
	for name, copy := range map[string]shard.Copy{
		"absent":    {},
		"discarded": {Attempt: 3, Ended: true},
		"receiving": {State: shard.Receiving, Epoch: 2, Attempt: 3, Peer: "b"},
		"released":  {State: shard.Released, Epoch: 3, Attempt: 3, Ended: true, Peer: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			denied, ok := copy.Deny(5)
			require.True(t, ok)
			_, err := denied.Host(at(5))
			require.ErrorIs(t, err, shard.ErrRefused)
			_, err = denied.Step(shard.Effect{Kind: shard.EffectActivate, Shard: 7, Server: "a", Epoch: 4, Attempt: 5})
			require.ErrorIs(t, err, shard.ErrRefused)
			again, ok := denied.Deny(5)
			require.True(t, ok)
			require.Equal(t, denied, again)

			hosted, err := denied.Host(at(6))
			require.NoError(t, err)
			require.Equal(t, shard.ServeFirst(at(6)), hosted)
			again, err = hosted.Host(at(6))
			require.NoError(t, err)
			require.Equal(t, hosted, again)
		})
	}
	for _, state := range []shard.CopyState{shard.CaughtUp, shard.Serving, shard.Following, shard.Frozen} {
		copy := shard.Copy{State: state, Epoch: 2, Attempt: 3}
		same, ok := copy.Deny(5)
		require.False(t, ok, "%v: it may yet serve", state)
		require.Equal(t, copy, same)
		_, err := copy.Host(at(5))
		require.ErrorIs(t, err, shard.ErrRefused)
	}
}
