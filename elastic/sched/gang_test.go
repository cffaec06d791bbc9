package sched_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/sched"
)

// TestFewestRacks compares the racks of a gang with all sets of racks there are.
func TestFewestRacks(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		c := newCluster(t, sched.Config{Nodes: blocks(2, 4, 2, 4), Levels: []string{"block", "rack"}, Policy: sched.Random, Seed: seed})
		for i := range 60 {
			_, _ = c.Place(whole(fmt.Sprint("filler", i), 1+rng.IntN(3)))
		}
		free := make(map[string]map[string]int)
		for _, n := range blocks(2, 4, 2, 4) {
			if free[n.Domains[0]] == nil {
				free[n.Domains[0]] = make(map[string]int)
			}
			free[n.Domains[0]][n.Domains[1]] += 4
		}
		for i := range 60 {
			if p, err := c.Placement(fmt.Sprint("filler", i)); err == nil {
				free[p.Node[:2]][p.Node[3:5]] -= p.Devices.Len()
			}
		}
		g := sched.Gang{ID: "g", Constraints: []sched.Constraint{{Within: "block"}}}
		for i := range 2 + rng.IntN(10) {
			g.Tasks = append(g.Tasks, whole(fmt.Sprint("g", i), 1))
		}
		least := 0
		for _, racks := range free {
			for set := range 16 {
				room := 0
				for r := range 4 {
					room += free0(racks, r) * (set >> r & 1)
				}
				if n := bits.OnesCount(uint(set)); room >= len(g.Tasks) && (least == 0 || n < least) {
					least = n
				}
			}
		}
		ps, err := c.PlaceGang(g)
		if least == 0 {
			require.ErrorIs(t, err, sched.ErrNoRoom)
			continue
		}
		require.NoError(t, err)
		used := make(map[string]bool)
		for _, p := range ps {
			require.Equal(t, ps[0].Node[:2], p.Node[:2], "one block")
			used[p.Node[:5]] = true
		}
		require.Len(t, used, least, "seed %d", seed)
		requireSane(t, c)
	}
}

func free0(racks map[string]int, r int) int { return racks[fmt.Sprint("r", r)] }

func TestGangIsAllOrNothing(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(4, 4)})
	place(t, c, whole("other", 2))
	before := c.AvailableResources()
	g := sched.Gang{ID: "g"}
	for i := range 7 {
		g.Tasks = append(g.Tasks, whole(fmt.Sprint(i), 1))
	}
	_, err := c.PlaceGang(g)
	require.ErrorIs(t, err, sched.ErrNoRoom)
	require.Equal(t, before, c.AvailableResources())
	g.Constraints = []sched.Constraint{{Size: 7, Within: sched.NodeLevel}}
	_, err = c.PlaceGang(g)
	require.ErrorIs(t, err, sched.ErrInfeasible)
	g.Constraints, g.Min = nil, 5
	ps, err := c.PlaceGang(g)
	require.NoError(t, err)
	require.Len(t, ps, 6)
}

func TestGangFaults(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: blocks(1, 1, 1, 8), Levels: []string{"block", "rack"}})
	tasks := []sched.Task{whole("a", 1), whole("b", 1), whole("c", 1), whole("d", 1)}
	unlike := append([]sched.Task{}, tasks...)
	unlike[3].CPU++
	for want, g := range map[string]sched.Gang{
		"ID is empty":          {Tasks: tasks},
		"0 Tasks":              {ID: "g"},
		"Min 5":                {ID: "g", Tasks: tasks, Min: 5},
		"Constraints[0]":       {ID: "g", Tasks: tasks, Constraints: []sched.Constraint{{Within: "room"}}},
		"Size 3":               {ID: "g", Tasks: tasks, Constraints: []sched.Constraint{{Size: 3, Within: "rack"}}},
		"want a multiple of 2": {ID: "g", Tasks: tasks, Constraints: []sched.Constraint{{Size: 2, Within: "block"}, {Size: 4, Within: "rack"}}},
		"Tasks[3]":             {ID: "g", Tasks: unlike, Constraints: []sched.Constraint{{Within: "rack"}}},
		"an ID of its own":     {ID: "g", Tasks: append(tasks, tasks[0])},
	} {
		_, err := c.PlaceGang(g)
		require.ErrorContains(t, err, want)
		require.Zero(t, c.NumTasks())
	}
}

func TestSpreadFindsTheOnlyWay(t *testing.T) {
	nodes := boxes(1, 1, 1)
	nodes[0].Custom = map[string]sched.Milli{"FPGA": sched.Whole}
	nodes[1].Custom = map[string]sched.Milli{"FPGA": sched.Whole, "quantum": sched.Whole}
	c := newCluster(t, sched.Config{Nodes: nodes})
	bundle := func(names ...string) sched.Request {
		r := sched.Request{Devices: 1, Custom: make(map[string]sched.Milli)}
		for _, name := range names {
			r.Custom[name] = sched.Whole
		}
		return r
	}
	ps, err := c.PlaceGroup(sched.Group{
		ID: "g", Strategy: sched.StrictSpread, Bundles: []sched.Request{bundle("FPGA"), bundle(), bundle("quantum")},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"n00", "n02", "n01"}, []string{ps[0].Node, ps[1].Node, ps[2].Node})
}

