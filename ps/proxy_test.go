package ps_test

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// fate is what a proxy does with a frame.
type fate int

const (
	pass fate = iota
	drop
	double
	delay // a frame that is delayed is overtaken by those behind it
)

// frameProxy stands between clients and one server's data plane and decides about
// each data frame. The handshake and follower streams pass untouched.
type frameProxy struct {
	listener net.Listener
	judge    func(toServer bool, h *wire.Header) fate
	// spoil, if set, gets the raw bytes from an offset on instead: it may change
	// them, and the connection ends after as many as it returns if those are fewer.
	spoil   func(toServer bool, offset int64, b []byte) int
	target  atomic.Pointer[string]
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

// newFrameProxy starts a proxy; judge is called from several goroutines.
func newFrameProxy(t *testing.T, judge func(toServer bool, h *wire.Header) fate) *frameProxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &frameProxy{listener: l, judge: judge, conns: map[net.Conn]struct{}{}}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// proxied starts a server that everybody reaches through the proxy.
func (c *cluster) proxied(id shard.ServerID, p *frameProxy) *ps.Server {
	s := c.serverWith(id, func(cfg *ps.ServerConfig) { cfg.Advertise = p.listener.Addr().String() })
	addr := s.DataAddr()
	p.target.Store(&addr)
	return s
}

func (p *frameProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *frameProxy) serve(client net.Conn) {
	defer client.Close()
	target := p.target.Load()
	if target == nil {
		return
	}
	server, err := net.Dial("tcp", *target)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.track(client, server) {
		return
	}
	defer p.untrack(client, server)
	var both sync.WaitGroup
	var follows atomic.Bool // the connection is a follower stream
	copyFrames := func(from, to net.Conn, toServer bool, greeting int) {
		if p.spoil != nil {
			p.copyBytes(from, to, toServer)
			return
		}
		(&frameCopy{p: p, to: bufio.NewWriterSize(to, 64<<10), toServer: toServer, greeting: greeting, follows: &follows}).run(from)
		_ = from.Close() // either end takes the other along
		_ = to.Close()
	}
	both.Go(func() { copyFrames(client, server, true, 1) })
	both.Go(func() { copyFrames(server, client, false, 2) })
	both.Wait()
}

func (p *frameProxy) copyBytes(from, to net.Conn, toServer bool) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 32<<10)
	for offset := int64(0); ; {
		n, err := from.Read(buf)
		keep := p.spoil(toServer, offset, buf[:n])
		if _, werr := to.Write(buf[:keep]); werr != nil || err != nil || keep < n {
			return
		}
		offset += int64(n)
	}
}

// reset ends all connections; new ones may come.
func (p *frameProxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // its copy ends
	}
}

func (p *frameProxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return !p.closed
}

func (p *frameProxy) untrack(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

func (p *frameProxy) close() {
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close() // its copy ends
	}
	p.mu.Unlock()
	_ = p.listener.Close() // its accept ends
	p.running.Wait()
}

// frameCopy is one direction of one connection.
type frameCopy struct {
	p        *frameProxy
	toServer bool
	greeting int // frames of the handshake still to come
	follows  *atomic.Bool

	mu      sync.Mutex // delayed frames are written beside the others
	to      *bufio.Writer
	pending sync.WaitGroup
}

func (c *frameCopy) run(from net.Conn) {
	defer c.pending.Wait()
	in := bufio.NewReaderSize(from, 64<<10)
	frame := make([]byte, 4096)
	for {
		frame = slices.Grow(frame[:0], wire.HeaderBytes+nextLength(in))
		n, h, err := readRaw(in, frame[:cap(frame)])
		if err != nil {
			return
		}
		verdict := pass
		switch {
		case c.greeting > 0:
			c.greeting--
		case h.Kind == wire.Follow:
			c.follows.Store(true)
		case !c.follows.Load():
			verdict = c.p.judge(c.toServer, &h)
		}
		if c.carry(verdict, frame[:n], in.Buffered() == 0) != nil {
			return
		}
	}
}

// nextLength is the payload size of the frame that comes next.
func nextLength(in *bufio.Reader) int {
	raw, err := in.Peek(wire.HeaderBytes)
	var h wire.Header
	if err != nil || h.Decode(raw) != nil {
		return 0
	}
	return int(h.Length)
}

func (c *frameCopy) carry(verdict fate, frame []byte, flush bool) error {
	switch verdict {
	case drop:
		return c.write(nil, flush) // what is before it goes on
	case delay:
		kept := append([]byte(nil), frame...)
		c.pending.Add(1)
		time.AfterFunc(time.Duration(1+rand.IntN(20))*time.Millisecond, func() {
			defer c.pending.Done()
			_ = c.write(kept, true) // to a connection that may be gone
		})
		return c.write(nil, flush)
	case double:
		if err := c.write(frame, false); err != nil {
			return err
		}
	}
	return c.write(frame, flush)
}

func (c *frameCopy) write(frame []byte, flush bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.to.Write(frame); err != nil || !flush {
		return err
	}
	return c.to.Flush()
}

// readRaw reads one frame into dst and returns its length.
func readRaw(in io.Reader, dst []byte) (n int, h wire.Header, err error) {
	if _, err := io.ReadFull(in, dst[:wire.HeaderBytes]); err != nil {
		return 0, h, err
	}
	if err := h.Decode(dst); err != nil {
		return 0, h, err
	}
	n = wire.HeaderBytes + int(h.Length)
	_, err = io.ReadFull(in, dst[wire.HeaderBytes:n])
	return n, h, err
}

// faulty drops, doubles and delays 10 % of the frames each, and counts what it did.
type faulty struct {
	mu     sync.Mutex
	rng    *rand.Rand
	counts [4]int
}

func newFaulty(seed uint64) *faulty { return &faulty{rng: rand.New(rand.NewPCG(seed, 12))} }

func (f *faulty) judge(bool, *wire.Header) fate {
	f.mu.Lock()
	defer f.mu.Unlock()
	verdict := pass
	if n := f.rng.IntN(10); n < 3 {
		verdict = fate(n + 1)
	}
	f.counts[verdict]++
	return verdict
}

func (f *faulty) count(v fate) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[v]
}
