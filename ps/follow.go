package ps

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/elasticps/elasticps/internal/invariant"
	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// followQueue bounds the frames that wait for the follower's connection, and so how long
// a freeze lasts. When it is full, pushes to blocks already sent wait: back-pressure
// instead of memory. Blocks take at most blockQueue of it, so that a push need not wait
// because a large shard is being sent.
const (
	followQueue = blockQueue + updateQueue
	blockQueue  = 6 // at least the frames of one block
	updateQueue = 10
)

// sealRoom is kept free in the queue so that sealing never waits under the lock.
const sealRoom = maxSealBytes/wire.MaxPayload + 2

const maxSealBytes = 8 + shard.MaxWindowsBytes

// sumSection is the section number of the sum of the open clock; 0 is the weights,
// slot i is i+1.
const sumSection = 255

var errNotFollowing = errors.New("ps: no follower stream of this move")

// followerStream is the owner's end of the stream that makes another server's copy
// of a shard. Blocks are sent in order while pushes go on; a push that touches a
// block already sent is forwarded behind it. One queue keeps the order in which
// the owner's state changed.
type followerStream struct {
	r       *replica
	attempt uint64
	conn    *stream.Conn
	free    buffers
	queue   chan streamFrame // filled under r.mu only, so that room can be checked
	stop    chan struct{}    // closed by end
	sealed  chan struct{}    // closed when the follower has confirmed the seal

	// guarded by r.mu
	sent   int    // blocks queued
	queued [2]int // frames on their way: of updates, of blocks
	frames uint64 // frames queued; each carries its number
	err    error  // why it ended
}

// streamFrame is one frame in the queue. A mark stands for no frame: it is closed
// when everything before it has been written.
type streamFrame struct {
	header  wire.Header
	payload *buffer
	kind    int // index of queued
	mark    chan struct{}
}

// Kinds of frames in the queue.
const (
	ofUpdate = iota
	ofBlock
)

// follow streams the shard over conn and returns when the follower is a live copy,
// a few messages behind. conn belongs to the stream, also after an error.
func (r *replica) follow(ctx context.Context, conn *stream.Conn, order shard.Effect, free buffers) error {
	f := &followerStream{
		r: r, attempt: order.Attempt, conn: conn, free: free,
		queue: make(chan streamFrame, followQueue+sealRoom),
		stop:  make(chan struct{}), sealed: make(chan struct{}),
	}
	r.mu.Lock()
	next, err := r.copy.Step(order)
	if err != nil {
		r.mu.Unlock()
		_ = conn.Close() // not used
		return err
	}
	previous := r.follower
	r.follower = f
	r.become(next)
	r.room.Broadcast()
	blocks := len(r.blocks)
	r.mu.Unlock()
	previous.end(errNotFollowing)

	go f.send()
	go f.receive()
	defer context.AfterFunc(ctx, func() { f.end(context.Cause(ctx)) })()
	for b := range blocks {
		if err := f.queueBlock(b); err != nil {
			return err
		}
	}
	return f.drained()
}

