package collective_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/schedule"
)

// narrows is a network between ranks of which each connection carries so many bytes per second in
// each direction, as one whose window is small for its distance.
type narrows struct {
	listener net.Listener
	address  string // of the rank behind it
	rate     float64

	running sync.WaitGroup
	mu      sync.Mutex
	carried []*atomic.Int64 // by each connection, to the address
	conns   []net.Conn
}

// newNarrows listens on behalf of an address, until the test ends.
func newNarrows(tb testing.TB, address string, rate float64) *narrows {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	n := &narrows{listener: l, address: address, rate: rate}
	n.running.Go(n.accept)
	tb.Cleanup(func() {
		_ = l.Close()
		n.mu.Lock()
		for _, c := range n.conns {
			_ = c.Close() // both ends are through
		}
		n.mu.Unlock()
		n.running.Wait()
	})
	return n
}

func (n *narrows) accept() {
	for {
		a, err := n.listener.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", n.address)
		if err != nil {
			_ = a.Close() // the rank sees it
			continue
		}
		carried := new(atomic.Int64)
		n.mu.Lock()
		n.carried, n.conns = append(n.carried, carried), append(n.conns, a, b)
		n.mu.Unlock()
		n.running.Go(func() { n.carry(b, a, carried) })
		n.running.Go(func() { n.carry(a, b, new(atomic.Int64)) })
	}
}

// burst is how much of its time a connection may make up for, when it was not used or the timer
// came late.
const burst = 5 * time.Millisecond

// carry passes bytes on, each piece when the connection is through with those before it.
func (n *narrows) carry(dst, src net.Conn, carried *atomic.Int64) {
	defer dst.Close()
	buf := make([]byte, 16<<10)
	free := time.Now()
	for {
		k, err := src.Read(buf)
		if k > 0 {
			if least := time.Now().Add(-burst); free.Before(least) {
				free = least
			}
			free = free.Add(time.Duration(float64(k) / n.rate * float64(time.Second)))
			time.Sleep(time.Until(free))
			carried.Add(int64(k))
			_, err = dst.Write(buf[:k])
		}
		if err != nil {
			return
		}
	}
}

// shares returns what the connections have carried since the last time, the largest first.
func (n *narrows) shares() []int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []int64
	for _, c := range n.carried {
		all = append(all, c.Swap(0))
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all
}

// throughNarrows makes two ranks that reach each other by so many connections of a rate.
func throughNarrows(tb testing.TB, streams int, rate float64, a schedule.Algorithm) ([]*collective.Group, *narrows) {
	addresses := freeAddresses(tb, 2)
	n := newNarrows(tb, addresses[0], rate)
	groups := found(tb, 2, overSockets(tb, true, func(rank int, c *collective.Config) {
		c.Listen, c.Streams = addresses[rank], streams
		if rank == 0 {
			c.Advertise = n.listener.Addr().String()
		}
		force(a, c)
	}))
	return groups, n
}

// message sends one from rank 1 to rank 0.
func message(ctx context.Context, groups []*collective.Group, rank int, x []float32) error {
	if rank == 1 {
		return groups[1].Send(ctx, collective.Of(x), 0)
	}
	return groups[0].Recv(ctx, collective.Of(x), 1)
}

// Case 24: all connections between two ranks carry an equal share of one large message, or of one
// large all-reduce, at the same time: where each of them is narrow, four are faster than one. (Of a
// few times the fastest counts, for processors may be busy.)
func TestCase24SeveralConnections(t *testing.T) {
	const rate, count, streams, gain = 4e6, 1 << 19, 4, 1.6
	buffers := [][]float32{make([]float32, count), make([]float32, count)}
	for _, a := range []schedule.Algorithm{0, schedule.Direct, schedule.Ring, schedule.HalvingDoubling} {
		name := "message"
		if a != 0 {
			name = "all-reduce, " + a.String()
		}
		call := func(groups []*collective.Group, rank int) error {
			if a == 0 {
				return message(background(t), groups, rank, buffers[rank])
			}
			x := collective.Of(buffers[rank])
			return groups[rank].AllReduce(background(t), x, x, collective.Sum)
		}
		t.Run(name, func(t *testing.T) {
			leakless(t)
			timed := func(k int) time.Duration {
				groups, n := throughNarrows(t, k, rate, a)
				defer closeAll(groups)
				n.shares()
				begin := time.Now()
				onAll(t, 2, func(rank int) error { return call(groups, rank) })
				took := time.Since(begin)
				shares, sum := n.shares(), int64(0)
				for _, s := range shares[:k] {
					require.InEpsilon(t, shares[0], s, 0.1, "%v", shares)
					sum += s
				}
				require.InEpsilon(t, 4*count, sum, 0.1, "what the message has")
				return took
			}
			one, several := timed(1), timed(streams)
			for try := 0; try < 4 && one.Seconds() < gain*several.Seconds(); try++ {
				several = min(several, timed(streams))
			}
			t.Logf("%v by one connection, %v by %d", one, several, streams)
			require.Greater(t, one.Seconds(), gain*several.Seconds())
		})
	}
}

// BenchmarkStreams is one message of 16 MiB to another rank by several connections: where each
// carries 100 MB/s, and over the loopback interface as it is.
func BenchmarkStreams(b *testing.B) {
	buffers := [][]float32{make([]float32, 4<<20), make([]float32, 4<<20)}
	for _, rate := range []float64{100e6, 0} {
		for _, streams := range []int{1, 2, 4, 8} {
			name := "loopback"
			if rate > 0 {
				name = fmt.Sprintf("%.0f MB/s each", rate/1e6)
			}
			b.Run(fmt.Sprintf("%s/%d", name, streams), func(b *testing.B) {
				var groups []*collective.Group
				if rate > 0 {
					groups, _ = throughNarrows(b, streams, rate, 0)
				} else {
					groups = found(b, 2, overSockets(b, true, func(_ int, c *collective.Config) { c.Streams = streams }))
				}
				b.SetBytes(16 << 20)
				ctx := context.Background()
				for b.Loop() {
					onAll(b, 2, func(rank int) error { return message(ctx, groups, rank, buffers[rank]) })
				}
			})
		}
	}
}
