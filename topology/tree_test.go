package topology_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/elasticps/elasticps/topology"
	"github.com/stretchr/testify/require"
)

func level(kind topology.Kind) topology.Level { return topology.Level{Kind: kind} }

// newTree returns a tree with these levels below a root of the first one.
func newTree(t testing.TB, kinds ...topology.Kind) *topology.Tree {
	t.Helper()
	var levels []topology.Level
	for _, kind := range kinds {
		levels = append(levels, level(kind))
	}
	tree, err := topology.NewTree(levels...)
	require.NoError(t, err)
	return tree
}

func requireFree(t *testing.T, tree *topology.Tree, free, total int, path ...string) {
	t.Helper()
	f, n, err := tree.Free(path...)
	require.NoError(t, err)
	require.Equal(t, [2]int{free, total}, [2]int{f, n}, "%v", path)
}

func TestTreeCounts(t *testing.T) {
	tree := newTree(t, topology.KindCluster, topology.KindPlane, topology.KindRack)
	require.NoError(t, tree.Add(topology.Node{Name: "a", Path: []string{"p0", "r0"}, Devices: 8}))
	require.NoError(t, tree.Add(topology.Node{Name: "b", Path: []string{"p0", "r1"}, Devices: 4}))
	require.NoError(t, tree.Add(topology.Node{Name: "c", Path: []string{"p1", "r0"}, Devices: 0}))
	requireFree(t, tree, 12, 12)
	require.NoError(t, tree.Take("a", 3))
	requireFree(t, tree, 5, 8, "p0", "r0", "a")
	requireFree(t, tree, 5, 8, "p0", "r0")
	requireFree(t, tree, 9, 12, "p0")
	requireFree(t, tree, 0, 0, "p1")
	requireFree(t, tree, 9, 12)
	require.NoError(t, tree.Give("a", 2))
	requireFree(t, tree, 11, 12)
	require.NoError(t, tree.Remove("a"))
	requireFree(t, tree, 4, 4)
	_, _, err := tree.Free("p0", "r0")
	require.ErrorIs(t, err, topology.ErrInvalid, "a domain without nodes is gone")
}

