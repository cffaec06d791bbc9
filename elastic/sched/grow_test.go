package sched_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/sched"
)

func TestCase28ConstantDemandGrowsOnce(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(0)})
	types := []sched.NodeType{{Node: sched.Node{Name: "cpu", CPU: 10 * sched.Whole}, Max: 10}}
	var waiting []sched.Task
	for i := range 25 {
		waiting = append(waiting, cores(fmt.Sprint(i), 1, 0))
	}
	ups, downs := 0, 0
	for minute := range 60 {
		g, err := c.Grow(waiting, types)
		require.NoError(t, err)
		for range g.Add[0] {
			require.NoError(t, c.AddNodes(sched.Node{Name: fmt.Sprint("up", minute, ups), CPU: 10 * sched.Whole}))
			ups++
		}
		var rest []sched.Task
		for _, task := range waiting {
			if minute%2 == 1 { // every other minute they all end and come again
				rest = append(rest, task)
				continue
			}
			if _, err := c.Place(task); err != nil {
				rest = append(rest, task)
			}
		}
		downs += len(c.Shrink(rest))
		if waiting = rest; minute%2 == 0 {
			require.Empty(t, waiting)
			for i := range 25 {
				require.NoError(t, c.Release(fmt.Sprint(i)))
				waiting = append(waiting, cores(fmt.Sprint(i), 1, 0))
			}
		}
	}
	require.Equal(t, 2, ups, "one growth, of two nodes")
	require.Zero(t, downs)
}

func TestCase29LivenessCounts(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(0, 0)})
	require.Equal(t, []string{"n00", "n01"}, c.Shrink(nil))
	place(t, c, sched.Task{ID: "actor", Near: []string{"n01"}}) // takes nothing, and lives
	require.Equal(t, []string{"n00"}, c.Shrink(nil))
	require.NoError(t, c.Release("actor"))
	require.Equal(t, []string{"n01"}, c.Shrink([]sched.Task{cores("waits", 8, 0)}), "the other is needed")
}

func TestCase31OneNodeForBoth(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: []sched.Node{{Name: "head", CPU: 16 * sched.Whole}}})
	types := []sched.NodeType{
		{Node: sched.Node{Name: "cpu", CPU: 16 * sched.Whole}, Max: 10},
		{Node: sched.Node{Name: "gpu", CPU: 16 * sched.Whole, Devices: 1, Model: "G"}, Max: 10},
	}
	tasks := []sched.Task{{ID: "gpu", Request: sched.Request{Devices: 1}}}
	for i := range 31 {
		tasks = append(tasks, cores(fmt.Sprint(i), 1, 0))
	}
	g, err := c.Grow(tasks, types)
	require.NoError(t, err)
	require.Equal(t, sched.Growth{Add: []int{0, 1}}, g)
	g, err = c.Grow(tasks[1:], types) // none with devices for demand without
	require.NoError(t, err)
	require.Equal(t, sched.Growth{Add: []int{1, 0}}, g)
	types[0].Max = 0
	g, err = c.Grow(append(tasks, cores("huge", 17, 0)), types)
	require.NoError(t, err)
	require.Equal(t, sched.Growth{Add: []int{0, 1}, Left: []string{"huge"}}, g)
	_, err = c.Grow(tasks, []sched.NodeType{{Node: sched.Node{Name: "x"}, Max: -1}})
	require.ErrorContains(t, err, "Max -1")
}

func TestCase35NoNodesForWhatFits(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(1)})
	place(t, c, part("a", 300))
	types := []sched.NodeType{{Node: boxes(1)[0], Max: 5}}
	g, err := c.Grow([]sched.Task{part("b", 700)}, types)
	require.NoError(t, err)
	require.Equal(t, []int{0}, g.Add)
	g, err = c.Grow([]sched.Task{part("b", 500), part("c", 500), part("d", 500)}, types)
	require.NoError(t, err)
	require.Equal(t, []int{1}, g.Add, "half and half are one, another half fits now")
	require.Equal(t, 1, c.NumTasks(), "nothing is changed")
}
