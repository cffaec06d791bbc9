package ps

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// Push sends the gradient of a whole layer and returns when every part of it has
// been applied exactly once. grad has as many elements as the layer, in row-major
// order; it must not change before Push returns and is not kept. Push blocks until
// ctx ends at the latest. After an error, parts of the gradient may have been
// applied and parts not.
//
// Errors: ErrUnknownLayer, ErrLength, ErrNotInitialized, ErrNotPlaced, ErrNotMember,
// ErrShardLost, ErrUnavailable or the context's, inside an *OpError once a shard is
// known.
func (c *Client) Push(ctx context.Context, layer string, grad []float32) error {
	return c.whole(ctx, wire.Push, layer, grad)
}

// Pull fills dst with the parameters of a whole layer. dst has as many elements as
// the layer; its contents are undefined after an error. Blocking and errors are as
// in Push.
//
// A pull after an acknowledged push of the same client sees it, whatever moves in
// between; under BSP, from the next clock on.
func (c *Client) Pull(ctx context.Context, layer string, dst []float32) error {
	return c.whole(ctx, wire.Pull, layer, dst)
}

// PushPull pushes grad and then pulls into dst, which may be the same slice.
func (c *Client) PushPull(ctx context.Context, layer string, grad, dst []float32) error {
	if err := c.Push(ctx, layer, grad); err != nil {
		return err
	}
	return c.Pull(ctx, layer, dst)
}

// PushRows is Push for the rows [first, first+n) of a layer, n being the number of
// whole rows in grad.
func (c *Client) PushRows(ctx context.Context, layer string, first int, grad []float32) error {
	return c.rows(ctx, wire.Push, layer, first, grad)
}

// PullRows is Pull for the rows [first, first+n) of a layer, n being the number of
// whole rows in dst.
func (c *Client) PullRows(ctx context.Context, layer string, first int, dst []float32) error {
	return c.rows(ctx, wire.Pull, layer, first, dst)
}

// Assign gives a layer declared shard.Assigned its first values. When several
// clients do, the first one wins, block by block, and all succeed.
func (c *Client) Assign(ctx context.Context, layer string, values []float32) error {
	if i, ok := c.layers[layer]; ok && c.job.Model.Layers[i].Init.Kind != shard.Assigned {
		return fmt.Errorf("%w: assign of layer %q, which is initialized by the servers (%v)", ErrConflict, layer, c.job.Model.Layers[i].Init.Kind)
	}
	return c.whole(ctx, wire.Assign, layer, values)
}

func (c *Client) whole(ctx context.Context, kind wire.Kind, layer string, values []float32) error {
	i, ok := c.layers[layer]
	if !ok {
		return fmt.Errorf("%w: %q, the model has %d layers", ErrUnknownLayer, layer, len(c.job.Model.Layers))
	}
	if n := c.job.Model.Layers[i].Elems(); int64(len(values)) != n {
		return fmt.Errorf("%w: %s of layer %q with %d elements, it has %d", ErrLength, opName(kind), layer, len(values), n)
	}
	return c.operate(ctx, kind, i, 0, values)
}

func (c *Client) rows(ctx context.Context, kind wire.Kind, layer string, first int, values []float32) error {
	i, ok := c.layers[layer]
	if !ok {
		return fmt.Errorf("%w: %q, the model has %d layers", ErrUnknownLayer, layer, len(c.job.Model.Layers))
	}
	l := c.job.Model.Layers[i]
	row := max(l.RowElems(), 1)
	if first < 0 || first > l.Rows() || len(values)%row != 0 || len(values)/row > l.Rows()-first {
		return fmt.Errorf("%w: %s of %d elements from row %d of layer %q, which has %d rows of %d", ErrLength, opName(kind), len(values), first, layer, l.Rows(), l.RowElems())
	}
	return c.operate(ctx, kind, i, int64(first)*int64(row), values)
}

func opName(k wire.Kind) string {
	switch k {
	case wire.Push:
		return "push"
	case wire.Pull:
		return "pull"
	}
	return "assign"
}

