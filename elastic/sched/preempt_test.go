package sched_test

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/sched"
)

func cores(id string, n, priority int) sched.Task {
	return sched.Task{
		ID: id, Priority: priority, Preemptible: true, Request: sched.Request{CPU: sched.Milli(n) * sched.Whole},
	}
}

// full is a cluster of nodes with ten cores each, all used by tasks of one core.
func full(t *testing.T, nodes int) *sched.Cluster {
	t.Helper()
	c := newCluster(t, sched.Config{Nodes: boxes(make([]int, nodes)...)})
	for i := range 10 * nodes {
		place(t, c, cores(fmt.Sprintf("low%03d", i), 1, 1))
	}
	return c
}

func TestCase21OneVictimWhereOneWillDo(t *testing.T) {
	p, err := full(t, 1).Preempt(cores("high", 1, 2))
	require.NoError(t, err)
	require.Len(t, p.Victims, 1)
}

func TestCase22VictimsForTheMinimumOnly(t *testing.T) {
	c := full(t, 2)
	g := sched.Gang{ID: "g", Min: 1}
	for i := range 4 {
		g.Tasks = append(g.Tasks, cores(fmt.Sprint("g", i), 1, 2))
	}
	p, err := c.PreemptGang(g)
	require.NoError(t, err)
	require.Len(t, p.Victims, 1)
	require.Len(t, p.Placements, 1)
}

func TestCase24VictimsDoNotComeBack(t *testing.T) {
	c := full(t, 2)
	queue := []sched.Task{cores("high0", 10, 5), cores("high1", 3, 4)}
	evictions := make(map[[2]string]int)
	rounds := 0
	for progress := true; progress; rounds++ {
		require.Less(t, rounds, 40, "it goes on and on")
		progress = false
		var next []sched.Task
		for _, task := range queue {
			if _, err := c.Place(task); err == nil {
				progress = true
				continue
			}
			p, err := c.Preempt(task)
			if err != nil {
				next = append(next, task)
				continue
			}
			require.NoError(t, c.Begin(p))
			for _, v := range p.Victims { // a victim cannot have what is kept for another
				evictions[[2]string{v.Task.ID, task.ID}]++
				again := v.Task
				again.ID += " again"
				_, err := c.Place(again)
				require.ErrorIs(t, err, sched.ErrNoRoom)
			}
			gone, err := c.Complete(p.ID)
			require.NoError(t, err)
			next, progress = append(next, gone...), true
		}
		queue = next
	}
	for who, n := range evictions {
		require.Equal(t, 1, n, "%v", who)
	}
	require.Len(t, queue, 13)
}

func TestCase25FreeAndPreemptibleTogether(t *testing.T) {
	c := full(t, 1)
	require.NoError(t, c.Release("low004"))
	p, err := c.Preempt(cores("high", 2, 2))
	require.NoError(t, err)
	require.Len(t, p.Victims, 1)
}

func TestCase27WhoIsNeverAVictim(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(0)})
	kept := cores("kept", 9, 0)
	kept.Preemptible = false
	place(t, c, kept)
	place(t, c, cores("equal", 1, 5))
	_, err := c.Preempt(cores("high", 2, 5))
	require.ErrorIs(t, err, sched.ErrNoRoom)
	_, err = c.Preempt(cores("high", 2, 9))
	require.ErrorIs(t, err, sched.ErrNoRoom)
	_, err = c.Preempt(cores("high", 11, 9))
	require.ErrorIs(t, err, sched.ErrInfeasible)
	p, err := c.Preempt(cores("high", 1, 6))
	require.NoError(t, err)
	require.Equal(t, "equal", p.Victims[0].Task.ID)
}

// TestLeastVictims compares the plan with all sets of victims there are.
func TestLeastVictims(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		c := newCluster(t, sched.Config{Nodes: boxes(2, 3)[:1+rng.IntN(2)], Policy: sched.Random, Seed: seed})
		var tasks []sched.Task
		for i := 0; len(tasks) < 11 && i < 60; i++ {
			task := cores(fmt.Sprint("t", i), rng.IntN(9), rng.IntN(6))
			task.Preemptible = rng.IntN(6) > 0
			switch rng.IntN(3) {
			case 0:
				task.Devices, task.Share = 1, sched.Milli(1+rng.IntN(900))
			case 1:
				task.Devices = 1 + rng.IntN(2)
			}
			if _, err := c.Place(task); err == nil {
				tasks = append(tasks, task)
			}
		}
		high := cores("high", 1+rng.IntN(20), 4)
		high.Devices = rng.IntN(3)
		least := -1
		for set := range 1 << len(tasks) {
			if n := bits.OnesCount(uint(set)); (least < 0 || n < least) && fitsWithout(t, c, tasks, set, high) {
				least = n
			}
		}
		p, err := c.Preempt(high)
		if least < 0 {
			require.Error(t, err, "seed %d", seed)
			continue
		}
		require.NoError(t, err, "seed %d", seed)
		require.Len(t, p.Victims, least, "seed %d", seed)
		_, err = c.Evict(p, nil)
		require.NoError(t, err)
		requireSane(t, c)
	}
}

