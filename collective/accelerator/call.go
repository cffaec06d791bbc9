package accelerator

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/internal/abi"
	"github.com/elasticps/elasticps/internal/kernel"
)

// Call is an operation with its arguments; see the methods of Group for what each needs.
type Call struct {
	Operation Operation
	Dst, Src  Buffer
	Op        collective.Op // AllReduce, ReduceScatter, Reduce
	Root      int           // Broadcast, Reduce; the other rank of Send, Recv
}

// shape is what a call is, after its arguments have been checked.
type shape struct {
	Call
	kind  Type
	count int // of elements, of one rank's part where there are parts
}

// check finds out what a call is, or what is wrong with it.
func (g *Group) check(c Call) (shape, error) {
	s, both := shape{Call: c}, true
	switch away := g.cfg.Rank != c.Root; {
	case c.Operation == Broadcast && away, c.Operation == Recv:
		s.Src, both = c.Dst, false
	case c.Operation == Reduce && away, c.Operation == Send:
		s.Dst, both = c.Src, false
	}
	s.kind, s.count = s.Src.kind, s.Src.count
	if c.Operation != Send && c.Operation != Recv {
		var err error
		if s.count, err = collective.Collective(c.Operation).Part(g.cfg.Size, s.Src.count, s.Dst.count); err != nil {
			return s, err
		}
	}
	return s, g.checkRest(&s, both)
}

func (g *Group) checkRest(s *shape, both bool) error {
	if s.Src.kind != s.Dst.kind {
		return argument("%v: buffers of %v and %v, must be of the same type", s.Operation, s.Dst.kind, s.Src.kind)
	}
	for _, b := range []Buffer{s.Src, s.Dst} {
		if err := b.usable(g.d); err != nil {
			return err
		}
	}
	rooted := s.Operation == Broadcast || s.Operation == Reduce || s.Operation == Send || s.Operation == Recv
	if rooted && (s.Root < 0 || s.Root >= g.cfg.Size) {
		return argument("%v: rank %d, must be 0 to %d", s.Operation, s.Root, g.cfg.Size-1)
	}
	if (s.Operation == Send || s.Operation == Recv) && s.Root == g.cfg.Rank {
		return argument("%v: rank %d is this one", s.Operation, s.Root)
	}
	if err := g.d.lib.capabilities.Supports(s.Operation, s.kind, s.Op); err != nil {
		return err
	}
	if both {
		return g.checkMemory(s)
	}
	return nil
}

// checkMemory refuses buffers that overlap, but for those of an operation in place.
func (g *Group) checkMemory(s *shape) error {
	src, dst, own := s.Src.address(), s.Dst.address(), abi.Handle(g.cfg.Rank*s.count*s.kind.Bytes())
	if dst >= src+abi.Handle(s.Src.Bytes()) || src >= dst+abi.Handle(s.Dst.Bytes()) {
		return nil
	}
	inPlace := src == dst
	switch s.Operation {
	case ReduceScatter:
		inPlace = dst == src+own
	case AllGather:
		inPlace = src == dst+own
	case AllToAll:
		inPlace = false
	}
	if !inPlace {
		return argument("%v: buffers overlap and do not lie as in place", s.Operation)
	}
	return nil
}

// Start begins a call and returns at once. The buffers belong to the call until it is done.
// When ctx ends before that, or Timeout has passed if it has no deadline, the group fails
// on this rank. An error that wraps collective.ErrArgument or ErrUnsupported leaves the
// group as it was.
func (g *Group) Start(ctx context.Context, c Call) (*Handle, error) { return g.start(ctx, c) }

// Fuse begins several calls as one, which lets ranks send to each other in any order; it
// needs Capabilities.Fuse. All ranks fuse the same collective calls. It waits for the end of
// all.
func (g *Group) Fuse(ctx context.Context, calls ...Call) error {
	if !g.d.lib.capabilities.Fuse && len(calls) > 1 {
		return &UnsupportedError{Operation: calls[1].Operation, Vendor: g.d.lib.vendor, Version: g.d.lib.capabilities.Version}
	}
	return g.finish(g.start(ctx, calls...))
}

func (g *Group) finish(h *Handle, err error) error {
	if err != nil {
		return err
	}
	return h.finish()
}

func (g *Group) start(ctx context.Context, calls ...Call) (*Handle, error) {
	if len(calls) == 0 {
		return nil, argument("no calls")
	}
	shapes := make([]shape, len(calls))
	var wrong error
	for i, c := range calls {
		var err error
		if shapes[i], err = g.check(c); wrong == nil {
			wrong = err
		}
	}
	settle, err := g.enter(ctx, &shapes[0], wrong)
	if err != nil {
		return nil, err
	}
	t := &task{ctx: ctx, group: g, stream: g.cfg.Stream}
	if _, ok := ctx.Deadline(); !ok {
		t.deadline = time.Now().Add(g.cfg.Timeout)
	}
	t.begin = func() (bool, error) { return g.issue(shapes) }
	t.settle = func(cause error) error {
		delete(g.mine, t)
		return settle(cause)
	}
	h, err := g.d.submit(t)
	if err != nil {
		return nil, settle(err)
	}
	return h, nil
}

