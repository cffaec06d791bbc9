package collective

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/elasticps/elasticps/collective/schedule"
)

// MaxAllocBytes bounds the memory of one Alloc.
const MaxAllocBytes = 1 << 36

// Alloc returns a buffer of n zeros in memory that all ranks of the host share, where the
// ranks of the group do, else in memory of this process: it may be used in all calls. An
// AllReduce in place of such a buffer, or of the same part of it on all ranks, reads and
// writes all of them where they are: nothing is copied, and the result is in the order of
// the ranks. For other calls, and in groups that follow this one, it is a buffer like any
// other.
//
// All ranks call it in the same order as their other calls, with the same type and number;
// what differs is an error that wraps ErrMismatch on all of them. It blocks as AllReduce
// does. An error that wraps ErrMemory leaves the group as it was.
//
// The memory belongs to the caller until Buffer.Free, or until Close of this group, or of
// the last of those that followed it by Shrink and Grow. After that its elements are not to
// be touched: that is a fault that ends the process. Calls that are given such a buffer
// return an error that wraps ErrArgument.
func (g *Group) Alloc(ctx context.Context, t Type, n int) (Buffer, error) {
	if t == 0 || t >= typeEnd {
		return Buffer{}, argument("Alloc of %v, must be a type", t)
	}
	if n < 0 || n > MaxAllocBytes/t.Bytes() {
		return Buffer{}, argument("Alloc of %d %v, must be 0 to %d", n, t, MaxAllocBytes/t.Bytes())
	}
	o := &operation{ctx: ctx, call: Fingerprint{Collective: allocate, Type: t, Op: Max, Count: n}}
	if err := g.line(o); err != nil {
		return Buffer{}, err
	}
	g.carry(o)
	if o.err != nil {
		return Buffer{}, o.err
	}
	a := o.made
	if a.err != nil {
		return Buffer{}, fmt.Errorf("%w: Alloc of %d %v on rank %d: %w", ErrMemory, n, t, g.rank, a.err)
	}
	return Buffer{kind: t, bytes: part(a.mem, 0, n*t.Bytes()), from: a}, nil
}

// Elements returns the elements of a buffer, in its memory. The error wraps ErrArgument: T is
// another type, or the memory has been freed.
func Elements[T Element](b Buffer) ([]T, error) {
	var one T
	if b.kind != 0 && b.kind != typeOf(one) {
		return nil, argument("elements of %v, the buffer has %v", typeOf(one), b.kind)
	}
	if err := b.hold(); err != nil {
		return nil, err
	}
	b.drop()
	return as[T](b.bytes), nil
}

// Slice returns the elements from begin up to, not including, end, in the same memory. It panics
// as slicing does.
func (b Buffer) Slice(begin, end int) Buffer {
	if begin < 0 || begin > end || end > b.Len() {
		panic(fmt.Sprintf("collective: slice [%d:%d] of a buffer of %d elements", begin, end, b.Len()))
	}
	size := b.kind.Bytes()
	b.at += begin * size
	b.bytes = part(b.bytes, begin*size, (end-begin)*size)
	return b
}

// Free gives the memory of Alloc back, when the calls that use it have ended. It does not
// block; ranks need not free at the same time, and twice is fine. Memory that is not of
// Alloc stays as it is.
func (b Buffer) Free() {
	if b.from != nil {
		b.from.free()
	}
}

// allocation is the memory of one Alloc.
type allocation struct {
	group  *Group // whose ranks all have it
	number uint32 // in that group, from 1
	heap   bool   // no other rank maps it
	err    error  // why there is none

	mu    sync.Mutex
	mem   []byte
	views [][]byte // of all ranks by place; nil where they are not shared any more
	uses  int      // calls under way
	freed bool
}

// hold keeps the memory of a buffer from being freed, until drop.
func (b *Buffer) hold() error {
	a := b.from
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.freed {
		return argument("the memory of a buffer of %d %v has been freed", b.Len(), b.kind)
	}
	a.uses++
	return nil
}

func (b *Buffer) drop() {
	if a := b.from; a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.uses--
		a.unmap()
	}
}

func (a *allocation) free() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.freed = true
	a.unmap()
}

