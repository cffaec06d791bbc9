package accelerator

import (
	"context"

	"github.com/elasticps/elasticps/collective"
)

// AllReduce combines the elements of src of all ranks and leaves the result in dst of all.
// Both have the same length on all ranks and may be the same buffer. It blocks until dst is
// complete. Whether the bits are the same on all ranks is up to the library.
func (g *Group) AllReduce(ctx context.Context, dst, src Buffer, op collective.Op) error {
	return g.finish(g.start(ctx, Call{Operation: AllReduce, Dst: dst, Src: src, Op: op}))
}

// ReduceScatter combines the elements of src of all ranks and leaves part r of the result,
// as many elements as dst has, in dst of rank r. In place, dst is that part of src.
func (g *Group) ReduceScatter(ctx context.Context, dst, src Buffer, op collective.Op) error {
	return g.finish(g.start(ctx, Call{Operation: ReduceScatter, Dst: dst, Src: src, Op: op}))
}

// AllGather puts the elements of src of all ranks into dst of all, in the order of the
// ranks. In place, src is this rank's part of dst.
func (g *Group) AllGather(ctx context.Context, dst, src Buffer) error {
	return g.finish(g.start(ctx, Call{Operation: AllGather, Dst: dst, Src: src}))
}

// Broadcast copies src of rank root to dst of all ranks. src is not looked at elsewhere; on
// root both may be the same buffer.
func (g *Group) Broadcast(ctx context.Context, dst, src Buffer, root int) error {
	return g.finish(g.start(ctx, Call{Operation: Broadcast, Dst: dst, Src: src, Root: root}))
}

// Reduce combines the elements of src of all ranks and leaves the result in dst of rank
// root. dst is not looked at elsewhere; there the library may use src as room to work.
func (g *Group) Reduce(ctx context.Context, dst, src Buffer, op collective.Op, root int) error {
	return g.finish(g.start(ctx, Call{Operation: Reduce, Dst: dst, Src: src, Op: op, Root: root}))
}

// AllToAll sends part j of src, of Size parts, to rank j, which finds it as part i of dst,
// i being this rank. The buffers do not overlap.
func (g *Group) AllToAll(ctx context.Context, dst, src Buffer) error {
	return g.finish(g.start(ctx, Call{Operation: AllToAll, Dst: dst, Src: src}))
}

// Barrier returns after all ranks have called it, when what this rank has enqueued on the
// stream of the group before has ended.
func (g *Group) Barrier(ctx context.Context) error {
	b := g.tick.Elements(Float32)
	return g.finish(g.start(ctx, Call{Operation: Barrier, Dst: b, Src: b, Op: collective.Max}))
}

// Send sends the elements of src to rank to, which takes them with Recv of as many elements.
// Other than those of package collective, messages have their place in the order of all
// calls: two ranks that send to each other use Fuse.
func (g *Group) Send(ctx context.Context, src Buffer, to int) error {
	return g.finish(g.start(ctx, Call{Operation: Send, Src: src, Root: to}))
}

// Recv fills dst with the next message of rank from.
func (g *Group) Recv(ctx context.Context, dst Buffer, from int) error {
	return g.finish(g.start(ctx, Call{Operation: Recv, Dst: dst, Root: from}))
}
