package ps

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/shard"
)

// maxBatch is how many requests are sent at once: each is a header, and values or ids, and
// one may be both.
const maxBatch = stream.MaxSlices / 3

// operation is the calls of one push, pull or assign that are under way, at most
// maxInFlight. It is reused.
type operation struct {
	c           *Client
	cancel      context.CancelFunc
	name, layer string
	calls       [maxInFlight]*call
	n           int
	legs        []*leg // one for each connection in use; those behind are for reuse
	used        int
	failed      error // of the call that failed first
}

// leg is what one operation has under way on one connection, or within this process
// (without a link). It waits for all of it together: to be woken costs more than an
// answer.
type leg struct {
	link   *link
	left   atomic.Int32 // calls without an answer
	target atomic.Int32 // how many may be left when the operation is woken
	wake   chan struct{}

	batch [maxBatch]*call // to be sent together
	n     int
	bytes int // what they carry
}

// answered is called once for each call, by whoever has its answer.
func (g *leg) answered(k *call) {
	left := g.left.Add(-1) // first: the leg is used again when its calls are done
	k.done.Store(true)
	if left <= g.target.Load() {
		select {
		case g.wake <- struct{}{}:
		default:
		}
	}
}

// leg returns the operation's leg over a link.
func (op *operation) leg(l *link) *leg {
	for _, g := range op.legs[:op.used] {
		if g.link == l {
			return g
		}
	}
	if op.used == len(op.legs) {
		op.legs = append(op.legs, &leg{wake: make(chan struct{}, 1)})
	}
	g := op.legs[op.used]
	g.link = l
	op.used++
	return g
}

// release gives the operation back. It has no calls any more.
func (op *operation) release() {
	for _, g := range op.legs[:op.used] {
		g.link = nil
	}
	op.cancel()
	op.used, op.failed, op.cancel = 0, nil, nil
	op.c.operations.Put(op)
}

// add begins a call, after seeing others through if there is no room.
func (op *operation) add(ctx context.Context, k *call) {
	for op.n == maxInFlight {
		op.settle(ctx, false)
	}
	if !op.number(ctx, k) {
		op.c.release(k)
		return
	}
	op.calls[op.n] = k
	op.n++
	op.begin(ctx, k)
}

// number gives a push or assign its sequence number. It reports false when there is
// none to be had, or the operation has failed.
func (op *operation) number(ctx context.Context, k *call) bool {
	seqs := k.seqs
	for seqs != nil && op.failed == nil {
		k.seqs = nil // nothing to resolve yet
		if !seqs.tryTake(&k.header.Seq) {
			if op.n > 0 { // its own calls may be what is outstanding
				op.settle(ctx, true)
				continue
			}
			seq, err := seqs.take(ctx)
			if err != nil {
				op.failed = &OpError{
					Op: op.name, Layer: op.layer, Shard: shard.ID(k.header.Shard),
					Err: fmt.Errorf("%w: %d pushes outstanding, no more are allowed", err, shard.WindowSize),
				}
				break
			}
			k.header.Seq = seq
		}
		k.seqs = seqs
		op.c.stats.sent.Add(1)
		break
	}
	return op.failed == nil
}

// begin puts a call on its way.
func (op *operation) begin(ctx context.Context, k *call) {
	p, err := op.c.aim(ctx, k)
	var l *link
	if err == nil {
		l = p.link
	}
	g := op.leg(l)
	k.leg = g
	k.done.Store(false)
	g.left.Add(1)
	switch {
	case err != nil:
		k.fail(err)
	case l != nil:
		if !l.tryReserve(k) {
			op.flush() // others may wait for the slots of what is not sent
			if err := l.reserve(ctx, k); err != nil {
				k.fail(err)
				return
			}
		}
		g.gather(k)
	default:
		performLocal(ctx, p.server, k)
	}
}

// fail answers a call that has not been sent.
func (k *call) fail(err error) {
	k.err = err
	k.leg.answered(k)
}

