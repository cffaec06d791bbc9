package ps

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// Bounds of the frames of one stream that wait for the connection. When it is full,
// pushes to blocks already sent wait: back-pressure instead of memory. Blocks and
// updates have their own, so that a push need not wait because a large shard is being
// sent, nor the shard because of pushes.
const (
	blockQueue  = 6 // at least the frames of one block
	updateQueue = 10
)

const (
	stateHeaderBytes = 24 // pushes applied, changes, epoch of the last one
	maxStateBytes    = stateHeaderBytes + shard.MaxWindowsBytes
)

// sumSection is the section number of the sum of the open clock; 0 is the weights,
// slot i is i+1.
const sumSection = 255

// followerStream is the owner's end of the stream that makes another server's copy
// of a shard, and keeps it one. Blocks are sent in order while pushes go on; a push
// that touches a block already sent is forwarded behind it. One queue keeps the order
// in which the owner's state changed.
type followerStream struct {
	r        *replica
	p        *peer // set by peer.add
	attempt  uint64
	refollow bool          // the other side has the same state already
	rate     int64         // bytes per second of blocks, 0 for no limit
	stop     chan struct{} // closed by end
	accepted chan struct{} // closed when the follower has taken the stream
	caught   chan struct{} // closed when it has everything that was sent before the state

	// guarded by r.mu
	sent      int    // blocks queued
	queued    [2]int // frames on their way: of updates, of blocks
	frames    uint64 // frames queued; each carries its number
	stated    bool   // the state was queued: the follower counts the changes behind it
	confirmed uint64 // the last change that the follower has
	ended     bool
	err       error // why
}

// Kinds of frames in the queue.
const (
	ofUpdate = iota
	ofBlock
)

func newFollowerStream(r *replica, attempt uint64) *followerStream {
	return &followerStream{
		r: r, attempt: attempt,
		stop: make(chan struct{}), accepted: make(chan struct{}), caught: make(chan struct{}),
	}
}

// open begins the stream at the follower and returns when it has been accepted.
func (f *followerStream) open(ctx context.Context, s *Server, order shard.Effect, to serverInfo) error {
	if err := s.attach(ctx, to, f); err != nil {
		return err
	}
	f.r.mu.Lock()
	hello := wire.Header{
		Kind: wire.Follow, Shard: uint32(f.r.spec.ID), Seq: f.attempt, Floor: f.attempt,
		Epoch: uint64(order.Epoch), Request: f.r.changes, Incarnation: uint64(f.r.last),
	}
	if f.refollow && !f.ended {
		// From here on every change goes to the follower, whose state is the same.
		hello.Code, f.sent, f.stated = 1, len(f.r.blocks), true
		f.r.streams = append(f.r.streams, f)
		f.r.room.Broadcast()
	}
	name := f.p.free.get()
	hello.Length = uint32(copy(name.bytes(shard.MaxServerIDBytes), s.cfg.ID))
	hello.PayloadSum = wire.Sum(name.bytes(int(hello.Length)))
	f.p.put(streamFrame{header: hello, payload: name})
	f.r.mu.Unlock()
	return f.await(ctx, f.accepted)
}

