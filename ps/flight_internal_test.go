package ps

import (
	"context"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/starved"
	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
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
			m := starved.Watch(t)
			require.NoError(t, d.operate(ctx, wire.Push, 48))
			m.Less(m.Took(), 3*time.Second)
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
	c := &Client{routes: &routes{owners: make([]owner, len(links))}, paths: make([]lanes, len(links)), busy: newBusy()}
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

// A server that takes longer to answer than is waited for at first is waited for longer:
// its answers are not all taken for silence.
func TestSlowAnswersArrive(t *testing.T) {
	w := newWired(t, maxSlots)
	w.l.rtt.Store(0) // nothing has been answered yet
	go func() {
		for {
			h, _, err := readFrame(w.peer, wire.MaxPayload)
			if err != nil {
				return
			}
			time.AfterFunc(1500*time.Millisecond, func() { _ = w.peer.Send(answerTo(h, 1)) })
		}
	}()
	c := w.c
	c.routes = &routes{owners: make([]owner, 1), refreshing: make(chan struct{}, 1), asked: time.Now().Add(time.Hour)} // asks nobody
	c.paths = make([]lanes, 1)
	c.paths[0][smallLane].Store(&path{info: &serverInfo{ID: "s"}, load: new(latencies), link: w.l})
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	op := &operation{c: c}
	op.add(ctx, &call{header: wire.Header{Kind: wire.Pull, Count: 16}, values: make([]float32, 16)})
	for op.n > 0 {
		op.settle(ctx, true)
	}
	require.NoError(t, op.failed)
}

// A server closes while it streams shards away and pushes go on.
func TestCloseWhileFollowing(t *testing.T) {
	grad := make([]float32, BlockElems)
	for i := range 60 {
		r := servingReplica(t, 16)
		mine, theirs := net.Pipe()
		s, to := serverWithPeer(stream.New(mine, stream.Config{}))
		s.replicas[0] = r
		var all sync.WaitGroup
		all.Go(func() { confirmAll(theirs) }) // until the server closes
		for w := range uint64(4) {
			all.Go(func() {
				for seq := uint64(1); s.ctx.Err() == nil; seq++ {
					h := pushHeader(w+1, seq)
					h.Count, h.Offset = BlockElems, w*4*BlockElems
					r.update(s.ctx, h, nil, grad)
				}
			})
		}
		followed := make(chan error, 1)
		go func() {
			followed <- s.follow(context.Background(), r, shard.Effect{Kind: shard.EffectFollow, Epoch: 1, Attempt: 1}, to, 0)
		}()
		for began := time.Now(); time.Since(began) < time.Duration(i)*50*time.Microsecond; { // anywhere in the stream
			runtime.Gosched()
		}
		s.closeData()
		select {
		case <-followed: // it may have come through
		case <-time.After(10 * time.Second):
			t.Fatal("the stream hangs")
		}
		_ = theirs.Close()
		all.Wait()
	}
}
