package sched_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/sched"
)

// begun is a world with preemptions and moves that are under way while other things happen.
type begun struct {
	*world
	plans []*sched.Preemption
	moves []sched.Move
	gone  []string // names of tasks that are over
}

func (b *begun) lose(tasks []sched.Task) {
	for _, task := range tasks {
		require.Contains(b.t, b.tasks, task.ID)
		delete(b.tasks, task.ID)
		b.gone = append(b.gone, task.ID)
	}
}

// node draws one by name, so that a seed gives the same run.
func (b *begun) node() string {
	var names []string
	for name := range b.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names[b.rng.IntN(len(names))]
}

func (b *begun) removeOne() {
	name := b.node()
	lost, err := b.c.RemoveNode(name)
	require.NoError(b.t, err)
	b.lose(lost)
	delete(b.nodes, name)
	if len(b.nodes) < 2 {
		b.addNode()
	}
}

func (b *begun) beginPreemption() {
	task := b.task()
	task.Priority = 5 + b.rng.IntN(5)
	p, err := b.c.Preempt(task)
	if err == nil && b.rng.IntN(4) == 0 { // the plan is a while old
		b.place()
		if b.rng.IntN(4) == 0 {
			b.removeOne()
		}
	}
	if err == nil && b.c.Begin(p) == nil {
		b.plans = append(b.plans, p)
	}
}

func (b *begun) beginGang() {
	b.next++
	g := sched.Gang{ID: fmt.Sprint("gang", b.next)}
	task := b.task()
	task.Priority = 6
	for i := range 1 + b.rng.IntN(3) {
		task.ID = fmt.Sprint("gang", b.next, "/", i)
		g.Tasks = append(g.Tasks, task)
	}
	if p, err := b.c.PreemptGang(g); err == nil && b.c.Begin(p) == nil {
		b.plans = append(b.plans, p)
	}
}

// takeAny takes one out of some.
func takeAny[T any](rng *rand.Rand, some *[]T) T {
	i := rng.IntN(len(*some))
	x := (*some)[i]
	*some = slices.Delete(*some, i, i+1)
	return x
}

func (b *begun) endPreemption() {
	if len(b.plans) == 0 {
		return
	}
	p := takeAny(b.rng, &b.plans)
	if b.rng.IntN(3) == 0 {
		require.NoError(b.t, b.c.Abandon(p.ID))
		return
	}
	victims, err := b.c.Complete(p.ID)
	if err != nil {
		require.ErrorIs(b.t, err, sched.ErrUnknown, "a node is gone")
		require.ErrorIs(b.t, b.c.Abandon(p.ID), sched.ErrUnknown, "it is over")
		return
	}
	b.lose(victims)
	for _, placement := range p.Placements {
		at, err := b.c.Placement(placement.Task)
		require.NoError(b.t, err)
		require.Equal(b.t, placement, at)
		b.tasks[placement.Task] = sched.Task{ID: placement.Task}
	}
}

func (b *begun) beginMove() {
	moves, err := b.c.Defragment(sched.Budget{Moves: 3})
	require.NoError(b.t, err)
	for _, m := range moves {
		if b.c.BeginMove(m) == nil {
			require.ErrorIs(b.t, b.c.BeginMove(m), sched.ErrNoRoom, "twice")
			b.moves = append(b.moves, m)
		}
	}
}

func (b *begun) endMove() {
	if len(b.moves) == 0 {
		return
	}
	m := takeAny(b.rng, &b.moves)
	if b.rng.IntN(3) == 0 {
		require.NoError(b.t, b.c.AbandonMove(m.Task))
		return
	}
	if err := b.c.FinishMove(m); err != nil {
		require.ErrorIs(b.t, err, sched.ErrUnknown, "task or node are gone")
		return
	}
	at, err := b.c.Placement(m.Task)
	require.NoError(b.t, err)
	require.Equal(b.t, m.To, at)
}

