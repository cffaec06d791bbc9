package sched_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/sched"
)

// TestAdoptAfterARestart: a cluster that is told what runs where is the one that was, to the last
// device, and goes on in the same way.
func TestAdoptAfterARestart(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		nodes := boxes(4, 2, 8, 0, 4)
		nodes[2].Custom = map[string]sched.Milli{"FPGA": 2000}
		config := sched.Config{Nodes: nodes, Mix: sched.Mix{{Request: sched.Request{CPU: 1000, Devices: 1}, Count: 1}}}
		before, after := newCluster(t, config), newCluster(t, config)
		w := &world{t: t, rng: rng}
		var gangs []sched.Gang
		var placed [][]sched.Placement
		for i := range 40 {
			g := sched.Gang{ID: fmt.Sprint("gang", i)}
			for range 1 + rng.IntN(3) {
				g.Tasks = append(g.Tasks, w.task())
			}
			if ps, err := before.PlaceGang(g); err == nil {
				gangs, placed = append(gangs, g), append(placed, ps)
			}
		}
		require.NoError(t, after.Cordon("n02", true), "which keeps what runs there")
		for _, i := range rng.Perm(len(gangs)) {
			require.NoError(t, after.Adopt(gangs[i], placed[i]))
			require.NoError(t, after.Adopt(gangs[i], placed[i]), "asked again")
		}
		require.NoError(t, after.Cordon("n02", false))
		require.Equal(t, before.AvailableResources(), after.AvailableResources())
		require.Equal(t, before.Usage(), after.Usage())
		require.Equal(t, before.NumTasks(), after.NumTasks())
		for i := range 20 {
			task := w.task()
			p, err := before.Place(task)
			again, err2 := after.Place(task)
			require.Equal(t, err, err2, "seed %d, task %d", seed, i)
			require.Equal(t, p, again, "seed %d, task %d", seed, i)
		}
		high := whole("high", 2)
		high.Priority = 9
		p, err := before.Preempt(high)
		again, err2 := after.Preempt(high)
		require.Equal(t, err == nil, err2 == nil)
		if err == nil {
			require.Equal(t, p.Victims, again.Victims, "gangs are gangs as before")
		}
	}
}

func TestAdoptRefuses(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(2, 2)})
	at := func(task, node string, devices sched.DeviceSet) sched.Placement {
		return sched.Placement{Task: task, Node: node, Devices: devices, Share: sched.Whole}
	}
	one := func(tasks ...sched.Task) sched.Gang { return sched.Gang{Tasks: tasks} }
	a, b := whole("a", 1), whole("b", 1)
	require.NoError(t, c.Adopt(one(a), []sched.Placement{at("a", "n00", 1)}))
	before := c.AvailableResources()
	for want, x := range map[string]struct {
		gang       sched.Gang
		placements []sched.Placement
		err        error
	}{
		"0 Placements of 1 Tasks":     {one(b), nil, nil},
		"2 Placements of 1 Tasks":     {one(b), make([]sched.Placement, 2), nil},
		"ID is empty":                 {one(whole("", 1)), []sched.Placement{at("", "n00", 2)}, nil},
		`of "x" for task "b"`:         {one(b), []sched.Placement{at("x", "n00", 2)}, nil},
		`want its own, once`:          {one(b, b), []sched.Placement{at("b", "n00", 2), at("b", "n01", 2)}, nil},
		`node "n99"`:                  {one(b), []sched.Placement{at("b", "n99", 2)}, sched.ErrUnknown},
		`devices [0] of node "n00"`:   {one(b), []sched.Placement{at("b", "n00", 1)}, sched.ErrNoRoom},
		`devices [5] of node "n00"`:   {one(b), []sched.Placement{at("b", "n00", 1<<5)}, sched.ErrNoRoom},
		`devices [0 1] of node "n01"`: {one(b), []sched.Placement{at("b", "n01", 3)}, sched.ErrNoRoom},
		`exists already: task "a"`:    {one(a), []sched.Placement{at("a", "n01", 1)}, sched.ErrExists},
		"exists already: 1 of 2":      {one(a, b), []sched.Placement{at("a", "n00", 1), at("b", "n01", 1)}, sched.ErrExists},
		`devices [] of node "n01"`:    {one(b, whole("c", 1)), []sched.Placement{at("b", "n01", 1), at("c", "n01", 0)}, sched.ErrNoRoom},
	} {
		err := c.Adopt(x.gang, x.placements)
		require.ErrorContains(t, err, want)
		if x.err != nil {
			require.ErrorIs(t, err, x.err)
		}
		require.Equal(t, before, c.AvailableResources(), "%s: nothing is changed", want)
		require.Equal(t, 1, c.NumTasks())
	}
}
