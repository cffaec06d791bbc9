package stream_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/stream"
)

// The test's frame: sender, sequence number, payload length, checksum of the payload.
const testHeader = 16

// Frames of many senders, small and large, arrive whole, and those of one sender in
// order.
func TestOrderAndAtomicity(t *testing.T) {
	for _, network := range networks {
		for _, cfg := range []stream.Config{{}, {BufferBytes: 512, MaxPendingBytes: 2000}} {
			t.Run(fmt.Sprintf("%s/pending=%d", network, cfg.MaxPendingBytes), func(t *testing.T) {
				leakless(t)
				a, z := streamPair(t, network, cfg)
				const senders, frames = 8, 300
				var wg sync.WaitGroup
				defer wg.Wait()
				defer a.Close() // ends the senders if the reader fails
				for i := range senders {
					wg.Go(func() { sendFrames(a, uint32(i), frames) })
				}
				within(t, "all frames", func() { receiveFrames(t, z, senders, frames) })
			})
		}
	}
}

// sendFrames reuses its buffers and scribbles over them after every send.
func sendFrames(c *stream.Conn, sender uint32, frames int) {
	source := rand.NewChaCha8([32]byte{byte(sender)})
	rng := rand.New(source)
	header, payload := make([]byte, testHeader), make([]byte, 200<<10)
	for seq := range frames {
		size := rng.IntN(300)
		switch seq % 16 {
		case 5:
			size = rng.IntN(40 << 10)
		case 11:
			size = rng.IntN(len(payload))
		}
		p := payload[:size]
		_, _ = source.Read(p) // never fails
		binary.LittleEndian.PutUint32(header, sender)
		binary.LittleEndian.PutUint32(header[4:], uint32(seq))
		binary.LittleEndian.PutUint32(header[8:], uint32(size))
		binary.LittleEndian.PutUint32(header[12:], crc32.ChecksumIEEE(p))
		if c.Send(header[:5], header[5:], p[:size/3], nil, p[size/3:]) != nil {
			return // the reader fails too
		}
		clear(header)
		clear(p)
	}
}

func receiveFrames(t *testing.T, c *stream.Conn, senders, frames int) {
	next, dst := make([]int, senders), make([]byte, 200<<10)
	for range senders * frames {
		h, err := c.Next(testHeader)
		require.NoError(t, err)
		sender, seq := binary.LittleEndian.Uint32(h), int(binary.LittleEndian.Uint32(h[4:]))
		size, sum := int(binary.LittleEndian.Uint32(h[8:])), binary.LittleEndian.Uint32(h[12:])
		require.Less(t, sender, uint32(senders), "a header where one must be")
		require.Equal(t, next[sender], seq, "sender %d", sender)
		next[sender]++
		p := dst[:size]
		if size <= 300 && seq%2 == 0 {
			p, err = c.Next(size)
		} else {
			err = c.ReadFull(p)
		}
		require.NoError(t, err)
		require.Equal(t, sum, crc32.ChecksumIEEE(p), "sender %d frame %d of %d bytes", sender, seq, size)
	}
}

// Too many slices are refused, and the connection goes on.
func TestSendTooManySlices(t *testing.T) {
	leakless(t)
	a, z := streamPair(t, "tcp", stream.Config{})
	one := []byte{1}
	require.EqualError(t, a.Send(make([][]byte, 65)...), "stream: send of 65 slices, at most 64")
	require.NoError(t, a.Send(one, one, one, one, one, one, one, one))
	require.NoError(t, a.Send())
	big := make([]byte, 5000)
	require.NoError(t, a.Send(big, big, big, big, big, big, big, big))
	require.NoError(t, z.ReadFull(make([]byte, 8+8*len(big))))
}

// Neither side allocates in steady state.
func TestAllocations(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			leakless(t)
			a, z := streamPair(t, network, stream.Config{})
			header, payload, dst := make([]byte, 64), make([]byte, 48<<10), make([]byte, 48<<10)
			round := func(sends int, payload []byte) {
				for range sends {
					if err := a.Send(header, payload); err != nil {
						panic(err)
					}
				}
				for range sends {
					if _, err := z.Next(len(header)); err != nil {
						panic(err)
					}
					if err := z.ReadFull(dst[:len(payload)]); err != nil {
						panic(err)
					}
				}
			}
			for _, tc := range []struct {
				name        string
				sends, size int
			}{{"lone", 1, 0}, {"gathered", 100, 100}, {"large", 1, 48 << 10}} {
				work := func() { round(tc.sends, payload[:tc.size]) }
				for range 100 {
					work() // the buffers find their size
				}
				require.Zero(t, testing.AllocsPerRun(500, work), tc.name)
			}
		})
	}
}
