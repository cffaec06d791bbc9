package stream_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/stream"
)

// within fails the test if f takes longer than a generous bound.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		if t.Failed() {
			t.FailNow() // f stopped in its own goroutine only
		}
	case <-time.After(20 * time.Second):
		require.FailNow(t, "too late: "+what)
	}
}

// A lone send on an idle connection needs no other send to leave, nor do two that
// follow each other closely.
func TestLoneSendLeaves(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			leakless(t)
			a, z := streamPair(t, network, stream.Config{})
			go echo(z, 64)
			p := make([]byte, 64)
			within(t, "round trips", func() {
				for i := range 300 {
					for range 1 + i%3 {
						require.NoError(t, a.Send(p))
					}
					for range 1 + i%3 {
						_, err := a.Next(64)
						require.NoError(t, err)
					}
				}
			})
		})
	}
}

// Two readers that both answer before they read on do not wait for each other, even
// where the connection has no buffer.
func TestSmallSendsFromBothReaders(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			leakless(t)
			a, z := streamPair(t, network, stream.Config{WriteTimeout: time.Minute})
			within(t, "sends of both sides before any read", func() {
				require.NoError(t, a.Send([]byte("from a")))
				require.NoError(t, z.Send([]byte("from z")))
				got, err := a.Next(6)
				require.NoError(t, err)
				require.Equal(t, "from z", string(got))
				got, err = z.Next(6)
				require.NoError(t, err)
				require.Equal(t, "from a", string(got))
			})
		})
	}
}

func TestFlush(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			leakless(t)
			a, z := streamPair(t, network, stream.Config{})
			const sends = 2000
			got := receiveAsync(sends, func() error { _, err := z.Next(10); return err })
			for range sends {
				require.NoError(t, a.Send(make([]byte, 10)))
			}
			within(t, "Flush", func() { require.NoError(t, a.Flush()) })
			require.NoError(t, a.Close()) // what was flushed is no longer ours to lose
			within(t, "receiving", func() { require.NoError(t, <-got) })
			_, err := z.Next(1)
			require.ErrorIs(t, err, io.EOF)
			require.ErrorIs(t, a.Flush(), stream.ErrClosed)
		})
	}
}

// Flush and a large send of one goroutine come to an end while others keep the
// connection busy all the time.
func TestNobodyStarves(t *testing.T) {
	for _, network := range []string{"tcp", "unix", "pipe"} {
		t.Run(network, func(t *testing.T) {
			leakless(t)
			a, z := streamPair(t, network, stream.Config{})
			var wg sync.WaitGroup
			defer wg.Wait()
			defer a.Close()
			wg.Go(func() {
				for dst := make([]byte, 1<<16); z.ReadFull(dst) == nil; {
				}
			})
			for _, size := range []int{64, 1 << 20, 1 << 20} {
				p := make([]byte, size)
				wg.Go(func() {
					for a.Send(p) == nil {
					}
				})
			}
			within(t, "large sends and flushes", func() {
				p := make([]byte, 1<<17)
				for range 20 {
					require.NoError(t, a.Send(p))
					require.NoError(t, a.Flush())
				}
			})
		})
	}
}

// A reader that stops makes Send block, and after the write timeout the connection
// has one error for everybody.
func TestBackPressure(t *testing.T) {
	const timeout, limit = 300 * time.Millisecond, 64 << 10
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			leakless(t)
			a, _ := streamPair(t, network, stream.Config{MaxPendingBytes: limit, WriteTimeout: timeout})
			reader := receiveAsync(1, func() error { _, err := a.Next(1); return err })
			p := make([]byte, 1000)
			accepted, slowest := 0, time.Duration(0)
			var err error
			within(t, "the write timeout", func() {
				for err == nil {
					begin := time.Now()
					if err = a.Send(p); err == nil {
						accepted += len(p)
					}
					slowest = max(slowest, time.Since(begin))
				}
			})
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.Greater(t, slowest, timeout/2, "the last Send blocked")
			if network == "pipe" { // elsewhere the kernel's buffers come on top
				require.GreaterOrEqual(t, accepted, limit-len(p))
				require.LessOrEqual(t, accepted, 2*limit)
			}
			within(t, "the reader", func() { require.Equal(t, err, <-reader) })
			require.Equal(t, err, a.Err())
			require.Equal(t, err, a.Send(p))
			require.Equal(t, err, a.Send(nil))
			require.Equal(t, err, a.Send(make([]byte, 1<<20)))
			require.Equal(t, err, a.Flush())
			require.Equal(t, err, a.CloseWithError(errors.New("later")))
			_, nextErr := a.Next(1)
			require.Equal(t, err, nextErr)
			require.NoError(t, a.Close())
			require.Equal(t, err, a.Err())
		})
	}
}

