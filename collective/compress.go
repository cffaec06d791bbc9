package collective

import (
	"context"
	"fmt"

	"github.com/elasticps/elasticps/collective/codec"
	"github.com/elasticps/elasticps/collective/schedule"
	"github.com/elasticps/elasticps/internal/kernel"
)

// Compression says how the float32 of an all-reduce travel. The zero value is: as they are.
type Compression struct {
	// Format is that of all ranks: where they differ, all get ErrMismatch.
	Format codec.Format
	// Feedback, if it is set, adds what rounding has lost of a tensor to its next value, so that
	// nothing is lost in the long run. It is this rank's own. codec.OneBit needs it.
	Feedback *codec.Feedback
	// Name is that of the tensor, the same at every step, needed with Feedback.
	Name string

	tensors []codec.Tensor // instead of Name, for a bucket of them
}

// AllReduceCompressed is AllReduce of float32 that travel in another format: each rank sends
// every other one its share of the elements packed, adds up what it gets in float32 in the
// order of the ranks, packs the result once, and sends that to all. So an element is rounded
// twice, whatever the number of ranks: the error does not grow with it. All ranks, the
// one that has added included, take the packed result: dst has the same bits on all. Where there
// are several nodes (Config.Node), all of several ranks, elements are first added up within each
// node, as they are, and what is said of ranks holds for nodes; what results travels within a node
// as it is, too. Deterministic, and Direct in Config.Algorithms, leave that out.
//
// Op is Sum or Average. What is NaN or infinite on one rank comes out as package codec says, on
// all ranks.
func (g *Group) AllReduceCompressed(ctx context.Context, dst, src []float32, op Op, c Compression) error {
	return g.do(ctx, Call{Collective: AllReduce, Dst: Of(dst), Src: Of(src), Op: op, Compression: c})
}

// of is the compression of a bucket.
func (c Compression) of(tensors []codec.Tensor) Compression {
	c.tensors = tensors
	return c
}

// check finds out what is wrong with a compressed call.
func (c Compression) check(call *Call) error {
	switch {
	case !c.Format.Valid():
		return argument("compression: %v, must be one of package codec", c.Format)
	case call.Collective != AllReduce || call.Src.kind != Float32 || call.Op != Sum && call.Op != Average:
		return argument("compression of %v of %v %v, must be all-reduce of float32 sum or average", call.Collective, call.Src.kind, call.Op)
	case c.Feedback == nil && c.Format == codec.OneBit:
		return argument("compression: %v needs a Feedback", c.Format)
	case c.Feedback == nil:
		return nil
	}
	for _, t := range c.names(0) {
		if t.Name == "" || len(t.Name) > codec.MaxNameBytes {
			return argument("compression: Name of %d bytes, must be 1 to %d with a Feedback", len(t.Name), codec.MaxNameBytes)
		}
	}
	return nil
}

// names are the tensors of a call.
func (c *Compression) names(count int) []codec.Tensor {
	if c.tensors != nil {
		return c.tensors
	}
	return []codec.Tensor{{Name: c.Name, Len: count}}
}

// packing is a compressed call under way. Ranges are of blocks.
type packing struct {
	format   codec.Format
	ranks    int
	average  bool
	dst, src []float32
	rest     []float32 // what rounding has lost, nil without Feedback
	sums     []float32 // of the range that is being folded
}

// chunk is how many elements are worked on at a time: they stay in the first-level cache.
const chunk = 8 * codec.Block

// performPacked carries out a compressed all-reduce.
func (g *Group) performPacked(o *operation) error {
	dst, src := as[float32](o.dst.bytes), as[float32](o.src.bytes)
	var rest []float32
	if o.packing.Feedback != nil {
		ctx, cancel := o.bounded()
		defer cancel()
		at := codec.Place{Group: g.cfg.Group, Rank: g.rank, Size: g.Size(), Epoch: g.roster.Epoch}
		held, err := o.packing.Feedback.Hold(ctx, at, o.packing.names(o.call.Count)...)
		if err != nil {
			return fmt.Errorf("collective: feedback: %w", err)
		}
		defer held.Release()
		rest = held.Values
	}
	if o.call.Algorithm == schedule.Hierarchical {
		return g.performNested(o, dst, src, rest)
	}
	plan, err := g.plan(&o.call)
	if err != nil {
		return err
	}
	return g.pack(o, plan, dst, src, rest)
}

// pack reduces packed elements by a plan for blocks of them.
func (g *Group) pack(o *operation, plan schedule.Plan, dst, src, rest []float32) error {
	r := &g.runner
	p := packing{
		format: o.call.Codec, ranks: g.Size(), average: o.call.Op == Average,
		dst: dst, src: src, rest: rest, sums: r.sums,
	}
	n := p.format.EncodedLen(len(src))
	r.pack = &p
	err := r.run(o, plan, place{room(&r.keep, n), 0}, place{room(&r.work, n), 0})
	r.pack, r.sums = nil, p.sums
	return err
}

// nest is a hierarchical plan of a compressed call: within the nodes elements travel as they are.
type nest struct {
	schedule.Nested
	between schedule.Plan // of blocks of the column
}

// performNested reduces the columns of the buffer within the nodes, and packs what goes between
// them. What has been lost of a column is what its owner has lost of its node's sum.
func (g *Group) performNested(o *operation, dst, src, rest []float32) error {
	n, err := g.nest(&o.call)
	if err != nil {
		return err
	}
	copy(dst, src)
	whole := place{o.dst.bytes, 0}
	if err := g.runner.run(o, n.Before, whole, place{}); err != nil {
		return err
	}
	if column := n.Column; column.Len() > 0 {
		x := dst[column.Begin:column.End]
		if rest != nil {
			rest = rest[column.Begin:column.End]
		}
		if err := g.pack(o, n.between, x, x, rest); err != nil {
			return err
		}
	}
	return g.runner.run(o, n.After, whole, place{})
}

