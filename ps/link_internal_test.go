package ps

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/starved"
	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// wired is a link with the watch of its client, and the other end in the hand of the
// test.
type wired struct {
	t    *testing.T
	c    *Client
	l    *link
	peer *stream.Conn
}

const (
	wiredPatience = 10 * time.Second
	// slowAnswers is a round trip after which a request is sent again as late as there is,
	// also when a hundred answers have made it shorter by an eighth each.
	slowAnswers = int64(1000 * time.Hour)
)

// tcpPair returns the two ends of a connection.
func tcpPair(t *testing.T) (mine, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	mine, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	theirs, err = l.Accept()
	require.NoError(t, err)
	return mine, theirs
}

func newWired(t *testing.T, slots int) *wired {
	t.Helper()
	mine, theirs := tcpPair(t)
	return wiredOver(t, slots, mine, theirs)
}

func wiredOver(t *testing.T, slots int, mine, theirs net.Conn) *wired {
	t.Helper()
	w := wiredTo(t, slots, mine)
	w.peer = stream.New(theirs, stream.Config{BufferBytes: frameBuffer})
	require.NoError(t, theirs.SetReadDeadline(time.Now().Add(2*wiredPatience)))
	t.Cleanup(func() { _ = w.peer.Close() })
	return w
}

// wiredTo is for a peer that looks after itself. Nothing is sent again soon: a test that is
// kept from the processor for a while must not look like a silent server.
func wiredTo(t *testing.T, slots int, mine net.Conn) *wired {
	c := &Client{links: map[linkKey]*link{}, busy: newBusy(), routes: &routes{owners: make([]owner, 2)}}
	c.ctx, c.stop = context.WithCancelCause(context.Background())
	w := &wired{t: t, c: c}
	w.l = newLink(stream.New(mine, stream.Config{BufferBytes: frameBuffer}), slots, c.busy)
	w.l.rtt.Store(slowAnswers)
	c.links[linkKey{1, smallLane}] = w.l
	var watching sync.WaitGroup
	watching.Go(c.watch)
	t.Cleanup(func() {
		c.stop(ErrClosed)
		watching.Wait()
		_ = w.l.conn.Close()
	})
	return w
}

// pulled is a pull under way.
type pulled struct {
	t      *testing.T
	k      *call
	cancel context.CancelCauseFunc
	took   time.Duration // from cancel to the return
	began  chan time.Time
	ended  chan struct{}
}

var errMind = errors.New("another mind")

// pull begins a pull of n values.
func (w *wired) pull(n int, as shard.DType) *pulled {
	ctx, cancel := context.WithCancelCause(context.Background())
	k := w.newPull(ctx, n, as)
	p := &pulled{t: w.t, k: k, began: make(chan time.Time, 1), ended: make(chan struct{})}
	p.cancel = func(err error) {
		p.began <- time.Now()
		cancel(err)
	}
	go func() {
		defer close(p.ended)
		defer cancel(nil)
		w.see(ctx, k)
		select {
		case began := <-p.began:
			p.took = time.Since(began)
		default:
		}
	}()
	return p
}

// newPull is a call that is not under way yet.
func (w *wired) newPull(ctx context.Context, n int, as shard.DType) *call {
	k := &call{
		server: &serverInfo{},
		header: wire.Header{Kind: wire.Pull, Count: uint32(n), Encoding: uint8(as)}, values: make([]float32, n),
		ctx: ctx, leg: &leg{link: w.l, wake: make(chan struct{}, 1)},
	}
	k.leg.left.Store(1)
	return k
}

// see sends a call and waits for its answer, which may be the end of ctx.
func (w *wired) see(ctx context.Context, k *call) {
	if err := w.l.reserve(ctx, k); err != nil {
		k.fail(err)
		return
	}
	w.l.send([]*call{k})
	w.await(ctx, k)
}

func (w *wired) await(ctx context.Context, k *call) {
	k.leg.wait(ctx, 0)
	op := operation{c: w.c, n: 1}
	op.calls[0] = k
	if ctx.Err() != nil {
		op.abandon(ctx)
	}
}

// wait returns when the pull has ended.
func (p *pulled) wait() *pulled {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(wiredPatience):
		require.FailNow(p.t, "the call hangs")
	}
	return p
}

func (p *pulled) waits() {
	p.t.Helper()
	select {
	case <-p.ended:
		require.FailNow(p.t, "the call has ended", "%v", p.k.err)
	default:
	}
}

// got requires that the pull has filled its slice with v.
func (p *pulled) got(v float32) {
	p.t.Helper()
	p.wait()
	require.NoError(p.t, p.k.err)
	require.Equal(p.t, codeOK, p.k.out.code)
	want := make([]float32, len(p.k.values))
	for i := range want {
		want[i] = v
	}
	require.Equal(p.t, want, p.k.values)
}

