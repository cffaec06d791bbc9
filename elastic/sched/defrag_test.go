package sched_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/sched"
)

// scattered is nodes of two devices, each with two movable tasks of less than half a device,
// on different devices.
func scattered(t *testing.T) *sched.Cluster {
	t.Helper()
	c := newCluster(t, sched.Config{Nodes: boxes(2, 2, 2, 2), Mix: sched.Mix{
		{Request: sched.Request{Devices: 2}, Count: 1}, {Request: sched.Request{Devices: 1}, Count: 1},
	}})
	for i := range 4 {
		task := sched.Task{ID: fmt.Sprint(i), Request: sched.Request{Devices: 2, Share: 400}, Near: []string{fmt.Sprint("n0", i)}, Movable: i != 3}
		place(t, c, task)
	}
	return c
}

func TestDefragmentMergesFreeBlocks(t *testing.T) {
	c := scattered(t)
	_, err := c.Decide(whole("two", 2))
	require.ErrorIs(t, err, sched.ErrNoRoom)
	before, _ := c.Fragmentation()
	moves, err := c.Defragment(sched.Budget{Moves: 10})
	require.NoError(t, err)
	now, _ := c.Fragmentation()
	require.Equal(t, before, now, "a plan changes nothing")
	require.Len(t, moves, 2)
	for _, m := range moves {
		require.NotEqual(t, "3", m.Task, "it does not move")
		require.NoError(t, c.Move(m))
		requireSane(t, c)
		after, _ := c.Fragmentation()
		require.InDelta(t, m.Gain/8, now-after, 1e-4)
		now = after
	}
	require.Equal(t, 4, c.NumTasks())
	place(t, c, whole("two", 2))
	place(t, c, whole("two more", 2))
}

func TestDefragmentKeepsToItsBudget(t *testing.T) {
	c := scattered(t)
	moves, err := c.Defragment(sched.Budget{Moves: 1})
	require.NoError(t, err)
	require.Len(t, moves, 1)
	moves, err = c.Defragment(sched.Budget{Moves: 10, MinGain: 3})
	require.NoError(t, err)
	require.Empty(t, moves)
	for _, b := range []sched.Budget{{}, {Moves: -1}, {Moves: 1, MinGain: -1}} {
		_, err = c.Defragment(b)
		require.ErrorContains(t, err, "want")
	}
}

func TestMovesThatCannotBe(t *testing.T) {
	c := scattered(t)
	moves, err := c.Defragment(sched.Budget{Moves: 1})
	require.NoError(t, err)
	m := moves[0]
	before := c.AvailableResources()
	for _, change := range []func(m *sched.Move){
		func(m *sched.Move) { m.Task = "unknown" },
		func(m *sched.Move) { m.From.Node = m.To.Node },
		func(m *sched.Move) { m.To.Node = "n99" },
		func(m *sched.Move) { m.To.Devices = 0b1 },
		func(m *sched.Move) { m.To.Devices = 0b110 },
	} {
		bad := m
		change(&bad)
		require.Error(t, c.Move(bad))
		require.Equal(t, before, c.AvailableResources())
	}
	place(t, c, sched.Task{ID: "first", Near: []string{m.To.Node}, Request: sched.Request{Devices: 2, Share: 300}})
	require.ErrorIs(t, c.Move(m), sched.ErrNoRoom)
	_, err = c.Placement(m.Task)
	require.NoError(t, err, "nothing is lost")
}
