package topology_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/elasticps/elasticps/topology"
	"github.com/stretchr/testify/require"
)

// flat returns a tree of one rack with nodes of so many free devices, n0 and on.
func flat(t testing.TB, devices ...int) *topology.Tree {
	tree := newTree(t, topology.KindRack)
	for i, n := range devices {
		require.NoError(t, tree.Add(topology.Node{Name: fmt.Sprint("n", i), Devices: n}))
	}
	return tree
}

// place places and takes.
func place(t testing.TB, tree *topology.Tree, g topology.Gang) []topology.Placement {
	t.Helper()
	places, err := tree.Place(g)
	require.NoError(t, err)
	tasks := 0
	for _, p := range places {
		require.NoError(t, tree.Take(p.Node, p.Tasks*g.Devices))
		tasks += p.Tasks
	}
	require.Equal(t, g.Tasks, tasks)
	return places
}

// TestCase13TheSmallerNode: two devices go to the node that has two left.
func TestCase13TheSmallerNode(t *testing.T) {
	for _, g := range []topology.Gang{
		{Tasks: 1, Devices: 2},
		{Tasks: 1, Devices: 2, Required: topology.KindNode},
		{Tasks: 2, Devices: 1, Required: topology.KindNode},
		{Tasks: 1, Devices: 2, Required: topology.KindRack},
		{Tasks: 2, Devices: 1, Preferred: topology.KindNode},
	} {
		require.Equal(t, []topology.Placement{{Node: "n1", Tasks: g.Tasks}}, place(t, flat(t, 4, 2), g))
	}
}

// TestCase14UnconstrainedLeavesTheWhole: two tasks that may be apart leave the pair to the next
// job.
func TestCase14UnconstrainedLeavesTheWhole(t *testing.T) {
	tree := flat(t, 2, 1, 1)
	require.Equal(t, []topology.Placement{{Node: "n1", Tasks: 1}, {Node: "n2", Tasks: 1}}, place(t, tree, topology.Gang{Tasks: 2, Devices: 1}))
	require.Equal(t, []topology.Placement{{Node: "n0", Tasks: 1}}, place(t, tree, topology.Gang{Tasks: 1, Devices: 2}))
	require.Equal(t, []topology.Placement{{Node: "n0", Tasks: 2}, {Node: "n1", Tasks: 1}},
		place(t, flat(t, 5, 2), topology.Gang{Tasks: 3, Devices: 2}))
}

// TestCase15RacksFillOneByOne: 33 racks of 18 nodes with 4 devices; 72 single devices fill one.
func TestCase15RacksFillOneByOne(t *testing.T) {
	tree := newTree(t, topology.KindCluster, topology.KindRack)
	for rack := range 33 {
		for n := range 18 {
			require.NoError(t, tree.Add(topology.Node{Name: fmt.Sprintf("n%02d-%02d", rack, n), Path: []string{fmt.Sprintf("r%02d", rack)}, Devices: 4}))
		}
	}
	for range 72 {
		place(t, tree, topology.Gang{Tasks: 1, Devices: 1})
	}
	requireFree(t, tree, 0, 72, "r00")
	for rack := 1; rack < 33; rack++ {
		requireFree(t, tree, 72, 72, fmt.Sprintf("r%02d", rack))
	}
}

// blocks returns a tree of racks in blocks; full names racks that have nothing free.
func blocks(t testing.TB, numBlocks, racks, nodes int) *topology.Tree {
	tree := newTree(t, topology.KindCluster, topology.KindPlane, topology.KindRack)
	for b := range numBlocks {
		for r := range racks {
			for n := range nodes {
				require.NoError(t, tree.Add(topology.Node{
					Name: fmt.Sprintf("b%dr%dn%d", b, r, n), Path: []string{fmt.Sprint("b", b), fmt.Sprint("r", r)}, Devices: 8,
				}))
			}
		}
	}
	return tree
}

// TestCase17EveryGroupWithinANode: four tensor-parallel groups of eight, each within a node and
// all within a block, even if another block has more room.
func TestCase17EveryGroupWithinANode(t *testing.T) {
	tree := blocks(t, 3, 2, 2)
	require.NoError(t, tree.Take("b0r0n0", 1)) // three whole nodes left in block 0
	require.NoError(t, tree.Take("b1r1n1", 0))
	g := topology.Gang{Tasks: 4, Devices: 8, Required: topology.KindPlane}
	require.Equal(t, []topology.Placement{{"b1r0n0", 1}, {"b1r0n1", 1}, {"b1r1n0", 1}, {"b1r1n1", 1}}, place(t, tree, g))
	place(t, tree, g)
	_, err := tree.Place(g)
	require.ErrorIs(t, err, topology.ErrNoRoom)
	require.ErrorContains(t, err, "4 tasks with 8 devices each within one plane: room for 3; 31 of 96 devices are free, at most 8 on a node")
}