// request is the next request that arrives at the peer.
func (w *wired) request() wire.Header {
	w.t.Helper()
	raw, err := w.peer.Next(wire.HeaderBytes)
	require.NoError(w.t, err)
	var h wire.Header
	require.NoError(w.t, h.Decode(raw))
	require.Equal(w.t, wire.Pull, h.Kind)
	return h
}

// answerTo is the frame that answers a pull with the value v for each element.
func answerTo(h wire.Header, v float32) []byte {
	x := make([]float32, h.Count)
	for i := range x {
		x[i] = v
	}
	t := shard.DType(h.Encoding)
	payload := encode(make([]byte, 4*len(x)), x, t)
	r := wire.Header{Kind: wire.Reply, Shard: h.Shard, Request: h.Request, Offset: h.Offset, Count: h.Count, Encoding: h.Encoding}
	r.Length, r.PayloadSum = uint32(len(payload)), wire.Sum(payload)
	out := make([]byte, wire.HeaderBytes, wire.HeaderBytes+len(payload))
	r.Encode(out)
	return append(out, payload...)
}

func (w *wired) say(b []byte) {
	w.t.Helper()
	require.NoError(w.t, w.peer.Send(b))
	require.NoError(w.t, w.peer.Flush())
}

// reading waits until somebody has the turn to read.
func (w *wired) reading() {
	w.t.Helper()
	w.until("somebody reads", func() bool { return len(w.l.turn) > 0 })
}

// taken waits until somebody has begun to receive the answer of a call.
func (w *wired) taken(p *pulled) {
	w.t.Helper()
	w.until("the answer is being received", func() bool {
		w.l.mu.Lock()
		defer w.l.mu.Unlock()
		return w.l.slots[p.k.slot].taken
	})
}

func (w *wired) until(what string, f func() bool) {
	w.t.Helper()
	require.Eventually(w.t, f, wiredPatience, time.Millisecond, what)
}

// idle requires that nothing is left under way and every slot is free.
func (w *wired) idle() {
	w.t.Helper()
	require.Zero(w.t, w.l.calls.Load())
	require.Len(w.t, w.l.free, len(w.l.slots))
	w.until("the watch does not read any more", func() bool { return len(w.l.turn) == 0 })
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	for _, s := range w.l.slots {
		require.Nil(w.t, s.call)
		require.False(w.t, s.taken)
	}
}

const soon = 100 * time.Millisecond

// Answers in the opposite order go to whom they belong, whoever reads them.
func TestLinkTurnPasses(t *testing.T) {
	for _, as := range []shard.DType{shard.Float32, shard.Float16, shard.BFloat16} {
		t.Run(as.String(), func(t *testing.T) {
			const n = 16
			w := newWired(t, n)
			var pulls [n]*pulled
			var asked [n]wire.Header
			for i := range pulls {
				pulls[i] = w.pull(i+1, as)
				asked[i] = w.request()
			}
			for i := n - 1; i >= 0; i-- {
				w.say(answerTo(asked[i], float32(i)))
				pulls[i].got(float32(i))
				if i > 0 {
					pulls[i-1].waits()
				}
			}
			w.idle()
		})
	}
}

// A cancelled call returns at once with the cause, whether it reads or another one
// does; the others go on.
func TestLinkCancelled(t *testing.T) {
	m := starved.Watch(t)
	for _, reader := range []bool{true, false} {
		w := newWired(t, 4)
		first := w.pull(100, shard.Float32)
		asked := []wire.Header{w.request()}
		w.reading()
		second := w.pull(100, shard.Float32)
		asked = append(asked, w.request())
		gone, stays, answer := first, second, asked[1]
		if !reader {
			gone, stays, answer = second, first, asked[0]
		}
		gone.cancel(errMind)
		require.ErrorIs(t, gone.wait().k.err, errMind)
		m.Less(gone.took, soon)
		stays.waits()
		w.say(answerTo(answer, 7))
		stays.got(7)
		w.idle()
		require.NoError(t, w.l.conn.Err())
	}
}

// A call that waits for a slot, and reads for others meanwhile, can be cancelled too.
func TestLinkCancelledWithoutSlot(t *testing.T) {
	m, w := starved.Watch(t), newWired(t, 1)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	holder := w.newPull(ctx, 1, shard.Float32)
	require.NoError(t, w.l.reserve(ctx, holder))
	w.l.send([]*call{holder})
	h := w.request()
	p := w.pull(1, shard.Float32)
	w.reading() // nobody else does
	p.cancel(errMind)
	require.ErrorIs(t, p.wait().k.err, errMind)
	m.Less(p.took, soon)
	w.say(answerTo(h, 3))
	w.await(ctx, holder)
	require.NoError(t, holder.err)
	require.Equal(t, []float32{3}, holder.values)
	w.idle()
}