func (f *followerStream) await(ctx context.Context, event <-chan struct{}) error {
	var err error
	select {
	case <-event:
		return nil
	case <-f.stop:
		err = f.cause()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	f.end(err)
	return err
}

// follow has the target of an order made a copy, and returns when it is a few messages
// behind. With Join, nothing is acknowledged from then on that it does not have. What has
// failed once is not begun again for the same attempt: who asks has missed the answer.
func (s *Server) follow(ctx context.Context, r *replica, order shard.Effect, to serverInfo, rate int64) error {
	r.mu.Lock()
	early := r.awaitSpeech(ctx)
	f, failed := r.stream(to.ID), r.failed
	r.mu.Unlock()
	switch {
	case early != nil:
		return early
	case f != nil && f.attempt == order.Attempt:
		return f.await(ctx, f.caught) // asked again; the answer was lost
	case failed.err != nil && failed.attempt == order.Attempt:
		return failed.err
	}
	f = newFollowerStream(r, order.Attempt)
	f.rate = rate
	err := f.fill(ctx, s, order, to)
	if err != nil {
		r.mu.Lock()
		r.failed = failedStream{order.Attempt, err}
		r.mu.Unlock()
	}
	return err
}

// awaitSpeech waits until a promoted copy may answer. Before that it does not pass the shard
// on: whoever gets it next would not wait for the lease of the owner before. The caller holds
// mu.
func (r *replica) awaitSpeech(ctx context.Context) error {
	for r.isQuiet() {
		if !r.waitRoom(ctx) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// failedStream is a stream that has not made a copy, and why.
type failedStream struct {
	attempt uint64
	err     error
}

// fill sends the shard, and returns when the follower has it.
func (f *followerStream) fill(ctx context.Context, s *Server, order shard.Effect, to serverInfo) error {
	r := f.r
	if err := f.open(ctx, s, order, to); err != nil {
		return err
	}
	r.mu.Lock()
	next, err := r.copy.Step(order)
	if f.ended { // meanwhile
		err = f.err
	}
	if err != nil {
		r.mu.Unlock()
		f.end(err)
		return err
	}
	others := r.unwanted(next)
	r.streams = append(r.streams, f)
	r.become(next)
	r.room.Broadcast()
	blocks := len(r.blocks)
	r.mu.Unlock()
	endAll(others, errNotFollowing)

	defer context.AfterFunc(ctx, func() { f.end(context.Cause(ctx)) })()
	began := time.Now()
	for b := range blocks {
		if err := f.queueBlock(b); err != nil {
			return err
		}
		f.pace(ctx, began, b+1)
	}
	if err := f.queueState(order.Join); err != nil {
		return err
	}
	return f.await(ctx, f.caught)
}

// pace waits as long as it takes to send the first n blocks at the stream's rate.
func (f *followerStream) pace(ctx context.Context, began time.Time, n int) {
	f.r.mu.Lock()
	bytes := float64(f.r.stateBytes()) * float64(n) / float64(max(len(f.r.blocks), 1))
	f.r.mu.Unlock()
	pace(ctx, f.rate, bytes, began)
}

// pace waits as long as it takes to pass so many bytes, since began, at a rate in bytes per
// second; 0 is no limit.
func pace(ctx context.Context, rate int64, bytes float64, began time.Time) {
	if rate <= 0 {
		return
	}
	if ahead := time.Duration(bytes/float64(rate)*float64(time.Second)) - time.Since(began); ahead > time.Millisecond {
		sleep(ctx, ahead)
	}
}

// wait blocks until the queue has room for n frames of a block. The caller holds r.mu.
// The error is why the stream ended.
func (f *followerStream) wait(n int) error {
	for !f.ended && (f.queued[ofBlock] > 0 && f.queued[ofBlock]+n > blockQueue || f.p.full(f.r)) {
		f.r.room.Wait()
	}
	return f.err
}

// queueBlock queues one block in one critical section: it is of one instant.
func (f *followerStream) queueBlock(b int) error {
	r := f.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := f.wait(3 + len(r.slots)); err != nil {
		return err
	}
	if b >= len(r.blocks) { // freed: the server closes, and ends the stream next
		return errNotFollowing
	}
	if r.sparse {
		f.queueRows(b)
		return nil
	}
	lo, hi := r.bounds(b)
	meta := f.p.free.get()
	r.blocks[b].encode(meta.bytes(blockMetaBytes))
	h := wire.Header{Kind: wire.BlockMeta, Offset: uint64(lo), Length: blockMetaBytes, PayloadSum: wire.Sum(meta.bytes(blockMetaBytes))}
	f.enqueue(ofBlock, h, meta)
	section := func(number uint8, x []float32) {
		f.enqueueValues(ofBlock, wire.Header{Kind: wire.Block, Code: number, Offset: uint64(lo), Count: uint32(len(x))}, x)
	}
	section(0, r.weights[lo:hi])
	for i, s := range r.slots {
		section(uint8(i+1), s[lo:hi])
	}
	if r.blocks[b].dirty > 0 {
		section(sumSection, r.sum[lo:hi])
	}
	f.sent = b + 1
	return nil
}

// queueState queues what belongs to the shard as a whole: counters and push windows, in
// frames of at most MaxPayload bytes, the last one marked. The follower is a copy then;
// from here on it counts every change.
func (f *followerStream) queueState(join bool) error {
	r := f.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := f.wait(1); err != nil {
		return err
	}
	if join {
		next, err := r.copy.Join(f.attempt)
		if err != nil {
			return err
		}
		r.copy = next
	}
	rest := binary.LittleEndian.AppendUint64(nil, r.applied)
	rest = binary.LittleEndian.AppendUint64(rest, r.changes)
	rest = r.windows.Append(binary.LittleEndian.AppendUint64(rest, uint64(r.last)))
	for last := false; !last; {
		n := min(len(rest), wire.MaxPayload)
		last = n == len(rest)
		h := wire.Header{Kind: wire.State, Length: uint32(n)}
		if last {
			h.Code = 1
		}
		b := f.p.free.get()
		h.PayloadSum = wire.Copy(b.bytes(n), rest)
		f.enqueue(ofBlock, h, b)
		rest = rest[n:]
	}
	f.stated = true
	return nil
}

// enqueueValues queues a frame with a copy of x.
func (f *followerStream) enqueueValues(kind int, h wire.Header, x []float32) {
	b := f.p.free.get()
	h.Length = 4 * uint32(len(x))
	h.PayloadSum = wire.Copy(b.bytes(int(h.Length)), wire.Bytes(x))
	f.enqueue(kind, h, b)
}

// enqueue is called under r.mu after room was checked. The payload's checksum is in h.
func (f *followerStream) enqueue(kind int, h wire.Header, payload *buffer) {
	f.frames++
	h.Request, h.Shard = f.frames, uint32(f.r.spec.ID)
	f.queued[kind]++
	f.p.put(streamFrame{stream: f, header: h, payload: payload, kind: kind})
}

// confirm takes note of what the follower has.
func (f *followerStream) confirm(change uint64) {
	r := f.r
	r.mu.Lock()
	select {
	case <-f.accepted:
	default: // the answer to open
		close(f.accepted)
		if !f.refollow {
			r.mu.Unlock()
			return
		}
	}
	if f.stated && !f.ended {
		select {
		case <-f.caught:
		default:
			close(f.caught)
		}
	}
	f.confirmed = max(f.confirmed, change)
	ready := r.settled()
	r.room.Broadcast() // a freeze waits for it
	r.mu.Unlock()
	answerDeferred(ready)
}

func (f *followerStream) cause() error {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	return f.err
}

// end stops the stream; a nil stream is fine. The caller does not hold r.mu.
func (f *followerStream) end(err error) {
	if f == nil {
		return
	}
	r := f.r
	r.mu.Lock()
	first := !f.ended
	if first {
		f.ended, f.err = true, err
		close(f.stop)
		r.forget(f)
	}
	r.room.Broadcast()
	missed := f.p != nil && r.copy.Owns() && r.copy.Awaits(f.p.to)
	r.mu.Unlock()
	if first && f.p != nil {
		f.p.remove(f)
	}
	if first && missed {
		f.p.missed()
	}
}

func endAll(streams []*followerStream, err error) {
	for _, f := range streams {
		f.end(err)
	}
}

// freeze stops the shard and returns when the target and every follower have confirmed
// everything. Until it is told what became of the move, this server acknowledges
// nothing: it may not thaw by itself, because the move may have been committed.
func (r *replica) freeze(ctx context.Context, order shard.Effect) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.awaitSpeech(ctx); err != nil {
		return err
	}
	f := r.stream(order.Peer)
	for f == nil && r.copy.Awaits(order.Peer) && r.waitRoom(ctx) { // a new owner is just looking for its followers
		f = r.stream(order.Peer)
	}
	next, err := r.copy.Step(order)
	if err != nil {
		return err
	}
	if f == nil || !f.stated {
		return fmt.Errorf("%w: shard %d to server %q", errNotFollowing, r.spec.ID, order.Peer)
	}
	if next != r.copy {
		r.become(next)
	}
	for ctx.Err() == nil {
		switch {
		case f.ended:
			return f.err
		case r.copy.State != shard.Frozen || r.copy.Attempt != order.Attempt:
			return fmt.Errorf("%w: shard %d was thawed", shard.ErrRefused, r.spec.ID)
		case f.confirmed >= r.changes && r.safe() >= r.changes:
			return nil
		}
		r.waitRoom(ctx)
	}
	return context.Cause(ctx)
}