func TestGroupStrategies(t *testing.T) {
	one := sched.Request{Devices: 1}
	for _, x := range []struct {
		strategy sched.Strategy
		bundles  int
		nodes    int
		err      error
	}{
		{sched.Pack, 4, 1, nil},
		{sched.Pack, 5, 2, nil},
		{sched.Pack, 9, 0, sched.ErrInfeasible},
		{sched.StrictPack, 4, 1, nil},
		{sched.StrictPack, 5, 0, sched.ErrInfeasible},
		{sched.Spread, 2, 2, nil},
		{sched.Spread, 5, 2, nil},
		{sched.StrictSpread, 2, 2, nil},
		{sched.StrictSpread, 3, 0, sched.ErrInfeasible},
	} {
		c := newCluster(t, sched.Config{Nodes: boxes(4, 4)})
		g := sched.Group{ID: "g", Strategy: x.strategy}
		for range x.bundles {
			g.Bundles = append(g.Bundles, one)
		}
		ps, err := c.PlaceGroup(g)
		require.ErrorIs(t, err, x.err, "%v %d", x.strategy, x.bundles)
		nodes := make(map[string]bool)
		for _, p := range ps {
			nodes[p.Node] = true
		}
		require.Len(t, nodes, x.nodes, "%v %d", x.strategy, x.bundles)
		if err != nil {
			require.Equal(t, c.ClusterResources(), c.AvailableResources())
			continue
		}
		_, err = c.PlaceGroup(g)
		require.ErrorIs(t, err, sched.ErrExists)
		_, err = c.RemoveGroup("g")
		require.NoError(t, err)
		require.Equal(t, c.ClusterResources(), c.AvailableResources())
		_, err = c.RemoveGroup("g")
		require.ErrorIs(t, err, sched.ErrUnknown)
	}
	c := newCluster(t, sched.Config{Nodes: boxes(4, 4)})
	place(t, c, whole("a", 3))
	place(t, c, whole("b", 3))
	_, err := c.PlaceGroup(sched.Group{ID: "g", Strategy: sched.StrictPack, Bundles: []sched.Request{one, one}})
	require.ErrorIs(t, err, sched.ErrNoRoom)
}

func TestTasksInBundles(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(2)})
	_, err := c.PlaceGroup(sched.Group{ID: "g", Bundles: []sched.Request{{Devices: 1}, {Devices: 1, Share: 600}}})
	require.NoError(t, err)
	task := part("a", 700)
	task.Group, task.Bundle = "g", 1
	_, err = c.Place(task)
	require.ErrorIs(t, err, sched.ErrInfeasible)
	task.Bundle = sched.AnyBundle
	place(t, c, task)
	task.ID = "b"
	_, err = c.Place(task)
	require.ErrorIs(t, err, sched.ErrNoRoom)
	task.Bundle = 2
	_, err = c.Place(task)
	require.ErrorContains(t, err, "Bundle 2: want less than 2")
	task.Group = "other"
	_, err = c.Place(task)
	require.ErrorIs(t, err, sched.ErrUnknown)
	require.NoError(t, c.Release("a"))
	task.Group, task.Bundle = "g", 0
	place(t, c, task)
	lost, err := c.RemoveNode("n00")
	require.NoError(t, err)
	require.Len(t, lost, 1)
	require.Zero(t, c.ClusterResources().Accelerator())
}

func BenchmarkGang(b *testing.B) {
	var nodes []sched.Node
	for i := range 4 * 8 * 8 * 2 {
		nodes = append(nodes, sched.Node{
			Name: fmt.Sprintf("n%03d", i), CPU: 100 * sched.Whole, Devices: 8, Model: "G",
			Domains: []string{fmt.Sprint(i / 128), fmt.Sprint(i / 16 % 8), fmt.Sprint(i / 2 % 8)},
		})
	}
	c := newCluster(b, sched.Config{Nodes: nodes, Levels: []string{"zone", "block", "rack"}})
	g := sched.Gang{ID: "g", Constraints: []sched.Constraint{{Within: "zone", Prefer: "block"}}}
	for i := range 128 {
		g.Tasks = append(g.Tasks, whole(fmt.Sprint("rank", i), 8))
	}
	for b.Loop() {
		_, err := c.PlaceGang(g)
		require.NoError(b, err)
		for _, task := range g.Tasks {
			require.NoError(b, c.Release(task.ID))
		}
	}
}
