package collective

import (
	"fmt"
	"sync/atomic"
)

// ring is one direction between two ranks of a host: bytes in the sender's memory, counted
// from the beginning of the group. Each end believes its own count alone; that of the other
// one is checked whenever it is read.
type ring struct {
	data  []byte
	mine  *atomic.Uint64 // what this end publishes
	other *atomic.Uint64
	at    uint64 // of this end
	seen  uint64 // of the other one
}

// filled is how many bytes the receiver has before it.
func (r *ring) filled() (int, error) {
	seen := r.other.Load()
	if seen-r.at > uint64(len(r.data)) {
		return 0, fmt.Errorf("%w: its ring has %d bytes written of which %d are read, and room for %d", ErrRefused, seen, r.at, len(r.data))
	}
	r.seen = seen
	return int(seen - r.at), nil
}

// room is how many bytes the sender may write.
func (r *ring) room() (int, error) {
	seen := r.other.Load()
	if r.at-seen > uint64(len(r.data)) || seen < r.seen {
		return 0, fmt.Errorf("%w: it has read %d bytes of a ring with %d written, after %d, and room for %d", ErrRefused, seen, r.at, r.seen, len(r.data))
	}
	r.seen = seen
	return len(r.data) - int(r.at-seen), nil
}

// next is what lies at this end without a break, at most n bytes.
func (r *ring) next(n int) []byte {
	begin := int(r.at % uint64(len(r.data)))
	return part(r.data, begin, min(n, len(r.data)-begin))
}

// publish tells the other end how far this one is.
func (r *ring) publish() { r.mine.Store(r.at) }

// padded is the room of a payload: headers and payloads begin at cache lines.
func padded(n int) int { return (n + headerBytes - 1) / headerBytes * headerBytes }

// ringLane is a lane through shared memory. All of it belongs to the goroutine of the
// call under way.
type ringLane struct {
	tally
	mate    *mate
	out, in ring
	queue   packets // with the one that is being sent
	begun   bool    // its header is out
	gone    int     // bytes of its payload that are
	waits   bool    // it is one of hostMemory.pending
	left    int     // bytes of the frame that is being received
	pad     int     // behind the latest frame
	scratch []byte
	raw     [headerBytes]byte
}

func newRingLane(m *mate) *ringLane {
	h := m.host
	l := &ringLane{mate: m}
	l.cond.L = &l.mu
	l.drive = l.drain
	l.out = ring{data: h.own.ringTo(m.place), mine: h.own.head(m.place), other: h.own.tail(m.place)}
	l.in = ring{data: m.theirs.ringTo(h.place), mine: m.theirs.tail(h.place), other: m.theirs.head(h.place)}
	return l
}

// send copies the frame to the ring, or as much as there is room for: the rest follows
// whenever this rank waits for something.
func (l *ringLane) send(h *header, payload []byte, _ bool) (ticket, error) {
	if err := l.mate.err(); err != nil {
		return ticket{}, err
	}
	l.sent++
	l.queue.add(packet{header: *h, payload: payload})
	if err := l.push(); err != nil || l.done >= l.sent {
		return ticket{}, err
	}
	if !l.waits {
		l.waits = true
		l.mate.host.pending = append(l.mate.host.pending, l)
	}
	return ticket{&l.tally, l.sent}, nil
}

// pushBytes is how much is written before the receiver hears of it, who combines it
// meanwhile.
const pushBytes = 64 << 10

// push writes what there is room for.
func (l *ringLane) push() error {
	for l.queue.left() > 0 {
		room, err := l.out.room()
		if err != nil {
			return with(l.mate.rank, err)
		}
		p := &l.queue.list[l.queue.first]
		if !l.begun {
			if room < headerBytes {
				return nil
			}
			p.header.encode((*[headerBytes]byte)(l.out.next(headerBytes)))
			l.out.at += headerBytes
			l.begun, room = true, room-headerBytes
		}
		for l.gone < len(p.payload) && room > 0 {
			n := copy(l.out.next(min(room, pushBytes)), p.payload[l.gone:])
			l.gone += n
			l.out.at += uint64(n)
			room -= n
			if l.gone < len(p.payload) {
				l.out.publish()
				l.mate.ring()
			}
		}
		pad := padded(len(p.payload)) - len(p.payload)
		if l.gone < len(p.payload) || room < pad {
			l.out.publish()
			l.mate.ring()
			return nil
		}
		l.out.at += uint64(pad)
		l.out.publish()
		l.mate.ring()
		l.queue.take()
		l.begun, l.gone = false, 0
		l.mu.Lock()
		l.done++
		l.mu.Unlock()
	}
	return nil
}

// drain waits until frame n is in the ring.
func (l *ringLane) drain(n uint64) error {
	return l.mate.host.await(l.mate, func() (bool, error) { return l.done >= n, nil })
}

// arrived waits for n bytes.
func (l *ringLane) arrived(n int) (have int, err error) {
	err = l.mate.host.await(l.mate, func() (bool, error) {
		var err error
		have, err = l.in.filled()
		return have >= n, err
	})
	return have, err
}

// used tells the sender of the room that there is now.
func (l *ringLane) used(n int) {
	l.in.at += uint64(n)
	l.in.publish()
	l.mate.ring()
}

func (l *ringLane) next(h *header) error {
	if _, err := l.arrived(l.pad + headerBytes); err != nil {
		return err
	}
	l.in.at += uint64(l.pad)
	copy(l.raw[:], l.in.next(headerBytes)) // what is in shared memory may change
	if err := h.decode(l.raw[:]); err != nil {
		return err
	}
	if h.kind != frameData {
		return fmt.Errorf("%w: frame of kind %d among data", ErrRefused, h.kind)
	}
	l.used(headerBytes)
	l.left, l.pad = int(h.length), padded(int(h.length))-int(h.length)
	return nil
}

func (l *ringLane) read(dst []byte) error {
	for len(dst) > 0 {
		have, err := l.arrived(1)
		if err != nil {
			return err
		}
		n := copy(dst, l.in.next(have))
		dst = dst[n:]
		l.left -= n
		l.used(n)
	}
	return nil
}

// view is the payload in the ring, or where that is not all there can be at once, a copy.
func (l *ringLane) view(n int, _ bool) ([]byte, error) {
	if whole := l.in.next(n); len(whole) == n {
		_, err := l.arrived(n)
		return whole, err
	}
	l.scratch = room(&l.scratch, n)
	return l.scratch, l.read(l.scratch)
}

// release gives the room of a view back. What has not been looked at ends the group.
func (l *ringLane) release() {
	if have, err := l.in.filled(); err == nil && have >= l.left {
		l.used(l.left)
	}
	l.left = 0
}

func (l *ringLane) close(err error) { l.mate.fail(err) }
