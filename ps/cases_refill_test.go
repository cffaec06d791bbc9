package ps_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// bereft is a job of one shard that has five pushes in a checkpoint and seven more since, all
// of them reported. It returns the processes that have the shard.
func bereft(t *testing.T, servers ...shard.ServerID) (c *cluster, w *ps.Client, having map[string]*process) {
	return bereftIn(t, &heldStorage{Folder: checkpoint.Folder(t.TempDir())}, func(*cluster) {}, servers...)
}

func bereftIn(t *testing.T, s *heldStorage, change option, servers ...shard.ServerID) (c *cluster, w *ps.Client, having map[string]*process) {
	c, having = newCluster(t, layersJob(1, 1, 100), saving(s.Folder), func(c *cluster) { c.cfg.Checkpoints.Storage = s }, change), map[string]*process{}
	all := map[shard.ServerID]*process{}
	for _, id := range servers {
		all[id] = c.process("server", string(id))
	}
	c.placed()
	if len(servers) > 1 {
		c.protected()
	}
	w = c.client("w")
	pushOften(c, w, 5)
	c.save(false)
	pushOften(c, w, 7)
	eventually(t, "the owner has reported them", func() bool {
		n := uint64(0)
		for _, s := range c.status().Servers {
			n += s.Load.PushesApplied
		}
		return n == 12
	})
	for id, p := range all {
		switch {
		case id == c.owner(0):
			having["owner"] = p
		case c.follows(id) > 0:
			having["follower"] = p
		}
	}
	return c, w, having
}

func pushOften(c *cluster, w *ps.Client, n int) {
	c.t.Helper()
	for range n {
		require.NoError(c.t, w.Push(c.ctx, "l0", vector(100, -1)))
	}
}

// goesBack requires that the shard is that of the checkpoint and three pushes.
func goesBack(c *cluster, w *ps.Client) {
	c.t.Helper()
	pushOften(c, w, 3)
	hasPushes(c, w, 8)
}

// hasPushes requires that the shard has so many pushes.
func hasPushes(c *cluster, w *ps.Client, n int) {
	c.t.Helper()
	got := make([]float32, 100)
	require.NoError(c.t, w.Pull(c.ctx, "l0", got))
	require.Equal(c.t, vector(100, float32(n)), got)
}

// lossIs waits until so many pushes are reported as lost.
func (c *cluster) lossIs(want uint64) {
	c.t.Helper()
	eventually(c.t, "the loss is reported", func() bool {
		st, lost := c.status(), uint64(0)
		for _, f := range st.Failovers {
			lost += f.LostPushes
		}
		return refilled(st) == 1 && lost == want
	})
}

// refilled counts the shards that went back to a checkpoint.
func refilled(st ps.Status) (n int) {
	for _, f := range st.Failovers {
		n += f.Refilled
	}
	return n
}

// TestLossIsCounted: what is lost is counted also in a job that has replicas: of a shard that
// has none yet, and of one whose owner and follower die together.
func TestLossIsCounted(t *testing.T) {
	for name, servers := range map[string][]shard.ServerID{"without replica": {"s1"}, "with it": {"s1", "s2", "s3"}} {
		t.Run(name, func(t *testing.T) {
			settled(t)
			c, w, having := bereft(t, servers...)
			for _, p := range having { // at the same time
				p.signal(syscall.SIGSTOP)
			}
			for _, p := range having {
				p.kill()
			}
			if len(servers) == 1 {
				c.process("server", "s2")
			}
			goesBack(c, w)
			c.lossIs(7)
		})
	}
}

// TestOwnerAndFollowerAreDead: owner and follower of a shard are dead for certain when a
// coordinator looks for the first time. The shard goes back to the checkpoint.
func TestOwnerAndFollowerAreDead(t *testing.T) {
	together(t)
	c, w, having := bereft(t, "s1", "s2", "s3")
	require.NoError(t, c.coord.Close())
	for _, p := range having {
		p.kill()
	}
	c.startCoordinator()
	goesBack(c, w)
	c.lossIs(0) // what this coordinator knows of
}

