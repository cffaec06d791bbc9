package ps_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
	"github.com/elasticps/elasticps/shard/store/etcdstore"
	"github.com/elasticps/elasticps/shard/store/storetest"
)

// Stores that cannot be reached for a while.

// flaky is a store whose server is away at times: calls are refused at once, or wait in
// vain. What it is asked meanwhile does not take place.
type flaky struct {
	store.Store
	mu     sync.Mutex
	away   bool
	silent bool
}

func (f *flaky) set(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

func (f *flaky) reach(ctx context.Context) error {
	f.mu.Lock()
	away, silent := f.away, f.silent
	f.mu.Unlock()
	if !away {
		return nil
	}
	if silent {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		<-ctx.Done()
	}
	return fmt.Errorf("%w: it is away", store.ErrUnavailable)
}

func (f *flaky) Get(ctx context.Context, key string) (store.Entry, error) {
	if err := f.reach(ctx); err != nil {
		return store.Entry{}, err
	}
	return f.Store.Get(ctx, key)
}

func (f *flaky) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	if err := f.reach(ctx); err != nil {
		return nil, err
	}
	return f.Store.List(ctx, prefix)
}

func (f *flaky) CompareAndSwap(ctx context.Context, key string, old store.Revision, value []byte) (store.Revision, error) {
	if err := f.reach(ctx); err != nil {
		return 0, errors.Join(err, store.ErrUnknown)
	}
	return f.Store.CompareAndSwap(ctx, key, old, value)
}

func (f *flaky) CompareAndSwapLease(ctx context.Context, lease store.LeaseID, key string, old store.Revision, value []byte) (store.Revision, error) {
	if err := f.reach(ctx); err != nil {
		return 0, errors.Join(err, store.ErrUnknown)
	}
	return f.Store.CompareAndSwapLease(ctx, lease, key, old, value)
}

func (f *flaky) Grant(ctx context.Context, ttl time.Duration) (store.LeaseID, error) {
	if err := f.reach(ctx); err != nil {
		return 0, err
	}
	return f.Store.Grant(ctx, ttl)
}

func (f *flaky) KeepAlive(ctx context.Context, lease store.LeaseID) error {
	if err := f.reach(ctx); err != nil {
		return err
	}
	return f.Store.KeepAlive(ctx, lease)
}

func (f *flaky) Revoke(ctx context.Context, lease store.LeaseID) error {
	if err := f.reach(ctx); err != nil {
		return err
	}
	return f.Store.Revoke(ctx, lease)
}

// candidate stands by for the coordinator of a cluster, again and again, until the
// test ends.
type candidate struct {
	leads         atomic.Pointer[ps.Coordinator]
	elected, lost atomic.Int64
	ended         chan struct{}
	stop          context.CancelFunc
}

func (c *cluster) candidate(node *actor.Node, kv store.Store, ttl time.Duration) *candidate {
	ctx, cancel := context.WithCancel(context.Background())
	k := &candidate{ended: make(chan struct{}), stop: cancel}
	cfg := c.cfg
	cfg.Node, cfg.Store, cfg.LeaseTTL = node, kv, ttl
	go func() {
		defer close(k.ended)
		for ctx.Err() == nil {
			coord, err := ps.StandBy(ctx, cfg)
			if err != nil {
				if ctx.Err() == nil {
					c.t.Errorf("stand by: %v", err)
				}
				return
			}
			k.elected.Add(1)
			k.leads.Store(coord)
			select {
			case <-coord.Done():
				k.lost.Add(1)
			case <-ctx.Done():
			}
			k.leads.Store(nil)
			_ = coord.Close()
		}
	}()
	c.t.Cleanup(k.end)
	return k
}

// end stops the candidate; it resigns if it leads.
func (k *candidate) end() {
	k.stop()
	<-k.ended
}

// newElected is a cluster whose coordinator may be on either of two nodes.
func newElected(t testing.TB, job ps.Job) *cluster {
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	t.Cleanup(cancel)
	c := &cluster{t: t, ctx: ctx, secret: "secret of the test", log: logger(), suspicion: leagueSuspicion}
	c.home = c.node("home")
	other := c.node("other")
	c.peers = map[string]string{"home": c.home.Addr(), "other": other.Addr()}
	c.remote = &actor.Ref{Node: "home", Name: ps.CoordinatorProcess}
	c.standbys = []actor.Ref{{Node: "other", Name: ps.CoordinatorProcess}}
	c.cfg = ps.CoordinatorConfig{Job: job, StepTimeout: 2 * time.Second, Logger: c.log}
	c.other = other
	var err error
	c.admin, err = ps.NewAdmin(c.node("admin"), *c.remote, c.standbys...)
	require.NoError(t, err)
	return c
}

