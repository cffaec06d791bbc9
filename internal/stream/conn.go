package stream

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// ErrClosed is the error of calls on a connection that was closed by this side
// without another cause.
var ErrClosed = errors.New("stream: connection closed")

// Config has the limits of a Conn. The zero value has the defaults.
type Config struct {
	BufferBytes     int           // largest read buffer, the bound of Next; default 64 KiB
	ReadAhead       int           // bytes behind a large Read that come along with it, such as the next header; default 0
	MaxPendingBytes int           // bytes of small sends that may wait behind the write in progress; default 1 MiB
	WriteTimeout    time.Duration // longest time one write may take, and so the bound of Send; default 10 s
}

func (c Config) withDefaults() Config {
	if c.BufferBytes <= 0 {
		c.BufferBytes = 64 << 10
	}
	if c.MaxPendingBytes <= 0 {
		c.MaxPendingBytes = 1 << 20
	}
	if c.WriteTimeout <= 0 {
		c.WriteTimeout = 10 * time.Second
	}
	return c
}

// firstBuffer is the read buffer that a connection begins with. It grows to
// BufferBytes when a view needs more: many connections never carry a large frame.
const firstBuffer = 64 << 10

// unixBuffer is the kernel's buffer of a unix socket. The default, 208 KiB, stops the
// writer before the reader has used what it has.
const unixBuffer = 2 << 20

// layered is a connection on top of another one, such as *tls.Conn.
type layered interface{ NetConn() net.Conn }

// Conn is one connection. Send, Post, Gather, Flush, Close, CloseWithError, Err and Done are safe
// from any goroutine; Next, Read, ReadFull and Buffered belong to one reader at a time.
type Conn struct {
	nc     net.Conn
	cfg    Config
	layer  layered // nc, if it is layered
	direct bool    // the kernel buffers, so a caller may write a lone small send itself

	// write is the write side of the socket, with iov and vec. Whoever gets it writes
	// all that is pending before its own. It is a mutex for its fairness: one that has
	// waited for a millisecond goes before those that come later. Lock it before mu;
	// TryLock and Unlock are fine under mu.
	write sync.Mutex
	iov   [MaxSlices + 1][]byte
	vec   net.Buffers
	group []*large // of the write in progress

	mu        sync.Mutex
	space     sync.Cond // signalled when pending was taken, and at the end
	pending   []byte    // small sends, in order, that no write has taken yet
	spare     []byte    // the other half of the double buffer
	roomy     int       // batches in a row that used little of a large buffer
	writing   bool      // a write is in progress; it looks at pending when it ends
	gathering bool      // a caller lets others add to pending before it writes
	leading   bool      // a large send is on its way to the write side; it takes pending along
	big       []*large  // large sends that wait for a write, in order
	idle      []*large  // and those to be used again
	lastSend  time.Time // end of the last small send
	err       error

	done chan struct{}
	wake chan struct{} // wakes the flusher

	buf        []byte // read buffer, at most BufferBytes; unread input is buf[begin:end]
	begin, end int
	socket     *socket // nil if nc is none
}

// New wraps nc, which belongs to the Conn from then on. It starts one goroutine,
// which ends when the connection is closed.
func New(nc net.Conn, cfg Config) *Conn {
	cfg = cfg.withDefaults()
	c := &Conn{
		nc:     nc,
		cfg:    cfg,
		direct: nc.LocalAddr().Network() != "pipe", // a write to a net.Pipe lasts until it is read
		done:   make(chan struct{}),
		wake:   make(chan struct{}, 1),
		buf:    make([]byte, min(cfg.BufferBytes, firstBuffer)),
	}
	c.layer, _ = nc.(layered)
	c.socket = newSocket(nc)
	c.space.L = &c.mu
	switch nc := nc.(type) {
	case *net.TCPConn:
		_ = nc.SetNoDelay(true) // Go's default; gathering is done here
	case *net.UnixConn:
		_ = nc.SetWriteBuffer(unixBuffer) // less is as good as it gets
	}
	go c.flusher()
	return c
}

// Close closes the connection. Sends that are pending may be lost; Flush comes
// first if they matter. It is safe to call it twice, and does not block.
func (c *Conn) Close() error {
	_ = c.CloseWithError(ErrClosed) // the cause is what others see, not an error of Close
	return nil
}

// CloseWithError closes the connection with err as the error of all calls, unless
// it already has one, and returns the error that it has. A nil err is ErrClosed. It
// does not block: the farewell of a TLS connection is sent behind it, and only if
// no write is in progress.
func (c *Conn) CloseWithError(err error) error {
	if err == nil {
		err = ErrClosed
	}
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return c.err
	}
	c.err = err
	writing, nc := c.writing, c.nc
	c.space.Broadcast()
	close(c.done)
	c.mu.Unlock()

	switch {
	case c.layer == nil:
		_ = nc.Close() // the first cause matters, not this
	case writing:
		_ = c.layer.NetConn().Close() // ends the write, which closing the layer might wait for
	default:
		_ = nc.SetReadDeadline(time.Unix(1, 0)) // ends the reader; the flusher closes
	}
	return err
}

// Detach lets calls that have to wait keep a thread in the kernel instead of parking their
// goroutine, where the connection is a socket and the system Linux: they wake sooner, and the
// process wakes fewer threads. From then on there are no read deadlines. It is for few
// connections, whose peers answer soon; no other call may be under way, but for closing. An
// error ends the connection.
func (c *Conn) Detach() error {
	if c.socket == nil {
		return nil
	}
	c.write.Lock()
	defer c.write.Unlock()
	c.mu.Lock()
	if c.err != nil || c.socket.held != nil {
		defer c.mu.Unlock()
		return c.err
	}
	err := c.socket.detach(c.nc, c.cfg.WriteTimeout)
	if err == nil {
		c.nc = c.socket.held
	}
	c.mu.Unlock()
	if err != nil {
		return c.CloseWithError(fmt.Errorf("stream: detaching from %v: %w", c.nc.RemoteAddr(), err))
	}
	return nil
}

// Err returns why the connection ended, or nil while it lives.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Done returns a channel that is closed when the connection ends.
func (c *Conn) Done() <-chan struct{} { return c.done }

// NetConn returns the wrapped connection, for its addresses, read deadline and TLS
// state.
func (c *Conn) NetConn() net.Conn { return c.nc }
