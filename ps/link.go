package ps

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

const (
	// maxInFlight bounds the requests under way on one connection, and with them
	// the memory on both ends.
	maxInFlight = 64
	minResend   = 250 * time.Millisecond
	maxResend   = 5 * time.Second
)

// link is a client's connection to a server over a socket, shared by all
// operations of the client.
type link struct {
	conn    *stream.Conn
	credits chan struct{} // one per request under way
	rtt     atomic.Int64  // smoothed, nanoseconds

	sending atomic.Int32  // requests that are being written
	written atomic.Uint64 // and that have been, to see whether there is progress

	mu      sync.Mutex
	last    uint64 // request number
	pending map[uint64]*call
	err     error
}

// call is one request for (a part of) one block. It is reused.
type call struct {
	header wire.Header
	values []float32 // gradient, or destination of a pull
	raw    [wire.HeaderBytes]byte
	out    outcome
	text   string
	err    error // the connection's, not the server's
	done   chan struct{}
	link   *link // nil when the answer came at once
	server serverInfo
	sent   time.Time
	seqs   *sequencer // push: where the number came from
	timer  *time.Timer

	writing  context.Context // of the operation, since the request was sent
	silences int             // times that it was sent and not answered in time
}

// dial opens a data connection: to the unix socket on the same machine if there is
// one, else by TCP, and proves to the server that this side knows its token.
func dial(ctx context.Context, to serverInfo, tlsConfig *tls.Config, cfg stream.Config) (*stream.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	var errs []error
	var d net.Dialer
	if to.Local != "" && to.Host == hostID() {
		nc, err := d.DialContext(ctx, "unix", to.Local)
		if err == nil {
			return greet(ctx, nc, to, cfg)
		}
		errs = append(errs, err) // another network namespace, perhaps
	}
	if to.Data == "" {
		return nil, fmt.Errorf("%w: server %q listens on no address that is reached from here", ErrUnavailable, to.ID)
	}
	nc, err := dialTCP(ctx, to.Data, tlsConfig)
	if err != nil {
		if len(errs) > 0 {
			err = fmt.Errorf("%w; %w", errs[0], err)
		}
		return nil, fmt.Errorf("%w: server %q: %w", ErrUnavailable, to.ID, err)
	}
	return greet(ctx, nc, to, cfg)
}

func dialTCP(ctx context.Context, addr string, tlsConfig *tls.Config) (net.Conn, error) {
	if tlsConfig == nil {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
	d := tls.Dialer{Config: tlsConfig}
	return d.DialContext(ctx, "tcp", addr)
}

func greet(ctx context.Context, nc net.Conn, to serverInfo, cfg stream.Config) (*stream.Conn, error) {
	conn := stream.New(nc, cfg)
	stop := context.AfterFunc(ctx, func() { _ = conn.CloseWithError(context.Cause(ctx)) })
	err := dialHandshake(ctx, conn, to.Token)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close() // the handshake's error is the cause
		return nil, fmt.Errorf("%w: server %q at %v: %w", ErrUnavailable, to.ID, nc.RemoteAddr(), err)
	}
	return conn, nil
}

// localServer returns the server if it runs on the same node, else nil.
func localServer(ctx context.Context, n *actor.Node, info serverInfo) *Server {
	if info.Node != n.Name() {
		return nil
	}
	s, err := actor.Call[*Server](ctx, n, n.Ref(info.Process), localRequest{})
	if err != nil {
		return nil
	}
	return s
}

func newLink(conn *stream.Conn) *link {
	l := &link{conn: conn, credits: make(chan struct{}, maxInFlight), pending: map[uint64]*call{}}
	go l.read()
	go l.watch()
	return l
}

// start sends a request. The answer comes on c.done; until then c.values belongs to
// the link, unless cancel gets it back.
func (l *link) start(ctx context.Context, c *call) error {
	select {
	case l.credits <- struct{}{}:
	default:
		select {
		case l.credits <- struct{}{}:
		case <-l.conn.Done():
			return l.conn.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if ctx.Err() != nil { // the credit may have come because others were cancelled too
		<-l.credits
		return context.Cause(ctx)
	}
	var payload []byte
	if c.header.Kind != wire.Pull {
		payload = wire.Bytes(c.values)
	}
	c.header.Length, c.header.PayloadSum = uint32(len(payload)), wire.Sum(payload)
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		<-l.credits
		return l.err
	}
	l.last++
	c.header.Request, c.link, c.sent, c.writing = l.last, l, time.Now(), ctx
	l.pending[l.last] = c
	l.mu.Unlock()
	c.header.Encode(c.raw[:])
	l.sending.Add(1)
	err := l.conn.Send(c.raw[:], payload)
	l.sending.Add(-1)
	l.written.Add(1)
	if err != nil && l.cancel(c) {
		return err
	}
	return nil
}

// stuckGrace is how long a transfer may outlast the context of the operation that it
// belongs to, before the connection is given up.
const stuckGrace = time.Second

// watch closes the connection when a request is being written whose context has
// ended, and nothing has got through since the last look. A caller's slice cannot be
// given back in the middle of a write, so nothing else ends one that a hung server
// does not take.
func (l *link) watch() {
	tick := time.NewTicker(stuckGrace / 2)
	defer tick.Stop()
	last := uint64(0)
	for {
		select {
		case <-l.conn.Done():
			return
		case <-tick.C:
		}
		written := l.written.Load()
		if written == last && l.sending.Load() > 0 && l.overdue() {
			_ = l.conn.CloseWithError(fmt.Errorf("%w: it takes nothing", ErrUnavailable)) // readers and writers get it
		}
		last = written
	}
}

// overdue reports whether the context of a request that is being written has ended.
func (l *link) overdue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.pending {
		if c.writing != nil && c.writing.Err() != nil {
			return true
		}
	}
	return false
}