func (b *begun) releaseOne() {
	var ids []string
	for id := range b.tasks {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	id := ids[b.rng.IntN(len(ids))]
	require.NoError(b.t, b.c.Release(id))
	delete(b.tasks, id)
	b.gone = append(b.gone, id)
}

// late tells again of an end, and of the end of what went with its node or as a victim.
func (b *begun) late() {
	if len(b.gone) > 0 {
		require.ErrorIs(b.t, b.c.Release(b.gone[b.rng.IntN(len(b.gone))]), sched.ErrUnknown)
	}
}

func (b *begun) cordon() { require.NoError(b.t, b.c.Cordon(b.node(), b.rng.IntN(2) == 0)) }

// full counts what is taken of each node, from outside.
func (b *begun) full() {
	requireSane(b.t, b.c)
	require.Equal(b.t, len(b.tasks), b.c.NumTasks())
	require.Equal(b.t, len(b.nodes), b.c.NumNodes())
	used := b.c.Usage()
	devices := make(map[string][]sched.Milli)
	for id := range b.tasks {
		p, err := b.c.Placement(id)
		require.NoError(b.t, err)
		require.Contains(b.t, b.nodes, p.Node)
		if devices[p.Node] == nil {
			devices[p.Node] = make([]sched.Milli, sched.MaxDevices)
		}
		for _, d := range p.Devices.List() {
			devices[p.Node][d] += p.Share
		}
	}
	for name, u := range used {
		require.LessOrEqual(b.t, u.CPU, b.nodes[name].CPU)
		require.GreaterOrEqual(b.t, u.CPU, sched.Milli(0))
		for d, taken := range u.Devices {
			require.LessOrEqual(b.t, taken, sched.Whole, "device %d of %s", d, name)
			if devices[name] != nil { // what is held is more than what runs
				require.GreaterOrEqual(b.t, taken, devices[name][d], "device %d of %s", d, name)
			}
		}
	}
}

// TestCase34AnyOrderOfEvents: nodes go while their tasks are evicted or moved, plans are old when
// they begin, ends are told twice and late; nothing is ever negative, and in the end all is free.
func TestCase34AnyOrderOfEvents(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			b := &begun{world: &world{
				t: t, rng: rand.New(rand.NewPCG(seed, 34)), c: newCluster(t, sched.Config{}),
				nodes: make(map[string]sched.Node), tasks: make(map[string]sched.Task),
			}}
			for range 4 {
				b.addNode()
			}
			events := []func(){
				b.place, b.place, b.place, b.place, b.place, b.releaseOne, b.beginPreemption, b.beginPreemption, b.beginGang,
				b.endPreemption, b.beginMove, b.endMove, b.late, b.cordon, b.group,
			}
			for i := range 400 {
				switch {
				case i%25 == 0:
					b.addNode()
				case i%30 == 0:
					b.removeOne()
				default:
					events[b.rng.IntN(len(events))]()
				}
				b.full()
			}
			for len(b.plans) > 0 {
				b.endPreemption()
			}
			for len(b.moves) > 0 {
				b.endMove()
			}
			b.full()
			for id := range b.tasks {
				require.NoError(t, b.c.Release(id))
			}
			require.Equal(t, b.c.ClusterResources(), b.c.AvailableResources())
		})
	}
}

// TestTwoPreemptionsOnOneNode: what one preemption gets is not what another was promised, in
// whatever order they end and victims go.
func TestTwoPreemptionsOnOneNode(t *testing.T) {
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		for _, leaves := range []bool{false, true} {
			c := full(t, 1)
			var plans []*sched.Preemption
			for _, id := range []string{"a", "b"} {
				p, err := c.Preempt(cores(id, 5, 2))
				require.NoError(t, err)
				require.NoError(t, c.Begin(p))
				plans = append(plans, p)
			}
			if leaves { // the victims of one end by themselves
				for _, v := range plans[1].Victims {
					require.NoError(t, c.Release(v.Task.ID))
				}
			}
			_, err := c.Place(cores("thief", 1, 9))
			require.ErrorIs(t, err, sched.ErrNoRoom)
			_, err = c.Complete(order[0])
			require.NoError(t, err)
			requireSane(t, c)
			_, err = c.Place(cores("thief", 1, 9))
			require.ErrorIs(t, err, sched.ErrNoRoom)
			_, err = c.Complete(order[1])
			require.NoError(t, err)
			requireSane(t, c)
			require.Equal(t, 2, c.NumTasks())
		}
	}
}

// TestNameThatIsComing: a task that waits for its victims has its name already.
func TestNameThatIsComing(t *testing.T) {
	c := full(t, 2)
	p, err := c.Preempt(cores("high", 5, 2))
	require.NoError(t, err)
	require.NoError(t, c.Begin(p))
	for i := range 10 {
		_ = c.Release(fmt.Sprintf("low%03d", 10+i)) // some of these are no victims
	}
	_, err = c.Place(cores("high", 1, 2))
	require.ErrorIs(t, err, sched.ErrExists)
	_, err = c.PlaceGang(sched.Gang{ID: "g", Tasks: []sched.Task{cores("high", 1, 2)}})
	require.ErrorIs(t, err, sched.ErrExists)
	_, err = c.Preempt(cores("high", 1, 2))
	require.ErrorIs(t, err, sched.ErrExists)
	require.NoError(t, c.Abandon("high"))
	place(t, c, cores("high", 1, 2))
}

