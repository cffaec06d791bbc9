package ps

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

const (
	// beatInterval is how often an owner asks its followers whether they follow.
	beatInterval = 50 * time.Millisecond
	// leaseTime is how long after a question that was answered an owner may serve reads:
	// its followers promise that nobody takes its place before. It bounds how long a
	// promoted follower waits if its predecessor is not known to be dead.
	leaseTime = 400 * time.Millisecond
	// leaseDrift is what clocks may differ in their pace, over one lease.
	leaseDrift = leaseTime / 16
	// followerPatience is how long a follower may not answer before its owner gives it up, and
	// followerBeats how many questions in a row at least: an owner that did not run itself
	// for so long finds the answers unread in its sockets.
	followerPatience = time.Second
	followerBeats    = 5
	// peerQueue bounds the frames of all shards that wait for one connection.
	peerQueue = 64
	// maxPeerBatch is how many frames leave in one write.
	maxPeerBatch = stream.MaxSlices / 2
)

// peer is a connection to a server that follows this one: the streams of many shards,
// each in its own order, and their acknowledgements.
type peer struct {
	key  peerKey
	to   shard.ServerID
	conn *stream.Conn
	free buffers
	// missed is called when a follower has been lost.
	missed func()
	// lease is until when the server has promised to follow, in the time of since.
	lease atomic.Int64
	heard atomic.Int64 // when it last answered

	mu      sync.Mutex
	streams map[shard.ID]*followerStream
	frames  []streamFrame
	waiting map[*replica]struct{} // for room
	wake    chan struct{}         // capacity 1: has a value when there are frames
	err     error
}

type peerKey struct {
	run  uint64
	lane uint8
}

// streamFrame is one frame on its way to a follower.
type streamFrame struct {
	stream  *followerStream // nil for a beat
	header  wire.Header
	payload *buffer
	kind    int // index of followerStream.queued
}

// processStart is what monotonic times are measured from.
var processStart = time.Now()

// since is the monotonic time: it does not jump when the clock is set.
func since() int64 { return int64(time.Since(processStart)) }

// peerLanes is the number of connections to one follower: their frames are applied in
// parallel there.
func peerLanes() uint32 { return uint32(min(max(runtime.GOMAXPROCS(0)/4, 1), 4)) }

