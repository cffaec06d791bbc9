package collective_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/topology"
)

// twoNodes divides n ranks, of which the even ones are on one node and the odd ones on
// another.
func twoNodes(t *testing.T, n int, p topology.Parallel) topology.Groups {
	t.Helper()
	tree, err := topology.NewTree(topology.Level{Kind: topology.KindCluster})
	require.NoError(t, err)
	var members []topology.Member
	for _, node := range []string{"even", "odd"} {
		require.NoError(t, tree.Add(topology.Node{Name: node, Devices: n}))
	}
	for rank := range n {
		members = append(members, topology.Member{Node: []string{"even", "odd"}[rank%2], Device: rank / 2})
	}
	groups, err := tree.Groups(members, p)
	require.NoError(t, err)
	return groups
}

// Sums over the three groups of each rank are those of the ranks that topology says.
func TestParallel(t *testing.T) {
	for name, change := range everyKind(t, 8) {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			groups := found(t, 8, change)
			sets := twoNodes(t, 8, topology.Parallel{Tensor: 2, Pipeline: 2})
			parts := make([]*collective.Parallel, 8)
			onAll(t, 8, func(rank int) (err error) {
				parts[rank], err = groups[rank].Parallel(background(t), sets)
				return err
			})
			t.Cleanup(func() {
				for _, p := range parts {
					require.NoError(t, p.Close())
				}
			})
			for sort, of := range map[string]struct {
				list  [][]int
				group func(*collective.Parallel) *collective.Group
			}{
				"tensor":   {sets.Tensor, func(p *collective.Parallel) *collective.Group { return p.Tensor }},
				"data":     {sets.Data, func(p *collective.Parallel) *collective.Group { return p.Data }},
				"pipeline": {sets.Pipeline, func(p *collective.Parallel) *collective.Group { return p.Pipeline }},
			} {
				onAll(t, 8, func(rank int) error {
					at := slices.IndexFunc(of.list, func(l []int) bool { return slices.Contains(l, rank) })
					g := of.group(parts[rank])
					if g.Rank() != slices.Index(of.list[at], rank) {
						return fmt.Errorf("%s: rank %d of %v", sort, g.Rank(), of.list[at])
					}
					x := []int64{1 << (8 * rank % 63)}
					want := int64(0)
					for _, r := range of.list[at] {
						want += 1 << (8 * r % 63)
					}
					if err := g.AllReduce(background(t), collective.Of(x), collective.Of(x), collective.Sum); err != nil {
						return err
					}
					if x[0] != want {
						return fmt.Errorf("%s: sum %x, want %x", sort, x[0], want)
					}
					return nil
				})
			}
		})
	}
}

func TestParallelRefuses(t *testing.T) {
	leakless(t)
	groups := found(t, 4, nil)
	_, err := groups[3].Parallel(background(t), twoNodes(t, 2, topology.Parallel{}))
	require.ErrorIs(t, err, collective.ErrArgument)
	require.ErrorContains(t, err, "member 3 is not in the groups, which have 2")
	_, err = groups[3].Parallel(background(t), twoNodes(t, 8, topology.Parallel{}))
	require.ErrorContains(t, err, "groups of 8 members, must be the 4 ranks")

	errs := errorsOf(4, func(rank int) error { // one rank takes others for its neighbours
		sets := twoNodes(t, 4, topology.Parallel{Tensor: 2})
		if rank == 3 {
			slices.Reverse(sets.Tensor)
		}
		p, err := groups[rank].Parallel(background(t), sets)
		if err == nil {
			err = p.Tensor.Barrier(background(t))
			require.NoError(t, p.Close())
		}
		return err
	})
	for _, rank := range []int{0, 2, 3} {
		require.ErrorIs(t, errs[rank], collective.ErrMismatch)
	}
}
