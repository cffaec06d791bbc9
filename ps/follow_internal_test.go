package ps

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

func servingReplica(t *testing.T, blocks int) *replica {
	job := Job{
		Model:     shard.Model{Layers: []shard.Layer{{Name: "a", Shape: []int{blocks * BlockElems}}}},
		Optimizer: SGD(1), MaxShardBytes: 1 << 30,
	}
	all, err := job.partition()
	require.NoError(t, err)
	require.Len(t, all, 1)
	r := newReplica(job, all[0])
	err = (&Server{ctx: t.Context(), job: job}).fill(t.Context(), r, shard.Effect{Epoch: 1}, "")
	require.NoError(t, err)
	return r
}

// serverWithPeer returns a server that has a connection to a follower already.
func serverWithPeer(conn *stream.Conn) (*Server, serverInfo) {
	s := &Server{replicas: map[shard.ID]*replica{}, peers: map[peerKey]chan *peer{}, log: slog.New(slog.DiscardHandler)}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	to := serverInfo{ID: "follower", Run: 1}
	p := &peer{
		key: peerKey{run: to.Run}, to: to.ID, conn: conn, free: make(buffers, 8), missed: func() {},
		streams: map[shard.ID]*followerStream{}, waiting: map[*replica]struct{}{}, wake: make(chan struct{}, 1),
	}
	slot := make(chan *peer, 1)
	slot <- p
	s.peers[p.key] = slot
	s.spawn(p.send)
	s.spawn(p.receive)
	return s, to
}

// confirmAll is a follower that has whatever it is sent.
func confirmAll(nc net.Conn) {
	conn := stream.New(nc, stream.Config{BufferBytes: frameBuffer})
	defer conn.Close()
	for {
		h, _, err := readFrame(conn, wire.MaxPayload)
		if err != nil {
			return
		}
		switch h.Kind {
		case wire.Follow:
			err = sendFrame(conn, &wire.Header{Kind: wire.Ack, Shard: h.Shard, Seq: h.Seq, Floor: h.Seq}, nil)
		case wire.Beat:
			err = sendFrame(conn, &wire.Header{Kind: wire.Beat, Request: h.Request}, nil)
		}
		if err != nil {
			return
		}
	}
}

func pushHeader(incarnation, seq uint64) *wire.Header {
	return &wire.Header{Kind: wire.Push, Epoch: 1, Incarnation: incarnation, Seq: seq, Floor: seq, Count: 1}
}

// Pushes that come faster than the follower takes them do not keep the blocks of the
// shard out of its queue.
func TestPushesDoNotStarveTheBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := servingReplica(t, 2)
		f := newFollowerStream(r, 1)
		f.p, f.sent = &peer{free: make(buffers, 8), wake: make(chan struct{}, 1), waiting: map[*replica]struct{}{}}, 1
		r.streams = append(r.streams, f)
		for range blockQueue {
			f.enqueue(ofBlock, wire.Header{}, nil)
		}
		for range updateQueue {
			f.enqueue(ofUpdate, wire.Header{}, nil)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for w := range uint64(8) {
			go func() {
				for seq := uint64(1); ctx.Err() == nil; seq++ {
					r.update(ctx, pushHeader(w+1, seq), nil, []float32{1})
				}
			}()
		}
		go func() { _ = f.queueBlock(1) }()
		for range 10 {
			synctest.Wait() // all wait for room
			r.mu.Lock()
			frame := f.p.frames[0]
			f.p.frames = f.p.frames[1:]
			f.queued[frame.kind]--
			r.room.Broadcast()
			r.mu.Unlock()
		}
		synctest.Wait()
		r.mu.Lock()
		sent := f.sent
		f.ended = true
		r.room.Broadcast()
		r.mu.Unlock()
		cancel()
		require.Equal(t, 2, sent, "blocks queued after 10 frames were taken")
	})
}

