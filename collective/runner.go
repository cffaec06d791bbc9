package collective

import (
	"errors"
	"slices"

	"github.com/elasticps/elasticps/collective/schedule"
)

// runner carries out the plan of one call at a time. Its memory is used again.
type runner struct {
	group *Group
	op    *operation
	want  header

	buffer place    // what the steps write to
	input  place    // the rank's own input
	kept   place    // the part of it that was copied
	size   int      // bytes of an element, or of a block that is packed
	pack   *packing // of a compressed call, else nil

	plans    map[Fingerprint]schedule.Plan
	nests    map[Fingerprint]*nest
	sent     []uint32 // frames to each rank in this call
	received []uint32
	pending  []pending
	sums     []float32 // of a fold of elements of two bytes
	keep     []byte
	work     []byte
}

// place is memory that has the elements from base on.
type place struct {
	bytes []byte
	base  int // first element
}

// at is the memory of a range.
func (p place) at(r schedule.Range, size int) []byte {
	return p.bytes[(r.Begin-p.base)*size : (r.End-p.base)*size]
}

// pending is a send whose memory must not change yet.
type pending struct {
	ticket
	to int
	r  schedule.Range
}

// laneError is the error of the connection to a rank.
type laneError struct {
	rank int
	err  error
}

func (e *laneError) Error() string { return e.err.Error() }
func (e *laneError) Unwrap() error { return e.err }

// with says which rank the error of a lane is about.
func with(rank int, err error) error {
	if err == nil {
		return nil
	}
	if known := (*laneError)(nil); errors.As(err, &known) {
		return err
	}
	return &laneError{rank, err}
}

func (r *runner) init(g *Group) {
	r.group, r.plans, r.nests = g, map[Fingerprint]schedule.Plan{}, map[Fingerprint]*nest{}
	r.sent, r.received = make([]uint32, len(g.peers)), make([]uint32, len(g.peers))
}

// room returns n bytes that are used again, aligned for any type.
func room(b *[]byte, n int) []byte {
	if cap(*b) < n {
		*b = make([]byte, max(n, 64))
	}
	return (*b)[:n]
}

// run carries out a plan. buffer and input may be the same memory. When it returns nobody
// uses either any more.
func (r *runner) run(o *operation, plan schedule.Plan, buffer, input place) error {
	r.op, r.buffer, r.input, r.size = o, buffer, input, o.call.Type.Bytes()
	if r.pack != nil {
		r.size = o.call.unitBytes()
	}
	r.want = header{kind: frameData, epoch: r.group.roster.Epoch, seq: o.seq, call: o.call}
	r.kept = place{}
	clear(r.sent)
	clear(r.received)
	if shared, _ := overlap(buffer.bytes, input.bytes); shared && plan.Keep.Len() > 0 {
		r.kept = place{room(&r.keep, plan.Keep.Len()*r.size), plan.Keep.Begin}
		copy(r.kept.bytes, input.at(plan.Keep, r.size))
	}
	var err error
	for i := range plan.Steps {
		if err = r.step(&plan.Steps[i], plan.Keep); err != nil {
			break
		}
	}
	for _, p := range r.pending {
		if e := p.wait(); err == nil {
			err = with(p.to, e)
		}
	}
	clear(r.pending)
	r.pending = r.pending[:0]
	r.buffer, r.input, r.op = place{}, place{}, nil
	return err
}

// part is the memory of a range in p. The last block that is packed may be shorter than
// the others.
func (r *runner) part(p place, x schedule.Range) []byte {
	if r.pack != nil {
		return p.bytes[x.Begin*r.size : min(x.End*r.size, len(p.bytes))]
	}
	return p.at(x, r.size)
}

// own is the rank's own input, and whether that is memory which the steps write to.
func (r *runner) own(x, keep schedule.Range) (b []byte, written bool) {
	if len(r.kept.bytes) > 0 && keep.Contains(x) {
		return r.kept.at(x, r.size), false
	}
	shared, _ := overlap(r.buffer.bytes, r.input.bytes)
	return r.part(r.input, x), shared
}

func (r *runner) step(s *schedule.Step, keep schedule.Range) error {
	if s.To != schedule.None {
		if err := r.send(s, keep); err != nil {
			return err
		}
	}
	switch s.From {
	case schedule.None:
		return nil
	case r.group.rank:
		if r.pack != nil {
			return r.arrive(s, nil) // it has its own
		}
		own, _ := r.own(s.Recv, keep)
		return r.arrive(s, own)
	}
	return r.receive(s)
}

func (r *runner) send(s *schedule.Step, keep schedule.Range) error {
	var payload []byte
	written := true
	if s.Input {
		if r.pack != nil {
			r.pack.encode(r.part(r.input, s.Send), s.Send)
		}
		payload, written = r.own(s.Send, keep)
	} else {
		payload = r.part(r.buffer, s.Send)
	}
	h := r.want
	h.part, h.length = r.sent[s.To], uint32(len(payload))
	r.sent[s.To]++
	// What comes for the same place would wait until the peer has used this, and the peer
	// for ours.
	copied := written && s.From != schedule.None && s.Send.Overlaps(s.Recv)
	r.group.sent.Add(int64(len(payload)))
	t, err := r.group.peers[s.To].data.send(&h, payload, copied)
	if err == nil && t.tally != nil {
		x := s.Send
		if !written {
			x = schedule.Range{}
		}
		r.pending = append(r.pending, pending{t, s.To, x})
	}
	return with(s.To, err)
}