// attach returns the connection for the streams of f's shard to a server, with f on it.
func (s *Server) attach(ctx context.Context, to serverInfo, f *followerStream) error {
	key := peerKey{to.Run, uint8(uint32(f.r.spec.ID) % peerLanes())}
	for {
		s.peerMu.Lock()
		slot := s.peers[key]
		if slot == nil {
			slot = make(chan *peer, 1)
			slot <- nil
			s.peers[key] = slot
		}
		s.peerMu.Unlock()
		var p *peer
		select {
		case p = <-slot: // nobody else dials that server meanwhile
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s.peerMu.Lock()
		isForgotten := s.peers[key] != slot // meanwhile
		s.peerMu.Unlock()
		if isForgotten {
			slot <- p // for others who wait
			continue
		}
		if p.add(f) {
			slot <- p
			return nil
		}
		p, err := s.newPeer(ctx, key, to)
		if err != nil {
			s.peerMu.Lock()
			delete(s.peers, key)
			s.peerMu.Unlock()
		}
		slot <- p
		if err != nil {
			return err
		}
	}
}

func (s *Server) newPeer(ctx context.Context, key peerKey, to serverInfo) (*peer, error) {
	if err := context.Cause(s.ctx); err != nil {
		return nil, err // a server that has closed connects to nobody
	}
	conn, err := s.dialPeer(ctx, to)
	if err != nil {
		return nil, err
	}
	p := &peer{
		key: key, to: to.ID, conn: conn, free: s.free, missed: s.reportSoon,
		streams: map[shard.ID]*followerStream{}, waiting: map[*replica]struct{}{}, wake: make(chan struct{}, 1),
	}
	p.heard.Store(since())
	if !s.track(conn) {
		return nil, conn.CloseWithError(ErrClosed)
	}
	s.spawn(p.send)
	s.spawn(func() { p.receive(); s.untrack(conn); s.forget(p) })
	return p, nil
}

// forget lets go of a connection that has ended, unless somebody is about to replace it.
func (s *Server) forget(p *peer) {
	s.peerMu.Lock()
	defer s.peerMu.Unlock()
	slot := s.peers[p.key]
	select {
	case kept := <-slot:
		if kept == p {
			delete(s.peers, p.key)
		}
		slot <- kept
	default:
	}
}

// dialPeer opens a data connection to another server.
func (s *Server) dialPeer(ctx context.Context, to serverInfo) (*stream.Conn, error) {
	if s.ctx.Err() != nil {
		return nil, fmt.Errorf("%w: server %q", ErrClosed, s.cfg.ID)
	}
	if local := localServer(ctx, s.cfg.Node, to); local != nil {
		return local.pipe(), nil
	}
	return dial(ctx, to, s.cfg.TLS, stream.Config{WriteTimeout: followTimeout})
}

// add puts a stream on the connection, in place of a former one of its shard. It
// reports false if the connection has ended; a nil one has.
func (p *peer) add(f *followerStream) bool {
	if p == nil || p.conn.Err() != nil {
		return false
	}
	p.mu.Lock()
	if p.err != nil {
		p.mu.Unlock()
		return false
	}
	id := f.r.spec.ID
	previous := p.streams[id]
	p.streams[id], f.p = f, p
	p.mu.Unlock()
	previous.end(errNotFollowing)
	return true
}

// remove takes a stream off. The last one closes the connection.
func (p *peer) remove(f *followerStream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams[f.r.spec.ID] == f {
		delete(p.streams, f.r.spec.ID)
	}
	if len(p.streams) == 0 && p.err == nil {
		p.err = errNotFollowing
		_ = p.conn.CloseWithError(errNotFollowing) // nothing is left to be sent
	}
}

// put queues a frame. The caller has seen that there is room, or needs none.
func (p *peer) put(frame streamFrame) {
	p.mu.Lock()
	p.frames = append(p.frames, frame)
	p.mu.Unlock()
	p.awake()
}

// full reports whether too many frames wait. Then r.room is signalled when there are
// fewer. The caller holds r.mu.
func (p *peer) full(r *replica) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.frames) < peerQueue {
		return false
	}
	p.waiting[r] = struct{}{}
	return true
}

// send writes what is queued, and the beats.
func (p *peer) send() {
	beat := time.NewTicker(beatInterval)
	defer beat.Stop()
	var batch [maxPeerBatch]streamFrame
	var headers [maxPeerBatch][wire.HeaderBytes]byte
	p.beat()
	heard, unanswered := p.heard.Load(), 0
	for {
		select {
		case <-p.wake:
		case <-beat.C:
			if last := p.heard.Load(); last != heard {
				heard, unanswered = last, 0
			}
			unanswered++
			if silence := time.Duration(since() - heard); silence > followerPatience && unanswered > followerBeats {
				p.fail(fmt.Errorf("%w: no answer for %v", ErrUnavailable, silence.Round(time.Millisecond)))
				return
			}
			p.beat()
		case <-p.conn.Done():
			p.fail(p.conn.Err())
			return
		}
		for n := p.take(&batch); n > 0; n = p.take(&batch) {
			if err := p.write(batch[:n], &headers); err != nil {
				p.fail(err)
				return
			}
		}
	}
}

// beat asks the follower whether it follows. The question carries when it was asked, and
// goes before all that waits: a lease must not run out because a follower is slow.
func (p *peer) beat() {
	p.mu.Lock()
	p.frames = slices.Insert(p.frames, 0, streamFrame{header: wire.Header{Kind: wire.Beat, Request: uint64(since())}})
	p.mu.Unlock()
	p.awake()
}

