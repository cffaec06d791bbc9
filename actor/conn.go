package actor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ergo-services/ergo/etf"

	"github.com/elasticps/elasticps/internal/stream"
)

const (
	// readBuffer holds any frame as a whole, so that it is decoded in place.
	readBuffer = 128 << 10
	// maxOutbox bounds the control frames that wait for a connection.
	maxOutbox = 4 << 20
	// maxInterned bounds the sender names kept per connection.
	maxInterned = 4096
	// maxRemoteMonitors bounds the monitors that a peer holds here.
	maxRemoteMonitors = 65_536
)

// errBye is why a connection ends when the peer closes.
var errBye = errors.New("the peer closed")

// conn is one authenticated connection to a peer, after its handshake.
//
// Three goroutines serve it: the reader, which must never wait for anything but
// input, or two nodes could wait for each other; the outbox writer, which sends what
// the reader has to say; and the heartbeat. Actors and callers send directly.
type conn struct {
	unsupported // ergo's own messages between nodes

	n           *Node
	peer        string
	incarnation uint64 // of the peer
	addr        string // to dial the peer at
	s           *stream.Conn
	slot        *slot

	up       chan struct{} // closed when messages may be sent
	done     chan struct{} // closed when it has failed
	taken    atomic.Bool   // by ergo, or given up
	served   bool          // by ergo's goroutine
	failOnce sync.Once
	err      error // set before done is closed

	frames     atomic.Uint64 // received
	rtt        atomic.Int64  // smoothed, ns
	clockStart time.Time     // pings carry the time since

	outbox outbox
	flows  flowTable

	monMu    sync.Mutex
	monitors map[refFields]etf.Pid // monitors of the peer on processes here
	told     chan struct{}         // capacity 1: the peer was told about one of them

	// The reader's own.
	dec      *decoder
	interned map[string]string
}

func newConn(n *Node, h *handshaken) *conn {
	c := &conn{
		n:           n,
		peer:        h.peer.name,
		incarnation: h.peer.incarnation,
		addr:        h.addr,
		slot:        h.slot,
		up:          make(chan struct{}),
		done:        make(chan struct{}),
		clockStart:  time.Now(),
		monitors:    make(map[refFields]etf.Pid),
		told:        make(chan struct{}, 1),
		dec:         newDecoder(),
		interned:    make(map[string]string),
	}
	c.outbox.wake = make(chan struct{}, 1)
	c.flows.init(c)
	c.s = stream.New(h.nc, stream.Config{BufferBytes: readBuffer, WriteTimeout: n.cfg.Suspicion})
	return c
}

// fail ends the connection. Calls over it fail at once.
func (c *conn) fail(cause error) {
	c.failOnce.Do(func() {
		c.err = fmt.Errorf("%w: connection to %s: %w", ErrNodeDown, c.peer, cause)
		close(c.done)
		_ = c.s.CloseWithError(c.err) // returns the cause that it has
		c.n.calls.failConn(c, c.err)
	})
}

// failed returns why the connection ended, nil while it lives.
func (c *conn) failed() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// send writes a frame of a caller or an actor, after the control frames that came
// before it: who monitors a process and then sends to it expects that order.
func (c *conn) send(frame []byte) error {
	if c.outbox.dirty.Load() {
		c.outbox.flush(c)
	}
	if err := c.s.Send(frame); err != nil {
		c.fail(err)
		return c.err
	}
	return nil
}

// read handles frames until the connection ends.
func (c *conn) read() {
	for {
		h, err := c.s.Next(frameHeader)
		if err != nil {
			c.fail(err)
			return
		}
		n, k := binary.LittleEndian.Uint32(h), kind(h[frameLength])
		if err := checkLength(n); err != nil {
			c.fail(err)
			return
		}
		body, err := c.s.Next(int(n) - 1)
		if err != nil {
			c.fail(err)
			return
		}
		c.frames.Add(1)
		if err := c.dispatch(k, body); err != nil {
			c.fail(err)
			return
		}
	}
}

// dispatch handles one frame. An error is a breach of the protocol.
func (c *conn) dispatch(k kind, body []byte) error {
	var err error
	switch k {
	case kindCast:
		err = c.onCast(body)
	case kindCall:
		err = c.onCall(body)
	case kindReply:
		err = c.onReply(body)
	case kindFail:
		err = c.onFail(body)
	case kindOpen, kindOpened, kindCredit, kindClosed:
		err = c.onFlow(k, body)
	case kindPing, kindPong:
		err = c.onProbe(k, body)
	case kindMonitor, kindDemonitor, kindMonitorExit:
		err = c.onMonitor(k, body)
	case kindBye:
		return errBye
	default:
		return fmt.Errorf("%w: frame of kind %d", ErrBadMessage, k)
	}
	if err != nil && !errors.Is(err, ErrBadMessage) {
		err = fmt.Errorf("%w: frame of kind %d: %w", ErrBadMessage, k, err)
	}
	return err
}

