package stream_test

import (
	"bytes"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/stream"
)

// pattern is bytes that tell where they belong.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

var past = time.Unix(1, 0)

// sendNow sends and flushes, so that all of p is on its way.
func sendNow(t *testing.T, c *stream.Conn, p []byte) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		if err := c.Send(p); err != nil {
			done <- err
			return
		}
		done <- c.Flush()
	}()
	t.Cleanup(func() { require.NoError(t, <-done) })
}

// A reader that its deadline interrupts loses nothing: Next begins where it was, Read
// says how much it has, wherever within a frame it happened.
func TestReadGoesOnAfterDeadline(t *testing.T) {
	for _, network := range interruptible {
		t.Run(network, func(t *testing.T) {
			for _, size := range []int{10, 5000, 100_000, 300_000} {
				leakless(t)
				a, z := streamPair(t, network, stream.Config{BufferBytes: 1 << 19})
				want := pattern(2 * size)
				require.NoError(t, z.NetConn().SetReadDeadline(past))
				_, err := z.Next(size)
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				require.NoError(t, z.Err())
				sendNow(t, a, want[:size/2])
				got := make([]byte, size)
				interrupted := 0
				within(t, "Next", func() {
					for rest := want[size/2 : size]; ; {
						require.NoError(t, z.NetConn().SetReadDeadline(time.Now().Add(2*time.Millisecond)))
						view, err := z.Next(size)
						if err == nil {
							copy(got, view)
							return
						}
						require.ErrorIs(t, err, os.ErrDeadlineExceeded)
						if interrupted++; interrupted == 3 {
							sendNow(t, a, rest)
						}
					}
				})
				require.GreaterOrEqual(t, interrupted, 3)
				require.True(t, bytes.Equal(want[:size], got))
				readInPieces(t, a, z, want[size:])
				require.NoError(t, z.Err())
			}
		})
	}
}

// readInPieces reads what a sends in two halves with Read, which is interrupted.
func readInPieces(t *testing.T, a, z *stream.Conn, want []byte) {
	t.Helper()
	sendNow(t, a, want[:len(want)/3])
	got, n, interrupted := make([]byte, len(want)), 0, 0
	within(t, "Read", func() {
		for n < len(got) {
			require.NoError(t, z.NetConn().SetReadDeadline(time.Now().Add(2*time.Millisecond)))
			m, err := z.Read(got[n:])
			n += m
			if err == nil {
				require.Equal(t, len(got), n)
				return
			}
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			if interrupted++; interrupted == 3 {
				sendNow(t, a, want[len(want)/3:])
			}
		}
	})
	require.True(t, bytes.Equal(want, got))
	require.NoError(t, z.NetConn().SetReadDeadline(time.Time{}))
}

// What is buffered can be read although the deadline has passed, and counts.
func TestBuffered(t *testing.T) {
	for _, network := range interruptible {
		t.Run(network, func(t *testing.T) {
			leakless(t)
			a, z := streamPair(t, network, stream.Config{})
			require.Zero(t, z.Buffered())
			sendNow(t, a, pattern(100))
			_, err := z.Next(1)
			require.NoError(t, err)
			if z.Buffered() < 99 { // the rest may come later
				_, err = z.Next(99)
				require.NoError(t, err)
				require.Zero(t, z.Buffered())
				return
			}
			require.Equal(t, 99, z.Buffered())
			require.NoError(t, z.NetConn().SetReadDeadline(past))
			view, err := z.Next(40)
			require.NoError(t, err)
			require.Equal(t, pattern(100)[1:41], view)
			require.Equal(t, 59, z.Buffered())
			dst := make([]byte, 60)
			n, err := z.Read(dst)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.Equal(t, 59, n)
			require.Equal(t, pattern(100)[41:], dst[:n])
			require.Zero(t, z.Buffered())
		})
	}
}

// A connection that carries small frames keeps a small read buffer; the first large
// view makes it grow, once, and loses nothing that was there.
func TestReadBufferGrows(t *testing.T) {
	const large = 256 << 10
	leakless(t)
	a, z := streamPair(t, "tcp", stream.Config{BufferBytes: 2 * large})
	want := pattern(3*large + 100)
	sendNow(t, a, want)
	read := func(n int) {
		t.Helper()
		view, err := z.Next(n)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want[:n], view))
		want = want[n:]
	}
	within(t, "views", func() {
		read(100)
		for _, n := range []int{80, large, 80, large - 80, 80} {
			read(n)
		}
		require.NoError(t, z.NetConn().SetReadDeadline(time.Now().Add(10*time.Second)))
		_, err := z.Next(2*large + 1)
		require.ErrorContains(t, err, "at most 524288")
		read(len(want))
	})
	require.NoError(t, z.Err())
}

// After it has grown, a connection reads large frames without allocating.
func TestReadBufferGrowsOnce(t *testing.T) {
	const large = 256 << 10
	leakless(t)
	a, z := streamPair(t, "unix", stream.Config{BufferBytes: 2 * large})
	p := make([]byte, large)
	exchange := func() {
		done := make(chan error, 1)
		go func() { done <- a.Send(p) }()
		_, err := z.Next(large)
		require.NoError(t, err)
		require.NoError(t, <-done)
	}
	for range 3 {
		exchange()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 50 {
		exchange()
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(large), "50 frames")
}

// As many slices as one send may have, small and large ones mixed, arrive in order.
func TestSendManySlices(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			leakless(t)
			a, z := streamPair(t, network, stream.Config{})
			for _, sizes := range [][]int{{1}, {80, 300}, {80, 20_000}, {0, 5000, 80}, {20_000, 80}} {
				var bufs [][]byte
				total := 0
				for i := range stream.MaxSlices {
					total += sizes[i%len(sizes)]
				}
				want := pattern(total)
				for i, at := 0, 0; i < stream.MaxSlices; i++ {
					n := sizes[i%len(sizes)]
					bufs = append(bufs, want[at:at+n])
					at += n
				}
				sent := receiveAsync(1, func() error { return a.Send(bufs...) })
				got := make([]byte, total)
				within(t, "all slices", func() {
					require.NoError(t, z.ReadFull(got))
					require.NoError(t, <-sent)
				})
				require.True(t, bytes.Equal(want, got), "%v", sizes)
			}
		})
	}
}
