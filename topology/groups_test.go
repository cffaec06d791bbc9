package topology_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/elasticps/elasticps/topology"
	"github.com/stretchr/testify/require"
)

// onNodes returns members on devices 0 and on of each node.
func onNodes(g *topology.Graph, devices int, nodes ...string) []topology.Member {
	var members []topology.Member
	for _, n := range nodes {
		for d := range devices {
			members = append(members, topology.Member{Node: n, Device: d, Graph: g})
		}
	}
	return members
}

func TestGroups(t *testing.T) {
	tree := blocks(t, 2, 2, 2)
	for _, c := range []struct {
		name    string
		members []topology.Member
		sizes   topology.Parallel
		want    topology.Groups
	}{
		{
			"data alone", onNodes(nil, 2, "b0r0n0", "b0r0n1"),
			topology.Parallel{},
			topology.Groups{
				Order: []int{0, 1, 2, 3}, Tensor: [][]int{{0}, {1}, {2}, {3}},
				Data: [][]int{{0, 1, 2, 3}}, Pipeline: [][]int{{0}, {1}, {2}, {3}},
			},
		}, {
			"all three", onNodes(nil, 4, "b0r0n0", "b0r1n0"),
			topology.Parallel{Tensor: 2, Data: 2, Pipeline: 2},
			topology.Groups{
				Order: []int{0, 1, 2, 3, 4, 5, 6, 7}, Tensor: [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}},
				Data:     [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}},
				Pipeline: [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}},
			},
		}, {
			"the launcher has mixed the nodes", onNodes(nil, 2, "b1r0n0", "b0r0n0", "b0r1n0", "b0r0n1"),
			topology.Parallel{Tensor: 2, Pipeline: 2},
			topology.Groups{
				Order: []int{2, 3, 6, 7, 4, 5, 0, 1}, Tensor: [][]int{{2, 3}, {6, 7}, {4, 5}, {0, 1}},
				Data:     [][]int{{2, 6}, {3, 7}, {4, 0}, {5, 1}},
				Pipeline: [][]int{{2, 4}, {3, 5}, {6, 0}, {7, 1}},
			},
		}, {
			"by the links of the node", onNodes(dgx1Volta(t), 8, "b0r0n0"),
			topology.Parallel{Tensor: 2, Data: 4},
			topology.Groups{
				Order: []int{0, 3, 1, 2, 4, 7, 5, 6}, Tensor: [][]int{{0, 3}, {1, 2}, {4, 7}, {5, 6}},
				Data:     [][]int{{0, 1, 4, 5}, {3, 2, 7, 6}},
				Pipeline: [][]int{{0}, {3}, {1}, {2}, {4}, {7}, {5}, {6}},
			},
		}, {
			"groups wider than a node", onNodes(nil, 2, "b0r0n0", "b1r0n0", "b0r0n1", "b1r0n1"),
			topology.Parallel{Tensor: 4, Within: topology.KindRack},
			topology.Groups{
				Order: []int{0, 1, 4, 5, 2, 3, 6, 7}, Tensor: [][]int{{0, 1, 4, 5}, {2, 3, 6, 7}},
				Data:     [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}},
				Pipeline: [][]int{{0}, {1}, {4}, {5}, {2}, {3}, {6}, {7}},
			},
		}, {
			"left over by the nodes of a block", onNodes(nil, 3, "b0r0n0", "b0r1n0"),
			topology.Parallel{Tensor: 2, Within: topology.KindPlane},
			topology.Groups{
				Order: []int{0, 1, 3, 4, 2, 5}, Tensor: [][]int{{0, 1}, {3, 4}, {2, 5}},
				Data:     [][]int{{0, 3, 2}, {1, 4, 5}},
				Pipeline: [][]int{{0}, {1}, {3}, {4}, {2}, {5}},
			},
		},
	} {
		got, err := tree.Groups(c.members, c.sizes)
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, got, c.name)
	}
}

func TestGroupsRefuse(t *testing.T) {
	tree := blocks(t, 2, 2, 2)
	four := onNodes(nil, 2, "b0r0n0", "b0r0n1")
	three := onNodes(nil, 3, "b0r0n0", "b0r1n0")
	two := []topology.Member{{Node: "b0r0n0"}, {Node: "b0r0n0", Device: 1, Graph: dgx1Volta(t)}}
	for want, c := range map[string]struct {
		members []topology.Member
		sizes   topology.Parallel
	}{
		"0 members, must be 1":                          {},
		"4 members are not tensor 3 times":              {four, topology.Parallel{Tensor: 3}},
		"pipeline 8 times data 0":                       {four, topology.Parallel{Pipeline: 8}},
		"tensor 2 times pipeline 1 times data 1":        {four, topology.Parallel{Tensor: 2, Data: 1}},
		"tensor parallelism of -1":                      {four, topology.Parallel{Tensor: -1}},
		"data parallelism of 1048577, must be 0 to":     {four, topology.Parallel{Data: 1<<20 + 1}},
		"tensor-parallel level NVLink is no level":      {four, topology.Parallel{Within: topology.KindNVLink}},
		"in \"b0r0n0\", 2 are left over by groups of 4": {four, topology.Parallel{Tensor: 4}},
		"in \"b0r0n0\", 1 are left over by groups of 2": {three, topology.Parallel{Tensor: 2}},
		"in \"r0\", 1 are left over by groups of 2":     {three, topology.Parallel{Tensor: 2, Within: topology.KindRack}},
		"member 1 is on node \"x\", which is not in":    {[]topology.Member{{Node: "b0r0n0"}, {Node: "x"}}, topology.Parallel{}},
		"member 1 is device 0 of node":                  {[]topology.Member{{Node: "b0r0n0"}, {Node: "b0r0n0"}}, topology.Parallel{}},
		"member 0 is device -1":                         {[]topology.Member{{Node: "b0r0n0", Device: -1}}, topology.Parallel{}},
		"member 0 is device 8, no accelerator":          {[]topology.Member{{Node: "b0r0n0", Device: 8, Graph: dgx1Volta(t)}}, topology.Parallel{}},
		"member 1 has another graph":                    {two, topology.Parallel{}},
	} {
		_, err := tree.Groups(c.members, c.sizes)
		require.ErrorIs(t, err, topology.ErrInvalid, want)
		require.ErrorContains(t, err, want)
	}
}

