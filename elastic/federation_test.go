package elastic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic/federation"
	"github.com/elasticps/elasticps/elastic/sched"
	"github.com/elasticps/elasticps/internal/leak"
	"github.com/elasticps/elasticps/shard/store"
	"github.com/elasticps/elasticps/shard/store/storetest"
)

// copies counts what runs, and fails the test when two copies of a job do.
type copies struct {
	t       *testing.T
	mu      sync.Mutex
	on      map[string]string // site by job
	starts  map[string]int
	release map[string]chan error // ends a job by itself
}

func newCopies(t *testing.T) *copies {
	return &copies{t: t, on: make(map[string]string), starts: make(map[string]int), release: make(map[string]chan error)}
}

// run is SiteConfig.Run of a site.
func (c *copies) run(site string) func(context.Context, federation.Start, []sched.Placement) error {
	return func(ctx context.Context, job federation.Start, placements []sched.Placement) error {
		c.mu.Lock()
		if other, ok := c.on[job.Job]; ok {
			c.t.Errorf("%s runs on %s and on %s", job.Job, other, site)
		}
		if len(placements) != len(job.Gang.Tasks) {
			c.t.Errorf("%s: %d placements for %d tasks", job.Job, len(placements), len(job.Gang.Tasks))
		}
		c.on[job.Job] = site
		c.starts[job.Job]++
		end := make(chan error, 1)
		c.release[job.Job] = end
		c.mu.Unlock()
		var err error
		select {
		case err = <-end:
		case <-ctx.Done():
			err = ctx.Err()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.on, job.Job)
		return err
	}
}

// where is the site of each job that runs.
func (c *copies) where() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string]string)
	for job, site := range c.on {
		all[job] = site
	}
	return all
}

// started is how often jobs have been started.
func (c *copies) started(jobs ...string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, job := range jobs {
		n += c.starts[job]
	}
	return n
}

func (c *copies) finish(job string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release[job] <- err
}

// union is a federation of two sites and two nodes that may be Home, in one process, over TCP.
type union struct {
	t      *testing.T
	config federation.Config
	kv     store.Store
	hubs   []*actor.Node
	sites  map[string]*Site
	links  map[string][]*storetest.Proxy // from a site to each hub
	runs   *copies
	client *FederationClient
	logger *slog.Logger
	ttl    time.Duration // of the lease of Home
}

func newUnion(t *testing.T) *union {
	leak.Check(t, 20*time.Second)
	kv, err := store.NewMemory(store.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kv.Close()) })
	u := &union{
		t: t, kv: kv, ttl: 30 * time.Second, logger: slog.New(slog.NewTextHandler(t.Output(), nil)), sites: make(map[string]*Site), links: make(map[string][]*storetest.Proxy), runs: newCopies(t),
		config: federation.Config{Lease: 4 * time.Second, Grace: 1500 * time.Millisecond, Interval: 100 * time.Millisecond, Retry: 100 * time.Millisecond},
	}
	for i := range 2 {
		u.hubs = append(u.hubs, u.startNode(fmt.Sprint("hub", i)))
	}
	u.client, err = NewFederationClient(u.hubs[0], u.refs()...)
	require.NoError(t, err)
	_, err = u.hubs[0].Connect(deadline(t), u.hubs[1].Addr())
	require.NoError(t, err)
	return u
}

func (u *union) startNode(name string) *actor.Node {
	n, err := actor.Start(deadline(u.t), actor.Config{Name: name, Secret: "a secret of the nodes of a test"})
	require.NoError(u.t, err)
	u.t.Cleanup(func() { require.NoError(u.t, n.Close()) })
	return n
}

func (u *union) refs() []actor.Ref {
	var refs []actor.Ref
	for _, hub := range u.hubs {
		refs = append(refs, hub.Ref("elastic.federation"))
	}
	return refs
}

