package ps

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

const (
	// maxInFlight bounds the requests of one operation under way, and maxSlots those on
	// one connection. A request that waits at the server is in the socket's buffers: it
	// takes no memory of the server.
	maxInFlight = 64
	maxSlots    = 1024
	// smallBytes is the size up to which requests go over a connection of their own,
	// so that they never wait behind large ones.
	smallBytes = 16 << 10
	// batchBytes bounds what one write to a connection carries, and so how long it
	// holds the others up.
	batchBytes = 1 << 20
	// gatherOver is how many other requests must be under way before one waits for those
	// that are ready to be sent.
	gatherOver = 4
	minResend  = 250 * time.Millisecond
	maxResend  = 5 * time.Second
)

// link is a client's connection to a server over a socket, shared by all operations
// of the client. It has no goroutine: whoever waits for an answer takes the turn to
// read and hands the others theirs, so an answer costs no hand-over when only one
// waits.
type link struct {
	conn  *stream.Conn
	free  chan uint32   // slots without a call
	turn  chan struct{} // capacity 1: has a value while somebody reads
	rooms chan []byte   // to encode batches in
	busy  *busy

	rtt      atomic.Int64  // smoothed, nanoseconds
	answered atomic.Int64  // when the latest request was sent that has been answered, in the time of since
	down     atomic.Bool   // it has failed
	calls    atomic.Int32  // in slots
	sending  atomic.Int32  // batches that are being written
	written  atomic.Uint64 // and that have been, to see whether there is progress

	mu    sync.Mutex
	slots []slot
	err   error

	// Of whoever has the turn: the reply that is being read.
	reply   wire.Header
	opened  bool  // its header has come
	filling *call // whom it belongs to; nil when nobody waits for it any more
	filled  int   // bytes of its payload that have come
	sum     uint32

	stuck     time.Time // of the watch: since when nothing was written
	lastWrite uint64
}

// slot is a place for one request under way. The request's number names the slot and
// how often it was used.
type slot struct {
	call  *call
	uses  uint64
	taken bool // the answer is being received
}

const slotBits = 16

// call is one request for (a part of) one block. It is reused.
type call struct {
	header wire.Header
	ids    []int64   // of the rows of a table, which values are of
	values []float32 // gradient, or destination of a pull
	raw    [wire.HeaderBytes]byte
	out    outcome
	text   string
	err    error       // the connection's, not the server's
	done   atomic.Bool // there is an answer
	leg    *leg        // that waits for it
	link   *link       // nil when it came at once
	slot   uint32
	server *serverInfo
	load   *latencies // of the server
	seqs   *sequencer // push: where the number came from

	ctx      context.Context // of the operation
	began    time.Time       // when it was sent
	took     time.Duration   // until it was answered
	sent     atomic.Int64    // and had been written, in the time of since; 0 before
	silences int             // times that it was sent and not answered in time

	attempts int   // answers that were not final
	later    bool  // the last one asks for a pause
	cause    error // the last error among them
}

func newLink(conn *stream.Conn, inFlight int, b *busy) *link {
	l := &link{
		conn: conn, busy: b,
		free: make(chan uint32, inFlight), turn: make(chan struct{}, 1), rooms: make(chan []byte, 2), slots: make([]slot, inFlight),
	}
	for i := range inFlight {
		l.free <- uint32(i)
	}
	return l
}

// tryReserve gives a call a slot if one is free.
func (l *link) tryReserve(c *call) bool {
	select {
	case c.slot = <-l.free:
		return true
	default:
		return false
	}
}

