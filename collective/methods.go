package collective

import (
	"context"
	"time"
)

// AllReduce combines the elements of src of all ranks and leaves the result in dst of all.
// dst and src have the same length on all ranks and may be the same buffer. It blocks
// until dst is complete and src may be used again. The result has the same bits on all
// ranks.
func (g *Group) AllReduce(ctx context.Context, dst, src Buffer, op Op) error {
	return g.do(ctx, Call{Collective: AllReduce, Dst: dst, Src: src, Op: op})
}

// ReduceScatter combines the elements of src of all ranks and leaves part r of the result,
// as many elements as dst has, in dst of rank r. src has Size times the elements of dst. In
// place, dst is that part of src. It blocks as AllReduce does.
func (g *Group) ReduceScatter(ctx context.Context, dst, src Buffer, op Op) error {
	return g.do(ctx, Call{Collective: ReduceScatter, Dst: dst, Src: src, Op: op})
}

// AllGather puts the elements of src of all ranks into dst of all, in the order of the
// ranks. dst has Size times the elements of src. In place, src is this rank's part of dst.
func (g *Group) AllGather(ctx context.Context, dst, src Buffer) error {
	return g.do(ctx, Call{Collective: AllGather, Dst: dst, Src: src})
}

// Broadcast copies src of rank root to dst of all ranks. src is not looked at elsewhere; on
// root both may be the same buffer.
func (g *Group) Broadcast(ctx context.Context, dst, src Buffer, root int) error {
	return g.do(ctx, Call{Collective: Broadcast, Dst: dst, Src: src, Root: root})
}

// Reduce combines the elements of src of all ranks and leaves the result in dst of rank
// root, where both may be the same buffer. dst is not looked at elsewhere.
func (g *Group) Reduce(ctx context.Context, dst, src Buffer, op Op, root int) error {
	return g.do(ctx, Call{Collective: Reduce, Dst: dst, Src: src, Op: op, Root: root})
}

// AllToAll sends part j of src, of Size parts, to rank j, which finds it as part i of dst,
// i being this rank. Both may be the same buffer.
func (g *Group) AllToAll(ctx context.Context, dst, src Buffer) error {
	return g.do(ctx, Call{Collective: AllToAll, Dst: dst, Src: src})
}

// Barrier returns after all ranks have called it.
func (g *Group) Barrier(ctx context.Context) error {
	var x [1]uint8
	return g.do(ctx, Call{Collective: Barrier, Dst: Of(x[:]), Src: Of(x[:]), Op: Max})
}

// Send sends the elements of src to rank to, which takes them with Recv. It returns when
// src may be used again, which is no proof that they have arrived. Messages between two
// ranks arrive in order, beside the collective operations.
func (g *Group) Send(ctx context.Context, src Buffer, to int) error {
	p, o, err := g.enterDirect(ctx, src, to)
	if err != nil {
		return err
	}
	defer src.drop()
	if err := g.hold(ctx, p.sending, o); err != nil {
		return err
	}
	defer func() { <-p.sending }()
	p.sends++
	o.seq = p.sends
	g.end(o, with(to, g.sendDirect(o, p)))
	return o.err
}

func (g *Group) sendDirect(o *operation, p *peer) error {
	h := header{kind: frameData, epoch: g.roster.Epoch, seq: o.seq, call: o.call}
	var last []ticket
	var err error
	for rest := o.src.bytes; err == nil && (len(rest) > 0 || h.part == 0); h.part++ {
		payload := rest[:min(len(rest), maxSegment)]
		rest = rest[len(payload):]
		h.length = uint32(len(payload))
		var t ticket
		g.sent.Add(int64(len(payload)))
		if t, err = p.direct.send(&h, payload, false); err == nil {
			last = append(last, t)
		}
	}
	for _, t := range last {
		if e := t.wait(); err == nil {
			err = e
		}
	}
	return err
}

// Recv fills dst with the next message of rank from, which must have as many elements of
// the same type: else the group fails with ErrMismatch.
func (g *Group) Recv(ctx context.Context, dst Buffer, from int) error {
	p, o, err := g.enterDirect(ctx, dst, from)
	if err != nil {
		return err
	}
	defer dst.drop()
	if err := g.hold(ctx, p.taking, o); err != nil {
		return err
	}
	defer func() { <-p.taking }()
	p.takes++
	o.seq = p.takes
	g.end(o, g.recvDirect(o, p))
	return o.err
}

func (g *Group) recvDirect(o *operation, p *peer) error {
	want := header{kind: frameData, epoch: g.roster.Epoch, seq: o.seq, call: o.call}
	rest := o.src.bytes
	for len(rest) > 0 || want.part == 0 {
		dst := rest[:min(len(rest), maxSegment)]
		rest = rest[len(dst):]
		want.length = uint32(len(dst))
		var h header
		if err := p.direct.next(&h); err != nil {
			return with(p.rank, err)
		}
		if h != want {
			p.direct.release()
			return g.mismatch(p.rank, &want, &h)
		}
		if err := p.direct.read(dst); err != nil {
			return with(p.rank, err)
		}
		o.bytes.Add(int64(len(dst)))
		g.received.Add(int64(len(dst)))
		want.part++
	}
	return nil
}

// enterDirect begins a message to or from a peer, and holds its buffer.
func (g *Group) enterDirect(ctx context.Context, b Buffer, rank int) (*peer, *operation, error) {
	if rank < 0 || rank >= g.Size() || rank == g.rank {
		return nil, nil, argument("message with rank %d, must be 0 to %d and not rank %d itself", rank, g.Size()-1, g.rank)
	}
	if b.kind == 0 {
		return nil, nil, argument("message of no type")
	}
	if err := b.hold(); err != nil {
		return nil, nil, err
	}
	o := &operation{ctx: ctx, call: Fingerprint{Collective: pointToPoint, Type: b.kind, Count: b.Len()}, src: b, done: make(chan struct{})}
	o.waiting.Store(int32(rank))
	return g.peers[rank], o, nil
}

// hold waits for the turn of a message.
func (g *Group) hold(ctx context.Context, turn chan struct{}, o *operation) error {
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return g.refuse(o, context.Cause(ctx))
	case <-g.whole:
		return g.refuse(o, g.Err())
	}
	g.mu.Lock()
	err := g.err
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		g.running.Add(1)
		g.active = append(g.active, o)
	}
	g.mu.Unlock()
	if err != nil {
		<-turn
		return g.refuse(o, err)
	}
	g.begin(o)
	return nil
}

// refuse is the error of a message that never began.
func (g *Group) refuse(o *operation, err error) error {
	o.began = time.Now()
	return &OpError{Call: o.call, Rank: g.rank, Epoch: g.roster.Epoch, Waiting: int(o.waiting.Load()), Err: err}
}