// TestOwnerIsDeadAndFollowerHangs: a follower that is silent may have every acknowledged push,
// and takes over when it goes on.
func TestOwnerIsDeadAndFollowerHangs(t *testing.T) {
	together(t)
	c, w, having := bereft(t, "s1", "s2", "s3")
	owner, follower := having["owner"], having["follower"]
	follower.signal(syscall.SIGSTOP)
	owner.kill()
	require.Never(t, func() bool { return refilled(c.status()) > 0 }, 3*time.Second, 50*time.Millisecond, "longer than a follower is looked for")
	follower.signal(syscall.SIGCONT)
	pushOften(c, w, 3)
	hasPushes(c, w, 15)
	require.Zero(t, refilled(c.status()))
}

// TestAnswerOfARefilledServerIsLost: a server fills a lost shard and serves, and nobody hears
// that it does. It keeps the shard, with what was pushed to it.
func TestAnswerOfARefilledServerIsLost(t *testing.T) {
	together(t)
	c, w, having := bereftIn(t, &heldStorage{Folder: checkpoint.Folder(t.TempDir())}, func(c *cluster) { c.cfg.CopyTimeout = time.Second }, "s1")
	var lost atomic.Int64
	unheard := func(_ actor.Ref, msg any) bool {
		isLost := fmt.Sprintf("%T", msg) == "ps.commandReply" && lost.Load() >= 0
		if isLost {
			lost.Add(1)
		}
		return isLost
	}
	c.drop.Store(&unheard)
	having["owner"].kill()
	c.server("s2")
	eventually(t, "s2 has the shard", func() bool { return lost.Load() > 0 })
	pushOften(c, w, 3)
	c.process("server", "s0") // the first that the shard would be given to
	require.Never(t, func() bool { return c.owner(0) != "s2" }, 3*time.Second, 20*time.Millisecond, "longer than the order may take")
	lost.Store(math.MinInt64)
	eventually(t, "s2 is asked again", func() bool { return c.status().Exposed == 0 })
	hasPushes(c, w, 8)
}

// TestShardGoesBackToItsOwnJob: another job of the same model has written the newest checkpoint
// in the storage. A shard that is lost goes back to that of its own.
func TestShardGoesBackToItsOwnJob(t *testing.T) {
	settled(t)
	s := &heldStorage{Folder: checkpoint.Folder(t.TempDir())}
	c, w, having := bereftIn(t, s, func(*cluster) {}, "s1", "s2", "s3")
	other := newCluster(t, layersJob(1, 1, 100), saving(s.Folder))
	other.server("t1")
	other.placed()
	pushOften(other, other.client("w"), 50)
	other.save(true)
	for _, p := range having { // at the same time
		p.signal(syscall.SIGSTOP)
	}
	for _, p := range having {
		p.kill()
	}
	goesBack(c, w)
}

// TestServerThatFillsAShardKeepsIt: a coordinator that begins while a server fills a lost shard
// finds it without the shard. It waits: another one would own the shard beside it.
func TestServerThatFillsAShardKeepsIt(t *testing.T) {
	settled(t)
	c, w, having := bereft(t, "s1")
	slow := &heldFiles{Storage: c.checkpoints, asked: make(chan struct{}, 1), open: make(chan struct{})}
	c.checkpoints = slow
	having["owner"].kill()
	c.server("s2")
	select {
	case <-slow.asked:
	case <-c.ctx.Done():
		t.Fatal("s2 reads no checkpoint")
	}
	c.checkpoints = slow.Storage
	c.process("server", "s0") // the first that the shard would be given to
	require.NoError(t, c.coord.Close())
	c.startCoordinator()
	require.Never(t, func() bool { return c.owner(0) != "s2" }, 3*time.Second, 20*time.Millisecond, "longer than a server is asked after all audits")
	close(slow.open)
	goesBack(c, w)
	require.Equal(t, shard.ServerID("s2"), c.owner(0))
}

