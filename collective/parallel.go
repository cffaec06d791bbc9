package collective

import (
	"context"
	"errors"
	"fmt"

	"github.com/elasticps/elasticps/topology"
)

// Parallel is the groups of one rank of a job that is divided in three ways. The rank in
// Pipeline is its stage; those in Data hold the same part of the model.
type Parallel struct{ Tensor, Data, Pipeline *Group }

// Parallel splits the group into tensor-, data- and pipeline-parallel groups as topology
// says, whose members are the ranks of this group. All ranks call it with the same groups.
//
//	groups, err := tree.Groups(members, topology.Parallel{Tensor: 2, Pipeline: 4})
//	p, err := g.Parallel(ctx, groups)
//	err = p.Data.AllReduce(ctx, grad, grad, collective.Average)
//
// It blocks and fails as Split does; ErrArgument: the groups are not those of as many
// members; ErrMismatch: other ranks have other groups. After an error there are no groups.
func (g *Group) Parallel(ctx context.Context, groups topology.Groups) (*Parallel, error) {
	place, err := groups.Of(g.rank)
	if err != nil {
		return nil, argument("rank %d: %v", g.rank, err)
	}
	if len(groups.Order) != g.Size() {
		return nil, argument("groups of %d members, must be the %d ranks", len(groups.Order), g.Size())
	}
	ctx, cancel := g.cfg.bound(ctx)
	defer cancel()
	p := &Parallel{}
	for _, c := range []struct {
		made **Group
		seat topology.Seat
		list [][]int
	}{{&p.Tensor, place.Tensor, groups.Tensor}, {&p.Data, place.Data, groups.Data}, {&p.Pipeline, place.Pipeline, groups.Pipeline}} {
		part, e := g.Split(ctx, c.seat.Group, c.seat.Rank)
		if e == nil {
			*c.made, e = part, g.holds(part, c.list[c.seat.Group])
		}
		err = errors.Join(err, e) // the others are in the next split by now, and wait for this rank
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// holds compares the members of a group that was split with what this rank knows.
func (g *Group) holds(part *Group, ranks []int) error {
	for i, rank := range ranks {
		if part.Size() != len(ranks) || part.roster.Members[i].Name != g.roster.Members[rank].Name {
			err := fmt.Errorf("%w: group %q has the members %v, should have ranks %v of group %q", ErrMismatch, part.Name(), part.Members(), ranks, g.Name())
			part.fail(err, true)
			return err
		}
	}
	return nil
}

// Close closes the three groups. It may be called twice.
func (p *Parallel) Close() error {
	var errs []error
	for _, g := range []*Group{p.Tensor, p.Data, p.Pipeline} {
		if g != nil {
			errs = append(errs, g.Close())
		}
	}
	return errors.Join(errs...)
}
