package ps

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// An owner with followers answers OK when they have what the answer speaks of: a push
// when it is applied there too, a pull when nothing of what it has read can be lost with
// this server. Until then the answer is deferred, and the session goes on.

const (
	// maxDeferred bounds the answers of one shard that wait for its followers.
	maxDeferred = 4096
	// maxHeld bounds the buffers that the deferred pulls of one session hold.
	maxHeld = 16
	// roomPatience is how long a request keeps its connection waiting for a follower
	// that takes nothing. Others are waiting behind it.
	roomPatience = 50 * time.Millisecond
)

// deferred is an answer that waits until the followers have a change: one of a session,
// or one that somebody in this process waits for.
type deferred struct {
	change  uint64
	session *session
	request wire.Header
	values  *buffer // of a pull: what the answer carries, encoded
	bytes   int
	wake    chan<- bool // instead of session: capacity 1
}

// stream returns the stream to a server, nil if there is none. The caller holds mu.
func (r *replica) stream(to shard.ServerID) *followerStream {
	for _, f := range r.streams {
		if f.p.to == to {
			return f
		}
	}
	return nil
}

// forget removes a stream that has ended. The caller holds mu.
func (r *replica) forget(f *followerStream) {
	r.streams = slices.DeleteFunc(r.streams, func(other *followerStream) bool { return other == f })
}

// unwanted returns the streams that a copy has no use for: neither of a follower nor of
// the move under way. The caller holds mu and ends them when it does not any more.
func (r *replica) unwanted(c shard.Copy) (streams []*followerStream) {
	moving := (c.State == shard.Following || c.State == shard.Frozen) && !c.Ended
	for _, f := range r.streams {
		if !c.Awaits(f.p.to) && !(moving && f.attempt == c.Attempt) {
			streams = append(streams, f)
		}
	}
	return streams
}

// awaited calls f for each server whose confirmation this copy needs, with the stream to
// it, nil for none. It stops at false, and reports whether it has not. The caller holds mu.
func (r *replica) awaited(f func(*followerStream) bool) bool {
	if r.copy.Joining == "" && r.copy.Followers == (shard.Followers{}) {
		return true
	}
	for _, id := range r.copy.Followers[:r.copy.Followers.Len()] {
		if !f(r.stream(id)) {
			return false
		}
	}
	joining := r.copy.Joining
	return joining == "" || r.copy.Followers.Has(joining) || f(r.stream(joining))
}

// safe is the last change that all followers have, or more than any when there are none.
// The caller holds mu.
func (r *replica) safe() uint64 {
	low := uint64(math.MaxUint64)
	r.awaited(func(f *followerStream) bool {
		if f == nil {
			low = 0
		} else {
			low = min(low, f.confirmed)
		}
		return true
	})
	return low
}

// leased reports whether nobody else can own the shard by now: every follower has
// promised to follow. The caller holds mu.
func (r *replica) leased() bool {
	return r.awaited(func(f *followerStream) bool { return f != nil && f.p.leased() })
}

// lost returns the followers to which there is no stream, and nobody is about to make
// one. The caller holds mu.
func (r *replica) lost() (ids []shard.ServerID) {
	if r.gathering > 0 {
		return nil
	}
	for _, id := range append(r.copy.Followers.IDs(), r.copy.Joining) {
		if id != "" && r.stream(id) == nil && r.copy.Owns() {
			ids = append(ids, id)
		}
	}
	return ids
}

// holds reports whether an answer about the state up to a change is true: the followers
// have it, and still follow. A server that has slept may find confirmations in its
// sockets that are no longer worth anything. The caller holds mu.
func (r *replica) holds(change uint64) bool { return r.safe() >= change && r.leased() }

// confirmed is the answer OK about the state up to a change. The caller holds mu.
func (r *replica) confirmed(change uint64) outcome {
	if r.holds(change) {
		return outcome{}
	}
	return outcome{after: change, copy: r}
}