// enter counts a call, and returns what makes its error of a cause. A group that has failed
// says so, whatever is wrong with the call besides.
func (g *Group) enter(ctx context.Context, s *shape, wrong error) (func(error) error, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	seq, began := g.seq+1, time.Now()
	settle := func(cause error) error {
		if cause == nil {
			return nil
		}
		return &OpError{s.Operation, s.kind, s.Op, s.Root, s.count, g.cfg.Rank, g.cfg.Size, g.d.index, seq, time.Since(began), cause}
	}
	switch {
	case g.err != nil:
		return nil, settle(g.err)
	case wrong != nil:
		return nil, wrong
	case ctx.Err() != nil:
		return nil, settle(context.Cause(ctx))
	}
	g.seq = seq
	return settle, nil
}

// issue enqueues calls; of the thread. It reports whether the library is still busy with it.
func (g *Group) issue(shapes []shape) (bool, error) {
	fused, lib := len(shapes) > 1, g.d.lib
	if fused {
		if code := lib.abi.GroupStart(); lib.failed(code) {
			return false, lib.callError("group start", code, g.comm)
		}
	}
	busy := false
	var err error
	for i := range shapes {
		var code int
		if shapes[i].count > 0 { // nothing to do otherwise, and some libraries refuse it
			code, err = g.call(&shapes[i])
		}
		if err == nil && lib.failed(code) {
			err = lib.callError(shapes[i].Operation.String(), code, g.comm)
		}
		busy = busy || lib.busy(code)
	}
	if fused {
		code := lib.abi.GroupEnd()
		if err == nil && lib.failed(code) {
			err = lib.callError("group end", code, g.comm)
		}
		busy = busy || lib.busy(code)
	}
	return busy && err == nil, err
}

// call enqueues one call.
func (g *Group) call(s *shape) (int, error) {
	lib := g.d.lib
	a := abi.Args{
		Src: s.Src.address(), Dst: s.Dst.address(), Count: s.count, Type: s.kind.code(lib.vendor), Root: s.Root,
		Comm: g.comm, Stream: g.cfg.Stream.handle,
	}
	if !s.Operation.reduces() { // bytes do as well, and every version has them
		a.Count, a.Type = s.count*s.kind.Bytes(), Uint8.code(lib.vendor)
	} else {
		var err error
		if a.Op, err = g.op(s); err != nil {
			return 0, err
		}
	}
	switch s.Operation {
	case AllReduce, Barrier:
		return lib.abi.AllReduce(a), nil
	case ReduceScatter:
		return lib.abi.ReduceScatter(a), nil
	case AllGather:
		return lib.abi.AllGather(a), nil
	case Broadcast:
		return g.broadcast(s, a)
	case Reduce:
		return lib.abi.Reduce(a), nil
	case AllToAll:
		return g.allToAll(a)
	case Send:
		return lib.abi.Send(a), nil
	}
	return lib.abi.Recv(a), nil
}

// broadcast is in place on Ascend.
func (g *Group) broadcast(s *shape, a abi.Args) (int, error) {
	if g.d.lib.vendor == Ascend && g.cfg.Rank == s.Root && a.Src != a.Dst {
		if code := g.d.lib.abi.CopyOn(a.Dst, a.Src, s.Src.Bytes(), a.Stream); code != success {
			return 0, g.d.lib.runtimeError("copy on device", code)
		}
	}
	return g.d.lib.abi.Broadcast(a), nil
}

// allToAll is made of messages where the library has none.
func (g *Group) allToAll(a abi.Args) (int, error) {
	lib := g.d.lib
	if lib.capabilities.AllToAll {
		return lib.abi.AllToAll(a), nil
	}
	code := lib.abi.GroupStart()
	for r := 0; r < g.cfg.Size && code == success; r++ {
		part := a
		part.Root = r
		part.Src += abi.Handle(r * a.Count)
		part.Dst += abi.Handle(r * a.Count)
		if code = lib.abi.Send(part); !lib.failed(code) {
			code = lib.abi.Recv(part)
		}
		if lib.busy(code) {
			code = success
		}
	}
	if end := lib.abi.GroupEnd(); code == success {
		code = end
	}
	return code, nil
}

// op returns the vendor's number of the operation: where an average has to be made of a
// sum of scaled elements, that of an operation which the group makes once for each type.
func (g *Group) op(s *shape) (int, error) {
	lib := g.d.lib
	if s.Op != collective.Average || !lib.capabilities.premul {
		return opCode(s.Op), nil
	}
	if op, ok := g.scaled[s.kind]; ok {
		return op, nil
	}
	op, code := lib.abi.PremulSum(g.comm, scalar(s.kind, 1/float64(g.cfg.Size)), s.kind.code(lib.vendor))
	if code != success {
		return 0, lib.callError("operation", code, g.comm)
	}
	g.scaled[s.kind] = op
	return op, nil
}

// scalar returns one element of a floating type.
func scalar(t Type, x float64) []byte {
	switch t {
	case Float64:
		return binary.NativeEndian.AppendUint64(nil, math.Float64bits(x))
	case Float32:
		return binary.NativeEndian.AppendUint32(nil, math.Float32bits(float32(x)))
	}
	b := make([]byte, 2)
	if t == BFloat16 {
		kernel.EncodeBF16Bytes(b, []float32{float32(x)})
	} else {
		kernel.EncodeFP16Bytes(b, []float32{float32(x)})
	}
	return b
}