// awake has what is queued sent.
func (p *peer) awake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take moves the frames of one write into batch.
func (p *peer) take(batch *[maxPeerBatch]streamFrame) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, size := 0, 0
	for n < len(batch) && n < len(p.frames) && (n == 0 || size+int(p.frames[n].header.Length) <= batchBytes) {
		batch[n] = p.frames[n]
		size += int(batch[n].header.Length)
		n++
	}
	rest := copy(p.frames, p.frames[n:])
	clear(p.frames[rest:])
	p.frames = p.frames[:rest]
	return n
}

// write writes frames, and says so to those who wait for room.
func (p *peer) write(batch []streamFrame, headers *[maxPeerBatch][wire.HeaderBytes]byte) error {
	var iov [2 * maxPeerBatch][]byte
	bufs := iov[:0]
	for i, frame := range batch {
		frame.header.Encode(headers[i][:])
		bufs = append(bufs, headers[i][:])
		if frame.header.Length > 0 {
			bufs = append(bufs, frame.payload.bytes(int(frame.header.Length)))
		}
	}
	err := p.conn.Send(bufs...)
	for i, frame := range batch {
		if f := frame.stream; f != nil {
			f.r.mu.Lock()
			f.queued[frame.kind]--
			f.r.room.Broadcast()
			f.r.mu.Unlock()
		}
		p.free.put(frame.payload)
		batch[i] = streamFrame{}
	}
	p.mu.Lock()
	waiting := p.waiting
	if len(waiting) > 0 {
		p.waiting = map[*replica]struct{}{}
	}
	p.mu.Unlock()
	for r := range waiting {
		r.mu.Lock()
		r.room.Broadcast()
		r.mu.Unlock()
	}
	return err
}

// receive takes what the follower says until the connection ends.
func (p *peer) receive() {
	for {
		h, text, err := readFrame(p.conn, maxReplyText)
		if err != nil {
			p.fail(err)
			return
		}
		switch h.Kind {
		case wire.Beat:
			p.renew(int64(h.Request) + int64(leaseTime))
		case wire.Ack:
			p.acknowledged(&h, text)
		default:
			p.fail(fmt.Errorf("%w: %d from a follower", wire.ErrKind, h.Kind))
			return
		}
	}
}

// renew takes note of a promise. What has waited for it is answered.
func (p *peer) renew(until int64) {
	p.heard.Store(since())
	// In this order: whoever has found the former lease over is answered here.
	former := p.lease.Swap(until)
	if since() < former || !p.leased() {
		return
	}
	for _, f := range p.all() {
		f.r.mu.Lock()
		ready := f.r.settled()
		f.r.mu.Unlock()
		answerDeferred(ready)
	}
}

// all returns the streams on the connection.
func (p *peer) all() (streams []*followerStream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.streams {
		streams = append(streams, f)
	}
	return streams
}

func (p *peer) acknowledged(h *wire.Header, text []byte) {
	p.mu.Lock()
	f := p.streams[shard.ID(h.Shard)]
	p.mu.Unlock()
	switch {
	case f == nil || f.attempt != h.Seq: // of a stream that is over
	case code(h.Code) != codeOK:
		f.end(fmt.Errorf("%w: server %q does not follow shard %d: %s", shard.ErrRefused, p.to, h.Shard, text))
	default:
		f.confirm(h.Request)
	}
}

// fail ends the connection and all its streams.
func (p *peer) fail(err error) {
	err = p.conn.CloseWithError(err)
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	for _, frame := range p.frames {
		p.free.put(frame.payload)
	}
	p.frames = nil
	p.mu.Unlock()
	for _, f := range p.all() {
		f.end(fmt.Errorf("%w: follower %q: %w", ErrUnavailable, p.to, err))
	}
}

// leased reports whether the server has promised to follow for now.
func (p *peer) leased() bool { return since() < p.lease.Load() }

var errNotFollowing = errors.New("ps: no follower stream of this move")
