package ps_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

// cluster is a job with its servers and workers for a test: everything real, on one
// node per party or all on one.
type cluster struct {
	t      testing.TB
	ctx    context.Context
	log    *slog.Logger
	secret string
	shared *actor.Node // one node for all, or nil for a node each
	home   *actor.Node // of the coordinator
	other  *actor.Node // of a standby
	store  store.Store
	cfg    ps.CoordinatorConfig

	checkpoints checkpoint.Storage // of the servers

	suspicion time.Duration                                    // of all nodes; 0: the default
	remote    *actor.Ref                                       // the coordinator, when it is another process
	standbys  []actor.Ref                                      // other nodes of the coordinator
	peers     map[string]string                                // what every node knows from the start
	drop      atomic.Pointer[func(to actor.Ref, msg any) bool] // loses control messages
	coord     *ps.Coordinator
	admin     *ps.Admin
}

type option func(*cluster)

// oneNode puts all parties on one node: no socket at all.
func oneNode(c *cluster) { c.shared = c.home }

func newCluster(t testing.TB, job ps.Job, options ...option) *cluster {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	c := &cluster{t: t, ctx: ctx, secret: "secret of the test", log: logger()}
	c.home = c.node("home")
	var err error
	c.store, err = store.NewMemory(store.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.store.Close() })
	c.cfg = ps.CoordinatorConfig{Node: c.home, Job: job, Store: c.store, StepTimeout: 2 * time.Second, Logger: c.log}
	for _, o := range options {
		o(c)
	}
	c.startCoordinator()
	c.admin, err = ps.NewAdmin(c.home, c.ref())
	require.NoError(t, err)
	return c
}

func (c *cluster) startCoordinator() {
	if c.coord == nil { // the last one closes after all that was started since the first
		c.t.Cleanup(func() { _ = c.coord.Close() })
	}
	coord, err := ps.StartCoordinator(c.ctx, c.cfg)
	require.NoError(c.t, err)
	c.coord = coord
}

// ref is the coordinator's address.
func (c *cluster) ref() actor.Ref {
	if c.remote != nil {
		return *c.remote
	}
	return c.coord.Ref()
}

// loses reports whether a control message is to be lost.
func (c *cluster) loses(to actor.Ref, msg any) bool {
	f := c.drop.Load()
	return f != nil && (*f)(to, msg)
}

func (c *cluster) node(name string) *actor.Node {
	n, err := actor.Start(c.ctx, actor.Config{Name: name, Secret: c.secret, Logger: c.log, Suspicion: c.suspicion, Peers: c.peers, Drop: c.loses})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = n.Close() })
	for c.home != nil && !c.connected(n) { // a handshake that a busy machine holds up ends after two seconds
		require.NoError(c.t, c.ctx.Err())
	}
	return n
}

// connected connects a node with the coordinator's, and reports whether it is connected now.
// Any error but that of time fails the test.
func (c *cluster) connected(n *actor.Node) bool {
	_, err := n.Connect(c.ctx, c.home.Addr())
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		require.NoError(c.t, err)
	}
	return err == nil
}

func (c *cluster) nodeFor(name string) *actor.Node {
	if c.shared != nil {
		return c.shared
	}
	return c.node(name)
}

func (c *cluster) server(id shard.ServerID) *ps.Server {
	cfg := ps.ServerConfig{Node: c.nodeFor(string(id)), ID: id, Coordinator: c.ref(), Standbys: c.standbys, Logger: c.log, Checkpoints: c.checkpoints}
	if c.shared != nil {
		cfg.Listen = ps.ListenNone
	}
	s, err := ps.StartServer(c.ctx, cfg)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (c *cluster) worker(name string) *ps.Worker {
	w, err := ps.StartWorker(c.ctx, ps.ClientConfig{Node: c.nodeFor(name), Name: name, Coordinator: c.ref(), Standbys: c.standbys, Logger: c.log})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = w.Close() })
	return w
}

func (c *cluster) client(name string) *ps.Client {
	w, err := ps.Dial(c.ctx, ps.ClientConfig{Node: c.nodeFor(name), Name: name, Coordinator: c.ref(), Standbys: c.standbys, Logger: c.log})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = w.Close() })
	return w
}

// move moves a shard and requires that it worked.
func (c *cluster) move(id shard.ID, to shard.ServerID) ps.MoveReport {
	c.t.Helper()
	r, err := c.admin.Move(c.ctx, id, to)
	require.NoError(c.t, err)
	require.NoError(c.t, r.Err())
	return r
}

func (c *cluster) status() ps.Status {
	c.t.Helper()
	st, err := c.admin.Status(c.ctx)
	require.NoError(c.t, err)
	return st
}

// logger writes to the terminal with -v, else nowhere.
func logger() *slog.Logger {
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}

func layer(name string, shape ...int) shard.Layer { return shard.Layer{Name: name, Shape: shape} }

func vector(n int, v float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = v
	}
	return x
}
