package sched_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/sched"
)

// halls are nodes named z0-b0-r0-n0 and so on, with eight devices each.
func halls(zones, blocks, racks, nodes int) []sched.Node {
	var all []sched.Node
	for i := range zones * blocks * racks * nodes {
		z, b, r, n := i/(blocks*racks*nodes), i/(racks*nodes)%blocks, i/nodes%racks, i%nodes
		all = append(all, sched.Node{
			Name: fmt.Sprintf("z%d-b%d-r%d-n%d", z, b, r, n), CPU: 100 * sched.Whole, Devices: 8, Model: "G",
			Domains: []string{fmt.Sprint("z", z), fmt.Sprint("b", b), fmt.Sprint("r", r)},
		})
	}
	return all
}

// littered is such a cluster with tasks that are in the way.
func littered(t testing.TB, rng *rand.Rand, seed uint64, nodes []sched.Node) *sched.Cluster {
	t.Helper()
	c := newCluster(t, sched.Config{Nodes: nodes, Levels: []string{"zone", "block", "rack"}, Policy: sched.Random, Seed: seed})
	for i := range rng.IntN(len(nodes) * 3) {
		_, _ = c.Place(whole(fmt.Sprint("filler", i), 1+rng.IntN(8)))
	}
	return c
}

// roomOf is for how many ranks of one device there is room in each rack, in groups of unit on a
// node.
func roomOf(c *sched.Cluster, unit int) map[string]int {
	room := make(map[string]int)
	for name, u := range c.Usage() {
		free := 0
		for _, used := range u.Devices {
			if used == 0 {
				free++
			}
		}
		room[name[:8]] += free / unit * unit
	}
	return room
}

// fewestRacks tries all sets of racks of each zone: the least number of them that take n ranks, if
// each block takes a multiple of perBlock of them, and the least number of blocks of so many. 0 if
// there is no room.
func fewestRacks(room map[string]int, perBlock, n int) (racks, blocks int) {
	zones := make(map[string][]string)
	for rack := range room {
		zones[rack[:2]] = append(zones[rack[:2]], rack)
	}
	for _, names := range zones {
		slices.Sort(names)
		for set := range 1 << len(names) {
			inBlock, sum := make(map[string]int), 0
			for i, rack := range names {
				if set>>i&1 == 1 {
					inBlock[rack[:5]] += room[rack]
				}
			}
			for _, free := range inBlock {
				sum += free / perBlock * perBlock
			}
			r, b := bits.OnesCount(uint(set)), len(inBlock)
			if sum >= n && (racks == 0 || r < racks || r == racks && b < blocks) {
				racks, blocks = r, b
			}
		}
	}
	return racks, blocks
}

// TestFewestRacksOfAZone compares the racks of a gang, and then its blocks, with all sets of
// racks there are, with groups that have to be within a node and within a block.
func TestFewestRacksOfAZone(t *testing.T) {
	placed, over := 0, 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 11))
		c := littered(t, rng, seed, halls(2, 3, 3, 2))
		perNode := 1 << rng.IntN(3)
		perBlock := perNode << rng.IntN(3)
		g := sched.Gang{ID: "g", Constraints: []sched.Constraint{
			{Size: perNode, Within: sched.NodeLevel}, {Size: perBlock, Within: "block"}, {Within: "zone"},
		}}
		for i := range perBlock * (1 + rng.IntN(70/perBlock)) {
			g.Tasks = append(g.Tasks, whole(fmt.Sprint("g", i), 1))
		}
		racks, blocks := fewestRacks(roomOf(c, perNode), perBlock, len(g.Tasks))
		ps, err := c.PlaceGang(g)
		if racks == 0 {
			require.Error(t, err, "seed %d", seed)
			continue
		}
		require.NoError(t, err, "seed %d", seed)
		require.Len(t, ps, len(g.Tasks))
		inUse := map[int]map[string]bool{2: {}, 5: {}, 8: {}}
		for i, p := range ps {
			for n, domains := range inUse {
				domains[p.Node[:n]] = true
			}
			require.Equal(t, ps[i/perNode*perNode].Node, p.Node, "seed %d: group of rank %d", seed, i)
			require.Equal(t, ps[i/perBlock*perBlock].Node[:5], p.Node[:5], "seed %d: block of rank %d", seed, i)
		}
		require.Len(t, inUse[2], 1, "seed %d: zones", seed)
		require.Len(t, inUse[8], racks, "seed %d: racks", seed)
		require.Len(t, inUse[5], blocks, "seed %d: blocks", seed)
		placed++
		over += min(1, blocks-1)
		requireSane(t, c)
	}
	require.Greater(t, placed, 60)
	require.Greater(t, over, 20, "gangs in more than one block")
}

