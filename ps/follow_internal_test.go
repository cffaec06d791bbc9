package ps

import (
	"context"
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
	require.NoError(t, r.host(shard.Effect{Epoch: 1}))
	return r
}

// follower returns a connection to a follower that takes a frame whenever it is told.
func followerOf(t *testing.T) (conn *stream.Conn, take chan struct{}) {
	mine, theirs := net.Pipe()
	take = make(chan struct{})
	conn, other := stream.New(mine, stream.Config{}), stream.New(theirs, stream.Config{})
	t.Cleanup(func() { _ = conn.Close(); _ = other.Close() })
	go func() {
		payload := make([]byte, wire.MaxPayload)
		for range take {
			raw, err := other.Next(wire.HeaderBytes)
			var h wire.Header
			if err != nil || h.Decode(raw) != nil || other.ReadFull(payload[:h.Length]) != nil {
				return
			}
		}
	}()
	return conn, take
}

func pushHeader(incarnation, seq uint64) *wire.Header {
	return &wire.Header{Kind: wire.Push, Epoch: 1, Incarnation: incarnation, Seq: seq, Floor: seq, Count: 1}
}

// Pushes that come faster than the follower takes them do not keep the blocks of the
// shard out of its queue.
func TestPushesDoNotStarveTheBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := servingReplica(t, 2)
		f := &followerStream{r: r, free: make(buffers, 8), queue: make(chan streamFrame, followQueue+sealRoom), sent: 1}
		r.follower = f
		for range blockQueue {
			f.put(streamFrame{kind: ofBlock})
		}
		for range updateQueue {
			f.put(streamFrame{kind: ofUpdate})
		}
		ctx, cancel := context.WithCancel(t.Context())
		for w := range uint64(8) {
			go func() {
				for seq := uint64(1); ctx.Err() == nil; seq++ {
					r.update(ctx, pushHeader(w+1, seq), []float32{1})
				}
			}()
		}
		go func() { _ = f.queueBlock(1) }()
		for range 10 {
			synctest.Wait() // all wait for room
			frame := <-f.queue
			r.mu.Lock()
			f.queued[frame.kind]--
			r.room.Broadcast()
			r.mu.Unlock()
		}
		synctest.Wait()
		r.mu.Lock()
		sent := f.sent
		f.err = errNotFollowing
		r.mu.Unlock()
		cancel()
		require.Equal(t, 2, sent, "blocks queued after 10 frames were taken")
	})
}

// A push that waits for a follower ends with its context.
func TestPushThatWaitsForFollowerEndsWithItsContext(t *testing.T) {
	r := servingReplica(t, 1)
	conn, _ := followerOf(t)
	go func() {
		_ = r.follow(context.Background(), conn, shard.Effect{Kind: shard.EffectFollow, Epoch: 1, Attempt: 1}, make(buffers, 8))
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	var seq uint64
	began := time.Now()
	for r.update(ctx, pushHeader(1, seq+1), []float32{1}).code == codeOK {
		seq++
	}
	require.Less(t, time.Since(began), 1500*time.Millisecond)
	r.mu.Lock()
	f := r.follower
	r.mu.Unlock()
	f.end(errNotFollowing)
}

// Whoever waits for another's question for the routes waits no longer than its own
// context.
func TestRefreshEndsWithItsContext(t *testing.T) {
	r := newRoutes(nil, actor.Ref{}, 1)
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
	require.ErrorIs(t, r.host(shard.Effect{Epoch: 1}), shard.ErrRefused)
}
