package collective

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective/schedule"
	"github.com/elasticps/elasticps/internal/stream"
)

// lanePair returns the two ends of a lane over loopback TCP.
func lanePair(t *testing.T, crowded bool) (*socketLane, *socketLane) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	accepted, err := l.Accept()
	require.NoError(t, err)
	a, z := newSocketLane([]*stream.Conn{newConn(dialed)}, crowded), newSocketLane([]*stream.Conn{newConn(accepted)}, crowded)
	t.Cleanup(func() {
		a.close(ErrClosed)
		z.close(ErrClosed)
	})
	return a, z
}

// Sends do not wait for a peer that does not read, and what the kernel has no room for
// comes behind what it has.
func TestSendsDoNotWait(t *testing.T) {
	const total = 48 << 20 // more than a kernel has room for
	for _, size := range []int{2000, inlineBytes, 300_000} {
		for _, crowded := range []bool{false, true} {
			t.Run(fmt.Sprint(size, " bytes, crowded ", crowded), func(t *testing.T) {
				a, z := lanePair(t, crowded)
				payload := make([]byte, size+255)
				for i := range payload {
					payload[i] = byte(i + i>>8)
				}
				h := header{kind: frameData, length: uint32(size)}
				var last ticket
				sent := make(chan error, 1)
				go func() {
					for ; int(h.part) < total/size; h.part++ {
						var err error
						if last, err = a.send(&h, payload[h.part%256:][:size], false); err != nil {
							sent <- err
							return
						}
					}
					sent <- nil
				}()
				select {
				case err := <-sent:
					require.NoError(t, err)
				case <-time.After(30 * time.Second):
					t.Fatal("a send waits")
				}
				require.NotNil(t, last.tally)
				require.False(t, last.through())
				for part := range h.part {
					var got header
					require.NoError(t, z.next(&got))
					require.Equal(t, part, got.part)
					for at := 0; at < size; {
						piece, err := z.view(size-at, false)
						require.NoError(t, err)
						require.Equal(t, string(payload[int(part%256)+at:][:len(piece)]), string(piece), "frame %d at %d", part, at)
						at += len(piece)
					}
					z.release()
				}
				require.NoError(t, last.wait())
			})
		}
	}
}

// sluggish is a lane whose sends are through when as many frames have been read to their
// end: as if there were no room in between.
type sluggish struct {
	lane
	tally
	left int // of the payload that is being received
}

func newSluggish(l lane) *sluggish {
	s := &sluggish{lane: l}
	s.cond.L = &s.mu
	return s
}

func (s *sluggish) send(h *header, payload []byte, _ bool) (ticket, error) {
	if _, err := s.lane.send(h, payload, false); err != nil {
		return ticket{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent++
	return ticket{&s.tally, s.sent}, nil
}

func (s *sluggish) next(h *header) error {
	err := s.lane.next(h)
	s.left = int(h.length)
	return err
}

func (s *sluggish) view(n int, whole bool) ([]byte, error) {
	b, err := s.lane.view(n, whole)
	if s.left -= len(b); s.left == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.done++
		s.cond.Broadcast()
	}
	return b, err
}

func (s *sluggish) close(err error) {
	s.lane.close(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	s.cond.Broadcast()
}

// Two ranks that exchange what both combine into, neither of which has sent all before the
// other one has read all, do not wait for each other.
func TestExchangeWithoutRoom(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	groups := pairOverTCP(t, ctx, schedule.RecursiveDoubling)
	const count = 200_000
	errs := make(chan error, 2)
	for rank, g := range groups {
		peer := g.peers[1-rank]
		peer.data = newSluggish(peer.data)
		x := make([]float32, count)
		for i := range x {
			x[i] = float32((rank + 1) * (i % 100))
		}
		go func() {
			err := g.AllReduce(ctx, Of(x), Of(x), Sum)
			for i := range x {
				if want := float32(3 * (i % 100)); err == nil && x[i] != want {
					err = fmt.Errorf("element %d is %v, want %v", i, x[i], want)
				}
			}
			errs <- err
		}()
	}
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
}

// pairOverTCP returns a group of two ranks with one algorithm for all-reduces.
func pairOverTCP(t *testing.T, ctx context.Context, a schedule.Algorithm) [2]*Group {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addresses := []string{l.Addr().String(), "127.0.0.1:0"}
	require.NoError(t, l.Close())
	var groups [2]*Group
	errs := make(chan error, 2)
	for rank := range groups {
		go func() {
			var err error
			groups[rank], err = Join(ctx, Config{
				Rank: rank, Size: 2, Addresses: addresses, TCPOnly: true, SocketsOnly: true, NoCalibration: true,
				Algorithms: map[Collective]schedule.Algorithm{AllReduce: a},
			})
			errs <- err
		}()
	}
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
	t.Cleanup(func() {
		for _, g := range groups {
			_ = g.Close()
		}
	})
	return groups
}

// Payloads that are copied on their way through memory use the same room again, and each is what
// it was when it was sent.
func TestCopiesOfMemoryLanes(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, z := memoryLanes()
	defer a.close(ErrClosed)
	payload, dst := make([]byte, 4096), make([]byte, 4096)
	value := byte(0)
	move := func(ahead int) {
		for range ahead {
			value++
			payload[0], payload[len(payload)-1] = value, value
			sent, err := a.send(&header{length: uint32(len(payload))}, payload, true)
			require.NoError(t, err)
			require.True(t, sent.through())
		}
		for i := range ahead {
			var h header
			require.NoError(t, z.next(&h))
			require.NoError(t, z.read(dst))
			want := value - byte(ahead-1-i)
			require.Equal(t, [2]byte{want, want}, [2]byte{dst[0], dst[len(dst)-1]})
		}
	}
	move(3)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		move(1)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(50*len(payload)))
}