// startSite starts a cluster of one node with four devices.
func (u *union) startSite(name string) *Site {
	node := u.startNode(name)
	for _, hub := range u.hubs {
		p := storetest.StartProxy(u.t, hub.Addr())
		u.links[name] = append(u.links[name], p)
		_, err := node.Connect(deadline(u.t), p.Address())
		require.NoError(u.t, err)
	}
	var s *Site
	scheduler, err := StartScheduler(deadline(u.t), node, SchedulerConfig{
		Cluster: sched.Config{Nodes: []sched.Node{{Name: name, CPU: 100_000, Devices: 4, Model: "G"}}},
		Evicted: func(task sched.Task) { s.Evicted(task) },
	})
	require.NoError(u.t, err)
	u.t.Cleanup(func() { require.NoError(u.t, scheduler.Close()) })
	s, err = StartSite(node, SiteConfig{Name: name, Incarnation: 1, Homes: u.refs(), Scheduler: scheduler, Run: u.runs.run(name), Federation: u.config, Logger: u.logger})
	require.NoError(u.t, err)
	u.t.Cleanup(func() { require.NoError(u.t, s.Close()) })
	u.sites[name] = s
	return s
}

// serve has a hub be Home whenever no other is, until it is told to end.
func (u *union) serve(hub int) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for ctx.Err() == nil {
			h, err := StartHome(ctx, u.hubs[hub], HomeConfig{
				Store: u.kv, Federation: u.config, LeaseTTL: u.ttl, Logger: u.logger,
			})
			if err != nil {
				if ctx.Err() == nil {
					u.t.Error(err)
				}
				return
			}
			select {
			case <-h.Done():
			case <-ctx.Done():
				h.depose(context.Canceled) // as if it had died: the lease is not given back
				h.keeping.Wait()
				if err := u.hubs[hub].Stop(context.Background(), h.Ref()); err != nil {
					u.t.Error(err)
				}
				return
			}
			if err := h.Close(); err != nil {
				u.t.Error(err)
			}
		}
	})
	end = func() { cancel(); serving.Wait() }
	u.t.Cleanup(end)
	return end
}

func (u *union) eventually(what string, f func() bool) {
	u.t.Helper()
	require.Eventually(u.t, f, time.Minute, 2*time.Millisecond, what)
}

// hears waits until a site has heard of Home, and Home of it.
func (u *union) hears(site string) {
	u.t.Helper()
	u.eventually("Home answers "+site, func() bool {
		_, ok := u.sites[site].Home()
		return ok
	})
}

// allOn waits until these jobs run on a site and nothing else does.
func (u *union) allOn(site string, jobs ...string) {
	u.t.Helper()
	u.eventually(fmt.Sprint(jobs, " on ", site), func() bool {
		where := u.runs.where()
		for _, job := range jobs {
			if where[job] != site {
				return false
			}
		}
		return len(where) == len(jobs)
	})
}

func oneTask(id string, devices int, prefer ...string) federation.Job {
	task := sched.Task{ID: id, Preemptible: true, Request: sched.Request{Devices: devices}}
	return federation.Job{Gang: sched.Gang{ID: id, Tasks: []sched.Task{task}}, Prefer: prefer}
}