// await defers an answer. It reports false when the followers have the change already,
// and an error code when the answer is not true any more or too many wait.
func (r *replica) await(d deferred) (waits bool, c code) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.copy.Owns(), len(r.deferred) >= maxDeferred:
		return false, codeRetry
	case r.holds(d.change):
		return false, codeOK
	}
	i := len(r.deferred)
	for i > 0 && r.deferred[i-1].change > d.change {
		i--
	}
	r.deferred = slices.Insert(r.deferred, i, d)
	return true, codeOK
}

// settled takes the answers off that have become true. The caller holds mu, and sends
// them when it does not any more.
func (r *replica) settled() []deferred {
	if len(r.deferred) == 0 || !r.leased() {
		return nil
	}
	safe, n := r.safe(), 0
	for n < len(r.deferred) && r.deferred[n].change <= safe {
		n++
	}
	if n == 0 {
		return nil
	}
	ready := slices.Clone(r.deferred[:n])
	rest := copy(r.deferred, r.deferred[n:])
	clear(r.deferred[rest:])
	r.deferred = r.deferred[:rest]
	return ready
}

// answerDeferred sends answers that have become true.
func answerDeferred(ready []deferred) {
	for _, d := range ready {
		d.answer(true)
	}
}

// refuseDeferred sends the answer to try again, here or elsewhere.
func refuseDeferred(dropped []deferred) {
	for _, d := range dropped {
		d.answer(false)
	}
}

func (d deferred) answer(ok bool) {
	if d.session == nil {
		d.wake <- ok
		return
	}
	d.session.late(d, ok)
}

// followerFull reports whether a push at offset must wait for a follower. The
// caller holds mu.
func (r *replica) followerFull(offset uint64) bool {
	for _, f := range r.streams {
		if int(offset/BlockElems) < f.sent && (f.queued[ofUpdate] >= updateQueue || f.p.full(r)) {
			return true
		}
	}
	return false
}

// waitBriefly waits for a change of the followers' queues. It reports false when ctx
// has ended, or nothing has changed for roomPatience. The caller holds mu.
func (r *replica) waitBriefly(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, roomPatience)
	defer cancel()
	return r.waitRoom(ctx) && ctx.Err() == nil
}

// waitRoom waits for a change of the followers' queues or of what they have. It reports
// false when ctx has ended. The caller holds mu.
func (r *replica) waitRoom(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	defer context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.room.Broadcast()
	})()
	r.room.Wait()
	return true
}

// forward sends what was just applied behind the block that it touched. The caller
// holds mu and has seen that the queues have room.
func (r *replica) forward(h *wire.Header, ids []int64, values []float32) {
	for _, f := range r.streams {
		if int(h.Offset/BlockElems) < f.sent {
			fwd := *h
			fwd.Kind, fwd.Code, fwd.Encoding, fwd.Flags = wire.Forward, uint8(h.Kind), 0, 0
			if len(ids) > 0 {
				f.enqueueRows(fwd, ids, values)
			} else {
				f.enqueueValues(ofUpdate, fwd, values)
			}
		}
	}
}

// retain takes in which incarnations still exist. The followers get it in its place among
// the changes, so that their windows stay the same; a copy that follows ignores what
// comes to it otherwise.
func (r *replica) retain(m retain) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.copy.Serves() || r.gathering > 0 {
		return // it comes again
	}
	for _, f := range r.streams {
		if f.queued[ofUpdate] >= updateQueue || f.p.full(r) {
			return // it comes again
		}
	}
	if !r.windows.Retain(m.Horizon, m.Live) {
		return
	}
	r.changes++
	r.last = r.copy.Epoch
	for _, f := range r.streams {
		if f.stated {
			b := f.p.free.get()
			n := m.encode(b.bytes(wire.MaxPayload))
			h := wire.Header{Kind: wire.Forward, Code: uint8(wire.Retain), Epoch: uint64(r.last), Length: uint32(n), PayloadSum: wire.Sum(b.bytes(n))}
			f.enqueue(ofUpdate, h, b)
		}
	}
}