// operate cuts a range of a layer into requests of at most one block, sends them
// all, and sees each through.
func (c *Client) operate(ctx context.Context, kind wire.Kind, layer int, begin int64, values []float32) error {
	if err := c.ctx.Err(); err != nil {
		return fmt.Errorf("%w: client %q", ErrClosed, c.cfg.Name)
	}
	ctx, cancel := bounded(ctx, c.cfg.Timeout)
	defer cancel()
	w := inFlight{c: c, op: opName(kind), layer: c.job.Model.Layers[layer].Name}
	end := begin + int64(len(values))
	w.failed = c.prepare(ctx, kind)
	for _, s := range c.shards[layer] {
		lo, hi := max(begin, s.Range.Begin), min(end, s.Range.End)
		for lo < hi && w.failed == nil {
			next := min(hi, s.Range.Begin+((lo-s.Range.Begin)/BlockElems+1)*BlockElems)
			w.add(ctx, c.newCall(kind, s, lo-s.Range.Begin, values[lo-begin:next-begin]))
			lo = next
		}
	}
	for w.first < w.last {
		w.see(ctx)
	}
	return w.failed
}

// inFlight is the calls of one operation that are under way, at most maxInFlight.
type inFlight struct {
	c           *Client
	op, layer   string
	ring        [maxInFlight]*call
	first, last int
	failed      error // of the call that failed first
}

// add begins a call, after seeing the oldest through if there is no room.
func (w *inFlight) add(ctx context.Context, k *call) {
	if w.last-w.first == maxInFlight {
		w.see(ctx)
	}
	for k.seqs != nil && !k.seqs.tryTake(&k.header.Seq) {
		if w.first < w.last { // its own calls may be what is outstanding
			w.see(ctx)
			continue
		}
		seq, err := k.seqs.take(ctx)
		if err != nil {
			w.failed = fmt.Errorf("%w: %d pushes to shard %d outstanding", err, shard.WindowSize, k.header.Shard)
			k.seqs = nil
			w.c.release(k)
			return
		}
		k.header.Seq = seq
		break
	}
	if k.seqs != nil {
		w.c.stats.sent.Add(1)
	}
	w.c.begin(ctx, k)
	w.ring[w.last%maxInFlight] = k
	w.last++
}

// see waits for the oldest call.
func (w *inFlight) see(ctx context.Context) {
	k := w.ring[w.first%maxInFlight]
	w.first++
	if err := w.c.see(ctx, k); err != nil && w.failed == nil {
		w.failed = &OpError{
			Op: w.op, Layer: w.layer, Shard: shard.ID(k.header.Shard), Server: k.server.ID,
			Epoch: shard.Epoch(k.header.Epoch), Err: err,
		}
	}
	w.c.release(k)
}

// prepare brings an observer's clock up to date before it reads under BSP.
func (c *Client) prepare(ctx context.Context, kind wire.Kind) error {
	if !c.observer || kind != wire.Pull || c.job.Consistency.Mode != BSP {
		return nil
	}
	return c.routes.refresh(ctx)
}

func (c *Client) newCall(kind wire.Kind, s shard.Shard, offset int64, values []float32) *call {
	k := c.calls.Get().(*call)
	k.values, k.silences, k.writing = values, 0, nil
	k.header = wire.Header{
		Kind: kind, Shard: uint32(s.ID), Incarnation: c.incarnation.Load(), Clock: c.clockNow(),
		Offset: uint64(offset), Count: uint32(len(values)),
	}
	if kind != wire.Pull {
		k.seqs = c.sequences[s.ID]
	}
	return k
}

// clockNow is the clock that a request carries. An observer has none of its own: it
// reads what the last finished clock left.
func (c *Client) clockNow() uint32 {
	if c.observer {
		return c.routes.openClock()
	}
	return c.clock.Load()
}

// release gives the call back; its sequence number is of no interest any more.
func (c *Client) release(k *call) {
	if k.seqs != nil {
		k.seqs.resolve(k.header.Seq)
	}
	k.values, k.seqs, k.link = nil, nil, nil
	c.calls.Put(k)
}

