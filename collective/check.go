package collective

import "github.com/elasticps/elasticps/collective/schedule"

// Part returns how many elements each rank's part has in a call with src elements in the source
// and dst in the destination: all of them where ranks have no parts. Where the two lengths do not
// go together, the error says how they must, and wraps ErrArgument.
func (c Collective) Part(ranks, src, dst int) (int, error) {
	switch c {
	case AllReduce, Broadcast, Reduce, Barrier, AllToAll:
		if dst != src {
			return 0, argument("%v: destination of %d elements, must be %d like the source", c, dst, src)
		}
		if c != AllToAll {
			return src, nil
		}
		if src%ranks != 0 {
			return 0, argument("%v: %d elements, must be a multiple of the %d ranks", c, src, ranks)
		}
		return src / ranks, nil
	case ReduceScatter:
		if src != ranks*dst {
			return 0, argument("%v: source of %d elements and destination of %d, must be %d times as many", c, src, dst, ranks)
		}
		return dst, nil
	case AllGather:
		if dst != ranks*src {
			return 0, argument("%v: destination of %d elements and source of %d, must be %d times as many", c, dst, src, ranks)
		}
		return src, nil
	}
	return 0, argument("no operation %v", c)
}

// reduces reports whether elements are combined.
func (c Collective) reduces() bool {
	return c == AllReduce || c == ReduceScatter || c == Reduce || c == Barrier
}

// check finds out what a call is, or what is wrong with its arguments.
func (g *Group) check(c *Call) (Fingerprint, error) {
	if g.rank != c.Root {
		switch c.Collective {
		case Broadcast:
			c.Src = c.Dst // is not looked at
		case Reduce:
			c.Dst = c.Src // is not written to
		}
	}
	f := Fingerprint{Collective: c.Collective, Type: c.Src.kind, Op: c.Op, Root: c.Root, Codec: c.Compression.Format}
	var err error
	if f.Count, err = c.Collective.Part(g.Size(), c.Src.Len(), c.Dst.Len()); err != nil {
		return f, err
	}
	needsOp, needsRoot := f.Collective.reduces(), f.Collective == Broadcast || f.Collective == Reduce
	switch {
	case f.Type == 0 || f.Type >= typeEnd || c.Dst.kind != f.Type:
		return f, argument("%v: buffers of %v and %v, must be of the same type", f.Collective, c.Dst.kind, c.Src.kind)
	case needsOp && (c.Op == 0 || c.Op >= opEnd):
		return f, argument("%v: %v, must be one of those that combine", f.Collective, c.Op)
	case needsRoot && (c.Root < 0 || c.Root >= g.Size()):
		return f, argument("%v: root %d, must be 0 to %d", f.Collective, c.Root, g.Size()-1)
	case f.Count > schedule.MaxCount/g.Size():
		return f, argument("%v: %d elements, must be at most %d", f.Collective, f.Count, schedule.MaxCount/g.Size())
	}
	if !needsOp {
		f.Op = 0
	}
	if !needsRoot {
		f.Root = 0
	}
	if err := g.checkMemory(c, &f); err != nil {
		return f, err
	}
	if f.Codec != 0 {
		f.Algorithm = g.packedAlgorithm()
		return f, c.Compression.check(c)
	}
	if a := g.inAll(c, &f); a != nil {
		f.Algorithm, f.Buffer, f.Offset = schedule.Shared, int(a.number), c.Src.at
		return f, nil
	}
	f.Algorithm = g.algorithm(&f)
	if f.Algorithm == schedule.Shared && !g.model.Shared {
		return f, argument("%v by shared memory, which some ranks of the group do not share", f.Collective)
	}
	return f, nil
}

// checkMemory refuses buffers that overlap, but for those of an operation in place.
func (g *Group) checkMemory(c *Call, f *Fingerprint) error {
	shared, offset := overlap(c.Dst.bytes, c.Src.bytes)
	want, own := 0, g.rank*f.Count*f.Type.Bytes()
	switch f.Collective {
	case ReduceScatter:
		want = own
	case AllGather:
		want = -own
	}
	if shared && offset != want {
		return argument("%v: buffers overlap by %d bytes of offset, must be apart or, in place, at %d", f.Collective, offset, want)
	}
	return nil
}

// algorithm is that of a call, the same on all ranks; none where the ranks find out by such
// calls themselves, which is known when it is the call's turn.
func (g *Group) algorithm(f *Fingerprint) schedule.Algorithm {
	forced := g.cfg.Algorithms[f.Collective]
	if forced != 0 && (forced != schedule.Shared || g.Size() > 1) { // a rank alone has nobody to share with
		return forced
	}
	if g.tunes(f) {
		return 0
	}
	return g.model.choose(f, g.cfg.Deterministic)
}

// packedAlgorithm is that of a compressed call, the same on all ranks: where there are nodes of
// several ranks, what goes between them is as little as can be.
func (g *Group) packedAlgorithm() schedule.Algorithm {
	flat := g.cfg.Deterministic || g.cfg.Algorithms[AllReduce] == schedule.Direct
	if m := &g.model; m.Nodes > 1 && m.Local > 1 && !flat {
		return schedule.Hierarchical
	}
	return schedule.Direct
}