// outage is how long a store is away.
func outage() time.Duration {
	if testing.Short() {
		return 2 * time.Second
	}
	return 10 * time.Second
}

// TestStoreIsAway: training goes on while the store is away, nothing changes its owner,
// and what waited for the store is done when it is back.
func TestStoreIsAway(t *testing.T) {
	memory := func(silent bool) func(*testing.T) (store.Store, func(away bool)) {
		return func(t *testing.T) (store.Store, func(bool)) {
			m, err := store.NewMemory(store.Config{})
			require.NoError(t, err)
			t.Cleanup(func() { _ = m.Close() })
			f := &flaky{Store: m, silent: silent}
			return f, f.set
		}
	}
	etcd := func(begin func(*storetest.Proxy)) func(*testing.T) (store.Store, func(bool)) {
		return func(t *testing.T) (store.Store, func(bool)) {
			p := storetest.StartProxy(t, serverOf(t, "ELASTICPS_ETCD"))
			s, err := etcdstore.Open(context.Background(), etcdstore.Config{Endpoints: []string{p.Address()}, Root: "elasticps-test/" + rand.Text()})
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Close() })
			return s, func(away bool) {
				if away {
					begin(p)
				} else {
					p.Restore()
				}
			}
		}
	}
	together(t)
	for name, open := range map[string]func(*testing.T) (store.Store, func(away bool)){
		"refusing": memory(false), "silent": memory(true), "etcd cut": etcd((*storetest.Proxy).Cut), "etcd stalled": etcd((*storetest.Proxy).Stall),
	} {
		t.Run(name+"/one coordinator", func(t *testing.T) {
			t.Parallel()
			kv, set := open(t)
			job := layersJob(1, 3, 1000)
			job.Consistency = ps.Consistency{Mode: ps.BSP}
			c := newCluster(t, job, func(c *cluster) { c.cfg.Store = kv })
			c.within(4 * patience)
			testStoreAway(c, set, true)
		})
		t.Run(name+"/elected for longer", func(t *testing.T) {
			t.Parallel()
			kv, set := open(t)
			job := layersJob(1, 3, 1000)
			job.Consistency = ps.Consistency{Mode: ps.BSP}
			c := newElected(t, job)
			// A quarter of the lease may be over when the store goes, and etcd's client looks for
			// it every two seconds.
			k := c.candidate(c.home, kv, outage()+10*time.Second)
			testStoreAway(c, set, true)
			require.Zero(t, k.lost.Load())
		})
		t.Run(name+"/elected for less", func(t *testing.T) {
			t.Parallel()
			kv, set := open(t)
			c := newElected(t, layersJob(1, 3, 1000))
			k := c.candidate(c.home, kv, 2500*time.Millisecond)
			testStoreAway(c, set, false)
			require.Positive(t, k.lost.Load())
			require.Greater(t, k.elected.Load(), k.lost.Load())
		})
	}
}

// testStoreAway takes the store away under load. clocked says that the coordinator is
// there all the time, so that clocks go on.
func testStoreAway(c *cluster, set func(away bool), clocked bool) {
	servers := map[shard.ServerID]*process{}
	for _, id := range []shard.ServerID{"s1", "s2", "s3"} {
		servers[id] = c.process("server", string(id))
	}
	c.placed()
	c.spread("s1", "s2", "s3")
	c.protected()
	l := c.loadUnderClocks(clocked)
	l.goesOn()
	before := c.status()
	set(true)
	back := make(chan struct{})
	time.AfterFunc(outage(), func() { // in time however slow the rest is: a lease lasts little longer
		set(false)
		close(back)
	})
	if clocked { // a coordinator that leads answers
		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		_, err := c.admin.Move(ctx, 0, "s2")
		cancel()
		require.Error(c.t, err, "a move waits for the store, not its caller")
		st := c.status()
		require.Equal(c.t, before.Map, st.Map)
		require.Empty(c.t, st.Failovers)
	}
	for away := true; away; {
		l.goesOn()
		select {
		case <-back:
			away = false
		default:
		}
	}
	c.returned("s1", "s2", "s3")
	st := c.status()
	require.Empty(c.t, st.Failovers)
	if !clocked {
		require.Equal(c.t, before.Map, st.Map)
	}
	eventually(c.t, "a move succeeds", func() bool {
		to := shard.ServerID("s3")
		if c.owner(1) == to {
			to = "s1"
		}
		r, err := c.admin.Move(c.ctx, 1, to)
		return err == nil && r.Err() == nil
	})
	l.goesOn()
	c.protected()
	servers["s2"].kill()
	l.goesOn()
	l.exact()
	c.oneOwner()
}