// awayStorage is a storage that cannot be reached while isAway.
type awayStorage struct {
	checkpoint.Folder
	isAway atomic.Bool
	asked  atomic.Int64 // meanwhile
	lists  atomic.Int64 // since it is back
}

func (s *awayStorage) List(ctx context.Context, prefix string) ([]checkpoint.Object, error) {
	if s.isAway.Load() {
		s.asked.Add(1)
		return nil, syscall.ECONNREFUSED
	}
	s.lists.Add(1)
	return s.Folder.List(ctx, prefix)
}

// TestStorageIsAwayForAMoment: that the storage cannot be reached when a lost shard is to be
// filled does not mean that there is no checkpoint. Workers wait.
func TestStorageIsAwayForAMoment(t *testing.T) {
	together(t)
	folder := checkpoint.Folder(t.TempDir())
	away := &awayStorage{Folder: folder}
	c, w, having := bereftIn(t, &heldStorage{Folder: folder}, func(c *cluster) { c.cfg.Checkpoints.Storage = away }, "s1")
	away.isAway.Store(true)
	having["owner"].kill()
	c.server("s1") // which has nothing
	pushed := make(chan error, 1)
	go func() { pushed <- w.Push(c.ctx, "l0", vector(100, -1)) }()
	eventually(t, "the storage was asked again", func() bool { return away.asked.Load() > 2 })
	away.isAway.Store(false)
	require.NoError(t, <-pushed)
	pushOften(c, w, 2)
	hasPushes(c, w, 8)
}

// TestLostShardsAreSaidOnce: shards that cannot be filled are tried again and again, and the
// log does not grow with that.
func TestLostShardsAreSaidOnce(t *testing.T) {
	together(t)
	folder := checkpoint.Folder(t.TempDir())
	away := &awayStorage{Folder: folder}
	said := &countingLog{Handler: slog.DiscardHandler}
	c, _, having := bereftIn(t, &heldStorage{Folder: folder}, func(c *cluster) {
		c.cfg.Checkpoints.Storage, c.cfg.Logger = away, slog.New(said)
	}, "s1")
	away.isAway.Store(true)
	having["owner"].kill()
	eventually(t, "the storage was asked again", func() bool { return away.asked.Load() > 5 })
	require.Equal(t, int64(1), said.errors.Load())
	require.Zero(t, refilled(c.status()))
}

// countingLog counts what is logged as an error.
type countingLog struct {
	slog.Handler
	errors atomic.Int64
}

func (l *countingLog) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}

func (l *countingLog) Handle(context.Context, slog.Record) error {
	l.errors.Add(1)
	return nil
}

// TestLostShardsAreLookedForTogether: however many shards of however many servers are lost, the
// storage is asked for the newest checkpoint once a second, and when there is one, not for each.
func TestLostShardsAreLookedForTogether(t *testing.T) {
	together(t)
	const layers = 60
	folder := checkpoint.Folder(t.TempDir())
	away := &awayStorage{Folder: folder}
	c := newCluster(t, layersJob(ps.NoReplicas, layers, 1), saving(folder), func(c *cluster) { c.cfg.Checkpoints.Storage = away })
	having := []*process{c.process("server", "s1"), c.process("server", "s2"), c.process("server", "s3")}
	c.placed()
	w := c.client("w")
	require.NoError(t, w.Push(c.ctx, "l0", vector(1, -1)))
	c.save(false)
	away.isAway.Store(true)
	for _, p := range having {
		p.kill()
	}
	began := time.Now()
	c.server("s4")
	eventually(t, "the storage was asked several times", func() bool { return away.asked.Load() >= 4 })
	require.LessOrEqual(t, away.asked.Load(), int64(time.Since(began)/time.Second)+2, "one may be of the checkpoint")
	away.lists.Store(0)
	away.isAway.Store(false)
	eventually(t, "all are filled", func() bool { return refilled(c.status()) == layers })
	require.LessOrEqual(t, away.lists.Load(), int64(2*len(having)), "two for each look")
	got := make([]float32, 1)
	require.NoError(t, w.Pull(c.ctx, "l0", got))
	require.Equal(t, vector(1, 1), got)
}
