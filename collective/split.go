package collective

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// NoGroup is the color of a rank that will be in none of the groups of a Split.
const NoGroup = -1

// splitMark begins what ranks exchange for a Split: another call of the same kind, type and
// count has something else there.
const splitMark = 0x5350_4c49_5401

// wish is what one rank brings to a Split.
type wish struct{ Mark, Number, Color, Key int64 }

// Split makes smaller groups of the ranks of this one, which stays as it is. Ranks that
// give the same color, 0 or more, are in one group, in the order of their keys, and of their
// ranks where keys are equal. All ranks call it, at the same place in the order of their
// calls; those whose color is NoGroup get nil and no error.
//
// Each group has a Name and epochs of its own, and a failure, Abort or Close of one does
// nothing to the others or to this one: Shrink and Grow go on with it alone. Groups of one
// rank use one port. Close them all, in any order.
//
// It blocks until all ranks have called it and those of the own color are connected, at
// most until ctx ends. Errors: ErrArgument for another color, when nothing was sent; an
// *OpError when this group has failed before all wishes were known; and those of Join when
// ranks of the own color were lost or not reached after that, of which this group and those
// of other colors know nothing.
func (g *Group) Split(ctx context.Context, color, key int) (*Group, error) {
	if color < NoGroup {
		return nil, argument("color %d, must be 0 or more, or %d for no group", color, NoGroup)
	}
	ctx, cancel := g.cfg.bound(ctx)
	defer cancel()
	wishes, o, err := g.exchange(ctx, color, key)
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, nil
	}
	next, err := o.assemble(ctx, g.part(wishes))
	if err != nil {
		o.close()
		return nil, err
	}
	return next, nil
}

// exchange tells the others what this rank wishes, and opens the origin for it before: they
// may connect as soon as they know.
func (g *Group) exchange(ctx context.Context, color, key int) ([]wish, *origin, error) {
	mine := []int64{splitMark, 0, int64(color), int64(key)}
	all := make([]int64, len(mine)*g.Size())
	h, o, err := g.startSplit(ctx, color, mine, all)
	if err == nil {
		err = h.Wait(context.WithoutCancel(ctx)) // the call itself ends with ctx
	}
	wishes := make([]wish, 0, g.Size())
	for w := range slices.Chunk(all, len(mine)) {
		wishes = append(wishes, wish{w[0], w[1], w[2], w[3]})
	}
	for rank, w := range wishes {
		if err == nil && (w.Mark != splitMark || w.Number != mine[1]) {
			err = fmt.Errorf("%w: rank %d called split %d, rank %d did not", ErrMismatch, g.rank, mine[1], rank)
			g.fail(err, true)
		}
	}
	if err != nil && o != nil {
		o.close()
	}
	return wishes, o, err
}

// startSplit numbers a split as all ranks do, and starts its exchange.
func (g *Group) startSplit(ctx context.Context, color int, mine, all []int64) (h *Handle, o *origin, err error) {
	g.splitting.Lock() // splits begin in the order of their numbers
	defer g.splitting.Unlock()
	g.splits++
	mine[1] = int64(g.splits)
	if color != NoGroup {
		if o, err = g.origin.branch(g.partName(g.splits, color), g.roster.Epoch, g.splits); err != nil {
			return nil, nil, err
		}
	}
	h, err = g.Start(ctx, Call{Collective: AllGather, Dst: Of(all), Src: Of(mine)})
	return h, o, err
}

// partName is the name of a group of a split, which nothing else has.
func (g *Group) partName(number uint64, color int) string {
	name := fmt.Sprintf("%s/%d.%d.%d", g.cfg.Group, g.roster.Epoch, number, color)
	if len(name) <= MaxNameBytes {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "split/" + hex.EncodeToString(sum[:])
}

// part is the members of a group, who are reached where they are in this one.
func (g *Group) part(wishes []wish) roster {
	var ranks []int
	for rank, w := range wishes {
		if w.Color == wishes[g.rank].Color {
			ranks = append(ranks, rank)
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(wishes[a].Key, wishes[b].Key) })
	r := roster{Epoch: 1}
	for _, rank := range ranks {
		m := g.roster.Members[rank]
		m.Nonce = branchNonce(m.Nonce, g.roster.Epoch, uint64(wishes[rank].Number))
		r.Members = append(r.Members, m)
	}
	return r
}
