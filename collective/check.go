package collective

import "github.com/elasticps/elasticps/collective/schedule"

// check finds out what a call is, or what is wrong with its arguments.
func (g *Group) check(c *Call) (Fingerprint, error) {
	f := Fingerprint{Collective: c.Collective, Type: c.Src.kind, Op: c.Op, Root: c.Root, Count: c.Src.Len(), Codec: c.Compression.Format}
	n := g.Size()
	dst, needsOp, needsRoot := c.Dst.Len(), false, false
	switch c.Collective {
	case AllReduce:
		needsOp = true
	case ReduceScatter:
		needsOp = true
		if f.Count = dst; c.Src.Len() != n*dst {
			return f, argument("%v: source of %d elements and destination of %d, must be %d times as many", f.Collective, c.Src.Len(), dst, n)
		}
	case AllGather:
		if dst != n*f.Count {
			return f, argument("%v: destination of %d elements and source of %d, must be %d times as many", f.Collective, dst, f.Count, n)
		}
		dst = f.Count
	case Broadcast:
		needsRoot = true
		if g.rank != c.Root {
			f.Type, f.Count, c.Src = c.Dst.kind, dst, c.Dst
		}
	case Reduce:
		needsOp, needsRoot = true, true
		if g.rank != c.Root {
			dst, c.Dst = f.Count, c.Src // is not written to
		}
	case AllToAll:
		if f.Count%n != 0 {
			return f, argument("%v: %d elements, must be a multiple of the %d ranks", f.Collective, f.Count, n)
		}
		if dst != f.Count {
			return f, argument("%v: destination of %d elements, must be %d like the source", f.Collective, dst, f.Count)
		}
		f.Count /= n
		dst = f.Count
	case Barrier:
		needsOp = true
	default:
		return f, argument("no operation %v", c.Collective)
	}
	if dst != f.Count {
		return f, argument("%v: destination of %d elements, must be %d like the source", f.Collective, dst, f.Count)
	}
	return f, g.checkRest(c, &f, needsOp, needsRoot)
}

func (g *Group) checkRest(c *Call, f *Fingerprint, needsOp, needsRoot bool) error {
	switch {
	case f.Type == 0 || f.Type >= typeEnd || c.Dst.kind != f.Type:
		return argument("%v: buffers of %v and %v, must be of the same type", f.Collective, c.Dst.kind, c.Src.kind)
	case needsOp && (c.Op == 0 || c.Op >= opEnd):
		return argument("%v: %v, must be one of those that combine", f.Collective, c.Op)
	case needsRoot && (c.Root < 0 || c.Root >= g.Size()):
		return argument("%v: root %d, must be 0 to %d", f.Collective, c.Root, g.Size()-1)
	case f.Count > schedule.MaxCount/g.Size():
		return argument("%v: %d elements, must be at most %d", f.Collective, f.Count, schedule.MaxCount/g.Size())
	}
	if !needsOp {
		f.Op = 0
	}
	if !needsRoot {
		f.Root = 0
	}
	if err := g.checkMemory(c, f); err != nil {
		return err
	}
	if f.Codec != 0 {
		f.Algorithm = g.packedAlgorithm()
		return c.Compression.check(c)
	}
	if a := g.inAll(c, f); a != nil {
		f.Algorithm, f.Buffer, f.Offset = schedule.Shared, int(a.number), c.Src.at
		return nil
	}
	f.Algorithm = g.algorithm(f)
	if f.Algorithm == schedule.Shared && !g.model.Shared {
		return argument("%v by shared memory, which some ranks of the group do not share", f.Collective)
	}
	return nil
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
