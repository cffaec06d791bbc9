package trace_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/sched"
	"github.com/elasticps/elasticps/elastic/trace"
)

// TestExperimentOrder: which of equal nodes comes first is drawn, by the seed alone, and
// neither names nor domains have a say.
func TestExperimentOrder(t *testing.T) {
	var nodes []sched.Node
	for i := range 4 {
		nodes = append(nodes, sched.Node{Name: fmt.Sprint(i), CPU: 8000, Devices: 8, Model: "G", Domains: []string{"a", "b"}})
	}
	tasks := []sched.Task{{ID: "t", Request: sched.Request{CPU: 1000, Devices: 1}}}
	first := func(seed int64) string {
		_, cluster, err := trace.Experiment{Nodes: nodes, Tasks: tasks, Load: 4, Seed: seed}.Run()
		require.NoError(t, err)
		p, err := cluster.Placement("t")
		require.NoError(t, err)
		return p.Node
	}
	came := make(map[string]int)
	for seed := range int64(100) {
		name := first(seed)
		require.Equal(t, name, first(seed))
		came[name]++
	}
	for _, n := range nodes {
		require.InDelta(t, 25, came[n.Name], 15)
		require.Equal(t, []string{"a", "b"}, n.Domains, "the caller's nodes are as they were")
	}
}

func TestExperimentRefuses(t *testing.T) {
	node := sched.Node{Name: "n", CPU: 8000, Devices: 8, Model: "G"}
	tasks := []sched.Task{{ID: "t", Request: sched.Request{Devices: 1}}}
	for want, e := range map[string]trace.Experiment{
		"Load 201":        {Nodes: []sched.Node{node}, Tasks: tasks, Load: 201},
		"without devices": {Nodes: []sched.Node{{Name: "n"}}, Tasks: tasks},
		"exists already":  {Nodes: []sched.Node{node, node}, Tasks: tasks},
		"Devices 9999999": {Nodes: []sched.Node{{Name: "n", Devices: 9999999}}, Tasks: tasks},
		"Devices -1":      {Nodes: []sched.Node{{Name: "n", Devices: -1}, node}, Tasks: tasks},
		"Name is empty":   {Nodes: []sched.Node{{Devices: 1}}, Tasks: tasks},
	} {
		_, _, err := e.Run()
		require.ErrorContains(t, err, want)
	}
}

// TestArrivalsUpToTheLoad: as many come as the load allows, each at least once if all can, and if
// they ask for more than that, some of them do not come, and none twice.
func TestArrivalsUpToTheLoad(t *testing.T) {
	var tasks []sched.Task
	all := 0
	for i := range 100 {
		tasks = append(tasks, sched.Task{ID: fmt.Sprintf("%03d", i), Request: sched.Request{Devices: 1 + i%8}})
		all += tasks[i].Devices
	}
	for _, load := range []int{20, 50, 99, 100, 130, 200} {
		orders := make(map[string]bool)
		for seed := range int64(20) {
			order := trace.Arrivals(tasks, 300*sched.Whole, load, seed)
			require.Equal(t, order, trace.Arrivals(tasks, 300*sched.Whole, load, seed))
			came, sum := make(map[int]int), 0
			for _, i := range order {
				came[i]++
				sum += tasks[i].Devices
			}
			orders[fmt.Sprint(order)] = true
			require.LessOrEqual(t, sum, 3*load+7, "one more, which is asked by the share of a device")
			require.GreaterOrEqual(t, sum, 3*load-8)
			if 3*load < all {
				require.Less(t, len(order), len(tasks))
				require.Len(t, came, len(order), "none twice")
			} else {
				require.Len(t, came, len(tasks))
			}
		}
		require.Greater(t, len(orders), 10)
	}
	require.Empty(t, trace.Arrivals(tasks, 0, 100, 1))
}
