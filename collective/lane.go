package collective

import (
	"fmt"
	"slices"
	"sync"

	"github.com/elasticps/elasticps/internal/stream"
)

// lane carries frames between this rank and another one, in order in both directions. One
// goroutine at a time sends, one receives.
type lane interface {
	// send sends a frame without waiting for the peer. Unless copied is set, the payload
	// must not change before the ticket is through.
	send(h *header, payload []byte, copied bool) (ticket, error)
	// next receives the header of the next frame; then read or view takes its payload.
	next(h *header) error
	read(dst []byte) error
	// view is what comes next of a payload that has n bytes left, until the next view or
	// release: all of it if whole is set, else perhaps only a piece. Who has called next calls
	// read or release, also after an error of view or of its own.
	view(n int, whole bool) ([]byte, error)
	release()
	// close ends the lane with an error for all calls.
	close(err error)
}

// tally counts what was sent and may be changed again.
type tally struct {
	mu   sync.Mutex
	cond sync.Cond // more is done, or has come, or the end
	sent uint64
	done uint64
	busy bool // somebody uses what comes next
	err  error
	// drive, where there is one, waits for a send by carrying it on.
	drive func(n uint64) error
}

// ticket stands for one send. The zero value is through.
type ticket struct {
	tally *tally
	n     uint64
}

// through reports whether the payload may be changed.
func (t ticket) through() bool {
	if t.tally == nil {
		return true
	}
	t.tally.mu.Lock()
	defer t.tally.mu.Unlock()
	return t.tally.done >= t.n
}

// wait waits until the payload may be changed. The error is that of a lane which has ended
// before the payload was used; it will not be any more.
func (t ticket) wait() error {
	if t.tally == nil {
		return nil
	}
	if t.tally.drive != nil {
		return t.tally.drive(t.n)
	}
	t.tally.mu.Lock()
	defer t.tally.mu.Unlock()
	for t.tally.done < t.n && (t.tally.err == nil || t.tally.busy) {
		t.tally.cond.Wait()
	}
	if t.tally.done >= t.n {
		return nil
	}
	return t.tally.err
}

// packet is a frame on its way.
type packet struct {
	header  header
	payload []byte
	copied  bool // the payload is nobody else's
	gone    int  // bytes of the frame that are out
}

// packets is a queue whose memory is used again.
type packets struct {
	list  []packet
	first int // of those that are left
}

func (q *packets) add(p packet) { q.list = append(q.list, p) }
func (q *packets) left() int    { return len(q.list) - q.first }

// take removes the first one.
func (q *packets) take() packet {
	p := q.list[q.first]
	q.list[q.first] = packet{}
	if q.first++; q.first == len(q.list) {
		q.list, q.first = q.list[:0], 0
	}
	return p
}

// drop removes those that no use can be made of: their payload is their sender's again.
func (q *packets) drop() {
	q.list = slices.DeleteFunc(q.list[q.first:], func(p packet) bool { return !p.copied })
	q.first = 0
}

// memory is one direction of a lane within a process: the receiver uses the sender's
// slices where they are.
type memory struct {
	tally
	queue packets
	spare []byte // of a payload that was copied and has been used
}

func newMemory() *memory {
	m := &memory{}
	m.cond.L = &m.mu
	return m
}

// room is where a payload may be copied to.
func (m *memory) room() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.spare[:0]
	m.spare = nil
	return b
}

func (m *memory) end(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
	}
	m.queue.drop()
	m.cond.Broadcast()
}

// memoryLane is a lane within a process.
type memoryLane struct {
	out, in *memory
	now     packet // that is being received
}

// memoryLanes returns both ends of a lane.
func memoryLanes() (lane, lane) {
	a, b := newMemory(), newMemory()
	return &memoryLane{out: a, in: b}, &memoryLane{out: b, in: a}
}

func (l *memoryLane) send(h *header, payload []byte, copied bool) (ticket, error) {
	m := l.out
	if copied {
		payload = append(m.room(), payload...)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return ticket{}, m.err
	}
	m.sent++
	m.queue.add(packet{header: *h, payload: payload, copied: copied})
	m.cond.Broadcast()
	if copied {
		return ticket{}, nil
	}
	return ticket{&m.tally, m.sent}, nil
}

func (l *memoryLane) next(h *header) error {
	m := l.in
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.queue.left() == 0 {
		if m.err != nil {
			return m.err
		}
		m.cond.Wait()
	}
	l.now = m.queue.take()
	m.busy = true
	*h = l.now.header
	return nil
}

func (l *memoryLane) read(dst []byte) error {
	copy(dst, l.now.payload)
	l.release()
	return nil
}

func (l *memoryLane) view(int, bool) ([]byte, error) { return l.now.payload, nil }

