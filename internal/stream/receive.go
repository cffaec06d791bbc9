package stream

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// cheapMove is how much unread input may be moved to the front of the buffer before
// each read from the socket: less than a system call costs.
const cheapMove = 4 << 10

// Next returns the next n bytes of input, blocking until they are there. The view
// is valid until the next call that reads. n is at most BufferBytes; an error about
// n leaves the connection as it is, and so does os.ErrDeadlineExceeded: then nothing
// is lost and Next may be called again. Any other ends it. The error wraps io.EOF if
// the peer closed where the view would begin, and io.ErrUnexpectedEOF if it closed
// within.
func (c *Conn) Next(n int) ([]byte, error) {
	if n < 0 || n > c.cfg.BufferBytes {
		return nil, fmt.Errorf("stream: view of %d bytes, at least 0 and at most %d", n, c.cfg.BufferBytes)
	}
	for c.end-c.begin < n {
		c.makeRoom(n)
		m, err := c.readSome(n-(c.end-c.begin), c.buf[c.end:], nil)
		c.end += m
		if err != nil && c.end-c.begin < n {
			return nil, c.readError(err, c.end-c.begin)
		}
	}
	view := c.buf[c.begin : c.begin+n : c.begin+n]
	c.consume(n)
	return view, nil
}

// Buffered returns the number of bytes that can be read without blocking.
func (c *Conn) Buffered() int { return c.end - c.begin }

// makeRoom makes a view of n bytes fit behind begin.
func (c *Conn) makeRoom(n int) {
	unread := c.buf[c.begin:c.end]
	switch {
	case n > len(c.buf):
		c.buf = make([]byte, c.cfg.BufferBytes)
	case c.begin+n > len(c.buf), c.begin > 0 && len(unread) <= cheapMove:
	default:
		return
	}
	c.begin, c.end = 0, copy(c.buf, unread)
}

func (c *Conn) consume(n int) {
	c.begin += n
	if c.begin == c.end {
		c.begin, c.end = 0, 0
	}
}

// ReadFull fills dst, first from what is buffered, the rest straight from the
// socket. It blocks until dst is full. Its errors are those of Next, but what was
// read before the deadline is lost; see Read.
func (c *Conn) ReadFull(dst []byte) error {
	_, err := c.Read(dst)
	return err
}

// Read is ReadFull, and says how much it has read: after os.ErrDeadlineExceeded the
// rest can be read by another call.
func (c *Conn) Read(dst []byte) (int, error) { return c.read(dst, 0) }

// ReadPart is ReadFull of the beginning of something that has more bytes behind dst: the
// kernel may wait for these too before it wakes the reader.
func (c *Conn) ReadPart(dst []byte, more int) error {
	_, err := c.read(dst, more)
	return err
}

func (c *Conn) read(dst []byte, more int) (int, error) {
	n, ahead := 0, min(c.cfg.ReadAhead, len(c.buf))
	if more > 0 {
		ahead = 0 // it has a place of its own
	}
	for {
		k := copy(dst[n:], c.buf[c.begin:c.end])
		c.consume(k)
		n += k
		if n == len(dst) {
			return n, nil
		}
		// The buffer is empty here. A short rest goes through it, for what follows
		// comes along in the same system call.
		var err error
		if rest := dst[n:]; len(rest) < min(bigSend, len(c.buf)) {
			c.end, err = c.readSome(len(rest), c.buf, nil)
			if c.end >= len(rest) {
				err = nil // as in Next: it comes again
			}
		} else {
			k, err = c.readSome(len(rest)+more, rest, c.buf[:ahead])
			c.end = max(k-len(rest), 0)
			n += min(k, len(rest))
		}
		if err != nil && n < len(dst) {
			return n, c.readError(err, n+c.end)
		}
	}
}

// readSome reads into a, and what is more into b if it can. need is how much the caller
// waits for.
func (c *Conn) readSome(need int, a, b []byte) (int, error) {
	if c.socket != nil {
		return c.socket.read(need, a, b)
	}
	return c.nc.Read(a)
}

// readError closes the connection after a read failed with got bytes of the wanted
// ones there, unless it was only interrupted.
func (c *Conn) readError(err error, got int) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && c.Err() == nil {
		return err
	}
	if got > 0 && errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return c.CloseWithError(fmt.Errorf("stream: read from %v: %w", c.nc.RemoteAddr(), err))
}