// unmap gives the memory back that nobody needs any more. The caller holds mu.
func (a *allocation) unmap() {
	if !a.freed || a.uses > 0 {
		return
	}
	a.unmapViews()
	if !a.heap {
		unmapMemory(a.mem)
	}
	a.mem = nil
}

func (a *allocation) unmapViews() {
	for place, view := range a.views {
		if place != a.group.shared.place {
			unmapMemory(view)
		}
	}
	a.views = nil
}

// gone reports whether there is no memory any more.
func (a *allocation) gone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mem == nil
}

// detach makes it memory like any other: its group has ended.
func (a *allocation) detach() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unmapViews()
}

// inAll returns what a call in place works in on all ranks, nil if it does not.
func (g *Group) inAll(c *Call, f *Fingerprint) *allocation {
	a := c.Src.from
	if a == nil || a.group != g || c.Dst.from != a || c.Dst.at != c.Src.at || f.Collective != AllReduce || len(c.Src.bytes) <= flatBytes {
		return nil
	}
	if forced := g.cfg.Algorithms[AllReduce]; forced != 0 && forced != schedule.Shared {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.views == nil {
		return nil
	}
	return a
}

// allocate makes memory, and hands it to all others of the host if all ranks are of one.
func (g *Group) allocate(o *operation) error {
	size := max(o.call.Count*o.call.Type.Bytes(), 1)
	g.allocations++
	a := &allocation{group: g, number: g.allocations}
	o.made = a
	fd := -1
	if a.heap = !g.model.Shared; a.heap {
		a.mem = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint64, size/8+1)))), size)
	} else {
		fd, a.mem, a.err = createMemory(size)
	}
	defer func() { closeDescriptor(fd) }()
	if err := g.allWell(o); err != nil || a.err != nil {
		a.free()
		return err
	}
	if !a.heap {
		if err := g.handOut(a, fd, size); err != nil {
			a.free()
			return err
		}
		if err := g.allWell(o); err != nil || a.err != nil {
			a.free()
			return err
		}
	}
	g.origin.keep(a)
	return nil
}

// handOut hands memory to all mates and takes theirs.
func (g *Group) handOut(a *allocation, fd, size int) error {
	p := g.shared
	for _, m := range p.mates {
		if m != nil {
			if err := sendDescriptor(m.socket, []byte{noteMemory}, fd); err != nil {
				return with(m.rank, err)
			}
		}
	}
	a.views = make([][]byte, len(p.mates))
	a.views[p.place] = a.mem
	for place, m := range p.mates {
		if m == nil {
			continue
		}
		var theirs int
		select {
		case theirs = <-m.fds:
		case <-g.whole:
			return g.Err()
		}
		view, err := mapMemory(theirs, size)
		if err != nil {
			a.err = fmt.Errorf("memory of rank %d: %w", m.rank, err) // and the others are still to be taken
		}
		a.views[place] = view
	}
	return nil
}

// allWell finds out whether a call has gone well on all ranks so far, and notes where it has
// not: that is the greatest of what they have to say.
func (g *Group) allWell(o *operation) error {
	size := o.call.Type.Bytes()
	mine := make([]uint64, 1) // for its alignment
	x := unsafe.Slice((*byte)(unsafe.Pointer(&mine[0])), 8)[:size]
	if o.made.err != nil {
		for i := range x {
			x[i] = 1 // more than zero in all types
		}
	}
	plan, err := schedule.AllReduce(schedule.RecursiveDoubling, g.rank, schedule.Shape{Ranks: g.Size(), Count: 1})
	if err != nil {
		return err
	}
	if err := g.runner.run(o, plan, place{x, 0}, place{x, 0}); err != nil {
		return err
	}
	if o.made.err == nil && slices.Max(x) > 0 {
		o.made.err = errElsewhere
	}
	return nil
}

// keep remembers memory that Close frees.
func (o *origin) keep(a *allocation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = slices.DeleteFunc(o.kept, (*allocation).gone)
	o.kept = append(o.kept, a)
}

// forget ends what the ranks of a group have shared. Where no other group follows, the memory
// is freed.
func (o *origin) forget(g *Group, followed bool) {
	o.mu.Lock()
	kept := slices.Clone(o.kept)
	o.mu.Unlock()
	for _, a := range kept {
		if a.group == g {
			a.detach()
		}
		if !followed {
			a.free()
		}
	}
}