// TestGroupsCoverEveryMember: in any job every member is in one group of each sort, and two
// members share at most one group.
func TestGroupsCoverEveryMember(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 8))
	tree := blocks(t, 2, 2, 2)
	for range 200 {
		tensor, pipeline := 1<<r.IntN(4), 1<<r.IntN(3)
		var names []string
		for _, i := range r.Perm(8)[:pipeline] {
			names = append(names, fmt.Sprintf("b%dr%dn%d", i/4, i/2%2, i%2))
		}
		members := onNodes(dgx1Volta(t), 8, names...)
		r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		g, err := tree.Groups(members, topology.Parallel{Tensor: tensor, Pipeline: pipeline})
		require.NoError(t, err)
		shared := make(map[[2]int]bool)
		for sort, c := range map[string]struct {
			groups [][]int
			size   int
		}{"tensor": {g.Tensor, tensor}, "pipeline": {g.Pipeline, pipeline}, "data": {g.Data, 8 / tensor}} {
			require.Equal(t, upTo(len(members)), slices.Sorted(slices.Values(slices.Concat(c.groups...))), sort)
			for _, group := range c.groups {
				require.Len(t, group, c.size, sort)
				for at, i := range group {
					for _, j := range group[:at] {
						pair := [2]int{min(i, j), max(i, j)}
						require.False(t, shared[pair])
						shared[pair] = true
					}
					if sort == "tensor" {
						require.Equal(t, members[group[0]].Node, members[i].Node)
					}
				}
			}
		}
		require.Equal(t, upTo(len(members)), slices.Sorted(slices.Values(g.Order)))
	}
}

// TestGroupsOfUnevenNodes: where nodes have different numbers of members, every member has
// one place in each sort, the sizes multiply up, and as many tensor-parallel groups as can
// be are within a node.
func TestGroupsOfUnevenNodes(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	tree := blocks(t, 2, 2, 2)
	for range 100 {
		tensor, pipeline := 1+r.IntN(4), 1+r.IntN(3)
		var members []topology.Member
		whole := 0
		for i := range 8 {
			n := r.IntN(9)
			members = append(members, onNodes(nil, n, fmt.Sprintf("b%dr%dn%d", i/4, i/2%2, i%2))...)
		}
		members = members[:len(members)/(tensor*pipeline)*tensor*pipeline]
		if len(members) == 0 {
			continue
		}
		onNode := make(map[string]int)
		for _, m := range members {
			onNode[m.Node]++
		}
		for _, n := range onNode {
			whole += n / tensor
		}
		r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		g, err := tree.Groups(members, topology.Parallel{Tensor: tensor, Pipeline: pipeline, Within: topology.KindCluster})
		require.NoError(t, err)
		within := 0
		for _, group := range g.Tensor {
			if !slices.ContainsFunc(group, func(m int) bool { return members[m].Node != members[group[0]].Node }) {
				within++
			}
		}
		require.GreaterOrEqual(t, within, whole)
		data := len(members) / tensor / pipeline
		seats := make(map[topology.Seat]int)
		for m := range members {
			p, err := g.Of(m)
			require.NoError(t, err)
			require.Equal(t, m, g.Tensor[p.Tensor.Group][p.Tensor.Rank])
			require.Equal(t, m, g.Data[p.Data.Group][p.Data.Rank])
			require.Equal(t, m, g.Pipeline[p.Pipeline.Group][p.Pipeline.Rank])
			require.Len(t, g.Tensor[p.Tensor.Group], tensor)
			require.Len(t, g.Data[p.Data.Group], data)
			require.Len(t, g.Pipeline[p.Pipeline.Group], pipeline)
			seats[p.Data]++ // a data-parallel group has one place in the stages and in the layers
			for _, other := range g.Data[p.Data.Group] {
				o, err := g.Of(other)
				require.NoError(t, err)
				require.Equal(t, p.Pipeline.Rank, o.Pipeline.Rank)
				require.Equal(t, p.Tensor.Rank, o.Tensor.Rank)
			}
		}
		require.Len(t, seats, len(members))
	}
}

func TestGroupsOfNobody(t *testing.T) {
	g, err := blocks(t, 1, 1, 1).Groups(onNodes(nil, 2, "b0r0n0"), topology.Parallel{})
	require.NoError(t, err)
	for _, member := range []int{-1, 2} {
		_, err = g.Of(member)
		require.ErrorIs(t, err, topology.ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprintf("member %d is not in the groups, which have 2", member))
	}
}