// TestCase18RequiredAndPreferredAlike: the same level for both means one domain of it, and a
// nearer required level makes a farther preferred one true by itself.
func TestCase18RequiredAndPreferredAlike(t *testing.T) {
	for _, g := range []topology.Gang{
		{Tasks: 3, Devices: 8, Required: topology.KindPlane, Preferred: topology.KindPlane},
		{Tasks: 3, Devices: 8, Required: topology.KindPlane, Preferred: topology.KindCluster},
		{Tasks: 3, Devices: 8, Required: topology.KindPlane},
		{Tasks: 3, Devices: 8, Preferred: topology.KindPlane},
		{Tasks: 3, Devices: 8, Required: topology.KindCluster, Preferred: topology.KindPlane},
	} {
		tree := blocks(t, 2, 3, 2)
		for _, n := range []string{"b0r0n0", "b0r1n0", "b0r2n0"} {
			require.NoError(t, tree.Take(n, 8))
		}
		// Block 0 has exactly three nodes, in three racks; block 1 would need two racks only. The
		// preferred level decides, not the nodes' nearest common domain.
		require.Equal(t, []topology.Placement{{"b0r0n1", 1}, {"b0r1n1", 1}, {"b0r2n1", 1}}, place(t, tree, g), "%+v", g)
	}
	tree := blocks(t, 2, 3, 2)
	for _, n := range []string{"b0r0n0", "b0r1n0", "b0r2n0"} {
		require.NoError(t, tree.Take(n, 8))
	}
	require.Equal(t, []topology.Placement{{"b1r0n0", 1}, {"b1r0n1", 1}, {"b1r1n0", 1}},
		place(t, tree, topology.Gang{Tasks: 3, Devices: 8, Preferred: topology.KindRack}), "fewest racks")
}

// TestCase19TheNextDecisionSeesTheLast: decisions one after the other never take more than
// there is.
func TestCase19TheNextDecisionSeesTheLast(t *testing.T) {
	tree := blocks(t, 2, 2, 2)
	admitted := 0
	for range 1000 {
		if _, err := tree.Place(topology.Gang{Tasks: 1, Devices: 3}); err != nil {
			require.ErrorIs(t, err, topology.ErrNoRoom)
			continue
		}
		place(t, tree, topology.Gang{Tasks: 1, Devices: 3})
		admitted++
	}
	require.Equal(t, 16, admitted)
	requireFree(t, tree, 16, 64)
}

// TestCase20RoomIsPerNode: eight free devices are no room for a task with eight if no node has
// them.
func TestCase20RoomIsPerNode(t *testing.T) {
	_, err := flat(t, 4, 4).Place(topology.Gang{Tasks: 1, Devices: 8})
	require.ErrorIs(t, err, topology.ErrNoRoom)
	require.ErrorContains(t, err, "room for 0; 8 of 8 devices are free, at most 4 on a node")
}