// fitsWithout says whether a task fits when a set of others, all allowed to go, is gone.
func fitsWithout(t *testing.T, c *sched.Cluster, tasks []sched.Task, set int, high sched.Task) bool {
	t.Helper()
	left := make(map[string]*sched.Node)
	free := make(map[string]map[int]sched.Milli)
	for _, n := range boxes(2, 3) {
		left[n.Name], free[n.Name] = &n, make(map[int]sched.Milli)
		for d := range n.Devices {
			free[n.Name][d] = sched.Whole
		}
	}
	for i, task := range tasks {
		if set>>i&1 == 1 {
			if !task.Preemptible || task.Priority >= high.Priority {
				return false
			}
			continue
		}
		p, err := c.Placement(task.ID)
		require.NoError(t, err)
		left[p.Node].CPU -= task.CPU
		for _, d := range p.Devices.List() {
			free[p.Node][d] -= p.Share
		}
	}
	for _, n := range boxes(2, 3)[:c.NumNodes()] {
		wholes := 0
		for _, f := range free[n.Name] {
			if f == sched.Whole {
				wholes++
			}
		}
		if left[n.Name].CPU >= high.CPU && wholes >= high.Devices {
			return true
		}
	}
	return false
}

func TestGangPreemptionCountsOverNodes(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(4, 4, 4)})
	for i := range 3 { // n00: four tasks, n01: two, n02: one
		for k := range []int{4, 2, 1}[i] {
			task := whole(fmt.Sprint("low", i, k), []int{1, 2, 4}[i])
			task.Preemptible, task.Near = true, []string{fmt.Sprint("n0", i)}
			place(t, c, task)
		}
	}
	g := sched.Gang{ID: "g"}
	for i := range 6 {
		task := whole(fmt.Sprint("g", i), 1)
		task.Priority = 1
		g.Tasks = append(g.Tasks, task)
	}
	p, err := c.PreemptGang(g)
	require.NoError(t, err)
	require.Len(t, p.Victims, 2) // the one of four devices and one of two
	_, err = c.Evict(p, nil)
	require.NoError(t, err)
	requireSane(t, c)
	require.Equal(t, 11, c.NumTasks())
}

func TestGangsGoWhole(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(2, 2)})
	g := sched.Gang{ID: "low"}
	for i := range 3 {
		task := whole(fmt.Sprint("low", i), 1)
		task.Preemptible = true
		g.Tasks = append(g.Tasks, task)
	}
	_, err := c.PlaceGang(g)
	require.NoError(t, err)
	single := whole("single", 1)
	single.Preemptible = true
	place(t, c, single)
	high := whole("high", 1)
	high.Priority = 1
	p, err := c.Preempt(high)
	require.NoError(t, err)
	require.Len(t, p.Victims, 1)
	require.Equal(t, "single", p.Victims[0].Task.ID, "one of the gang would take it all down")
	high.Devices = 2
	p, err = c.Preempt(high)
	require.NoError(t, err)
	require.Len(t, p.Victims, 3)
	_, err = c.Evict(p, nil)
	require.NoError(t, err)
	require.Equal(t, 2, c.NumTasks())
}

// TestDrainComesFirst: a parameter server hands over before it goes; if it cannot,
// nothing has changed (invariant I5).
func TestDrainComesFirst(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(1)})
	server, err := sched.Like(sched.ParameterServer, "ps")
	require.NoError(t, err)
	place(t, c, server)
	high := cores("high", 8, 9)
	p, err := c.Preempt(high)
	require.NoError(t, err)
	before := c.AvailableResources()
	stuck := errors.New("shard 3 has no follower")
	_, err = c.Evict(p, func(v sched.Victim) error {
		require.Equal(t, "ps", v.Task.ID)
		return stuck
	})
	require.ErrorIs(t, err, stuck)
	require.Equal(t, before, c.AvailableResources())
	gone, err := c.Evict(p, func(v sched.Victim) error {
		_, err := c.Placement(v.Task.ID)
		require.NoError(t, err, "it runs while it is drained")
		_, err = c.Place(cores("thief", 1, 9))
		require.ErrorIs(t, err, sched.ErrNoRoom, "what is free is kept")
		return nil
	})
	require.NoError(t, err)
	require.Len(t, gone, 1)
	_, err = c.Placement("high")
	require.NoError(t, err)
}