// An answer that nobody waits for any more is read past, in one piece or in many, and
// touches neither its old slice nor the call that has the slot now.
func TestLinkLateAnswer(t *testing.T) {
	for _, n := range []int{1, BlockElems} {
		w := newWired(t, 1)
		p := w.pull(n, shard.Float32)
		late := answerTo(w.request(), 5)
		w.reading()
		p.cancel(errMind)
		require.ErrorIs(t, p.wait().k.err, errMind)
		for i := range p.k.values {
			p.k.values[i] = -1
		}
		next := w.pull(n, shard.Float32)
		h := w.request()
		require.NotEqual(t, binary.LittleEndian.Uint64(late[16:]), h.Request, "the slot is the same, the number is not")
		for part := range 4 {
			w.say(late[part*len(late)/4 : (part+1)*len(late)/4])
			w.l.interrupt()
		}
		next.waits()
		w.say(late) // doubled on the way
		w.say(answerTo(h, 6))
		next.got(6)
		for _, v := range p.k.values {
			require.Equal(t, float32(-1), v)
		}
		w.idle()
	}
}

// A doubled answer counts once.
func TestLinkDoubledAnswer(t *testing.T) {
	w := newWired(t, 2)
	for i := range 50 {
		p := w.pull(3, shard.Float16)
		a := answerTo(w.request(), float32(i))
		w.say(append(a, a...))
		p.got(float32(i))
	}
	p := w.pull(3, shard.Float32)
	w.say(answerTo(w.request(), 1))
	p.got(1)
	w.idle()
}

// A late answer whose payload was changed on the way ends the connection like any
// other.
func TestLinkLateAnswerDamaged(t *testing.T) {
	w := newWired(t, 1)
	p := w.pull(3, shard.Float32)
	late := answerTo(w.request(), 5)
	p.cancel(errMind)
	require.ErrorIs(t, p.wait().k.err, errMind)
	next := w.pull(3, shard.Float32)
	w.request()
	late[len(late)-1] ^= 4
	w.say(late)
	require.ErrorIs(t, next.wait().k.err, wire.ErrChecksum)
	require.ErrorIs(t, w.l.conn.Err(), wire.ErrChecksum)
	w.idle()
}

// The reader is interrupted at any place of an answer: whoever reads next goes on
// there, and the values are right.
func TestLinkInterruptedAnswer(t *testing.T) {
	for _, as := range []shard.DType{shard.Float32, shard.Float16, shard.BFloat16} {
		t.Run(as.String(), func(t *testing.T) {
			const n = BlockElems
			w := newWired(t, 4)
			for round := range 6 {
				reader := w.pull(1, shard.Float32) // reads for the other, and is cancelled meanwhile
				w.request()
				w.reading()
				p := w.pull(n, as)
				answer := answerTo(w.request(), float32(round+1))
				cuts := []int{1, wire.HeaderBytes - 1, wire.HeaderBytes + 1, 1000, len(answer) / 2, len(answer) - 1, len(answer)}
				at := 0
				for i, cut := range cuts {
					w.say(answer[at:cut])
					at = cut
					if i == round {
						reader.cancel(errMind)
						require.ErrorIs(t, reader.wait().k.err, errMind)
					}
					w.l.interrupt()
				}
				p.got(float32(round + 1))
			}
			w.idle()
			require.NoError(t, w.l.conn.Err())
		})
	}
}

// An answer that stops in the middle holds its caller for a second beyond the end of
// its context, not longer: then the connection is given up, and everybody on it is
// told.
func TestLinkStalledAnswer(t *testing.T) {
	for _, reader := range []bool{true, false} {
		m, w := starved.Watch(t), newWired(t, 4)
		other := w.pull(1, shard.Float32)
		w.request()
		w.reading()
		if reader { // else the other one reads it
			other.cancel(errMind)
			other.wait()
			other = nil
		}
		p := w.pull(BlockElems, shard.Float32)
		answer := answerTo(w.request(), 5)
		w.say(answer[:len(answer)/2])
		w.taken(p)
		p.cancel(errMind)
		p.wait()
		require.Greater(t, p.took, stuckGrace/2, "it has been given the time to end")
		m.Less(p.took, 2*stuckGrace) // each byte does not begin it again
		require.ErrorIs(t, p.k.err, errStuck)
		require.Error(t, w.l.conn.Err())
		if other != nil {
			require.ErrorIs(t, other.wait().k.err, errStuck)
		}
		w.idle()
	}
}