// gather puts a call into the batch, and sends what is in it if it is full.
func (g *leg) gather(k *call) {
	size := 8 * len(k.ids)
	if !reads(k.header.Kind) {
		size += encodedLen(len(k.values), shard.DType(k.header.Encoding))
	}
	if g.n == maxBatch || g.bytes+size > batchBytes {
		g.flush()
	}
	g.batch[g.n] = k
	g.n++
	g.bytes += size
}

// flush sends all that is gathered.
func (op *operation) flush() {
	for _, g := range op.legs[:op.used] {
		g.flush()
	}
}

// flush sends the batch.
func (g *leg) flush() {
	if g.n > 0 {
		g.link.send(g.batch[:g.n])
	}
	clear(g.batch[:g.n])
	g.n, g.bytes = 0, 0
}

// wait returns when at most target calls are left, or ctx has ended. It takes its turn
// at reading.
func (g *leg) wait(ctx context.Context, target int32) {
	g.target.Store(target)
	for g.left.Load() > target {
		if g.link == nil { // bounded by ctx there
			<-g.wake
			continue
		}
		if ctx.Err() != nil {
			return
		}
		select {
		case <-g.wake:
		case g.link.turn <- struct{}{}:
			_ = g.link.readWhile(func() bool { return g.left.Load() > target }) // shows in the calls
			<-g.link.turn
		case <-ctx.Done():
		}
	}
}

// settle sends what is gathered, waits for the leg of the oldest call, all of it or half,
// and takes the answers: a call that has its final one is over, any other is sent again.
// A repeated push keeps its sequence number, so that it is applied once.
func (op *operation) settle(ctx context.Context, all bool) {
	op.flush()
	oldest, target := op.calls[0].leg, int32(0)
	if !all {
		target = oldest.left.Load() / 2
	}
	oldest.wait(ctx, target)
	if ctx.Err() != nil {
		op.abandon(ctx)
	}
	before := op.n
	again := op.collect()
	if len(again) == 0 {
		if op.n == before {
			runtime.Gosched() // an answer is counted and not noted yet
		}
		return
	}
	err := op.c.pause(ctx, again)
	for _, k := range again {
		if err != nil {
			op.fail(k, err)
		} else {
			op.begin(ctx, k)
		}
	}
	op.drop()
}

// collect ends the calls that have their final answer and returns those to be sent
// again.
func (op *operation) collect() (again []*call) {
	for _, k := range op.calls[:op.n] {
		if !k.done.Load() {
			continue
		}
		switch final, err := op.c.verdict(k); {
		case err == nil && final:
			op.c.stats.answered(k)
			op.over(k)
		case final || op.failed != nil:
			op.fail(k, err)
		default:
			again = append(again, k)
		}
	}
	op.drop()
	return again
}

// abandon takes back all calls under way: ctx has ended.
func (op *operation) abandon(ctx context.Context) {
	for _, k := range op.calls[:op.n] {
		g := k.leg
		g.target.Store(maxInFlight) // each answer wakes
		if k.done.Load() {
			continue
		}
		switch {
		case g.link == nil:
			g.wait(ctx, 0)
		case g.link.cancel(k):
			k.fail(context.Cause(ctx))
		default:
			g.link.receiveRest(k)
		}
	}
}

// fail notes why the operation fails, unless it has failed already, and ends the call.
func (op *operation) fail(k *call, err error) {
	if op.failed == nil {
		op.failed = &OpError{
			Op: op.name, Layer: op.layer, Shard: shard.ID(k.header.Shard), Server: k.server.ID,
			Epoch: shard.Epoch(k.header.Epoch), Err: k.because(err),
		}
	}
	op.over(k)
}

// over marks a call that the next drop removes.
func (op *operation) over(k *call) { k.leg = nil }

// drop removes the calls that are over.
func (op *operation) drop() {
	n := 0
	for _, k := range op.calls[:op.n] {
		if k.leg == nil {
			op.c.release(k)
			continue
		}
		op.calls[n] = k
		n++
	}
	clear(op.calls[n:op.n])
	op.n = n
}
