package ps_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
	"github.com/elasticps/elasticps/shard/store/boltstore"
	"github.com/elasticps/elasticps/shard/store/etcdstore"
	"github.com/elasticps/elasticps/shard/store/zkstore"
)

// movedReply is the code of a reply that names another owner.
const movedReply = 1

// census counts frames and lets them pass.
type census struct {
	mu                    sync.Mutex
	pushes, moved, others int
}

func (n *census) judge(toServer bool, h *wire.Header) fate {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case toServer && h.Kind == wire.Push:
		n.pushes++
	case !toServer && h.Code == movedReply:
		n.moved++
	case h.Kind != wire.Reply:
		n.others++
	}
	return pass
}

func (n *census) reset() (pushes, moved int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	pushes, moved = n.pushes, n.moved
	n.pushes, n.moved, n.others = 0, 0, 0
	return pushes, moved
}

// stale is a job on two servers whose frames are counted, with a client whose routes
// can be set back, and a store that outlives its coordinator.
type stale struct {
	*cluster
	t        *testing.T
	open     func() (store.Store, error)
	store    store.Store
	w        *ps.Worker
	seen     map[shard.ServerID]*census
	pushed   int
	versions []uint64
}

func newStale(t *testing.T, open func() (store.Store, error)) *stale {
	s := &stale{t: t, open: open, seen: map[shard.ServerID]*census{"s1": {}, "s2": {}}}
	s.openStore()
	t.Cleanup(func() { _ = s.store.Close() }) // before the folder goes
	s.cluster = newCluster(t, sgdJob(layer("a", 10), layer("b", 10)), func(c *cluster) { c.cfg.Store = s.store })
	for _, id := range []shard.ServerID{"s1", "s2"} {
		s.proxied(id, newFrameProxy(t, s.seen[id].judge))
	}
	s.placed()
	s.w = s.worker("w")
	return s
}

func (s *stale) openStore() {
	var err error
	s.store, err = s.open()
	require.NoError(s.t, err)
}

// restart replaces the coordinator and opens its store again.
func (s *stale) restart() {
	s.t.Helper()
	require.NoError(s.t, s.coord.Close())
	require.NoError(s.t, s.store.Close())
	s.openStore()
	s.cfg.Store = s.store
	s.startCoordinator()
	eventually(s.t, "servers are back", func() bool { return s.isUp("s1") && s.isUp("s2") })
}

// version notes the version of the map and requires that it never goes back.
func (s *stale) version() {
	s.t.Helper()
	s.versions = append(s.versions, s.status().Map.Version)
	require.True(s.t, slices.IsSorted(s.versions), "versions of the map: %v", s.versions)
}

// pushStale pushes with an old route and requires one redirect and one application.
func (s *stale) pushStale(at shard.ServerID, epoch shard.Epoch) {
	s.t.Helper()
	const id = shard.ID(0)
	a, _ := s.status().Map.Owner(id)
	eventually(s.t, "the announcement has come or the client was told", func() bool {
		if _, known := s.w.Route(id); known == a.Epoch {
			return true
		}
		return s.w.Pull(s.ctx, "a", make([]float32, 10)) == nil
	})
	s.w.Rewind(id, at, epoch)
	s.seen["s1"].reset()
	s.seen["s2"].reset()
	require.NoError(s.t, s.w.Push(s.ctx, "a", vector(10, -1)))
	s.pushed++
	p1, m1 := s.seen["s1"].reset()
	p2, m2 := s.seen["s2"].reset()
	require.Equal(s.t, 1, m1+m2, "redirects of a push with the route to %s at epoch %d; now %s at %d", at, epoch, a.Owner, a.Epoch)
	require.Equal(s.t, 2, p1+p2, "pushes sent: one with the old route, one with the new")
	server, known := s.w.Route(id)
	require.Equal(s.t, a.Owner, server)
	require.Equal(s.t, a.Epoch, known)
	s.requireSum()
}

func (s *stale) requireSum() {
	s.t.Helper()
	got := make([]float32, 10)
	require.NoError(s.t, s.w.Pull(s.ctx, "a", got))
	require.Equal(s.t, vector(10, float32(s.pushed)), got)
}