// An answer of which a byte comes now and then is no better than one that has stopped.
func TestLinkTrickle(t *testing.T) {
	m, w := starved.Watch(t), newWired(t, 4)
	p := w.pull(BlockElems, shard.Float32)
	answer := answerTo(w.request(), 5)
	w.say(answer[:wire.HeaderBytes+1])
	w.taken(p)
	p.cancel(errMind)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := wire.HeaderBytes + 1; ; i++ {
		select {
		case <-tick.C:
			_ = w.peer.Send(answer[i : i+1]) // the other side may have given up
			continue
		case <-p.ended:
		case <-time.After(wiredPatience):
		}
		break
	}
	p.wait()
	m.Less(p.took, 2*stuckGrace) // each byte does not begin it again
	require.ErrorIs(t, p.k.err, errStuck)
	w.idle()
}

// An answer that has begun and comes in time after the end of the context is received:
// the caller gets it rather than an error.
func TestLinkAnswerInTheGrace(t *testing.T) {
	w := newWired(t, 4)
	p := w.pull(BlockElems, shard.Float32)
	answer := answerTo(w.request(), 5)
	w.say(answer[:len(answer)/2])
	w.taken(p)
	p.cancel(errMind)
	p.waits()
	w.say(answer[len(answer)/2:])
	p.got(5)
	require.NoError(t, w.l.conn.Err())
	w.idle()
}

// What is not answered in time is given back to be sent again, and its late answer
// does no harm.
func TestLinkSilence(t *testing.T) {
	w := newWired(t, 2)
	w.l.rtt.Store(0) // as if nothing had been answered yet
	m := starved.Watch(t)
	p := w.pull(2, shard.Float32)
	late := answerTo(w.request(), 5)
	require.ErrorIs(t, p.wait().k.err, ErrUnavailable)
	require.Equal(t, 1, p.k.silences)
	require.Greater(t, m.Took(), minResend-watchInterval)
	m.Less(m.Took(), 4*minResend)
	w.say(late)
	again := w.pull(2, shard.Float32)
	w.say(answerTo(w.request(), 6))
	again.got(6)
	require.Equal(t, make([]float32, 2), p.k.values)
	w.idle()
}

// When the connection ends, everything under way has its error, and later calls at
// once too.
func TestLinkEnds(t *testing.T) {
	w := newWired(t, 8)
	var pulls []*pulled
	for range 8 {
		pulls = append(pulls, w.pull(2, shard.Float32))
		w.request()
	}
	waiting := w.pull(2, shard.Float32) // for a slot
	require.NoError(t, w.peer.Close())
	for _, p := range append(pulls, waiting, w.pull(2, shard.Float32)) {
		require.Error(t, p.wait().k.err)
	}
	require.Error(t, w.l.conn.Err())
	w.idle()
}

// A wrong answer ends the connection and leaves the slice alone.
func TestLinkWrongAnswer(t *testing.T) {
	change := map[string]func(h *wire.Header){
		"of more":          func(h *wire.Header) { h.Count++ },
		"of another shard": func(h *wire.Header) { h.Shard++ },
		"of another place": func(h *wire.Header) { h.Offset++ },
		"of another type":  func(h *wire.Header) { h.Encoding = uint8(shard.Float16) },
		"shorter":          func(h *wire.Header) { h.Length -= 4 },
		"of no reply":      func(h *wire.Header) { h.Kind = wire.Pull },
		"of a long text":   func(h *wire.Header) { h.Code, h.Length = uint8(codeRefused), maxReplyText+1 },
	}
	for name, f := range change {
		t.Run(name, func(t *testing.T) {
			w := newWired(t, 1)
			p := w.pull(1000, shard.Float32)
			answer := answerTo(w.request(), 5)
			var h wire.Header
			require.NoError(t, h.Decode(answer))
			f(&h)
			h.Encode(answer)
			w.say(answer)
			require.Error(t, p.wait().k.err)
			require.Error(t, w.l.conn.Err())
			require.Equal(t, make([]float32, 1000), p.k.values)
			w.idle()
		})
	}
}

// An idle connection whose server has gone is noticed by a probe, which leaves one that
// lives alone.
func TestLinkProbe(t *testing.T) {
	w := newWired(t, 2)
	w.l.probe()
	require.NoError(t, w.l.conn.Err())
	p := w.pull(2, shard.Float32)
	h := w.request()
	w.reading()
	w.l.probe() // there is a reader: nothing to do
	w.say(answerTo(h, 1))
	p.got(1)
	require.NoError(t, w.peer.Close())
	w.until("the probe notices", func() bool {
		w.l.probe()
		return w.l.conn.Err() != nil
	})
	w.idle()
}