// wait blocks until the queue has room for n frames of a block. The caller holds r.mu.
// The error is why the stream ended.
func (f *followerStream) wait(n int) error {
	for f.err == nil && f.queued[ofBlock] > 0 && f.queued[ofBlock]+n > blockQueue {
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
	lo, hi := r.bounds(b)
	meta := f.free.get()
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

// enqueueValues queues a frame with a copy of x.
func (f *followerStream) enqueueValues(kind int, h wire.Header, x []float32) {
	b := f.free.get()
	h.Length = 4 * uint32(len(x))
	h.PayloadSum = wire.Copy(b.bytes(int(h.Length)), wire.Bytes(x))
	f.enqueue(kind, h, b)
}

// enqueue is called under r.mu after room was checked, so it never blocks. The payload's
// checksum is in h.
func (f *followerStream) enqueue(kind int, h wire.Header, payload *buffer) {
	f.frames++
	h.Request, h.Shard = f.frames, uint32(f.r.spec.ID)
	f.put(streamFrame{header: h, payload: payload, kind: kind})
}

func (f *followerStream) put(frame streamFrame) {
	f.queued[frame.kind]++
	select {
	case f.queue <- frame:
	default:
		invariant.Check(false, "I7: follower queue of %d frames overflows", cap(f.queue))
	}
}

// followerFull reports whether a push at offset must wait for the follower. The
// caller holds mu.
func (r *replica) followerFull(offset uint64) bool {
	f := r.follower
	return f != nil && int(offset/BlockElems) < f.sent && f.queued[ofUpdate] >= updateQueue
}

// waitRoom waits for a change of the follower's queue. It reports false when ctx has
// ended. The caller holds mu.
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
// holds mu and has seen that the queue has room.
func (r *replica) forward(h *wire.Header, values []float32) {
	f := r.follower
	if f == nil || int(h.Offset/BlockElems) >= f.sent {
		return
	}
	fwd := *h
	fwd.Kind, fwd.Code, fwd.Encoding = wire.Forward, uint8(h.Kind), 0
	f.enqueueValues(ofUpdate, fwd, values)
}

// drained waits until all that is queued has been written.
func (f *followerStream) drained() error {
	mark := make(chan struct{})
	f.r.mu.Lock()
	err := f.wait(1)
	if err == nil {
		f.put(streamFrame{mark: mark, kind: ofBlock})
	}
	f.r.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-mark:
		return nil
	case <-f.stop:
		return f.cause()
	}
}

// freeze stops the shard and returns when the follower has confirmed that it has
// everything. Until it is told what became of the move, this server acknowledges
// nothing: it may not thaw by itself, because the move may have been committed.
func (r *replica) freeze(ctx context.Context, order shard.Effect) error {
	r.mu.Lock()
	f, was := r.follower, r.copy.State
	next, err := r.copy.Step(order)
	if err == nil && was == shard.Frozen && r.confirmed == order.Attempt {
		r.mu.Unlock()
		return nil // asked again; the answer was lost
	}
	if err == nil && (f == nil || f.attempt != order.Attempt || f.sent < len(r.blocks)) {
		err = fmt.Errorf("%w: shard %d", errNotFollowing, r.spec.ID)
	}
	if err == nil && was != shard.Frozen {
		r.become(next)
		f.seal()
	}
	r.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-f.sealed:
		return nil
	case <-f.stop:
		return f.cause()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// seal queues the end of the stream: counter and push windows, in frames of at most
// MaxPayload bytes, the last one marked. The caller holds r.mu.
func (f *followerStream) seal() {
	rest := f.r.windows.Append(binary.LittleEndian.AppendUint64(nil, f.r.applied))
	for last := false; !last; {
		n := min(len(rest), wire.MaxPayload)
		last = n == len(rest)
		h := wire.Header{Kind: wire.Seal, Length: uint32(n)}
		if last {
			h.Code = 1
		}
		b := f.free.get()
		h.PayloadSum = wire.Copy(b.bytes(n), rest)
		f.enqueue(ofUpdate, h, b)
		rest = rest[n:]
	}
}

// maxFollowBatch is how many frames of a follower stream leave in one write.
const maxFollowBatch = batchBytes / wire.MaxPayload

// send writes the queue to the connection.
func (f *followerStream) send() {
	var batch [maxFollowBatch]streamFrame
	var headers [maxFollowBatch][wire.HeaderBytes]byte
	for {
		n := 0
		select {
		case <-f.stop:
			return
		case batch[0] = <-f.queue:
			n = 1
		}
		for more := true; more && n < len(batch); {
			select {
			case batch[n] = <-f.queue:
				n++
			default:
				more = false
			}
		}
		if err := f.write(batch[:n], &headers); err != nil {
			f.end(err)
			return
		}
	}
}

// write writes frames, and says so to those who wait for room.
func (f *followerStream) write(batch []streamFrame, headers *[maxFollowBatch][wire.HeaderBytes]byte) error {
	var iov [2 * maxFollowBatch][]byte
	bufs := iov[:0]
	for i, frame := range batch {
		if frame.mark == nil {
			frame.header.Encode(headers[i][:])
			bufs = append(bufs, headers[i][:], frame.payload.bytes(int(frame.header.Length)))
		}
	}
	err := f.conn.Send(bufs...)
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	for i, frame := range batch {
		f.queued[frame.kind]--
		if frame.mark != nil {
			close(frame.mark)
		}
		f.free.put(frame.payload)
		batch[i] = streamFrame{}
	}
	f.r.room.Broadcast()
	return err
}

// receive waits for the follower's confirmation of the seal.
func (f *followerStream) receive() {
	h, text, err := readReply(f.conn)
	if err == nil && code(h.Code) != codeOK {
		err = fmt.Errorf("ps: follower of shard %d: %s", f.r.spec.ID, text)
	}
	if err != nil {
		f.end(err)
		return
	}
	f.r.mu.Lock()
	f.r.confirmed = f.attempt
	f.r.mu.Unlock()
	close(f.sealed)
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
	if r.follower == f {
		r.follower = nil
	}
	if f.err == nil {
		f.err = err
		close(f.stop)
	}
	r.room.Broadcast()
	r.mu.Unlock()
	_ = f.conn.CloseWithError(err) // the cause is kept in f.err
}
