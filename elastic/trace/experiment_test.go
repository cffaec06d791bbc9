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