// load is workers that push to three layers.
type load struct {
	c      *cluster
	all    []*traffic
	ticked *ticking
}

// loadUnderClocks starts them. With clocks they tick after each push.
func (c *cluster) loadUnderClocks(clocked bool) *load {
	l := &load{c: c}
	if clocked {
		l.ticked = c.ticking(3)
		return l
	}
	for i := range 3 {
		l.all = append(l.all, c.traffic(fmt.Sprintf("l%d", i), 1000, c.worker(fmt.Sprintf("w%d", i))))
	}
	return l
}

func (l *load) goesOn() {
	l.c.t.Helper()
	if l.ticked != nil {
		l.ticked.goesOn()
	}
	for _, tr := range l.all {
		tr.goesOn()
	}
}

func (l *load) exact() {
	l.c.t.Helper()
	if l.ticked != nil {
		l.ticked.exact()
	}
	for _, tr := range l.all {
		tr.exact()
	}
}

// ticking is workers that push to every layer and tick.
type ticking struct {
	c       *cluster
	workers []*ps.Worker
	clock   atomic.Int64 // of the slowest
	end     atomic.Bool
	done    chan struct{}
	err     error
}

func (c *cluster) ticking(layers int) *ticking {
	k := &ticking{c: c, done: make(chan struct{})}
	for i := range 2 {
		k.workers = append(k.workers, c.worker(fmt.Sprintf("w%d", i)))
	}
	go func() {
		defer close(k.done)
		for !k.end.Load() && k.err == nil {
			var all sync.WaitGroup
			errs := make([]error, len(k.workers))
			for i, w := range k.workers {
				all.Go(func() {
					for n := range layers {
						if errs[i] == nil {
							errs[i] = w.Push(c.ctx, fmt.Sprintf("l%d", n), vector(1000, -1))
						}
					}
					errs[i] = errors.Join(errs[i], w.Tick(c.ctx))
				})
			}
			all.Wait()
			k.err = errors.Join(errs...)
			k.clock.Add(1)
		}
	}()
	c.t.Cleanup(func() { k.end.Store(true); <-k.done })
	return k
}

func (k *ticking) goesOn() {
	k.c.t.Helper()
	before := k.clock.Load()
	eventually(k.c.t, "clocks go on", func() bool { return k.clock.Load() > before+2 })
}

func (k *ticking) exact() {
	k.c.t.Helper()
	k.end.Store(true)
	<-k.done
	require.NoError(k.c.t, k.err)
	for n := range 3 {
		got := make([]float32, 1000)
		require.NoError(k.c.t, k.workers[0].Pull(k.c.ctx, fmt.Sprintf("l%d", n), got))
		require.Equal(k.c.t, vector(1000, float32(k.clock.Load())*float32(len(k.workers))), got)
	}
}