// cancel takes a request back. It reports false when the answer has come already:
// then c.done has a value or gets one at once.
func (l *link) cancel(c *call) bool {
	l.mu.Lock()
	_, waiting := l.pending[c.header.Request]
	delete(l.pending, c.header.Request)
	l.mu.Unlock()
	if waiting {
		<-l.credits
	}
	return waiting
}

// take removes the request that a reply belongs to; nil when nobody waits for it
// any more.
func (l *link) take(request uint64) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.pending[request]
	delete(l.pending, request)
	return c
}

func (l *link) finish(c *call, err error) {
	c.err = err
	if err == nil {
		sample := time.Since(c.sent).Nanoseconds()
		if old := l.rtt.Load(); old != 0 {
			sample = old + (sample-old)/8
		}
		l.rtt.Store(sample)
	}
	<-l.credits
	c.done <- struct{}{}
}

// resendAfter is how long to wait for an answer before the request is sent again.
// It grows with the time that answers take, and with each silence, but not without
// end: one request of many that is lost several times must not hold the others.
func (l *link) resendAfter(silences int) time.Duration {
	d := max(minResend, 4*time.Duration(l.rtt.Load()))
	return min(d<<min(silences, 2), maxResend)
}

// read hands the replies to their callers until the connection ends.
func (l *link) read() {
	for {
		if err := l.next(); err != nil {
			l.fail(l.conn.CloseWithError(err))
			return
		}
	}
}

func (l *link) next() error {
	raw, err := l.conn.Next(wire.HeaderBytes)
	if err != nil {
		return err
	}
	var h wire.Header
	if err := h.Decode(raw); err != nil {
		return err
	}
	if h.Kind != wire.Reply {
		return fmt.Errorf("%w: %d, expected a reply", wire.ErrKind, h.Kind)
	}
	c := l.take(h.Request)
	if c != nil && c.header.Kind == wire.Pull && code(h.Code) == codeOK {
		return l.readValues(&h, c)
	}
	if h.Length > maxReplyText && c != nil {
		err := fmt.Errorf("%w: reply text of %d bytes, at most %d", wire.ErrTooLarge, h.Length, maxReplyText)
		l.finish(c, err)
		return err
	}
	text, err := l.readText(&h)
	if c != nil {
		c.out = outcome{code: code(h.Code), to: owner{epoch: shard.Epoch(h.Epoch)}}
		c.text = text
		l.finish(c, err)
	}
	return err
}

func (l *link) readValues(h *wire.Header, c *call) error {
	if int(h.Count) != len(c.values) || h.Length != 4*h.Count || h.Shard != c.header.Shard || h.Offset != c.header.Offset {
		err := fmt.Errorf("%w: reply of %d elements to a request for %d", wire.ErrTooLarge, h.Count, len(c.values))
		l.finish(c, err)
		return err
	}
	dst := wire.Bytes(c.values)
	err := l.conn.ReadFull(dst)
	if err == nil {
		err = h.CheckPayload(dst)
	}
	c.out, c.text = outcome{}, ""
	l.finish(c, err)
	return err
}

// readText reads a short payload, or skips a long one that nobody waits for.
func (l *link) readText(h *wire.Header) (string, error) {
	var sum uint32
	var text []byte
	for rest := int(h.Length); rest > 0; {
		view, err := l.conn.Next(min(rest, 4096))
		if err != nil {
			return "", err
		}
		rest -= len(view)
		sum = wire.Extend(sum, view)
		if len(text) < maxReplyText {
			text = append(text, view...)
		}
	}
	if sum != h.PayloadSum {
		return "", h.ChecksumError()
	}
	return string(text), nil
}

// fail answers everything under way with the error of the connection.
func (l *link) fail(err error) {
	l.mu.Lock()
	l.err = err
	pending := l.pending
	l.pending = map[uint64]*call{}
	l.mu.Unlock()
	for _, c := range pending {
		l.finish(c, err)
	}
}