// TestCase38TwoClustersUnderPartition: a site that is cut off stops its jobs before the other gets
// them, and when it is back nothing runs twice. A Home that dies is replaced, and jobs go on.
func TestCase38TwoClustersUnderPartition(t *testing.T) {
	u := newUnion(t)
	u.ttl = 1500 * time.Millisecond
	u.startSite("east")
	u.startSite("west")
	endFirst := u.serve(0)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	u.hears("east")
	u.hears("west")
	for _, id := range []string{"a", "b"} {
		require.NoError(t, u.client.Submit(ctx, oneTask(id, 1, "east")))
		require.NoError(t, u.client.Submit(ctx, oneTask(id, 1, "east")), "asked again")
	}
	require.ErrorIs(t, u.client.Submit(ctx, oneTask("a", 2)), federation.ErrExists)
	u.allOn("east", "a", "b")
	site, err := u.client.Where(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, "east", site)

	for _, stall := range []bool{true, false} { // nothing comes through; connections break
		from, to := u.runs.where()["a"], map[string]string{"east": "west", "west": "east"}
		for _, link := range u.links[from] {
			if stall {
				link.Stall()
			} else {
				link.Cut()
			}
		}
		u.allOn(to[from], "a", "b")
		require.Empty(t, u.sites[from].Jobs())
		for _, link := range u.links[from] {
			link.Restore()
		}
		u.hears(from)
		require.NoError(t, u.client.Submit(ctx, oneTask(fmt.Sprint("fresh", stall), 1, from)))
		u.eventually("it is back", func() bool { return u.runs.where()[fmt.Sprint("fresh", stall)] == from })
		require.NoError(t, u.client.Cancel(ctx, fmt.Sprint("fresh", stall)))
		require.NoError(t, u.client.Cancel(ctx, fmt.Sprint("fresh", stall)), "again")
		u.allOn(to[from], "a", "b")
	}

	starts := u.runs.started("a", "b")
	u.serve(1)
	begin := time.Now()
	endFirst()
	require.NoError(t, u.client.Submit(ctx, oneTask("c", 1)))
	u.eventually("c runs", func() bool { return u.runs.where()["c"] != "" })
	if time.Since(begin) < u.config.Lease-u.config.Grace { // else this machine has no time for it
		require.Equal(t, starts, u.runs.started("a", "b"), "nothing was started again")
	}

	u.runs.finish("a", nil)
	u.eventually("a is over", func() bool {
		_, err := u.client.Where(ctx, "a")
		return errors.Is(err, federation.ErrUnknown)
	})
	u.runs.finish("b", errors.New("a device has failed"))
	u.eventually("b runs again", func() bool { return u.runs.where()["b"] != "" })
	for _, id := range []string{"b", "c"} {
		require.NoError(t, u.client.Cancel(ctx, id))
	}
	u.allOn("")
	u.eventually("nothing is left in the store", func() bool {
		left, err := u.kv.List(ctx, "elastic.federation/job/")
		return err == nil && len(left) == 0
	})
}

// TestJobsThatLoseTheirPlace: a job whose task was evicted goes to the other site, and one whose site
// is closed at once.
func TestJobsThatLoseTheirPlace(t *testing.T) {
	u := newUnion(t)
	east, west := u.startSite("east"), u.startSite("west")
	u.serve(0)
	ctx := deadline(t)
	u.hears("east")
	u.hears("west")
	require.NoError(t, u.client.Submit(ctx, oneTask("j", 4, "east")))
	u.allOn("east", "j")
	high := sched.Task{ID: "local", Priority: 5, Request: sched.Request{Devices: 1}}
	_, err := east.config.Scheduler.Preempt(ctx, high)
	require.NoError(t, err)
	u.allOn("west", "j")
	require.NoError(t, east.config.Scheduler.Release(ctx, "local"))
	begin := time.Now()
	require.NoError(t, west.Close())
	u.allOn("east", "j")
	require.Less(t, time.Since(begin), u.config.Lease, "nobody waited for a lease to end")
	require.NoError(t, west.Close(), "twice is fine")
	left, err := west.config.Scheduler.AvailableResources(ctx)
	require.NoError(t, err)
	require.Equal(t, 4*sched.Whole, left.Accelerator(), "its room is free again")
}

// TestHomeThatWasReplaced: one that does not know yet that it is none cannot give a job to
// anybody: the record is not as it left it.
func TestHomeThatWasReplaced(t *testing.T) {
	u := newUnion(t)
	config := HomeConfig{Store: u.kv, Federation: u.config, LeaseTTL: 20 * time.Second}
	old, err := StartHome(deadline(t), u.hubs[0], config)
	require.NoError(t, err)
	defer old.Close()
	ctx := deadline(t)
	report := func(h *Home, sent time.Duration) (siteOrder, error) {
		return actor.Call[siteOrder](ctx, u.hubs[0], h.Ref(), siteReport{Site: "x", Incarnation: 1, Term: h.lease.term, Sent: sent, Free: 1000})
	}
	_, err = report(old, 1)
	require.NoError(t, err)
	for _, id := range []string{"j", "k"} {
		require.NoError(t, u.client.Submit(ctx, oneTask(id, 1)))
	}
	require.NoError(t, u.kv.Revoke(ctx, old.lease.id))
	next, err := StartHome(ctx, u.hubs[1], config)
	require.NoError(t, err)
	defer next.Close()
	_, err = report(old, 2)
	require.ErrorIs(t, err, ErrNotHome)
	<-old.Done()
	require.ErrorIs(t, old.Err(), store.ErrConflict)
	_, err = report(old, 3)
	require.ErrorIs(t, err, ErrNotHome)
	order, err := report(next, 4)
	require.NoError(t, err)
	require.Len(t, order.Start, 2)
	again, err := report(next, 4)
	require.NoError(t, err)
	require.Empty(t, again.Site, "a report that came before")
	require.NoError(t, next.Close())
	require.NoError(t, next.Close(), "twice is fine")

	_, err = u.kv.CompareAndSwap(ctx, "elastic.federation/job/x.", 0, []byte("no record"))
	require.NoError(t, err)
	_, err = StartHome(ctx, u.hubs[1], config)
	require.ErrorContains(t, err, `key "elastic.federation/job/x." of the store is no job`)
}