// TestFewestRacksOfTheLargeTree does so for the tree of KAI's tests of scale, 4 zones of 8 blocks
// of 8 racks of 2 nodes. Any racks of a zone will do there, so the largest are the fewest.
func TestFewestRacksOfTheLargeTree(t *testing.T) {
	placed := 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 12))
		c := littered(t, rng, seed, halls(4, 8, 8, 2))
		g := sched.Gang{ID: "g", Constraints: []sched.Constraint{{Within: "zone", Prefer: "block"}}}
		for i := range 8 * (1 + rng.IntN(64)) {
			g.Tasks = append(g.Tasks, whole(fmt.Sprint("g", i), 1))
		}
		least, inBlock := 0, 0
		for _, within := range []int{2, 5} { // letters of the name of a zone, of a block
			domains := make(map[string][]int)
			for rack, free := range roomOf(c, 1) {
				domains[rack[:within]] = append(domains[rack[:within]], free)
			}
			for _, free := range domains {
				slices.Sort(free)
				n, left := 0, len(g.Tasks)
				for ; n < len(free) && left > 0; n++ {
					left -= free[len(free)-1-n]
				}
				switch {
				case left > 0:
				case within == 2 && (least == 0 || n < least):
					least = n
				case within == 5 && (inBlock == 0 || n < inBlock):
					inBlock = n
				}
			}
		}
		if inBlock > 0 {
			least = inBlock // it is preferred
		}
		ps, err := c.PlaceGang(g)
		if least == 0 {
			require.Error(t, err, "seed %d", seed)
			continue
		}
		require.NoError(t, err)
		racks := make(map[string]bool)
		for _, p := range ps {
			require.Equal(t, ps[0].Node[:2], p.Node[:2], "one zone")
			racks[p.Node[:8]] = true
		}
		require.Len(t, racks, least, "seed %d", seed)
		placed++
	}
	require.Greater(t, placed, 20)
}

// TestGangOfTheRoomThatThereIs: a gang with a minimum within one domain has as many members as find
// room there, in whole groups.
func TestGangOfTheRoomThatThereIs(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: halls(1, 2, 2, 1), Levels: []string{"zone", "block", "rack"}})
	for i, node := range []string{"z0-b0-r0-n0", "z0-b1-r0-n0", "z0-b1-r1-n0"} {
		task := whole(fmt.Sprint("in the way", i), 3)
		task.Near = []string{node}
		place(t, c, task)
	}
	g := sched.Gang{ID: "g", Min: 9, Constraints: []sched.Constraint{{Size: 4, Within: sched.NodeLevel}, {Within: "block", Prefer: "rack"}}}
	for i := range 16 {
		g.Tasks = append(g.Tasks, whole(fmt.Sprint("g", i), 1))
	}
	ps, err := c.PlaceGang(g)
	require.NoError(t, err)
	require.Len(t, ps, 12, "one group where there are five, two where there are eight devices")
	for _, p := range ps {
		require.Equal(t, "z0-b0", p.Node[:5])
	}
	for _, task := range g.Tasks[:12] {
		require.NoError(t, c.Release(task.ID))
	}
	g.Min = 13
	_, err = c.PlaceGang(g)
	require.ErrorIs(t, err, sched.ErrNoRoom)
}

// TestTooManyWays: where there are more ways than are looked at, the gang lies within its level all
// the same.
func TestTooManyWays(t *testing.T) {
	var nodes []sched.Node
	for i := range 2 * 2100 {
		nodes = append(nodes, sched.Node{
			Name: fmt.Sprint("n", i), CPU: 10 * sched.Whole, Devices: 1, Model: "G",
			Domains: []string{"z", fmt.Sprint("b", i%2), fmt.Sprint("r", i)},
		})
	}
	c := newCluster(t, sched.Config{Nodes: nodes, Levels: []string{"zone", "block", "rack"}})
	g := sched.Gang{ID: "g", Constraints: []sched.Constraint{{Within: "zone"}}}
	for i := range 4100 {
		g.Tasks = append(g.Tasks, whole(fmt.Sprint("g", i), 1))
	}
	ps, err := c.PlaceGang(g)
	require.NoError(t, err)
	require.Len(t, ps, 4100)
	requireSane(t, c)
}