// intern makes a string of a name without allocating for one seen before.
func (c *conn) intern(b []byte) string {
	if s, ok := c.interned[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(c.interned) >= maxInterned {
		clear(c.interned)
	}
	c.interned[s] = s
	return s
}

func (c *conn) sender(name []byte) Ref {
	if len(name) == 0 {
		return Ref{}
	}
	return Ref{Node: c.peer, Name: c.intern(name)}
}

func (c *conn) onCast(body []byte) error {
	f, err := parseCast(body)
	if err != nil {
		return err
	}
	flow := c.flows.incoming(f.dst)
	if flow == nil {
		return nil // its receiver has ended; the sender is being told
	}
	if err := flow.arrived(); err != nil {
		return err
	}
	msg, err := c.dec.value(c.n, c.intern(f.typ), f.payload)
	if err != nil {
		c.n.log.Error("actor: cast refused", "from", c.peer, "to", string(f.dst), "error", err.Error())
		flow.refuse()
		return nil
	}
	// A mailbox that is closed by now counts what it did not handle by itself.
	_ = flow.p.box.put(envelope{msg: msg, from: c.sender(f.from), flow: flow}, true)
	return nil
}

func (c *conn) onCall(body []byte) error {
	f, err := parseCall(body)
	if err != nil {
		return err
	}
	now := time.Now()
	timeout := time.Duration(min(f.timeout, uint64(time.Hour/time.Microsecond))) * time.Microsecond
	req := &Request{n: c.n, from: c.sender(f.from), conn: c, id: f.id, deadline: now.Add(timeout)}
	req.to = Ref{Node: c.n.name, Name: c.intern(f.dst)}
	if f.flags&flagRemember != 0 {
		m, known, answer := c.n.memos.begin(c, f.id, req.deadline, now)
		if m == nil {
			c.outbox.fail(c, req.id, fmt.Errorf("%w: %d repeatable calls of %s are remembered", ErrMailboxFull, maxMemos, c.peer))
			return nil
		}
		if known {
			if answer != nil {
				c.outbox.put(c, answer)
			}
			return nil
		}
		req.memo = m
	}
	if err := c.deliverCall(req, f.castFrame); err != nil {
		if req.memo != nil {
			c.n.memos.undo(req.memo)
		}
		c.outbox.fail(c, req.id, err)
	}
	return nil
}

func (c *conn) deliverCall(req *Request, f castFrame) error {
	p := c.n.process(req.to.Name)
	if p == nil {
		return c.n.absent() // before the type: it may be registered when the process starts
	}
	msg, err := c.dec.value(c.n, c.intern(f.typ), f.payload)
	if err != nil {
		return err
	}
	if c.n.control(p, msg, req) {
		return nil
	}
	err = p.box.put(envelope{msg: msg, from: req.from, req: req}, false)
	if err == ErrMailboxFull {
		c.n.mailboxFull(p.ref)
	}
	return err
}

func (c *conn) onReply(body []byte) error {
	f, err := parseReply(body)
	if err != nil {
		return err
	}
	if !c.n.calls.waiting(f.id) {
		return nil // too late
	}
	v, err := c.dec.value(c.n, c.intern(f.typ), f.payload)
	c.n.calls.deliver(f.id, result{value: v, err: err})
	return nil
}

func (c *conn) onFail(body []byte) error {
	f, err := parseFail(body)
	if err != nil {
		return err
	}
	c.n.calls.deliver(f.id, result{err: c.n.errorFrom(f.codes, f.text)})
	return nil
}

// outbox collects the control frames of a connection for its writer.
type outbox struct {
	dirty atomic.Bool // there may be something that is not sent

	mu     sync.Mutex
	buf    []byte
	wake   chan struct{}
	sendMu sync.Mutex // held while sending, so that batches stay in order
	spare  []byte
}

// put appends a frame. It does not block; a peer that lets 4 MiB gather is cut off.
func (o *outbox) put(c *conn, frame []byte) {
	o.mu.Lock()
	if len(o.buf)+len(frame) > maxOutbox {
		o.mu.Unlock()
		c.fail(fmt.Errorf("%d bytes of control frames wait, at most %d", maxOutbox, maxOutbox))
		return
	}
	o.buf = append(o.buf, frame...)
	o.dirty.Store(true)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// build makes a frame with fill and puts it.
func (o *outbox) build(c *conn, k kind, fill func(e *encoder)) {
	e := c.n.encs.get()
	e.begin(k)
	fill(e)
	o.put(c, e.finish())
	c.n.encs.put(e)
}

func (o *outbox) fail(c *conn, id uint64, err error) {
	o.build(c, kindFail, func(e *encoder) { e.failure(c.n, id, err) })
}

func (e *encoder) failure(n *Node, id uint64, err error) {
	codes, text := n.errorCodes(err)
	codes = codes[:min(len(codes), maxCodes)]
	e.uint(id)
	e.uint(uint64(len(codes)))
	for _, code := range codes {
		e.name(code)
	}
	e.str(text)
}

// run writes until the connection ends.
func (o *outbox) run(c *conn) {
	for {
		select {
		case <-o.wake:
			o.flush(c)
		case <-c.done:
			return
		}
	}
}

// flush sends what is there. Never called by the reader.
func (o *outbox) flush(c *conn) {
	o.sendMu.Lock()
	defer o.sendMu.Unlock()
	o.mu.Lock()
	buf := o.buf
	o.buf = o.spare[:0]
	o.mu.Unlock()
	o.spare = buf
	if len(buf) > 0 {
		if err := c.s.Send(buf); err != nil {
			c.fail(err)
		}
	}
	o.mu.Lock()
	o.dirty.Store(len(o.buf) > 0)
	o.mu.Unlock()
}
