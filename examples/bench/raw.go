package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// rawChunk is the size of writes to a raw stream, and of the buffer it is read into.
	rawChunk = mib
	// rawRound is how many bytes of a raw stream go in one exchange; the pause between
	// two exchanges is a thousandth of the time that it takes.
	rawRound = 128 * mib
	// rawGrace is how long an exchange may take longer than planned.
	rawGrace = 20 * time.Second
	// maxExchange bounds what a peer may ask for.
	maxExchange = gib
)

// exchange is what the client of a raw connection asks for when it begins: again and
// again, the server reads in bytes and then writes out bytes.
type exchange struct{ in, out uint64 }

const exchangeBytes = 16

func (e exchange) encode() []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, e.in), e.out)
}

func decodeExchange(b [exchangeBytes]byte) (exchange, error) {
	e := exchange{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
	if e.in == 0 || e.in > maxExchange || e.out > maxExchange {
		return e, fmt.Errorf("bench: exchange of %d and %d bytes, want 1 to %d and 0 to %d", e.in, e.out, maxExchange, maxExchange)
	}
	return e, nil
}

// rawConn is one end of a raw connection: plain blocking calls, one reused buffer.
type rawConn struct {
	net.Conn
	exchange
	buf []byte
}

// send writes n bytes, rawChunk at a time.
func (c *rawConn) send(n uint64) error {
	for n > 0 {
		k, err := c.Write(c.buf[:min(n, rawChunk)])
		if err != nil {
			return err
		}
		n -= uint64(k)
	}
	return nil
}

// receive reads n bytes and drops them.
func (c *rawConn) receive(n uint64) error {
	for n > 0 {
		k, err := c.Read(c.buf[:min(n, rawChunk)])
		if err != nil {
			return err
		}
		n -= uint64(k)
	}
	return nil
}

// rawServer is the other end of the raw streams and round trips. It is in the process
// of the parameter server, so that both run under the same conditions.
type rawServer struct {
	tcp, unix string // addresses; unix is empty where there is none
	stop      context.CancelFunc
	running   sync.WaitGroup
}

func startRawServer(ctx context.Context) (*rawServer, error) {
	ctx, stop := context.WithCancel(ctx)
	s := &rawServer{stop: stop}
	var err error
	if s.tcp, err = s.listen(ctx, "tcp", "127.0.0.1:0"); err == nil && hasUnix {
		s.unix, err = s.listen(ctx, "unix", unixAddress())
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("bench: raw sockets: %w", err)
	}
	return s, nil
}

func (s *rawServer) listen(ctx context.Context, network, address string) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, network, address)
	if err != nil {
		return "", err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	s.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed; nothing else happens to it in so short a life
			}
			s.running.Go(func() { serveRaw(ctx, conn) })
		}
	})
	return l.Addr().String(), nil
}

func (s *rawServer) close() {
	s.stop()
	s.running.Wait()
}

// serveRaw does what the client asks for until it closes the connection.
func serveRaw(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var header [exchangeBytes]byte
	_ = conn.SetReadDeadline(time.Now().Add(rawGrace)) // a connection that cannot is closed
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return
	}
	e, err := decodeExchange(header)
	if err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{}) // the client may rest between two probes
	c := rawConn{conn, e, make([]byte, rawChunk)}
	for {
		if c.receive(e.in) != nil || c.send(e.out) != nil {
			return
		}
	}
}

// dialRaw connects to a raw server and begins an exchange.
func dialRaw(ctx context.Context, network, address string, e exchange) (*rawConn, error) {
	if address == "" {
		return nil, fmt.Errorf("bench: there is no raw %s socket on this system", network)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err == nil {
		if _, err = conn.Write(e.encode()); err == nil {
			return &rawConn{conn, e, make([]byte, rawChunk)}, nil
		}
		_ = conn.Close() // the first error is the one to report
	}
	return nil, fmt.Errorf("bench: raw %s socket: %w", network, err)
}

// uploading and downloading are the exchanges of a stream to and from the server.
func uploading() exchange   { return exchange{in: rawRound, out: 8} }
func downloading() exchange { return exchange{in: 8, out: rawRound} }

// turn is one exchange.
func (c *rawConn) turn() error {
	if err := c.send(c.in); err != nil {
		return err
	}
	return c.receive(c.out)
}

// stream is the probe of one exchange after the other, in bytes per second.
func (c *rawConn) stream(ctx context.Context, d time.Duration) ([]float64, error) {
	if err := c.within(d); err != nil {
		return nil, err
	}
	turns, err := drive(ctx, 1, 1, d, func(context.Context, int) error { return c.turn() })
	return []float64{turns * float64(c.in+c.out)}, err
}

// roundTrip is the probe of the time that one exchange takes, p50 and p99 in seconds.
func (c *rawConn) roundTrip(ctx context.Context, d time.Duration) ([]float64, error) {
	if err := c.within(d); err != nil {
		return nil, err
	}
	return latencies(ctx, d, func(context.Context) error { return c.turn() })
}

// pipelined is the probe of exchanges that do not wait for each other: how many per
// second, when window of them are written before the first answer is read.
func (c *rawConn) pipelined(ctx context.Context, d time.Duration) ([]float64, error) {
	if err := c.within(d); err != nil {
		return nil, err
	}
	const window = 64
	turns, err := drive(ctx, 1, 1, d, func(context.Context, int) error {
		sent := make(chan error, 1)
		go func() { sent <- c.sendTimes(window) }()
		err := c.receive(window * c.out)
		if err != nil {
			_ = c.Close() // the writer ends
		}
		return errors.Join(err, <-sent)
	})
	return []float64{turns * window}, err
}

// sendTimes writes as send does, from a buffer that is not the reader's.
func (c *rawConn) sendTimes(n int) error {
	chunk := make([]byte, c.in)
	for range n {
		if _, err := c.Write(chunk); err != nil {
			return err
		}
	}
	return nil
}

// within bounds what comes by d and a grace.
func (c *rawConn) within(d time.Duration) error { return c.SetDeadline(time.Now().Add(d + rawGrace)) }