// see waits for the answer to a call and repeats it until it is final or ctx ends.
// A repeated push keeps its sequence number, so that it is applied once.
func (c *Client) see(ctx context.Context, k *call) error {
	var cause error
	for attempt := 0; ; attempt++ {
		err := c.await(ctx, k)
		if err == nil && k.out.code == codeOK {
			c.stats.answered(k)
			return nil
		}
		if err == nil {
			err = c.judge(k)
			if err != nil && !Retryable(err) {
				return err
			}
		} else if errors.Is(err, ErrShardLost) && attempt > 0 { // the first time the routes may be old
			return err
		}
		if err != nil && (ctx.Err() == nil || cause == nil) {
			cause = err
		}
		if err := c.pause(ctx, k, attempt, err); err != nil {
			if cause == nil || errors.Is(err, cause) {
				return err
			}
			return fmt.Errorf("%w: %w", err, cause)
		}
		c.begin(ctx, k)
	}
}

// await waits for an answer. On error there is none and none will come. The time
// runs from when the request was sent, so that of many that were lost together each
// is sent again without waiting for the others.
func (c *Client) await(ctx context.Context, k *call) error {
	select {
	case <-k.done:
		return k.err
	default:
	}
	if k.link == nil { // within this process, and bounded by ctx there
		<-k.done
		return k.err
	}
	k.timer.Reset(k.link.resendAfter(k.silences) - time.Since(k.sent))
	defer k.timer.Stop()
	select {
	case <-k.done:
		return k.err
	case <-ctx.Done():
	case <-k.timer.C:
	}
	if k.link.cancel(k) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		k.silences++
		return fmt.Errorf("%w: server %q did not answer within %v", ErrUnavailable, k.server.ID, time.Since(k.sent).Round(time.Millisecond))
	}
	// The answer is being received into the caller's slice just now.
	k.timer.Reset(time.Second)
	select {
	case <-k.done:
	case <-k.timer.C:
		_ = k.link.conn.CloseWithError(fmt.Errorf("%w: server %q stopped in the middle of an answer", ErrUnavailable, k.server.ID))
		<-k.done
	}
	return k.err
}

// judge turns an answer other than OK into what to do: nil to ask again at once, a
// retryable error to ask again later, any other to give up.
func (c *Client) judge(k *call) error {
	switch k.out.code {
	case codeMoved:
		to := owner{shard.ServerID(k.text), k.out.to.epoch}
		if k.link == nil {
			to = k.out.to
		}
		if to.epoch <= shard.Epoch(k.header.Epoch) {
			return fmt.Errorf("%w: server %q is at epoch %d", ErrUnavailable, k.server.ID, to.epoch)
		}
		c.routes.moved(shard.ID(k.header.Shard), to)
		return nil
	case codeStaleClock:
		if c.observer {
			return fmt.Errorf("%w: the clock %d is over", ErrUnavailable, k.header.Clock)
		}
	case codeRetry:
		return fmt.Errorf("%w: the shard is frozen or not active yet on server %q", ErrUnavailable, k.server.ID)
	case codeUnknownShard:
		return fmt.Errorf("%w: server %q does not have the shard", ErrUnavailable, k.server.ID)
	}
	err := ErrRefused
	if k.out.code < codeEnd && codeErrors[k.out.code] != nil {
		err = codeErrors[k.out.code]
	}
	if k.text != "" {
		return fmt.Errorf("%w: %s", err, k.text)
	}
	return err
}

// pause waits before a call is repeated, longer each time, and asks for new routes
// unless the answer has just given one. The first repetition after a freeze comes
// at once: the server has answered when it was over.
func (c *Client) pause(ctx context.Context, k *call, attempt int, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	frozen := k.err == nil && k.out.code == codeRetry
	if err == nil || (frozen && attempt == 0) {
		return nil
	}
	if !frozen || attempt%8 == 7 {
		refresh, cancel := context.WithTimeout(ctx, attemptTimeout)
		_ = c.routes.refresh(refresh) // without an answer the old routes are tried again
		cancel()
	}
	k.timer.Reset(min(time.Millisecond<<min(attempt, 6), 50*time.Millisecond))
	defer k.timer.Stop()
	select {
	case <-k.timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