// T13: a push with any old route is redirected once and applied once; the version
// of the map never goes back, also not when the coordinator starts again. On every
// store that outlives it.
func TestT13StaleRoute(t *testing.T) {
	t.Run("bolt", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "store")
		testStaleRoute(t, func() (store.Store, error) { return boltstore.Open(boltstore.Config{Path: path}) })
	})
	t.Run("etcd", func(t *testing.T) {
		c := etcdstore.Config{Endpoints: []string{serverOf(t, "ELASTICPS_ETCD")}, Root: "elasticps-test/" + rand.Text()}
		testStaleRoute(t, func() (store.Store, error) { return etcdstore.Open(t.Context(), c) })
	})
	t.Run("zookeeper", func(t *testing.T) {
		c := zkstore.Config{Servers: []string{serverOf(t, "ELASTICPS_ZOOKEEPER")}, Root: "/elasticps-test/" + rand.Text()}
		testStaleRoute(t, func() (store.Store, error) { return zkstore.Open(t.Context(), c) })
	})
}

// serverOf is the address of a server, from the environment.
func serverOf(t *testing.T, variable string) string {
	t.Helper()
	address := os.Getenv(variable)
	if address == "" {
		t.Skipf("%s is not set: the host:port of a server", variable)
	}
	return address
}

func testStaleRoute(t *testing.T, open func() (store.Store, error)) {
	settled(t)
	s := newStale(t, open)
	type route struct {
		server shard.ServerID
		epoch  shard.Epoch
	}
	var old []route
	for round := range 4 {
		s.version()
		a, _ := s.status().Map.Owner(0)
		old = append(old, route{a.Owner, a.Epoch})
		to := shard.ServerID("s1")
		if a.Owner == "s1" {
			to = "s2"
		}
		s.move(0, to)
		s.version()
		require.Greater(t, s.versions[len(s.versions)-1], s.versions[len(s.versions)-2])
		for _, r := range old {
			s.pushStale(r.server, r.epoch)
		}
		if round%2 == 1 {
			before := s.status().Map.Assignments
			s.restart()
			s.version()
			require.Equal(t, before, s.status().Map.Assignments)
			s.pushStale(old[0].server, old[0].epoch)
		}
	}
}

// T14: 2, 3, 2 servers while 8 workers push.
func TestT14ScaleUnderLoad(t *testing.T) {
	everywhere(t, func(t *testing.T, options ...option) {
		settled(t)
		var layers []shard.Layer
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"} {
			layers = append(layers, layer(name, 100, 300))
		}
		c := newCluster(t, sgdJob(layers...), append([]option{patient}, options...)...)
		c.server("s1")
		c.server("s2")
		c.placed()
		load := c.pushAll(layers, 8)
		var moves []ps.MoveReport
		for _, id := range []shard.ServerID{"s3", "s4"} {
			third := c.server(id)
			moves = append(moves, c.moveTo(id, 3)...)
			load.goesOn()
			require.NoError(t, c.admin.Drain(c.ctx, id, true))
			moves = append(moves, c.moveFrom(id, "s1", "s2")...)
			require.NoError(t, c.admin.Remove(c.ctx, id))
			require.NoError(t, third.Shutdown(c.ctx))
			load.goesOn()
		}
		latencies := load.exact()
		freezes := make([]time.Duration, 0, len(moves))
		for _, m := range moves {
			freezes = append(freezes, m.Freeze)
		}
		t.Logf("%d moves, freeze %s", len(moves), quantiles(freezes))
		t.Logf("%d pushes, longest time for one %s", len(latencies), quantiles(latencies))
	})
}

func quantiles(d []time.Duration) string {
	d = slices.Sorted(slices.Values(d))
	at := func(q float64) time.Duration { return d[int(q*float64(len(d)-1))].Round(time.Microsecond) }
	return "p50 " + at(0.5).String() + ", p99 " + at(0.99).String() + ", max " + at(1).String()
}

// moveTo moves every n-th shard to a server.
func (c *cluster) moveTo(to shard.ServerID, n int) []ps.MoveReport {
	c.t.Helper()
	var moves []ps.MoveReport
	for i, a := range c.status().Map.Assignments {
		if i%n == 0 && a.Owner != to {
			moves = append(moves, c.move(a.Shard, to))
		}
	}
	return moves
}

// moveFrom moves everything that a server has to others, in turn.
func (c *cluster) moveFrom(from shard.ServerID, to ...shard.ServerID) []ps.MoveReport {
	c.t.Helper()
	var moves []ps.MoveReport
	for _, a := range c.status().Map.Assignments {
		if a.Owner == from {
			moves = append(moves, c.move(a.Shard, to[len(moves)%len(to)]))
		}
	}
	return moves
}