func TestPlaceRefuses(t *testing.T) {
	for want, g := range map[string]topology.Gang{
		"0 tasks, must be 1 or more":                {Devices: 1},
		"-1 devices for each task":                  {Tasks: 1, Devices: -1},
		"required level plane is no level":          {Tasks: 1, Devices: 1, Required: topology.KindPlane},
		"preferred level NVLink is no level":        {Tasks: 1, Devices: 1, Preferred: topology.KindNVLink},
		"required level kind 200 is no level of th": {Tasks: 1, Devices: 1, Required: 200},
	} {
		_, err := flat(t, 8).Place(g)
		require.ErrorIs(t, err, topology.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	_, err := newTree(t, topology.KindRack).Place(topology.Gang{Tasks: 1, Devices: 1})
	require.ErrorIs(t, err, topology.ErrNoRoom)
	_, err = newTree(t, topology.KindRack).Place(topology.Gang{Tasks: 1, Devices: 1, Required: topology.KindNode})
	require.ErrorIs(t, err, topology.ErrNoRoom)
}

// TestPlaceAvoidsCostlyLinks: of the same number of racks those with the better optics.
func TestPlaceAvoidsCostlyLinks(t *testing.T) {
	tree := blocks(t, 1, 4, 2)
	require.NoError(t, tree.SetCost([]string{"b0", "r0"}, 400))
	require.NoError(t, tree.SetCost([]string{"b0", "r2"}, 100))
	g := topology.Gang{Tasks: 4, Devices: 8, Required: topology.KindPlane}
	nodes := func(places []topology.Placement) (list []string) {
		for _, p := range places {
			list = append(list, p.Node)
		}
		return list
	}
	got, err := tree.Place(g)
	require.NoError(t, err)
	require.Equal(t, []string{"b0r1n0", "b0r1n1", "b0r3n0", "b0r3n1"}, nodes(got))
	g.Tasks = 6
	got, err = tree.Place(g)
	require.NoError(t, err)
	require.Equal(t, []string{"b0r1n0", "b0r1n1", "b0r2n0", "b0r2n1", "b0r3n0", "b0r3n1"}, nodes(got))
	g.Tasks = 2 // within a rack no link of a rack is used, unless it ails
	got, err = tree.Place(g)
	require.NoError(t, err)
	require.Equal(t, []string{"b0r0n0", "b0r0n1"}, nodes(got))
	require.NoError(t, tree.SetCost([]string{"b0", "r0"}, 600))
	for _, g := range []topology.Gang{g, {Tasks: 2, Devices: 8}} {
		got, err = tree.Place(g)
		require.NoError(t, err)
		require.Equal(t, []string{"b0r1n0", "b0r1n1"}, nodes(got))
	}
	require.NoError(t, tree.SetCost([]string{"b0", "r0"}, topology.Down))
	g.Tasks = 7
	_, err = tree.Place(g)
	require.ErrorIs(t, err, topology.ErrNoRoom)
}

// TestPlaceTakesTheFewestRacks compares with every set of racks, in random states.
func TestPlaceTakesTheFewestRacks(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	for range 300 {
		tree := newTree(t, topology.KindCluster, topology.KindPlane, topology.KindRack)
		room := make(map[string][]int) // block → tasks of each rack
		devices := 1 + r.IntN(8)
		for b := range 2 {
			block := fmt.Sprint("b", b)
			for rack := range 5 {
				tasks := 0
				for n := range 2 {
					free := r.IntN(9)
					tasks += free / devices
					require.NoError(t, tree.Add(topology.Node{
						Name: fmt.Sprint(block, rack, n), Path: []string{block, fmt.Sprint(rack)}, Devices: free,
					}))
				}
				room[block] = append(room[block], tasks)
			}
		}
		g := topology.Gang{Tasks: 1 + r.IntN(10), Devices: devices, Required: topology.KindPlane, Preferred: topology.KindRack}
		want := min(fewestRacks(room["b0"], g.Tasks), fewestRacks(room["b1"], g.Tasks))
		places, err := tree.Place(g)
		if want > 5 {
			require.ErrorIs(t, err, topology.ErrNoRoom)
			continue
		}
		require.NoError(t, err)
		racks := make(map[string]bool)
		for _, p := range places {
			racks[p.Node[:3]] = true
			require.Equal(t, places[0].Node[:2], p.Node[:2], "one block")
		}
		require.Len(t, racks, want)
		require.Equal(t, places, place(t, tree, g), "the same again")
	}
}

func fewestRacks(room []int, tasks int) int {
	best := len(room) + 1
	for set := range 1 << len(room) {
		sum, size := 0, 0
		for i, n := range room {
			if set>>i&1 == 1 {
				sum, size = sum+n, size+1
			}
		}
		if sum >= tasks {
			best = min(best, size)
		}
	}
	return best
}

// TestPlaceDoesNotDependOnHistory: nodes added in another order, and others removed
// in between, give the same answer.
func TestPlaceDoesNotDependOnHistory(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	g := topology.Gang{Tasks: 5, Devices: 3, Preferred: topology.KindRack}
	var want []topology.Placement
	for range 20 {
		tree := newTree(t, topology.KindCluster, topology.KindRack)
		for _, i := range r.Perm(12) {
			name := fmt.Sprint("n", i)
			require.NoError(t, tree.Add(topology.Node{Name: "x" + name, Path: []string{fmt.Sprint("r", i%4)}, Devices: 8}))
			require.NoError(t, tree.Add(topology.Node{Name: name, Path: []string{fmt.Sprint("r", i%3)}, Devices: 4}))
			require.NoError(t, tree.Remove("x"+name))
		}
		got, err := tree.Place(g)
		require.NoError(t, err)
		if want == nil {
			want = got
		}
		require.Equal(t, want, got)
	}
}

// zones has 4 zones of 8 blocks of 8 racks of 2 nodes with 8 devices, in parts taken at random.
func zones(b testing.TB) *topology.Tree {
	r := rand.New(rand.NewPCG(4, 4))
	tree := newTree(b, topology.KindRegion, topology.KindCluster, topology.KindPlane, topology.KindRack)
	for i := range 4 * 8 * 8 * 2 {
		name := fmt.Sprintf("n%04d", i)
		require.NoError(b, tree.Add(topology.Node{
			Name: name, Path: []string{fmt.Sprint(i / 128), fmt.Sprint(i / 16 % 8), fmt.Sprint(i / 2 % 8)}, Devices: 8,
		}))
		if i >= 128 && r.IntN(2) == 0 {
			require.NoError(b, tree.Take(name, 1+r.IntN(7)))
		}
	}
	return tree
}

func BenchmarkPlace(b *testing.B) {
	tree := zones(b)
	for _, g := range []topology.Gang{
		{Tasks: 128, Devices: 8, Required: topology.KindCluster},
		{Tasks: 128, Devices: 8, Required: topology.KindRegion, Preferred: topology.KindRack},
		{Tasks: 128, Devices: 4},
		{Tasks: 1, Devices: 4},
	} {
		b.Run(fmt.Sprintf("%dx%d-%v-%v", g.Tasks, g.Devices, g.Required, g.Preferred), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tree.Place(g); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkTakeGive(b *testing.B) {
	tree := zones(b)
	b.ReportAllocs()
	for b.Loop() {
		if tree.Take("n0000", 4) != nil || tree.Give("n0000", 4) != nil {
			b.Fatal("refused")
		}
	}
}