// receive takes the frame of a step.
func (r *runner) receive(s *schedule.Step) error {
	r.op.waiting.Store(int32(s.From))
	lane := r.group.peers[s.From].data
	var h header
	if err := lane.next(&h); err != nil {
		return with(s.From, err)
	}
	want := r.want
	want.part, want.length = r.received[s.From], uint32(len(r.part(r.buffer, s.Recv)))
	r.received[s.From]++
	if h != want {
		lane.release()
		return r.group.mismatch(s.From, &want, &h)
	}
	r.op.bytes.Add(int64(h.length))
	r.group.received.Add(int64(h.length))
	if s.Do == schedule.Copy {
		err := r.clear(s.Recv)
		if err != nil {
			lane.release()
			return err
		}
		dst := r.part(r.buffer, s.Recv)
		if err = lane.read(dst); err != nil || r.pack == nil {
			return with(s.From, err)
		}
		return r.unpacked(s.From, r.pack.decode(dst, s.Recv))
	}
	err := r.combined(s, lane, int(h.length))
	lane.release()
	return err
}

// combined puts a payload of n bytes into its place while it comes.
func (r *runner) combined(s *schedule.Step, lane lane, n int) error {
	whole := r.pack != nil || r.foldsHalf(s) || r.leaving(s.Recv)
	for piece := *s; n > 0; piece.Recv.Begin = piece.Recv.End {
		payload, err := lane.view(n, whole)
		if err != nil {
			return with(s.From, err)
		}
		n -= len(payload)
		piece.Recv.End = s.Recv.End - n/r.size
		if err := r.arrive(&piece, payload); err != nil {
			return err
		}
	}
	return nil
}

// leaving reports whether something of a range is still to be sent. What comes for it is
// read to its end then: the peer may not read either before it has sent all.
func (r *runner) leaving(x schedule.Range) bool {
	return slices.ContainsFunc(r.pending, func(p pending) bool { return p.r.Overlaps(x) && !p.through() })
}

// foldsHalf reports whether a step is of a fold that adds elements of two bytes in float32.
func (r *runner) foldsHalf(s *schedule.Step) bool {
	call := &r.op.call
	return call.Type.half() && call.Algorithm.Folds() && s.Do != schedule.Copy
}

// arrive puts what has arrived into its place.
func (r *runner) arrive(s *schedule.Step, payload []byte) error {
	if r.pack != nil {
		return r.unpacked(s.From, r.pack.fold(s, payload, r.part(r.buffer, s.Recv)))
	}
	call := &r.op.call
	if r.foldsHalf(s) {
		return r.foldHalf(s, payload)
	}
	if err := r.clear(s.Recv); err != nil {
		return err
	}
	dst := r.part(r.buffer, s.Recv)
	if s.Do == schedule.Combine {
		combine(call.Type, call.Op, dst, payload)
	} else {
		copy(dst, payload)
	}
	if s.Last && call.Op == Average {
		divide(call.Type, dst, r.group.Size())
	}
	return nil
}

// foldHalf sums in float32 and rounds at the end of the fold.
func (r *runner) foldHalf(s *schedule.Step, payload []byte) error {
	call, n := &r.op.call, s.Recv.Len()
	if len(r.sums) < 2*n {
		r.sums = make([]float32, 2*n)
	}
	sums, x := r.sums[:n], r.sums[n:2*n]
	if s.Do == schedule.First {
		widen(call.Type, sums, payload)
	} else {
		widen(call.Type, x, payload)
		combineFloat32(call.Op, sums, x)
	}
	if !s.Last {
		return nil
	}
	if call.Op == Average {
		divideSlice(sums, float32(r.group.Size()))
	}
	err := r.clear(s.Recv)
	if err == nil {
		narrow(call.Type, r.part(r.buffer, s.Recv), sums)
	}
	return err
}

// clear waits until a range of the buffer may be written to.
func (r *runner) clear(x schedule.Range) error {
	for _, p := range r.pending {
		if p.r.Overlaps(x) {
			if err := p.wait(); err != nil {
				return with(p.to, err)
			}
		}
	}
	if len(r.pending) > 64 { // forget those that are through
		r.pending = slices.DeleteFunc(r.pending, func(p pending) bool { return p.through() })
	}
	return nil
}

// mismatch is the error of a frame that is not the expected one.
func (g *Group) mismatch(from int, want, got *header) error {
	if got.epoch == want.epoch && got.seq == want.seq && got.call == want.call {
		return &RankError{
			Ranks: []int{from}, Names: []string{g.roster.Members[from].Name},
			Reason: "it sent a frame that does not belong here: it does not keep to the protocol",
		}
	}
	return &MismatchError{Seq: want.seq - g.base, Rank: g.rank, Peer: from, Mine: want.call, Theirs: got.call}
}