// The write timeout is that of a whole send: a reader that takes a slice from time to time does
// not put it off.
func TestSlowReader(t *testing.T) {
	const timeout = 200 * time.Millisecond
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			leakless(t)
			a, z := streamPair(t, network, stream.Config{WriteTimeout: timeout})
			slices, buf := make([][]byte, stream.MaxSlices), make([]byte, 1<<20)
			for i := range slices {
				slices[i] = buf
			}
			go func() {
				dst := make([]byte, len(buf))
				for z.ReadFull(dst) == nil {
					<-time.After(timeout / 2)
				}
			}()
			begin := time.Now()
			require.ErrorIs(t, a.Send(slices...), os.ErrDeadlineExceeded)
			require.Less(t, time.Since(begin), 10*timeout) // all slices take thirty
		})
	}
}

// Close while calls of every kind are blocked ends them all with ErrClosed.
func TestCloseEndsBlockedCalls(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			leakless(t)
			a, _ := streamPair(t, network, stream.Config{MaxPendingBytes: 8 << 10, WriteTimeout: time.Minute})
			results := make(chan error, 6)
			loop := func(call func() error) {
				for {
					if err := call(); err != nil {
						results <- err
						return
					}
				}
			}
			small, large := make([]byte, 1000), make([]byte, 1<<20)
			go loop(func() error { _, err := a.Next(1); return err })
			go loop(func() error { return a.Send(large) })
			go loop(func() error { return a.Send(large) })
			go loop(func() error { return a.Send(small) })
			go loop(func() error { return a.Send(small) })
			go loop(a.Flush)
			blocked(t, a)
			begin := time.Now()
			require.NoError(t, a.Close())
			require.Less(t, time.Since(begin), 2*time.Second, "Close waits for nobody")
			require.NoError(t, a.Close())
			within(t, "blocked calls", func() {
				for range cap(results) {
					require.Equal(t, stream.ErrClosed, <-results)
				}
			})
			<-a.Done()
		})
	}
}

// blocked waits until a Send of one byte has not come back for a while, so that the
// socket and the pending buffer are full.
func blocked(t *testing.T, c *stream.Conn) {
	t.Helper()
	for {
		sent := make(chan struct{})
		go func() {
			_ = c.Send(make([]byte, 1000)) // ends with the connection
			close(sent)
		}()
		select {
		case <-sent:
		case <-time.After(50 * time.Millisecond):
			return
		}
	}
}

// The last send arrives before the farewell of TLS.
func TestCloseTLS(t *testing.T) {
	leakless(t)
	a, z := streamPair(t, "tls", stream.Config{})
	require.NoError(t, a.Send([]byte("last")))
	require.NoError(t, a.Flush())
	require.NoError(t, a.Close())
	got, err := z.Next(4)
	require.NoError(t, err)
	require.Equal(t, "last", string(got))
	_, err = z.Next(1)
	require.ErrorIs(t, err, io.EOF)
	require.ErrorIs(t, z.Send([]byte("x")), io.EOF, "the first cause")
}

// Close and a blocked Next do not wait until a peer that reads nothing takes the
// farewell of TLS.
func TestCloseTLSBeforeDeafPeer(t *testing.T) {
	leakless(t)
	nc, deaf := tlsOver(t, net.Pipe)
	defer deaf.(*tls.Conn).NetConn().Close() // ends the farewell
	a := stream.New(nc, stream.Config{})
	reader := receiveAsync(1, func() error { _, err := a.Next(1); return err })
	begin := time.Now()
	require.NoError(t, a.Close())
	within(t, "Next", func() { require.Equal(t, stream.ErrClosed, <-reader) })
	require.Less(t, time.Since(begin), 2*time.Second)
}

func TestCloseWithError(t *testing.T) {
	leakless(t)
	a, z := streamPair(t, "tcp", stream.Config{})
	cause := errors.New("the cause")
	require.Equal(t, cause, a.CloseWithError(cause))
	require.Equal(t, cause, a.CloseWithError(errors.New("another")))
	require.Equal(t, cause, a.Send([]byte("x")))
	require.Equal(t, stream.ErrClosed, z.CloseWithError(nil))
	require.Equal(t, stream.ErrClosed, z.CloseWithError(nil))
	require.Equal(t, stream.ErrClosed, z.Err())
}

// Many connections come and go, with calls in progress, and leave nothing.
func TestNothingIsLeft(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			leakless(t)
			for range 20 {
				a, b := socketPair(t, network)
				sa, sb := newStream(t, network, a, stream.Config{}), newStream(t, network, b, stream.Config{})
				go echo(sb, 64)
				require.NoError(t, sa.Send(make([]byte, 640)))
				_, err := sa.Next(64)
				require.NoError(t, err)
				require.NoError(t, sa.Close())
				within(t, "the other side", func() { <-sb.Done() })
			}
		})
	}
}
