package sched_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/sched"
)

// requireSane checks that nothing is less than nothing or more than all there is.
func requireSane(t testing.TB, c *sched.Cluster) {
	t.Helper()
	total, left := c.ClusterResources(), c.AvailableResources()
	within := func(what string, have, all sched.Milli) {
		require.True(t, 0 <= have && have <= all, "%s: %d of %d available", what, have, all)
	}
	within("CPU", left.CPU, total.CPU)
	within("memory", sched.Milli(left.MemoryBytes), sched.Milli(total.MemoryBytes))
	for name, have := range left.Devices {
		within(name, have, total.Devices[name])
	}
	for name, have := range left.Custom {
		within(name, have, total.Custom[name])
	}
}

// world counts by itself what runs where.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	c     *sched.Cluster
	nodes map[string]sched.Node
	tasks map[string]sched.Task
	next  int
}

func (w *world) task() sched.Task {
	w.next++
	task := sched.Task{
		ID: fmt.Sprint("t", w.next), Priority: w.rng.IntN(10), Preemptible: w.rng.IntN(2) == 0, Movable: w.rng.IntN(3) > 0,
		Request: sched.Request{CPU: sched.Milli(w.rng.IntN(6000)), MemoryBytes: int64(w.rng.IntN(100))},
	}
	switch w.rng.IntN(5) {
	case 0:
	case 1:
		task.Devices = 1 + w.rng.IntN(4)
	case 2:
		task.Custom = map[string]sched.Milli{"FPGA": sched.Milli(w.rng.IntN(2000))}
	default:
		task.Devices, task.Share = 1, sched.Milli(1+w.rng.IntN(1000))
	}
	return task
}

func (w *world) place() {
	task := w.task()
	if _, err := w.c.Place(task); err == nil {
		w.tasks[task.ID] = task
	}
}

func (w *world) any() (sched.Task, bool) {
	for _, task := range w.tasks { // the map's order is no part of what is checked
		return task, true
	}
	return sched.Task{}, false
}

func (w *world) release() {
	if task, ok := w.any(); ok {
		require.NoError(w.t, w.c.Release(task.ID))
		delete(w.tasks, task.ID)
		require.ErrorIs(w.t, w.c.Release(task.ID), sched.ErrUnknown, "a late report of an end")
	}
}

func (w *world) addNode() {
	w.next++
	n := sched.Node{
		Name: fmt.Sprint("n", w.rng.IntN(1000), "-", w.next), CPU: 20_000, MemoryBytes: 400, Devices: w.rng.IntN(5), Model: string(rune('A' + w.rng.IntN(2))),
		Custom: map[string]sched.Milli{"FPGA": 3000},
	}
	require.NoError(w.t, w.c.AddNodes(n))
	w.nodes[n.Name] = n
}

func (w *world) removeNode() {
	for name := range w.nodes {
		lost, err := w.c.RemoveNode(name)
		require.NoError(w.t, err)
		for _, task := range lost {
			require.Contains(w.t, w.tasks, task.ID)
			delete(w.tasks, task.ID)
		}
		delete(w.nodes, name)
		return
	}
}

func (w *world) preempt() {
	task := w.task()
	task.Priority = 9
	p, err := w.c.Preempt(task)
	if err != nil {
		return
	}
	require.NoError(w.t, w.c.Begin(p))
	w.place()
	if w.rng.IntN(3) == 0 {
		require.NoError(w.t, w.c.Abandon(p.ID))
		return
	}
	gone, err := w.c.Complete(p.ID)
	require.NoError(w.t, err)
	for _, victim := range gone {
		require.Less(w.t, victim.Priority, 9)
		require.True(w.t, victim.Preemptible)
		delete(w.tasks, victim.ID)
	}
	w.tasks[task.ID] = task
}

func (w *world) group() {
	w.next++
	g := sched.Group{ID: fmt.Sprint("g", w.next), Strategy: sched.Strategy(w.rng.IntN(4))}
	for range 1 + w.rng.IntN(4) {
		g.Bundles = append(g.Bundles, w.task().Request)
	}
	if _, err := w.c.PlaceGroup(g); err != nil {
		return
	}
	task := w.task()
	task.Group, task.Bundle = g.ID, sched.AnyBundle
	_, err := w.c.Place(task)
	lost, err2 := w.c.RemoveGroup(g.ID)
	require.NoError(w.t, err2)
	require.Equal(w.t, err == nil, len(lost) == 1)
}

func (w *world) defragment() {
	moves, err := w.c.Defragment(sched.Budget{Moves: 5})
	require.NoError(w.t, err)
	before, _ := w.c.Fragmentation()
	for _, m := range moves {
		require.NoError(w.t, w.c.Move(m))
		requireSane(w.t, w.c)
	}
	after, _ := w.c.Fragmentation()
	require.LessOrEqual(w.t, after, before)
}

// check adds up what the tasks take, node by node.
func (w *world) check() {
	requireSane(w.t, w.c)
	require.Equal(w.t, len(w.tasks), w.c.NumTasks())
	cpu, memory := make(map[string]sched.Milli), make(map[string]int64)
	devices := make(map[string]*[sched.MaxDevices]sched.Milli)
	var all sched.Milli
	for id, task := range w.tasks {
		p, err := w.c.Placement(id)
		require.NoError(w.t, err)
		cpu[p.Node] += task.CPU
		memory[p.Node] += task.MemoryBytes
		require.Equal(w.t, task.Devices, p.Devices.Len())
		for _, d := range p.Devices.List() {
			if devices[p.Node] == nil {
				devices[p.Node] = new([sched.MaxDevices]sched.Milli)
			}
			devices[p.Node][d] += p.Share
			all += p.Share
			require.LessOrEqual(w.t, devices[p.Node][d], sched.Whole)
			require.Less(w.t, d, w.nodes[p.Node].Devices)
		}
		require.LessOrEqual(w.t, cpu[p.Node], w.nodes[p.Node].CPU)
		require.LessOrEqual(w.t, memory[p.Node], w.nodes[p.Node].MemoryBytes)
	}
	require.Equal(w.t, w.c.ClusterResources().Accelerator()-w.c.AvailableResources().Accelerator(), all)
}

func TestCase34AvailableIsNeverNegative(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			policy := sched.Policies()[int(seed)%len(sched.Policies())]
			w := &world{
				t: t, rng: rand.New(rand.NewPCG(seed, 1)), c: newCluster(t, sched.Config{Policy: policy}),
				nodes: make(map[string]sched.Node), tasks: make(map[string]sched.Task),
			}
			for range 4 {
				w.addNode()
			}
			events := []func(){w.place, w.place, w.place, w.place, w.place, w.release, w.release, w.preempt, w.group, w.defragment}
			for i := range 600 {
				switch {
				case i%40 == 0:
					w.addNode()
				case i%70 == 0:
					w.removeNode()
				default:
					events[w.rng.IntN(len(events))]()
				}
				w.check()
			}
			for id := range w.tasks {
				require.NoError(t, w.c.Release(id))
			}
			require.Equal(t, w.c.ClusterResources(), w.c.AvailableResources())
		})
	}
}