// TestVictimOfYesterday: a plan does not evict another task that has the name, and the place, of
// its victim.
func TestVictimOfYesterday(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(0)})
	place(t, c, cores("low", 10, 1))
	p, err := c.Preempt(cores("high", 5, 2))
	require.NoError(t, err)
	require.NoError(t, c.Release("low"))
	place(t, c, cores("low", 10, 7))
	require.ErrorIs(t, c.Begin(p), sched.ErrUnknown)
	require.NoError(t, c.Release("low"))
	place(t, c, cores("low", 10, 1))
	require.NoError(t, c.Begin(p), "the same again")
	require.NoError(t, c.Release("low"))
	require.ErrorContains(t, c.Begin(&sched.Preemption{ID: "made up", Placements: p.Placements}), "as it was made")
	place(t, c, cores("low", 5, 1)) // beside what is kept
	gone, err := c.Complete("high")
	require.NoError(t, err)
	require.Empty(t, gone, "the one of that name is no victim")
	require.Equal(t, 2, c.NumTasks())
}

// TestCordonedWhileItMoves: a node that is cordoned gives its tasks away, takes those that were on
// their way, and planning moves does without it.
func TestCordonedWhileItMoves(t *testing.T) {
	c := newCluster(t, sched.Config{
		Nodes: boxes(8, 8, 8), Mix: sched.Mix{{Request: sched.Request{Devices: 8}, Count: 1}, {Request: sched.Request{Devices: 1}, Count: 1}},
	})
	for i := range 3 {
		place(t, c, sched.Task{
			ID: fmt.Sprint(i), Request: sched.Request{Devices: 8, Share: 200}, Near: []string{fmt.Sprint("n0", i)}, Movable: true,
		})
	}
	require.NoError(t, c.Cordon("n00", true))
	moves, err := c.Defragment(sched.Budget{Moves: 10})
	require.NoError(t, err)
	require.NotEmpty(t, moves)
	for _, m := range moves {
		require.NotEqual(t, "n00", m.To.Node)
	}
	require.NoError(t, c.BeginMove(moves[0]))
	require.NoError(t, c.Cordon(moves[0].To.Node, true))
	require.NoError(t, c.FinishMove(moves[0]), "it has been carried out")
	p, err := c.Placement(moves[0].Task)
	require.NoError(t, err)
	require.Equal(t, moves[0].To, p)
}

// TestGangWithAMemberThatStays: a gang that would end with a victim is left alone if one of its
// members is no victim of that priority; one that can do without it is not.
func TestGangWithAMemberThatStays(t *testing.T) {
	for _, x := range []struct {
		name       string
		min        int
		priority   int // of the other member
		stays      bool
		preemptors map[int]error
	}{
		{"not preemptible", 2, 0, true, map[int]error{1: sched.ErrNoRoom, 9: sched.ErrNoRoom}},
		{"higher priority", 2, 5, false, map[int]error{5: sched.ErrNoRoom, 6: nil}},
		{"can do without", 1, 0, true, map[int]error{1: nil}},
	} {
		for priority, want := range x.preemptors {
			c := newCluster(t, sched.Config{Nodes: boxes(0, 0)})
			low, other := cores("low", 6, 0), cores("other", 6, x.priority)
			other.Preemptible = !x.stays
			_, err := c.PlaceGang(sched.Gang{ID: "g", Min: x.min, Tasks: []sched.Task{low, other}})
			require.NoError(t, err)
			p, err := c.Preempt(cores("high", 5, priority))
			require.ErrorIs(t, err, want, "%s, %d", x.name, priority)
			if want == nil {
				require.Len(t, p.Victims, x.min, x.name)
			}
		}
	}
}

// TestCase30PlansAreNoWork: groups that find no room, and plans of moves, leave the timers of idle
// nodes alone.
func TestCase30PlansAreNoWork(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(2, 2, 2, 2)})
	for i, node := range []string{"n02", "n03"} {
		place(t, c, sched.Task{ID: fmt.Sprint(i), Request: sched.Request{Devices: 1, Share: 300}, Near: []string{node}, Movable: true})
	}
	idle := sched.Idle{After: time.Minute}
	require.Empty(t, idle.Expired(c, 0, nil))
	for _, strategy := range []sched.Strategy{sched.Pack, sched.Spread, sched.StrictPack, sched.StrictSpread} {
		one := sched.Request{Devices: 2}
		_, err := c.PlaceGroup(sched.Group{ID: "g", Strategy: strategy, Bundles: []sched.Request{one, one, one, one}})
		require.Error(t, err)
	}
	_, err := c.PlaceGang(sched.Gang{ID: "g", Tasks: []sched.Task{whole("a", 2), whole("b", 2), whole("c", 2)}})
	require.ErrorIs(t, err, sched.ErrNoRoom)
	_, err = c.Defragment(sched.Budget{Moves: 4})
	require.NoError(t, err)
	_, err = c.PlaceGroup(sched.Group{ID: "g", Bundles: []sched.Request{{Devices: 1}}}) // packed where something is
	require.NoError(t, err)
	_, err = c.RemoveGroup("g")
	require.NoError(t, err)
	require.Equal(t, []string{"n00", "n01"}, idle.Expired(c, time.Minute, nil))
}