// nest returns the plan of a compressed call over nodes; those of the latest calls are remembered.
func (g *Group) nest(call *Fingerprint) (*nest, error) {
	r := &g.runner
	if n, ok := r.nests[*call]; ok {
		return n, nil
	}
	open := *call // within the nodes
	open.Codec = 0
	s := schedule.Shape{Ranks: g.Size(), Count: call.Count, Nodes: g.nodes} // its plans send all before they wait
	s.Segment = g.segment(&open, g.model.Local)
	nested, err := schedule.Nest(g.rank, s)
	if err != nil {
		return nil, err
	}
	n := &nest{Nested: nested}
	if nested.Column.Len() > 0 {
		column := *call
		column.Count = nested.Column.Len()
		s = schedule.Shape{Ranks: len(nested.Owners), Count: column.units(), Ahead: g.streams}
		s.Segment = g.segment(&column, s.Ranks)
		plan, err := schedule.AllReduce(schedule.Direct, nested.Place, s)
		if err != nil {
			return nil, err
		}
		n.between = plan.Among(nested.Owners)
	}
	if len(r.nests) >= maxPlans {
		clear(r.nests)
	}
	r.nests[*call] = n
	return n, nil
}

// bounded is the context of a call, with the deadline that it has in any case.
func (o *operation) bounded() (context.Context, context.CancelFunc) {
	if o.deadline.IsZero() {
		return context.WithCancel(o.ctx)
	}
	return context.WithDeadline(o.ctx, o.deadline)
}

// elements is a range of blocks as one of elements.
func (p *packing) elements(x schedule.Range) (begin, end int) {
	return x.Begin * codec.Block, min(x.End*codec.Block, len(p.src))
}

// chunks calls f for the elements of a range and their packed bytes, some at a time.
func (p *packing) chunks(x schedule.Range, packed []byte, f func(begin, end int, packed []byte) error) error {
	for i, last := p.elements(x); i < last; i += chunk {
		end := min(i+chunk, last)
		n := p.format.EncodedLen(end - i)
		if err := f(i, end, packed[:n]); err != nil {
			return err
		}
		packed = packed[n:]
	}
	return nil
}

// encode packs this rank's contribution to a range that another one adds up.
func (p *packing) encode(packed []byte, x schedule.Range) {
	_ = p.chunks(x, packed, func(begin, end int, packed []byte) error { // lengths are right
		if p.rest == nil {
			return p.format.Encode(packed, p.src[begin:end])
		}
		rest := p.rest[begin:end]
		kernel.Add(rest, p.src[begin:end])
		return p.format.EncodeRest(packed, rest)
	})
}

// decode unpacks a part of the result.
func (p *packing) decode(packed []byte, x schedule.Range) error {
	begin, end := p.elements(x)
	return p.format.Decode(p.dst[begin:end], packed)
}

// fold adds the contribution of one rank, nil for the own one: that has
// not travelled, and is added as it is. After the last one the result is packed.
func (p *packing) fold(s *schedule.Step, contribution, result []byte) error {
	begin, end := p.elements(s.Recv)
	if len(p.sums) < end-begin {
		p.sums = make([]float32, end-begin)
	}
	sums := p.sums[:end-begin]
	var err error
	switch {
	case contribution == nil:
		p.addOwn(sums, begin, end, s.Do == schedule.First)
	case s.Do == schedule.First:
		err = p.format.Decode(sums, contribution)
	default:
		var decoded [chunk]float32
		err = p.chunks(s.Recv, contribution, func(i, last int, packed []byte) error {
			err := p.format.Decode(decoded[:last-i], packed)
			kernel.Add(sums[i-begin:last-begin], decoded[:last-i])
			return err
		})
	}
	if err != nil || !s.Last {
		return err
	}
	return p.chunks(s.Recv, result, func(i, last int, packed []byte) error {
		return p.finish(sums[i-begin:last-begin], i, last, packed)
	})
}

func (p *packing) addOwn(sums []float32, begin, end int, first bool) {
	own := p.src[begin:end]
	if p.rest != nil {
		rest := p.rest[begin:end]
		kernel.Add(rest, own)
		own = rest
	}
	if first {
		copy(sums, own)
	} else {
		kernel.Add(sums, own)
	}
}

// finish packs a sum and takes for the result what the others get. What that loses goes into
// this rank's next contribution, as part of a sum.
func (p *packing) finish(sums []float32, begin, end int, packed []byte) error {
	if p.average {
		divideFloat32(sums, p.ranks)
	}
	if p.rest == nil {
		if err := p.format.Encode(packed, sums); err != nil {
			return err
		}
		return p.format.Decode(p.dst[begin:end], packed)
	}
	if err := p.format.EncodeRest(packed, sums); err != nil {
		return err
	}
	rest := p.rest[begin:end]
	copy(rest, sums)
	if p.average {
		kernel.Scale(rest, float32(p.ranks))
	}
	return p.format.Decode(p.dst[begin:end], packed)
}

// unpacked is the error of bytes that a rank has sent, if they do not unpack.
func (r *runner) unpacked(from int, err error) error {
	if err == nil || from == r.group.rank {
		return err
	}
	return r.group.rankError([]int{from}, "it sent what does not unpack: "+err.Error())
}