// A push that waits for a follower ends with its context.
func TestPushThatWaitsForFollowerEndsWithItsContext(t *testing.T) {
	r := servingReplica(t, 1)
	mine, theirs := net.Pipe()
	s, to := serverWithPeer(stream.New(mine, stream.Config{}))
	defer s.closeData()
	go func() {
		other := stream.New(theirs, stream.Config{})
		defer other.Close()
		for { // takes the beginning, and then nothing more
			h, _, err := readFrame(other, wire.MaxPayload)
			if err != nil || h.Kind == wire.Follow {
				_ = sendFrame(other, &wire.Header{Kind: wire.Ack, Seq: h.Seq, Floor: h.Seq}, nil)
				<-s.ctx.Done()
				return
			}
		}
	}()
	go func() {
		_ = s.follow(context.Background(), r, shard.Effect{Kind: shard.EffectFollow, Epoch: 1, Attempt: 1}, to, 0)
	}()
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.streams) > 0 && r.streams[0].sent > 0
	}, 5*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	var seq uint64
	began := time.Now()
	for r.update(ctx, pushHeader(1, seq+1), nil, []float32{1}).code == codeOK {
		seq++
	}
	require.Less(t, time.Since(began), 1500*time.Millisecond)
}

// A promoted server passes its shard on only when the owner before cannot serve reads any
// more: the next one would not wait for that.
func TestPromotedServerPassesNothingOnWhileItIsQuiet(t *testing.T) {
	r := servingReplica(t, 1)
	mine, theirs := net.Pipe()
	s, to := serverWithPeer(stream.New(mine, stream.Config{}))
	defer s.closeData()
	go confirmAll(theirs)
	const quiet = 200 * time.Millisecond
	r.mu.Lock()
	r.quiet = time.Now().Add(quiet)
	r.mu.Unlock()
	began := time.Now()
	order := shard.Effect{Kind: shard.EffectFollow, Epoch: 1, Attempt: 1}

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.follow(ctx, r, order, to, 0), context.DeadlineExceeded)
	r.mu.Lock()
	require.Equal(t, shard.Serving, r.copy.State)
	require.Empty(t, r.streams)
	r.mu.Unlock()

	s.spawn(func() { sleep(s.ctx, quiet); r.speak() })
	s.spawn(func() { _ = s.follow(s.ctx, r, order, to, 0) })
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.copy.State == shard.Following
	}, 5*time.Second, time.Millisecond)
	require.GreaterOrEqual(t, time.Since(began), quiet)
}

// Whoever waits for another's question for the routes waits no longer than its own
// context.
func TestRefreshEndsWithItsContext(t *testing.T) {
	r := newRoutes(nil, only(actor.Ref{}), 1)
	r.refreshing <- struct{}{} // somebody asks, with all the time in the world
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, r.refresh(ctx), context.DeadlineExceeded)
}

// A command to host that comes again after the shard has been here and gone is
// refused.
func TestLateHostIsRefused(t *testing.T) {
	r := servingReplica(t, 1)
	r.mu.Lock()
	r.become(shard.Copy{Attempt: 3, Ended: true})
	r.free()
	r.mu.Unlock()
	err := (&Server{ctx: t.Context()}).fill(t.Context(), r, shard.Effect{Epoch: 1}, "")
	require.ErrorIs(t, err, shard.ErrRefused)
}

// TestQuietCopyDoesNotFreeze: a promoted copy that must not answer yet, because the owner before
// may serve reads, does not pass the shard on to a follower either: that would not wait.
func TestQuietCopyDoesNotFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = 300 * time.Millisecond
		r := servingReplica(t, 1)
		r.mu.Lock()
		r.copy.Followers, r.quiet = shard.FollowersOf("next"), time.Now().Add(wait)
		r.mu.Unlock()
		time.AfterFunc(wait, r.speak)
		order := shard.Effect{Kind: shard.EffectFreeze, Epoch: 1, Attempt: 1, Peer: "next"}
		freeze := func(patience time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			return r.freeze(ctx, order)
		}
		require.ErrorIs(t, freeze(wait/2), context.DeadlineExceeded)
		require.Equal(t, shard.Serving, r.copy.State)
		began := time.Now()
		require.Error(t, freeze(10*wait), "it looks for the follower then, which is not there")
		require.GreaterOrEqual(t, time.Since(began), wait/2)
	})
}
