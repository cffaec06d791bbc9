package stream

import (
	"errors"
	"fmt"
	"io"
)

// Next returns the next n bytes of input, blocking until they are there. The view
// is valid until the next call of Next or ReadFull. n is at most BufferBytes; an
// error about n leaves the connection as it is, any other ends it. The error wraps
// io.EOF if the peer closed where the view would begin, and io.ErrUnexpectedEOF if
// it closed within.
func (c *Conn) Next(n int) ([]byte, error) {
	if n < 0 || n > len(c.buf) {
		return nil, fmt.Errorf("stream: view of %d bytes, at least 0 and at most %d", n, len(c.buf))
	}
	if len(c.buf)-c.begin < n {
		c.end = copy(c.buf, c.buf[c.begin:c.end])
		c.begin = 0
	}
	for c.end-c.begin < n {
		m, err := c.nc.Read(c.buf[c.end:])
		c.end += m
		if err != nil && c.end-c.begin < n {
			return nil, c.readError(err, c.end-c.begin)
		}
	}
	view := c.buf[c.begin : c.begin+n : c.begin+n]
	c.begin += n
	if c.begin == c.end {
		c.begin, c.end = 0, 0
	}
	return view, nil
}

// ReadFull fills dst, first from what is buffered, the rest straight from the
// socket. It blocks until dst is full. Its errors are those of Next.
func (c *Conn) ReadFull(dst []byte) error {
	n := 0
	for {
		k := copy(dst[n:], c.buf[c.begin:c.end])
		c.begin += k
		n += k
		if c.begin == c.end {
			c.begin, c.end = 0, 0
		}
		if n == len(dst) {
			return nil
		}
		// The buffer is empty here. A short rest goes through it, for what follows
		// comes along in the same system call.
		var err error
		if rest := dst[n:]; len(rest) < min(bigSend, len(c.buf)) {
			c.end, err = c.nc.Read(c.buf)
			if c.end >= len(rest) {
				err = nil // as in Next: it comes again
			}
		} else {
			k, err = c.nc.Read(rest)
			n += k
		}
		if err != nil && n < len(dst) {
			return c.readError(err, n+c.end)
		}
	}
}

// readError closes the connection after a read failed with got bytes of the wanted
// ones there.
func (c *Conn) readError(err error, got int) error {
	if got > 0 && errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return c.CloseWithError(fmt.Errorf("stream: read from %v: %w", c.nc.RemoteAddr(), err))
}
