package stream_test

import (
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/stream"
)

// Views and full reads of any size give the bytes in order, whatever pieces they
// arrive in and wherever the border of the buffer falls.
func TestReadAcrossBuffer(t *testing.T) {
	for _, network := range networks {
		for _, buffer := range []int{1, 7, 64, 4096} {
			leakless(t)
			a, z := streamPair(t, network, stream.Config{BufferBytes: buffer})
			const total = 100_000
			pattern := make([]byte, total)
			rng := rand.New(rand.NewPCG(1, uint64(buffer)))
			for i := range pattern {
				pattern[i] = byte(rng.Uint32())
			}
			go func() {
				for rest := pattern; len(rest) > 0; {
					n := min(1+pieces[len(rest)%len(pieces)], len(rest))
					if a.Send(rest[:n]) != nil {
						return // the reader fails too
					}
					rest = rest[n:]
				}
			}()
			within(t, "all bytes", func() {
				dst := make([]byte, 3*buffer+10)
				for at := 0; at < total; {
					n := min(rng.IntN(buffer+1), total-at)
					if rng.IntN(3) > 0 {
						view, err := z.Next(n)
						require.NoError(t, err)
						require.Equal(t, pattern[at:at+n], view)
						at += n
						continue
					}
					n = min(rng.IntN(len(dst)), total-at)
					require.NoError(t, z.ReadFull(dst[:n]))
					require.Equal(t, pattern[at:at+n], dst[:n])
					at += n
				}
			})
		}
	}
}

// A reader that begins while what it needs is coming, piece by piece, gets all of it: the kernel
// wakes nobody for a rest that is smaller than what the reader was going to wait for.
func TestReadWhileItComes(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			leakless(t)
			a, z := streamPair(t, network, stream.Config{})
			const size, part, rounds = 100_000, 5000, 500
			begin := make(chan time.Duration)
			go func() {
				p := make([]byte, size)
				for wait := range begin {
					for t := time.Now(); time.Since(t) < wait; { // about as long as the reader takes to look
					}
					_ = a.Send(p[:part]) // the reader fails too
					time.Sleep(50 * time.Microsecond)
					_ = a.Send(p[part:])
				}
			}()
			within(t, "all rounds", func() {
				defer close(begin)
				p := make([]byte, size)
				for i := range rounds {
					begin <- time.Duration(i%50) * 500 * time.Nanosecond
					require.NoError(t, z.ReadFull(p))
				}
			})
		})
	}
}

var pieces = []int{1, 3, 60, 500, 64, 17_000, 5000}

func TestNextBounds(t *testing.T) {
	leakless(t)
	a, z := streamPair(t, "tcp", stream.Config{BufferBytes: 16})
	_, err := z.Next(17)
	require.EqualError(t, err, "stream: view of 17 bytes, at least 0 and at most 16")
	_, err = z.Next(-1)
	require.ErrorContains(t, err, "view of -1 bytes")
	require.NoError(t, z.Err(), "a mistake of the caller is no fault of the connection")
	view, err := z.Next(0)
	require.NoError(t, err)
	require.Empty(t, view)
	require.NoError(t, z.ReadFull(nil))

	require.NoError(t, a.Send([]byte("0123456789abcdefgh")))
	view, err = z.Next(16)
	require.NoError(t, err)
	require.Equal(t, "0123456789abcdef", string(view))
	_ = append(view, 'X') // does not reach the buffer
	view, err = z.Next(2)
	require.NoError(t, err)
	require.Equal(t, "gh", string(view))
}

// A peer that closes between frames is told from one that closes within.
func TestEnd(t *testing.T) {
	for _, network := range networks {
		for _, tc := range []struct {
			name string
			sent string
			read func(*stream.Conn) error
			want error
		}{
			{"before a view", "", func(c *stream.Conn) error { _, err := c.Next(4); return err }, io.EOF},
			{"within a view", "abc", func(c *stream.Conn) error { _, err := c.Next(4); return err }, io.ErrUnexpectedEOF},
			{"before a full read", "", func(c *stream.Conn) error { return c.ReadFull(make([]byte, 4)) }, io.EOF},
			{"within a full read", "abc", func(c *stream.Conn) error { return c.ReadFull(make([]byte, 4)) }, io.ErrUnexpectedEOF},
			{"within a large read", "abc", func(c *stream.Conn) error { return c.ReadFull(make([]byte, 1<<20)) }, io.ErrUnexpectedEOF},
		} {
			t.Run(network+"/"+tc.name, func(t *testing.T) {
				leakless(t)
				a, z := streamPair(t, network, stream.Config{})
				got := receiveAsync(1, func() error { return tc.read(z) })
				require.NoError(t, a.Send([]byte(tc.sent)))
				within(t, "Flush", func() { require.NoError(t, a.Flush()) })
				require.NoError(t, a.Close())
				within(t, "the end", func() { require.ErrorIs(t, <-got, tc.want) })
				require.ErrorIs(t, z.Err(), tc.want)
			})
		}
	}
}

// What had arrived before the end can still be read.
func TestBufferedAfterClose(t *testing.T) {
	leakless(t)
	a, z := streamPair(t, "tcp", stream.Config{})
	require.NoError(t, a.Send([]byte("abcdef")))
	_, err := z.Next(1)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	view, err := z.Next(5)
	require.NoError(t, err)
	require.Equal(t, "bcdef", string(view))
	_, err = z.Next(1)
	require.Equal(t, stream.ErrClosed, err)
}
