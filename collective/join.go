package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Join takes this rank into a group. It blocks until all its ranks are there and connected, at
// most until ctx ends: then the error is a *MissingError that names who did not come, or a
// *RankError of one that came and died. Errors that wrap ErrArgument list every fault of the
// Config; those that wrap ErrConflict say that name or rank are taken.
func Join(ctx context.Context, cfg Config) (*Group, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	o, err := openOrigin(ctx, cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := cfg.bound(ctx)
	defer cancel()
	g, err := o.meet(ctx, proposal{Group: cfg.Group, Self: o.self, Add: cfg.Size})
	if err != nil {
		o.close()
		return nil, err
	}
	return g, nil
}

// bound gives a context without a deadline that of Timeout.
func (c *Config) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.Timeout)
}

// Shrink makes a group of the ranks that are left, without those that are known to be lost
// and those named by their places in dead; all of those that are left call it. They keep
// their order. It blocks until all are there, at most until ctx ends. On success this
// group is closed. After an error, such as a *MissingError of those that did not come or a
// *RankError of those that were lost in the meantime, it may be called again.
func (g *Group) Shrink(ctx context.Context, dead ...int) (*Group, error) {
	return g.succeed(ctx, dead, 0)
}

// Grow makes a group with as many newcomers as add says, who call Join with Size 0, behind
// the ranks of this one, all of which call it. As to blocking, errors and lost ranks it is
// like Shrink: the next group has those that are left, and the newcomers.
func (g *Group) Grow(ctx context.Context, add int) (*Group, error) {
	if add < 1 {
		return nil, argument("Grow by %d, must be at least 1", add)
	}
	return g.succeed(ctx, nil, add)
}

// succeed makes the group that follows this one.
func (g *Group) succeed(ctx context.Context, dead []int, add int) (*Group, error) {
	p := proposal{Group: g.cfg.Group, Self: g.origin.self, Add: add}
	for _, rank := range append(g.Lost(), dead...) {
		if rank < 0 || rank >= g.Size() || rank == g.rank {
			return nil, argument("rank %d among the dead, must be 0 to %d and not rank %d itself", rank, g.Size()-1, g.rank)
		}
		if name := g.roster.Members[rank].Name; !slices.Contains(p.Dead, name) {
			p.Dead = append(p.Dead, name)
		}
	}
	g.mu.Lock()
	if g.replaced || g.closed {
		g.mu.Unlock()
		return nil, fmt.Errorf("%w: rank %d cannot make another group of it", ErrClosed, g.rank)
	}
	g.replaced = true // no other call may
	g.mu.Unlock()
	g.origin.mu.Lock()
	p.Last = g.origin.latest
	g.origin.mu.Unlock()
	ctx, cancel := g.cfg.bound(ctx)
	defer cancel()
	next, err := g.origin.meet(ctx, p)
	if err != nil {
		err = g.notReplaced(err)
		g.leaveOrigin()
		return nil, err
	}
	_ = g.Close() // it has none to return
	return next, nil
}

// notReplaced gives the origin back to the group. Ranks that were lost in the attempt are
// told by their places in this group, and are not waited for by the next one.
func (g *Group) notReplaced(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.replaced = false
	var lost *RankError
	if !errors.As(err, &lost) {
		return err
	}
	here := &RankError{Reason: lost.Reason}
	for _, name := range lost.Names {
		if rank := g.roster.rankOf(name); rank >= 0 {
			g.lost[rank] = true
			here.Ranks, here.Names = append(here.Ranks, rank), append(here.Names, name)
		}
	}
	if len(here.Ranks) == 0 {
		return err // a newcomer
	}
	return here
}

// meet agrees with the others on the next group and connects it.
func (o *origin) meet(ctx context.Context, p proposal) (*Group, error) {
	var at rendezvous
	switch {
	case o.cfg.Local != nil:
		at = o.cfg.Local
	case o.cfg.Store != nil:
		at = storeRendezvous{o.cfg.Store}
	default:
		at = hosting{o}
	}
	r, err := at.meet(ctx, p)
	if err != nil {
		return nil, err
	}
	return o.assemble(ctx, r)
}

// assemble connects the members of a group that is agreed on.
func (o *origin) assemble(ctx context.Context, r roster) (*Group, error) {
	o.begin(r)
	terms, err := agree(&r)
	if err != nil {
		return nil, err // as on all other ranks
	}
	shared, fd := o.newHostMemory(r)
	peers, err := o.connect(ctx, r, shared, fd)
	closeDescriptor(fd)
	if err != nil {
		shared.free()
		return nil, err
	}
	g := newGroup(o.cfg, r, o, peers, shared)
	g.bargain = terms
	if err := g.settle(ctx); err != nil {
		g.replaced = true // the origin may have another chance
		_ = g.Close()
		return nil, err
	}
	return g, nil
}