func TestFederationFaults(t *testing.T) {
	u := newUnion(t)
	_, err := StartHome(deadline(t), u.hubs[0], HomeConfig{LeaseTTL: 1, Federation: federation.Config{Lease: -1}})
	for _, want := range []string{"Store is nil", "LeaseTTL 1ns: want 100ms to 24h", "Lease -1ns"} {
		require.ErrorContains(t, err, want)
	}
	_, err = StartSite(u.hubs[0], SiteConfig{Name: string(make([]byte, 129))})
	for _, want := range []string{"without Scheduler or Run", "Incarnation is 0", "Name of 129 bytes: want at most 128", "0 Homes: want 1 to 64"} {
		require.ErrorContains(t, err, want)
	}
	_, err = StartSite(u.hubs[0], SiteConfig{})
	require.ErrorContains(t, err, "name of a site is empty")
	_, err = NewFederationClient(u.hubs[0])
	require.ErrorContains(t, err, "0 homes: want 1 to 64")
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = u.client.Where(short, "j")
	require.ErrorIs(t, err, context.DeadlineExceeded, "there is no Home")
	require.ErrorIs(t, err, actor.ErrNoProcess)

	u.serve(0)
	ctx := deadline(t)
	require.ErrorContains(t, u.client.Submit(ctx, federation.Job{}), "ID is empty")
	require.ErrorContains(t, u.client.Submit(ctx, oneTask(string(make([]byte, 129)), 1)), "want at most 32768, 128")
	large := oneTask("large", 1)
	large.Tasks[0].Near = []string{string(make([]byte, maxJobBytes))}
	require.ErrorContains(t, u.client.Submit(ctx, large), "want at most 32768, 128")
	_, err = actor.Call[siteOrder](ctx, u.hubs[0], u.refs()[0], siteReport{Site: "x", Epochs: []uint64{1}})
	require.ErrorContains(t, err, `report of site "x" of 1 epochs and 0 states`)
	_, err = actor.Call[any](ctx, u.hubs[0], u.refs()[0], "hello")
	require.ErrorIs(t, err, actor.ErrUnknownType)
	_, err = u.client.Where(ctx, "j")
	require.ErrorIs(t, err, federation.ErrUnknown)
}

// TestOrdersFitAMessage: an order carries as many jobs as fit, and names copies by their epochs.
func TestOrdersFitAMessage(t *testing.T) {
	u := newUnion(t)
	u.serve(0)
	ctx := deadline(t)
	for i := range 20 { // 20 KiB each
		j := oneTask(fmt.Sprint("job", i), 1)
		j.Tasks[0].Near = []string{string(make([]byte, 3300))} // zeros are six bytes in JSON
		require.NoError(t, u.client.Submit(ctx, j))
	}
	far := u.startNode("far")
	_, err := far.Connect(ctx, u.hubs[0].Addr())
	require.NoError(t, err)
	require.NoError(t, registerFederation(far))
	held, term := make(map[uint64]bool), uint64(0)
	for sent := time.Duration(1); len(held) < 20; sent++ {
		m := siteReport{Site: "x", Incarnation: 1, Term: term, Sent: sent, Free: 100_000}
		for epoch := range held {
			m.Epochs, m.States = append(m.Epochs, epoch), append(m.States, byte(federation.Running))
		}
		order, err := actor.Call[siteOrder](ctx, far, u.refs()[0], m)
		require.NoError(t, err)
		require.Len(t, order.Keep, len(held))
		require.True(t, term == 0 || len(order.Start) > 0, "it goes on")
		for _, s := range order.Start {
			held[s.Epoch] = true
		}
		term = order.Term
	}
}
