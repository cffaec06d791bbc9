package ps

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
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

// TestFollowFailsOnce: an order whose failure was not heard of is not carried out again.
func TestFollowFailsOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	var dialled atomic.Int64
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			dialled.Add(1)
			_ = nc.Close() // it is not a server
		}
	}()
	n, err := actor.Start(t.Context(), actor.Config{Name: "n"})
	require.NoError(t, err)
	defer n.Close()
	r := servingReplica(t, 1)
	s := &Server{cfg: ServerConfig{Node: n}, ctx: t.Context(), peers: map[peerKey]chan *peer{}}
	order := shard.Effect{Kind: shard.EffectFollow, Epoch: 1, Attempt: 1, Peer: "f"}
	to := serverInfo{ID: "f", Run: 1, Node: "other", Data: l.Addr().String()}
	first := s.follow(t.Context(), r, order, to, 0)
	require.ErrorIs(t, first, ErrUnavailable)
	require.Equal(t, first, s.follow(t.Context(), r, order, to, 0))
	require.Equal(t, int64(1), dialled.Load())
	order.Attempt++
	require.ErrorIs(t, s.follow(t.Context(), r, order, to, 0), ErrUnavailable)
	require.Equal(t, int64(2), dialled.Load())
}

// TestBeatGoesFirst: a lease does not depend on how much waits for the connection.
func TestBeatGoesFirst(t *testing.T) {
	p := &peer{wake: make(chan struct{}, 1)}
	for i := range peerQueue {
		p.put(streamFrame{header: wire.Header{Kind: wire.Forward, Request: uint64(i), Length: wire.MaxPayload}})
	}
	p.beat()
	var batch [maxPeerBatch]streamFrame
	require.Equal(t, batchBytes/wire.MaxPayload+1, p.take(&batch))
	require.Equal(t, wire.Beat, batch[0].header.Kind)
	for i := range batchBytes / wire.MaxPayload {
		require.Equal(t, uint64(i), batch[i+1].header.Request, "the others keep their order")
	}
}

// The time of a table goes on while a server owns its shard, whatever becomes of its
// followers; a copy that comes to own it goes on from the last change.
func TestTimeOfATableGoesOn(t *testing.T) {
	job := Job{
		Model:     shard.Model{Layers: []shard.Layer{{Name: "t", Sparse: true, Shape: []int{10, 1}}}},
		Optimizer: SGD(1), Tables: map[string]Table{"t": {ExpireAfter: time.Hour}},
	}
	shards, err := job.partition()
	require.NoError(t, err)
	r := newReplica(job, shards[0])
	r.allocate()
	serving := shard.ServeFirst(shard.Assignment{Epoch: 1, Owner: "s"})
	r.become(serving)
	require.Zero(t, r.now(0))
	r.begun = r.begun.Add(-time.Minute)
	require.EqualValues(t, 60, r.now(0))
	followed := serving
	followed.Followers, followed.Set = shard.FollowersOf("a"), 1
	r.become(followed)
	require.EqualValues(t, 60, r.now(0))
	r.become(shard.Copy{State: shard.CaughtUp})
	r.blocks[0].steps = 7
	r.become(serving)
	require.EqualValues(t, 7, r.now(0))
}

// A deletion that is repeated, because its answer was lost, does not remove what was pushed
// behind it.
func TestRepeatedDeletionRemovesNothing(t *testing.T) {
	job := Job{Model: shard.Model{Layers: []shard.Layer{{Name: "t", Sparse: true, Shape: []int{10, 1}}}}, Optimizer: SGD(1)}
	shards, err := job.partition()
	require.NoError(t, err)
	r := newReplica(job, shards[0])
	r.allocate()
	r.become(shard.ServeFirst(shard.Assignment{Epoch: 1, Owner: "s"}))
	send := func(kind wire.Kind, seq uint64, values ...float32) code {
		h := wire.Header{Kind: kind, Epoch: 1, Incarnation: 1, Seq: seq, Floor: 1, Count: uint32(len(values))}
		return r.update(t.Context(), &h, []int64{7}, values).code
	}
	require.Equal(t, codeOK, send(wire.PushRows, 1, -1))
	require.Equal(t, codeOK, send(wire.DeleteRows, 2))
	require.Zero(t, r.table.Rows())
	require.Equal(t, codeOK, send(wire.PushRows, 3, -5))
	require.Equal(t, codeOK, send(wire.DeleteRows, 2))
	var row [1]float32
	r.table.Pull([]int64{7}, row[:])
	require.Equal(t, float32(5), row[0])
	require.EqualValues(t, 3, r.applied)
}