// TestLeaderIsCutOffFromTheStore: another one takes over, and what the first one had on
// its way to the store comes too late.
func TestLeaderIsCutOffFromTheStore(t *testing.T) {
	together(t)
	m, err := store.NewMemory(store.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	c := newElected(t, stuckJob())
	late := &lateLeader{flaky: flaky{Store: m}, outcome: make(chan error, 1), land: make(chan struct{})}
	first := c.candidate(c.home, late, leagueTTL)
	eventually(t, "the first one leads", func() bool { return first.leads.Load() != nil })
	second := c.candidate(c.other, m, leagueTTL)
	c.server("s1")
	c.placed()
	c.server("s2")
	tr := c.traffic("a", stuckElems, c.worker("w1"), c.worker("w2"))
	tr.goesOn()
	// The first write of a move is on its way when the connection breaks.
	late.armed.Store(true)
	ctx, cancel := context.WithCancel(c.ctx)
	answered := make(chan struct{})
	go func() {
		_, _ = c.admin.Move(ctx, 0, "s2")
		close(answered)
	}()
	eventually(t, "the write is on its way", late.away)
	began := time.Now()
	eventually(t, "the second one leads", func() bool { return second.leads.Load() != nil })
	took := time.Since(began)
	cancel()
	<-answered
	if !underRace {
		require.Less(t, took, leagueTTL+time.Second)
	}
	require.Equal(t, int64(1), first.lost.Load(), "before the other one was elected")
	close(late.land)
	require.ErrorIs(t, <-late.outcome, store.ErrConflict)
	c.returned("s1", "s2")
	require.Equal(t, shard.ServerID("s1"), c.owner(0))
	require.Equal(t, shard.Moved, c.try("s2").Outcome)
	late.set(false)
	second.end()
	eventually(t, "the first one leads again", func() bool { return first.leads.Load() != nil })
	c.returned("s1", "s2")
	require.Equal(t, shard.Moved, c.try("s1").Outcome)
	tr.goesOn()
	tr.exact()
	c.oneOwner()
}

// lateLeader is a store that breaks while it has a write of a shard's record on its way.
type lateLeader struct {
	flaky
	armed   atomic.Bool
	land    chan struct{} // closed when the write arrives
	outcome chan error
}

func (l *lateLeader) away() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flaky.away
}

func (l *lateLeader) CompareAndSwap(ctx context.Context, key string, old store.Revision, value []byte) (store.Revision, error) {
	if key == "elasticps/job/shard/00000000" && l.armed.CompareAndSwap(true, false) {
		l.set(true)
		go func() {
			<-l.land
			_, err := l.Store.CompareAndSwap(context.WithoutCancel(ctx), key, old, value)
			l.outcome <- err
		}()
		<-ctx.Done()
		return 0, errors.Join(store.ErrUnknown, ctx.Err())
	}
	return l.flaky.CompareAndSwap(ctx, key, old, value)
}

