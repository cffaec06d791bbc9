package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic/meter"
	"github.com/elasticps/elasticps/elastic/sched"
	"github.com/elasticps/elasticps/internal/leak"
	"github.com/elasticps/elasticps/shard/store/storetest"
)

// nearAndFar starts two nodes that do not know each other yet.
func nearAndFar(t *testing.T) (near, far *actor.Node) {
	t.Helper()
	leak.Check(t, 10*time.Second)
	start := func(name string) *actor.Node {
		n, err := actor.Start(deadline(t), actor.Config{Name: name, Secret: "a secret of the nodes of a test"})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, n.Close()) })
		return n
	}
	return start("near"), start("far")
}

// farAway starts a scheduler on one node and a client of it on another, connected over TCP.
func farAway(t *testing.T, c SchedulerConfig) (*Scheduler, *SchedulerClient) {
	t.Helper()
	near, far := nearAndFar(t)
	_, err := near.Connect(deadline(t), far.Addr())
	require.NoError(t, err)
	s, err := StartScheduler(deadline(t), far, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	client, err := NewSchedulerClient(near, s.Ref())
	require.NoError(t, err)
	return s, client
}

// TestRequestsFromAnotherNode: a request that is repeated, one after the other or at once, is
// carried out once, and failures keep their kind across nodes.
func TestRequestsFromAnotherNode(t *testing.T) {
	s, c := farAway(t, SchedulerConfig{Cluster: sched.Config{Nodes: hosts(2)}})
	ctx := deadline(t)
	var wg sync.WaitGroup
	for i := range 8 { // eight tasks of half a device, each asked for four times at once
		for range 4 {
			wg.Go(func() {
				p, err := c.Place(ctx, fmt.Sprint("request", i), half(fmt.Sprint("t", i)))
				if err != nil || p.Task != fmt.Sprint("t", i) || p.Share != 500 || p.Devices.Len() != 1 {
					t.Error(p, err)
				}
			})
		}
	}
	wg.Wait()
	all, left, err := c.Resources(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 16*sched.Whole, all.Accelerator())
	require.EqualValues(t, 12*sched.Whole, left.Accelerator(), "each once")
	p, err := c.Placement(ctx, "t3")
	require.NoError(t, err)
	there, err := s.Placement(ctx, "t3")
	require.NoError(t, err)
	require.Equal(t, there, p)

	_, err = c.Place(ctx, "another request", half("t3"))
	require.ErrorIs(t, err, sched.ErrExists)
	require.NoError(t, c.Release(ctx, "t3"))
	require.NoError(t, c.Release(ctx, "t3"), "again")
	_, err = c.Placement(ctx, "t3")
	require.ErrorIs(t, err, sched.ErrUnknown)
	_, err = c.Place(ctx, "request3", half("t3"))
	require.ErrorIs(t, err, sched.ErrUnknown, "what came late does not bring it back")
	_, err = c.Place(ctx, "request9", half("t3"))
	require.NoError(t, err, "who means it has another name for it")

	big := sched.Gang{ID: "gang", Tasks: []sched.Task{{ID: "g0", Request: sched.Request{Devices: 8}}, {ID: "g1", Request: sched.Request{Devices: 8}}}}
	_, err = c.PlaceGang(ctx, "gang", big)
	require.ErrorIs(t, err, sched.ErrNoRoom)
	for i := range 8 {
		require.NoError(t, c.Release(ctx, fmt.Sprint("t", i)))
	}
	placed, err := c.PlaceGang(ctx, "gang", big)
	require.NoError(t, err, "a request that failed may be repeated")
	require.Len(t, placed, 2)
	again, err := c.PlaceGang(ctx, "gang", big)
	require.NoError(t, err)
	require.Equal(t, placed, again)
	_, err = c.Place(ctx, "x", sched.Task{ID: "x", Request: sched.Request{Devices: 9}})
	require.ErrorIs(t, err, sched.ErrInfeasible)
	_, err = c.Place(ctx, "x", sched.Task{ID: "x", Priority: 10})
	require.ErrorContains(t, err, "Priority 10: want 0 to 9")
	_, err = c.Place(ctx, "", half("x"))
	require.ErrorContains(t, err, "of 0 bytes for 1 tasks: want 1 to 128 bytes")
	_, err = c.PreemptGang(ctx, "none", sched.Gang{ID: "none"})
	require.ErrorContains(t, err, "for 0 tasks")
	_, err = actor.Call[any](ctx, c.node, c.ref, "hello")
	require.ErrorIs(t, err, actor.ErrUnknownType)
	_, err = c.Place(ctx, "x", half("\x00move\x00t1"))
	require.ErrorContains(t, err, "the first of them not 0")
	_, err = c.PlaceGang(ctx, "large", sched.Gang{ID: string(make([]byte, actor.MaxMessageBytes)), Tasks: []sched.Task{half("x")}})
	require.ErrorIs(t, err, actor.ErrTooLarge)
}

// TestRequestsOverBrokenConnections: connections break again and again while many ask at once;
// every request is carried out once, and each client is told where its task is.
func TestRequestsOverBrokenConnections(t *testing.T) {
	near, far := nearAndFar(t)
	link := storetest.StartProxy(t, far.Addr())
	_, err := near.Connect(deadline(t), link.Address())
	require.NoError(t, err)
	s, err := StartScheduler(deadline(t), far, SchedulerConfig{Cluster: sched.Config{Nodes: hosts(80)}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c, err := NewSchedulerClient(near, s.Ref())
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const n = 1000
	var (
		answered, breaks atomic.Int64
		asking           sync.WaitGroup
	)
	for i := range n {
		asking.Go(func() {
			task := half(fmt.Sprint("t", i))
			for {
				p, err := c.Place(ctx, fmt.Sprint("request", i), task)
				if err == nil && p.Task == task.ID {
					if answered.Add(1)%50 == 0 && breaks.Add(1) < 15 { // while others are under way
						link.Cut()
						link.Restore()
					}
					return
				}
				// A node whose links break for long is told that its name is in use, by its former self.
				if !actor.Retryable(err) && !errors.Is(err, actor.ErrHandshake) || ctx.Err() != nil {
					t.Error(p, err)
					return
				}
			}
		})
	}
	asking.Wait()
	require.EqualValues(t, n, answered.Load())
	left, err := s.AvailableResources(ctx)
	require.NoError(t, err)
	require.EqualValues(t, (80*8-n/2)*sched.Whole, left.Accelerator(), "each once")
}

// TestSchedulerThatStartsAgain knows nothing, is told what runs where, twice by some, and goes on.
func TestSchedulerThatStartsAgain(t *testing.T) {
	s, c := farAway(t, SchedulerConfig{Cluster: sched.Config{Nodes: hosts(2)}})
	ctx := deadline(t)
	gang := sched.Gang{ID: "g", Tasks: []sched.Task{{ID: "g0", Request: sched.Request{Devices: 8}}, half("g1")}}
	members, err := c.PlaceGang(ctx, "g", gang)
	require.NoError(t, err)
	single, err := c.Place(ctx, "single", half("single"))
	require.NoError(t, err)
	_, before, err := c.Resources(ctx)
	require.NoError(t, err)

	require.NoError(t, s.Close())
	_, err = c.Placement(ctx, "g0")
	require.ErrorIs(t, err, actor.ErrNoProcess)
	s, err = StartScheduler(ctx, s.node, SchedulerConfig{Cluster: sched.Config{Nodes: hosts(2)}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = c.Placement(ctx, "g0")
	require.ErrorIs(t, err, sched.ErrUnknown)
	for range 2 {
		require.NoError(t, c.Adopt(ctx, gang, members))
		require.NoError(t, s.Adopt(ctx, sched.Gang{Tasks: []sched.Task{half("single")}}, []sched.Placement{single}))
	}
	_, after, err := c.Resources(ctx)
	require.NoError(t, err)
	require.Equal(t, before, after)
	_, err = c.Place(ctx, "single", half("single"))
	require.ErrorIs(t, err, sched.ErrExists, "requests are forgotten, tasks are not")
	_, err = c.Place(ctx, "more", sched.Task{ID: "more", Request: sched.Request{Devices: 8}})
	require.ErrorIs(t, err, sched.ErrNoRoom)
	err = c.Adopt(ctx, sched.Gang{Tasks: []sched.Task{half("late")}}, []sched.Placement{{Task: "late", Node: members[0].Node, Devices: 1, Share: 500}})
	require.ErrorIs(t, err, sched.ErrNoRoom)
}

// TestPreemptionFromAnotherNode: a parameter server drains before it goes, meanwhile the
// scheduler serves others, a repeated request waits for the same drain, and one that fails leaves
// all as it was (I5).
func TestPreemptionFromAnotherNode(t *testing.T) {
	var drains atomic.Int64
	begun, answer := make(chan struct{}, 1), make(chan error)
	s, c := farAway(t, SchedulerConfig{
		Cluster: sched.Config{Nodes: hosts(1)},
		Drain: func(ctx context.Context, _ sched.Victim) error {
			drains.Add(1)
			begun <- struct{}{}
			select {
			case err := <-answer:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	ctx := deadline(t)
	server, err := sched.Like(sched.ParameterServer, "ps")
	require.NoError(t, err)
	_, err = c.Place(ctx, "ps", server)
	require.NoError(t, err)
	large := sched.Task{ID: "large", Priority: 9, Request: sched.Request{CPU: 94 * sched.Whole}}
	results := make(chan error, 2)
	ask := func(ctx context.Context) {
		go func() {
			p, err := c.Preempt(ctx, "large", large)
			if err == nil && p.Node != "n0" {
				err = fmt.Errorf("placed on %q", p.Node)
			}
			results <- err
		}()
	}
	ask(ctx)
	<-begun
	_, err = c.Place(ctx, "small", half("small"))
	require.NoError(t, err, "while it drains")
	answer <- errors.New("shard 7 has no place to go")
	require.ErrorContains(t, <-results, "shard 7 has no place to go")
	_, err = c.Placement(ctx, "ps")
	require.NoError(t, err)

	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	ask(short)
	<-begun
	require.ErrorIs(t, <-results, context.DeadlineExceeded)
	require.Eventually(t, func() bool { // its hold is given up as soon as the drain has ended
		_, left, err := c.Resources(ctx)
		return err == nil && left.CPU == 92*sched.Whole
	}, 10*time.Second, time.Millisecond)

	ask(ctx)
	<-begun
	ask(ctx)
	require.Eventually(t, func() bool {
		waiting, err := With(ctx, s, func(*sched.Cluster) (int, error) { return len(s.desk.errands["large"].waiting), nil })
		return err == nil && waiting == 2
	}, 10*time.Second, time.Millisecond)
	answer <- nil
	require.NoError(t, <-results)
	require.NoError(t, <-results)
	require.EqualValues(t, 3, drains.Load(), "once for two requests")
	_, err = c.Placement(ctx, "ps")
	require.ErrorIs(t, err, sched.ErrUnknown)

	require.NoError(t, c.Release(ctx, "large"))
	_, err = c.Place(ctx, "ps again", server)
	require.NoError(t, err)
	go func() {
		_, err := c.Preempt(ctx, "last", large)
		results <- err
	}()
	<-begun
	require.NoError(t, s.Close(), "while it drains")
	require.Error(t, <-results)
	_, err = c.Place(ctx, "late", half("late"))
	require.ErrorIs(t, err, actor.ErrNoProcess)
}

// What is remembered is bounded: of the oldest requests nothing is known any more.
func TestRequestsThatAreForgotten(t *testing.T) {
	d := &desk{errands: make(map[string]*errand)}
	for i := range maxRemembered + 10 {
		d.errands[fmt.Sprint(i)] = &errand{}
		d.finish(fmt.Sprint(i), []sched.Placement{{Task: fmt.Sprint(i)}})
	}
	require.Len(t, d.errands, maxRemembered)
	require.NotContains(t, d.errands, "9")
	require.Contains(t, d.errands, "10")
	d.errands["gang"] = &errand{}
	d.finish("gang", make([]sched.Placement, maxRemembered+1))
	require.Len(t, d.errands, 1)
}

// The scheduler's meter runs by its clock: what is billed adds up, and is no more than the
// time that has passed.
func TestSchedulerBills(t *testing.T) {
	m := meter.New(0)
	s, c := farAway(t, SchedulerConfig{Cluster: sched.Config{Nodes: hosts(1), Meter: m}})
	begin := time.Now()
	ctx := deadline(t)
	task := half("t")
	task.Tenant = "blue"
	_, err := c.Place(ctx, "t", task)
	require.NoError(t, err)
	placed := time.Now()
	require.Eventually(t, func() bool { return time.Since(placed) > 20*time.Millisecond }, time.Second, time.Millisecond)
	bill, err := s.Bill(ctx)
	require.NoError(t, err)
	used := bill.Resources[sched.MeterDevices+"G"]
	require.Equal(t, used.Capacity, used.Idle.Plus(used.Tenants["blue"]))
	had := used.Tenants["blue"].Hours() / float64(sched.Whole) * 2
	require.GreaterOrEqual(t, had, (19 * time.Millisecond).Hours())
	require.LessOrEqual(t, had, (time.Since(begin) + time.Millisecond).Hours())
	_, err = startScheduler(t, SchedulerConfig{}).Bill(ctx)
	require.ErrorContains(t, err, "Meter")
}