func TestTreeRefuses(t *testing.T) {
	tree := newTree(t, topology.KindCluster, topology.KindRack)
	require.NoError(t, tree.Add(topology.Node{Name: "a", Path: []string{"r"}, Devices: 8}))
	require.NoError(t, tree.Take("a", 2))
	for want, n := range map[string]topology.Node{
		"without a name":                    {Path: []string{"r"}},
		"in the tree already":               {Name: "a", Path: []string{"r"}},
		"path of 0 domains, must be 1":      {Name: "b"},
		"a domain without a name":           {Name: "b", Path: []string{""}},
		"has -1 devices, must be 0":         {Name: "b", Path: []string{"r"}, Devices: -1},
		"1025 devices, must be 0 to 1024":   {Name: "b", Path: []string{"r"}, Devices: 1025},
		"path of 2 domains, must be 1":      {Name: "b", Path: []string{"r", "s"}},
		"node \"a\" is in the tree already": {Name: "a", Path: []string{"other"}, Devices: 1},
	} {
		err := tree.Add(n)
		require.ErrorIs(t, err, topology.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, tree.Take("a", 7), "7 devices of node \"a\" wanted, 6 of 8 free")
	require.ErrorIs(t, tree.Take("a", 7), topology.ErrNoRoom)
	require.ErrorIs(t, tree.Take("a", -1), topology.ErrInvalid)
	require.ErrorContains(t, tree.Give("a", 3), "3 devices of node \"a\" given back, 2 of 8 taken")
	require.ErrorIs(t, tree.Give("a", -1), topology.ErrInvalid)
	for _, err := range []error{
		tree.Take("z", 1), tree.Give("z", 1), tree.Remove("z"), tree.SetCost([]string{"z"}, 0),
		tree.SetCost(nil, 0), tree.SetCost([]string{"r"}, -1), tree.SetCost([]string{"r"}, 1001),
	} {
		require.ErrorIs(t, err, topology.ErrInvalid)
	}
	_, err := tree.Link("a", "z")
	require.ErrorIs(t, err, topology.ErrInvalid)
	requireFree(t, tree, 6, 8)
}

func TestNewTreeRefuses(t *testing.T) {
	for want, levels := range map[string][]topology.Level{
		"without levels":            nil,
		"must be region to rack":    {level(topology.KindNode)},
		"is not nearer than rack":   {level(topology.KindRack), level(topology.KindCluster)},
		"rack, is not nearer":       {level(topology.KindRack), level(topology.KindRack)},
		"carries NaN bytes/s":       {{Kind: topology.KindRack, BytesPerSecond: math.NaN()}},
		"carries -1 bytes/s":        {{Kind: topology.KindRack, BytesPerSecond: -1}},
		"level 0 is of kind NVLink": {level(topology.KindNVLink)},
	} {
		_, err := topology.NewTree(levels...)
		require.ErrorIs(t, err, topology.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
}

func TestTreeLink(t *testing.T) {
	tree, err := topology.NewTree(level(topology.KindCluster), level(topology.KindPlane), topology.Level{Kind: topology.KindRack, BytesPerSecond: 100e9})
	require.NoError(t, err)
	for _, n := range []topology.Node{
		{Name: "a", Path: []string{"p0", "r0"}},
		{Name: "b", Path: []string{"p0", "r0"}},
		{Name: "c", Path: []string{"p0", "r1"}},
		{Name: "d", Path: []string{"p1", "r0"}},
	} {
		require.NoError(t, tree.Add(n))
	}
	require.NoError(t, tree.SetCost([]string{"p0", "r1"}, 250))
	require.NoError(t, tree.SetCost([]string{"p0"}, 500))
	scores := make(map[string]int)
	for other, want := range map[string]topology.Link{
		"a": topology.NewLink(topology.KindNode, 0),
		"b": {Kind: topology.KindRack, BytesPerSecond: 100e9},
		"c": {Kind: topology.KindPlane, BytesPerSecond: topology.Rate(topology.KindPlane), Cost: 250},
		"d": {Kind: topology.KindCluster, BytesPerSecond: topology.Rate(topology.KindCluster), Cost: 500},
	} {
		got, err := tree.Link("a", other)
		require.NoError(t, err)
		require.Equal(t, want, got)
		back, err := tree.Link(other, "a")
		require.NoError(t, err)
		require.Equal(t, got, back)
		scores[other] = got.Score()
	}
	require.Equal(t, map[string]int{"a": 10, "b": 8, "c": 4, "d": 2}, scores)
}

// TestTreeDown: what cannot be reached counts for nothing outside, whatever happens in it.
func TestTreeDown(t *testing.T) {
	tree := newTree(t, topology.KindCluster, topology.KindPlane)
	for _, n := range []topology.Node{{Name: "a", Path: []string{"p0"}, Devices: 8}, {Name: "b", Path: []string{"p1"}, Devices: 4}} {
		require.NoError(t, tree.Add(n))
	}
	require.NoError(t, tree.SetCost([]string{"p0"}, topology.Down))
	requireFree(t, tree, 4, 4)
	requireFree(t, tree, 8, 8, "p0")
	require.NoError(t, tree.Take("a", 5))
	require.NoError(t, tree.Add(topology.Node{Name: "c", Path: []string{"p0"}, Devices: 2}))
	requireFree(t, tree, 4, 4)
	_, err := tree.Place(topology.Gang{Tasks: 1, Devices: 8})
	require.ErrorIs(t, err, topology.ErrNoRoom)
	require.NoError(t, tree.SetCost([]string{"p0"}, topology.Down))
	require.NoError(t, tree.SetCost([]string{"p0", "c"}, topology.Down))
	require.NoError(t, tree.SetCost([]string{"p0"}, 10))
	requireFree(t, tree, 7, 12)
	require.NoError(t, tree.SetCost([]string{"p0", "c"}, 0))
	requireFree(t, tree, 9, 14)
}

// TestTreeInvariants: after any order of events 0 <= free <= total in every domain, and
// every domain has the sum of what can be reached below it.
func TestTreeInvariants(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	tree := newTree(t, topology.KindRegion, topology.KindCluster, topology.KindRack)
	type node struct {
		path        []string
		free, total int
	}
	nodes := make(map[string]*node)
	down := make(map[string]bool)
	for range 4000 {
		name := fmt.Sprint("n", r.IntN(30))
		n, known := nodes[name]
		k := r.IntN(10)
		switch r.IntN(6) {
		case 0:
			path := []string{fmt.Sprint("c", r.IntN(3)), fmt.Sprint("r", r.IntN(3))}
			require.Equal(t, known, tree.Add(topology.Node{Name: name, Path: path, Devices: k}) != nil)
			if !known {
				nodes[name] = &node{path, k, k}
			}
		case 1:
			if r.IntN(4) == 0 {
				require.Equal(t, known, tree.Remove(name) == nil)
				delete(nodes, name)
				delete(down, name)
			}
		case 2:
			fits := known && k <= n.free
			require.Equal(t, fits, tree.Take(name, k) == nil)
			if fits {
				n.free -= k
			}
		case 3:
			fits := known && k <= n.total-n.free
			require.Equal(t, fits, tree.Give(name, k) == nil)
			if fits {
				n.free += k
			}
		case 4:
			if known {
				down[name] = r.IntN(3) == 0
				cost := topology.Cost(r.IntN(int(topology.Down)))
				if down[name] {
					cost = topology.Down
				}
				require.NoError(t, tree.SetCost(append(n.path[:2:2], name), cost))
			}
		}
		free, total := 0, 0
		byCluster := make(map[string][2]int)
		for name, n := range nodes {
			if !down[name] {
				free, total = free+n.free, total+n.total
				c := byCluster[n.path[0]]
				byCluster[n.path[0]] = [2]int{c[0] + n.free, c[1] + n.total}
			}
		}
		requireFree(t, tree, free, total)
		for c, sums := range byCluster {
			requireFree(t, tree, sums[0], sums[1], c)
		}
	}
}