// TestStandByRefuses: bad configurations, another job, and a coordinator beside one that
// was elected.
func TestStandByRefuses(t *testing.T) {
	settled(t)
	c := newElected(t, stuckJob())
	m, err := store.NewMemory(store.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	cfg := c.cfg
	cfg.Node = c.home
	_, err = ps.StandBy(c.ctx, cfg)
	require.ErrorContains(t, err, "Store is nil")
	cfg.Store, cfg.LeaseTTL = m, time.Second
	_, err = ps.StandBy(c.ctx, cfg)
	require.ErrorContains(t, err, "LeaseTTL 1s, must be in [1.5s, 24h0m0s]")
	cfg.LeaseTTL = leagueTTL
	leader, err := ps.StandBy(c.ctx, cfg)
	require.NoError(t, err)
	require.NoError(t, leader.Err())

	beside := cfg
	beside.Node = c.other
	_, err = ps.StartCoordinator(c.ctx, beside)
	require.ErrorIs(t, err, ps.ErrConflict)
	require.ErrorContains(t, err, `a coordinator leads on node "home" at `+c.home.Addr())
	ctx, cancel := context.WithTimeout(c.ctx, 300*time.Millisecond)
	defer cancel()
	_, err = ps.StandBy(ctx, beside)
	require.ErrorIs(t, err, context.DeadlineExceeded, "it waits")
	c.server("s1")
	c.placed()
	require.NoError(t, leader.Close())
	require.NoError(t, leader.Close())
	require.ErrorIs(t, leader.Err(), ps.ErrClosed)

	beside.Job.Optimizer = ps.SGD(2)
	began := time.Now()
	_, err = ps.StandBy(c.ctx, beside)
	require.ErrorIs(t, err, ps.ErrConflict)
	require.ErrorContains(t, err, "differ: [Optimizer]")
	beside.Job.Optimizer = ps.SGD(1)
	next, err := ps.StandBy(c.ctx, beside)
	require.NoError(t, err)
	require.Less(t, time.Since(began), leagueTTL, "who resigns is not waited for")
	require.Greater(t, next.Term(), leader.Term())
	require.NoError(t, next.Close())

	for _, bad := range [][]actor.Ref{make([]actor.Ref, ps.MaxStandbys+1), {{}}} {
		_, err = ps.NewAdmin(c.other, *c.remote, bad...)
		require.ErrorContains(t, err, "Standbys")
		_, err = ps.StartServer(c.ctx, ps.ServerConfig{Node: c.other, ID: "s2", Coordinator: *c.remote, Standbys: bad})
		require.ErrorContains(t, err, "Standbys")
		_, err = ps.Dial(c.ctx, ps.ClientConfig{Node: c.other, Name: "w", Coordinator: *c.remote, Standbys: bad})
		require.ErrorContains(t, err, "Standbys")
	}
}

// TestCoordinatorThatWasNotElectedYields: one that was started without an election ends
// when another one is elected for its job.
func TestCoordinatorThatWasNotElectedYields(t *testing.T) {
	settled(t)
	c := newElected(t, stuckJob())
	m, err := store.NewMemory(store.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	cfg := c.cfg
	cfg.Node, cfg.Store = c.home, m
	plain, err := ps.StartCoordinator(c.ctx, cfg)
	require.NoError(t, err)
	cfg.Node = c.other
	elected, err := ps.StandBy(c.ctx, cfg)
	require.NoError(t, err)
	select {
	case <-plain.Done():
	case <-time.After(patience):
		require.FailNow(t, "it goes on")
	}
	require.ErrorIs(t, plain.Err(), ps.ErrDeposed)
	require.ErrorContains(t, plain.Err(), `it was not elected: ps: conflict: a coordinator leads on node "`+c.other.Name()+`"`)
	require.NoError(t, elected.Err())
	require.NoError(t, plain.Close())
	require.NoError(t, elected.Close())
}

// hung is a store whose server does not answer at times, or refuses at once.
type hung struct {
	store.Store
	mu      sync.Mutex
	back    chan struct{} // closed when it answers again; nil while it does
	refuses bool
	asked   atomic.Int64 // meanwhile
}

func (h *hung) Get(ctx context.Context, key string) (store.Entry, error) {
	h.mu.Lock()
	back := h.back
	h.mu.Unlock()
	if back != nil {
		h.asked.Add(1)
		if h.refuses {
			return store.Entry{}, store.ErrUnavailable
		}
		select {
		case <-back:
		case <-ctx.Done():
			return store.Entry{}, fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
		}
	}
	return h.Store.Get(ctx, key)
}

func (h *hung) away() (back func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := make(chan struct{})
	h.back = now
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.back = nil
		close(now)
	}
}

// TestStoreIsAwayForNewcomers: a server and a worker come while the store is away. Clocks do
// not wait for it; they do, and are taken in when it is back.
func TestStoreIsAwayForNewcomers(t *testing.T) {
	for name, refuses := range map[string]bool{"refuses": true, "hangs": false} {
		t.Run(name, func(t *testing.T) {
			settled(t)
			m, err := store.NewMemory(store.Config{})
			require.NoError(t, err)
			t.Cleanup(func() { _ = m.Close() })
			h := &hung{Store: m, refuses: refuses}
			c := newCluster(t, smallJob(ps.Consistency{Mode: ps.BSP}), func(c *cluster) { c.cfg.Store, c.store = h, h })
			c.server("s1")
			c.placed()
			w := c.worker("w")
			nodes := []*actor.Node{c.node("s2"), c.node("late")}
			var s *ps.Server
			var late *ps.Worker
			back := h.away()
			came := make(chan error, 2)
			go func() {
				var err error
				s, err = ps.StartServer(c.ctx, ps.ServerConfig{Node: nodes[0], ID: "s2", Coordinator: c.ref(), Logger: c.log})
				came <- err
			}()
			go func() {
				var err error
				late, err = ps.StartWorker(c.ctx, ps.ClientConfig{Node: nodes[1], Name: "late", Coordinator: c.ref(), Logger: c.log})
				came <- err
			}()
			eventually(t, "the store was asked for both", func() bool { return h.asked.Load() > 1 })
			for range 3 {
				ctx, cancel := context.WithTimeout(c.ctx, 3*time.Second) // less than a call of the store may take
				require.NoError(t, w.Push(ctx, "a", vector(smallElems, -1)))
				require.NoError(t, w.Tick(ctx))
				cancel()
			}
			require.Empty(t, came)
			back()
			for range 2 {
				require.NoError(t, <-came)
			}
			require.NoError(t, late.Close())
			require.NoError(t, s.Close())
			require.NoError(t, w.Tick(c.ctx))
		})
	}
}
