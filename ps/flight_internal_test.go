package ps

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/wire"
)

// After pulls were cancelled whose answers fill the connection, nobody waits for them;
// a push goes through all the same, long before a write times out.
func TestPushAfterCancelledPulls(t *testing.T) {
	for name, pair := range map[string]func(*testing.T) (net.Conn, net.Conn){"unix": narrowPair, "tcp": tcpPair} {
		t.Run(name, func(t *testing.T) {
			s := fuzzedServer(t)
			s.cfg.WriteTimeout = time.Minute
			mine, theirs := pair(t)
			var serving sync.WaitGroup
			serving.Go(func() { s.serveConn(theirs, nil) })
			d := &duplex{wired: wiredTo(t, maxInFlight, mine)}
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			d.cancelPulls(ctx, 48)
			began := time.Now()
			require.NoError(t, d.operate(ctx, wire.Push, 48))
			require.Less(t, time.Since(began), 3*time.Second)
			_ = mine.Close()
			serving.Wait()
			s.closeData()
		})
	}
}

// cancelPulls sends n pulls of a block and takes them back before anything is read.
func (d *duplex) cancelPulls(ctx context.Context, n int) {
	ctx, cancel := context.WithCancel(ctx)
	op := operation{c: d.c, n: n}
	g := &leg{link: d.l, wake: make(chan struct{}, 1)}
	for i := range n {
		k := d.newPull(ctx, BlockElems, 0)
		k.leg, k.header.Epoch = g, 1
		op.calls[i] = k
		g.left.Add(1)
		if d.l.reserve(ctx, k) == nil {
			g.gather(k)
		}
	}
	g.flush()
	cancel()
	op.abandon(ctx)
}

// Two operations that each have the last slot of one connection and need one of the
// other's do not wait for each other: what is not sent holds no slot.
func TestSlotsOfUnsentCallsAreNotHeld(t *testing.T) {
	links := []*wired{newWired(t, 1), newWired(t, 1)}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := &Client{routes: &routes{}, paths: make([]lanes, len(links)), busy: newBusy()}
	for i, w := range links {
		go refuseAll(w)
		c.paths[i][smallLane].Store(&path{info: &serverInfo{}, load: new(latencies), link: w.l})
	}
	var first, all sync.WaitGroup
	first.Add(2)
	for _, order := range [][2]uint32{{0, 1}, {1, 0}} {
		all.Go(func() {
			op := &operation{c: c}
			for j, id := range order {
				op.add(ctx, &call{header: wire.Header{Kind: wire.Pull, Count: 16, Shard: id}, values: make([]float32, 16)})
				if j == 0 {
					first.Done()
					first.Wait()
				}
			}
			op.flush()
			for _, g := range op.legs[:op.used] {
				g.wait(ctx, 0)
			}
		})
	}
	all.Wait()
	require.NoError(t, ctx.Err())
}

// refuseAll answers every request until the connection ends.
func refuseAll(w *wired) {
	for {
		h, _, err := readFrame(w.peer, wire.MaxPayload)
		if err != nil {
			return
		}
		if sendFrame(w.peer, &wire.Header{Kind: wire.Reply, Request: h.Request, Code: uint8(codeRefused)}, nil) != nil {
			return
		}
	}
}