func (l *memoryLane) release() {
	m := l.in
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.now.copied {
		m.spare = l.now.payload
	}
	l.now = packet{}
	m.busy = false
	m.done++
	m.cond.Broadcast()
}

func (l *memoryLane) close(err error) {
	l.out.end(err)
	l.in.end(err)
}

// The caller of a send writes payloads of up to inlineBytes to the socket itself, which costs
// no hand-over, and larger ones where a rank has no two processors to itself: a
// goroutine that does it would run in its stead, not beside it. It writes what the kernel
// has room for, for it has to go on reading. A connection that cannot tell, such as TLS,
// takes no more than maxInline bytes of one call: as much as the kernel has room for when the
// peer does not read. (What is left there from earlier calls is read by a peer that has
// not come so far, and only one that has can be waiting for this rank to read.)
const (
	inlineBytes = 15 << 10
	maxInline   = 64 << 10
)

// pieceBytes is how much of a payload is read before it is combined, in whole elements of any
// type: with what it is combined with, it stays in cache.
const pieceBytes = 64 << 10

// socket is one connection of a lane.
type socket struct {
	tally
	conn    *stream.Conn
	queue   packets
	writing bool // a goroutine writes what is queued
	raw     [headerBytes]byte
}

// socketLane is a lane over connections that take turns, frame by frame.
type socketLane struct {
	sockets []*socket
	crowded bool   // a rank has no two processors to itself
	out, in int    // the connection whose turn it is
	inline  int    // bytes of this call that its caller has written
	scratch []byte // for views
}

func newSocketLane(conns []*stream.Conn, crowded bool) *socketLane {
	l := &socketLane{crowded: crowded}
	for _, c := range conns {
		s := &socket{conn: c}
		s.cond.L = &s.mu
		l.sockets = append(l.sockets, s)
	}
	return l
}

// send needs no copy: what arrives is read aside before it waits for what was sent.
func (l *socketLane) send(h *header, payload []byte, _ bool) (ticket, error) {
	s := l.sockets[l.out]
	l.out = (l.out + 1) % len(l.sockets)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return ticket{}, s.err
	}
	if h.part == 0 {
		l.inline = 0
	}
	p := packet{header: *h, payload: payload}
	if small := len(payload) <= inlineBytes; !s.writing && (small || l.crowded) {
		h.encode(&s.raw)
		var can bool
		if p.gone, can = s.conn.SendNow(s.raw[:], payload); p.gone == headerBytes+len(payload) {
			return ticket{}, nil
		}
		if !can && small && l.inline+len(payload) <= maxInline {
			l.inline += len(payload)
			return ticket{}, s.conn.Send(s.raw[:], payload) // it copies what is small
		}
	}
	s.sent++
	s.queue.add(p)
	if !s.writing {
		s.writing = true
		go s.write()
	}
	return ticket{&s.tally, s.sent}, nil
}

// write writes what is queued, until nothing is.
func (s *socket) write() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.queue.left() > 0 && s.err == nil {
		p := s.queue.take()
		s.busy = true
		s.mu.Unlock()
		p.header.encode(&s.raw)
		err := s.conn.Send(s.raw[min(p.gone, headerBytes):], p.payload[max(p.gone-headerBytes, 0):])
		s.mu.Lock()
		s.busy = false
		if err != nil && s.err == nil {
			s.err = err
		}
		if err == nil {
			s.done++
		}
		s.cond.Broadcast()
	}
	s.writing = false
	if s.err != nil {
		s.queue = packets{} // the payloads are their senders' again
	}
	s.cond.Broadcast()
}

func (l *socketLane) next(h *header) error {
	raw, err := l.sockets[l.in].conn.Next(headerBytes)
	if err != nil {
		return err
	}
	if err := h.decode(raw); err != nil {
		return err
	}
	if h.kind != frameData {
		return fmt.Errorf("%w: frame of kind %d among data", ErrRefused, h.kind)
	}
	return nil
}

func (l *socketLane) read(dst []byte) error {
	err := l.sockets[l.in].conn.ReadFull(dst)
	l.release()
	return err
}

// view reads a piece at a time, so that it is in the cache of the processor when it is used.
func (l *socketLane) view(n int, whole bool) ([]byte, error) {
	piece := n
	if !whole {
		piece = min(n, pieceBytes)
	}
	if cap(l.scratch) < piece {
		l.scratch = make([]byte, max(piece, pieceBytes))
	}
	return l.scratch[:piece], l.sockets[l.in].conn.ReadPart(l.scratch[:piece], n-piece)
}

func (l *socketLane) release() { l.in = (l.in + 1) % len(l.sockets) }

func (l *socketLane) close(err error) {
	for _, s := range l.sockets {
		_ = s.conn.CloseWithError(err) // what it had before is as good
		s.mu.Lock()
		if s.err == nil {
			s.err = err
		}
		s.cond.Broadcast()
		s.mu.Unlock()
	}
}