func TestPreemptionMeetsChange(t *testing.T) {
	begun := func() (*sched.Cluster, *sched.Preemption) {
		c := full(t, 1)
		p, err := c.Preempt(cores("high", 5, 2))
		require.NoError(t, err)
		require.NoError(t, c.Begin(p))
		return c, p
	}
	c, p := begun()
	require.ErrorIs(t, c.Begin(p), sched.ErrExists)
	require.NoError(t, c.Release(p.Victims[0].Task.ID)) // ends by itself: that, too, is kept
	_, err := c.Place(cores("thief", 1, 9))
	require.ErrorIs(t, err, sched.ErrNoRoom)
	gone, err := c.Complete(p.ID)
	require.NoError(t, err)
	require.Len(t, gone, 4)
	_, err = c.Complete(p.ID)
	require.ErrorIs(t, err, sched.ErrUnknown)

	c, p = begun()
	lost, err := c.RemoveNode("n00")
	require.NoError(t, err)
	require.Len(t, lost, 10)
	_, err = c.Complete(p.ID)
	require.ErrorIs(t, err, sched.ErrUnknown)
	require.ErrorIs(t, c.Abandon(p.ID), sched.ErrUnknown)

	c = full(t, 1)
	p, err = c.Preempt(cores("high", 5, 2))
	require.NoError(t, err)
	require.NoError(t, c.Release(p.Victims[0].Task.ID))
	require.ErrorIs(t, c.Begin(p), sched.ErrUnknown, "a plan of yesterday")
	require.Equal(t, 9, c.NumTasks())
}

// largeJob is a cluster of full nodes and a gang that needs a part of it.
func largeJob(b testing.TB, nodes, size int) (*sched.Cluster, sched.Gang) {
	counts := make([]int, nodes)
	for i := range counts {
		counts[i] = 8
	}
	c := newCluster(b, sched.Config{Nodes: boxes(counts...)})
	rng := rand.New(rand.NewPCG(1, 1))
	for i := 0; ; i++ {
		task := whole(fmt.Sprint("low", i), 1+rng.IntN(4))
		task.Priority, task.Preemptible = rng.IntN(5), true
		if _, err := c.Place(task); err != nil {
			break
		}
	}
	g := sched.Gang{ID: "large"}
	for i := range size {
		task := whole(fmt.Sprint("rank", i), 8)
		task.Priority = 9
		g.Tasks = append(g.Tasks, task)
	}
	return c, g
}

// smallTasks is a full cluster of quarters of devices, and a gang that needs whole ones.
func smallTasks(b testing.TB, nodes, size int) (*sched.Cluster, sched.Gang) {
	c, g := largeJob(b, 0, size)
	counts := make([]int, nodes)
	for i := range counts {
		counts[i] = 8
	}
	require.NoError(b, c.AddNodes(boxes(counts...)...))
	rng := rand.New(rand.NewPCG(1, 1))
	for i := 0; ; i++ {
		task := part(fmt.Sprint("low", i), 250)
		task.Priority, task.Preemptible = rng.IntN(5), true
		if _, err := c.Place(task); err != nil {
			break
		}
	}
	for i := range g.Tasks {
		g.Tasks[i].Devices = 1
	}
	return c, g
}

func TestPreemptionOfManySmallTasks(t *testing.T) {
	c, g := smallTasks(t, 20, 12)
	p, err := c.PreemptGang(g)
	require.NoError(t, err)
	require.Len(t, p.Victims, 48)
}

func BenchmarkPreemptSmallTasks(b *testing.B) {
	c, g := smallTasks(b, 1000, 256)
	for b.Loop() {
		p, err := c.PreemptGang(g)
		require.NoError(b, err)
		require.Len(b, p.Victims, 1024)
	}
}

func BenchmarkPreemptLargeJob(b *testing.B) {
	c, g := largeJob(b, 1000, 128)
	victims := 0
	for b.Loop() {
		p, err := c.PreemptGang(g)
		require.NoError(b, err)
		victims = len(p.Victims)
	}
	b.ReportMetric(float64(victims), "victims")
}
