package accelerator

import (
	"context"
	"fmt"
	"slices"

	"github.com/elasticps/elasticps/collective/internal/abi"
)

// Shrink makes a group of the ranks that are left, in their order, and ends this one. All of
// them call it with the same ranks that are lost. Where the library can, and the groups were
// made with Elastic, it makes the new group of this one; else the ranks join anew by the
// exchange, which is one of those that are left. The stream of the group is that of the
// next, if it is not its own.
func (g *Group) Shrink(ctx context.Context, lost []int, exchange Exchange) (*Group, error) {
	lost = slices.Compact(slices.Sorted(slices.Values(lost)))
	for _, r := range lost {
		if r < 0 || r >= g.cfg.Size || r == g.cfg.Rank {
			return nil, argument("shrink without rank %d, must be 0 to %d and not this rank %d", r, g.cfg.Size-1, g.cfg.Rank)
		}
	}
	c := g.cfg
	c.Size -= len(lost)
	before, _ := slices.BinarySearch(lost, c.Rank)
	c.Rank -= before
	c.Exchange = exchange
	if g.own {
		c.Stream = nil
	}
	if !g.shrinkable() {
		if exchange == nil {
			return nil, argument("shrink without an exchange, which the library of %v needs here", g.d.lib.vendor)
		}
		if err := g.Abort(); err != nil {
			return nil, err
		}
		return g.d.Join(ctx, c)
	}
	ctx, cancel := bound(ctx, c.Timeout)
	defer cancel()
	next := &Group{d: g.d, cfg: c, scaled: map[Type]int{}, mine: map[*task]bool{}}
	err := next.equip(ctx)
	if err == nil {
		err = next.inherit(ctx, g, lost)
	}
	if e := g.Abort(); err == nil {
		err = e
	}
	if err != nil {
		_ = next.Abort() // why it failed is the news
		return nil, fmt.Errorf("accelerator: rank %d of %d on device %d cannot shrink: %w", g.cfg.Rank, g.cfg.Size, g.d.index, err)
	}
	return next, nil
}

// inherit makes the communicator of that of another group.
func (g *Group) inherit(ctx context.Context, from *Group, lost []int) error {
	excluded := make([]int32, len(lost))
	for i, r := range lost {
		excluded[i] = int32(r)
	}
	// When the communicator comes too late, the child is left to it.
	lib, child := g.d.lib, abi.NewChild(excluded)
	err := g.d.do(ctx, func() error {
		if from.left {
			child.Close()
			return errClosed("group")
		}
		from.fail(errClosed("group that was shrunk"))
		code := lib.abi.Shrink(from.comm, child, lib.version)
		if lib.failed(code) {
			child.Close()
			return lib.callError("shrink", code, from.comm)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return g.await(ctx, func() (bool, error) { return g.inherited(from, child) })
}

// inherited reports whether the new communicator is ready. Its handle may come at once or
// when the old communicator says that it is done.
func (g *Group) inherited(from *Group, child *abi.Child) (bool, error) {
	if g.comm == 0 {
		g.comm = child.Handle()
	}
	if g.comm != 0 {
		ready, err := g.initialized()
		if ready {
			child.Close()
		}
		return ready, err
	}
	state, err := from.state()
	switch {
	case err != nil:
		return false, err
	case g.d.lib.busy(state):
		return false, nil
	case state == success && child.Handle() != 0:
		return false, nil
	}
	return false, g.d.lib.callError("shrink", state, from.comm)
}