// reserve gives a call a slot. While it waits it reads, for the callers of all that is
// under way may be waiting here.
func (l *link) reserve(ctx context.Context, c *call) error {
	if l.tryReserve(c) {
		return nil
	}
	defer context.AfterFunc(ctx, l.interrupt)() // the watch does not know of this wait
	for !l.tryReserve(c) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		select {
		case c.slot = <-l.free:
			return nil
		case l.turn <- struct{}{}:
			err := l.readWhile(func() bool { return len(l.free) == 0 && ctx.Err() == nil })
			<-l.turn
			if err != nil {
				return err
			}
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil { // the slot may be free because others were cancelled too
		l.free <- c.slot
		return context.Cause(ctx)
	}
	return nil
}

// send sends calls that have a slot, in one write. Their legs get the answers, also
// when the connection breaks. Until then their values belong to the link, unless cancel
// gets them back.
func (l *link) send(calls []*call) {
	now := time.Now()
	var iov [stream.MaxSlices][]byte
	bufs := iov[:0]
	room := l.encodeRoom(calls)
	defer l.encodeDone(room)
	for i, c := range calls {
		ids, payload := wire.Bytes(c.ids), c.payload(&room)
		c.header.Flags = 0
		if i < len(calls)-1 {
			c.header.Flags = wire.More
		}
		c.header.Length, c.header.PayloadSum = uint32(len(ids)+len(payload)), wire.Sum(ids, payload)
		c.link, c.began = l, now
		c.sent.Store(0)
		c.header.Request = (l.slots[c.slot].uses+1)<<slotBits | uint64(c.slot) // the slot is ours
		c.header.Encode(c.raw[:])
		bufs = append(bufs, c.raw[:])
		for _, part := range [...][]byte{ids, payload} {
			if len(part) > 0 {
				bufs = append(bufs, part)
			}
		}
	}
	l.sending.Add(1)
	err := l.register(calls)
	if err == nil {
		l.busy.notice()
		err = l.write(calls, bufs)
	}
	l.sending.Add(-1)
	l.written.Add(1)
	if err != nil {
		l.fail(err)
		return
	}
	sent := since()
	for _, c := range calls {
		c.sent.Store(sent)
	}
}

func (l *link) write(calls []*call, bufs [][]byte) error {
	others, first := int(l.calls.Load())-len(calls), calls[0]
	switch {
	case others > 0 && reads(first.header.Kind) && 4*len(first.values) > smallBytes:
		// The server may be busy writing answers, and read nothing until they are taken:
		// by this caller, perhaps.
		return l.conn.Post(bufs...)
	case others > gatherOver:
		return l.conn.Gather(bufs...)
	}
	return l.conn.Send(bufs...)
}

// register puts calls into their slots, also after the connection has ended.
func (l *link) register(calls []*call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range calls {
		s := &l.slots[c.slot]
		s.call, s.uses = c, s.uses+1
	}
	l.calls.Add(int32(len(calls)))
	return l.err
}

// payload is what a request carries besides ids. It shares the caller's memory, or begins at room,
// which then begins behind it.
func (c *call) payload(room *[]byte) []byte {
	if reads(c.header.Kind) {
		return nil
	}
	t := shard.DType(c.header.Encoding)
	p := encode(*room, c.values, t)
	if t != shard.Float32 {
		*room = (*room)[len(p):]
	}
	return p
}

// encodeRoom returns room for the payloads of a batch, if they have to be encoded.
func (l *link) encodeRoom(calls []*call) []byte {
	for _, c := range calls {
		if reads(c.header.Kind) || shard.DType(c.header.Encoding) == shard.Float32 {
			continue
		}
		select {
		case room := <-l.rooms:
			return room
		default:
			return make([]byte, batchBytes)
		}
	}
	return nil
}

// encodeDone gives the room back after the batch was written.
func (l *link) encodeDone(room []byte) {
	if room == nil {
		return
	}
	select {
	case l.rooms <- room:
	default:
	}
}

// cancel takes a request back. It reports false when the answer is being received or
// has come.
func (l *link) cancel(c *call) bool {
	l.mu.Lock()
	waiting := l.slots[c.slot].call == c && !l.slots[c.slot].taken
	if waiting {
		l.clear(c.slot)
	}
	l.mu.Unlock()
	if waiting {
		l.free <- c.slot
	}
	return waiting
}

// take returns the call that a reply belongs to, nil when nobody waits for it any
// more. From then on nobody else answers it or takes it back.
func (l *link) take(request uint64) *call {
	n := uint32(request & (1<<slotBits - 1))
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(n) >= len(l.slots) || l.slots[n].call == nil || l.slots[n].uses != request>>slotBits {
		return nil
	}
	l.slots[n].taken = true
	return l.slots[n].call
}

// clear empties a slot. The caller holds mu.
func (l *link) clear(n uint32) *call {
	c := l.slots[n].call
	l.slots[n].call, l.slots[n].taken = nil, false
	l.calls.Add(-1)
	return c
}

// finish answers a call that was taken.
func (l *link) finish(c *call, err error) {
	if err == nil {
		c.took = time.Since(c.began)
		sample := c.took.Nanoseconds()
		if old := l.rtt.Load(); old != 0 {
			sample = old + (sample-old)/8
		}
		l.rtt.Store(sample)
		if sent := c.sent.Load(); sent > l.answered.Load() { // who reads is one at a time
			l.answered.Store(sent)
		}
	}
	l.mu.Lock()
	l.clear(c.slot)
	l.mu.Unlock()
	l.answer(c, err)
}

// answer gives a call that is in no slot any more back to its owner.
func (l *link) answer(c *call, err error) {
	c.err = err
	l.free <- c.slot
	c.leg.answered(c)
}

// fail ends the connection and answers everything under way with its error.
func (l *link) fail(err error) {
	err = l.conn.CloseWithError(err)
	l.down.Store(true)
	l.mu.Lock()
	l.err = err
	var calls []*call
	for i := range l.slots {
		if l.slots[i].call != nil && !l.slots[i].taken {
			calls = append(calls, l.clear(uint32(i)))
		}
	}
	l.mu.Unlock()
	for _, c := range calls {
		l.answer(c, err)
	}
}

// resendAfter is how long to wait for an answer before the request is sent again.
// It grows with the time that answers take, and with each silence, but not without
// end: one request of many that is lost several times must not hold the others.
func (l *link) resendAfter(silences int) time.Duration {
	d := max(minResend, 4*time.Duration(l.rtt.Load()))
	return min(d<<min(silences, 2), maxResend)
}
