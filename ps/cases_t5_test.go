package ps_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// T5, lost control message: each kind of message is lost once, or at first several
// times in a row; all goes on and comes out right.

// controlMessages are the messages between parties, by the name of their type.
var controlMessages = []string{
	"ps.describeRequest", "ps.describeReply", "ps.routesRequest", "ps.routesReply", "ps.routesChanged",
	"ps.registerRequest", "ps.registerReply", "ps.serverReport", "ps.command", "ps.commandReply", "ps.retain",
	"ps.joinRequest", "ps.joinReply", "ps.tickRequest", "ps.tickReply", "ps.leaveRequest", "ps.done", "ps.workerReport",
	"ps.takeRequest", "ps.takeReply", "ps.finishRequest",
	"ps.statusRequest", "ps.Status", "ps.drainRequest", "ps.removeRequest", "ps.moveRequest", "ps.MoveReport",
	"ps.loadRequest", "ps.ServerLoad", "ps.runRequest", "ps.runReply", "ps.copiesRequest", "ps.copiesReply",
}

// lose drops the first times messages of a type.
func (c *cluster) lose(kind string, times int64) *atomic.Int64 {
	dropped := new(atomic.Int64)
	f := func(_ actor.Ref, msg any) bool {
		return fmt.Sprintf("%T", msg) == kind && dropped.Add(1) <= times
	}
	c.drop.Store(&f)
	return dropped
}

func TestT5LostControlMessage(t *testing.T) {
	together(t)
	for _, kind := range controlMessages {
		t.Run("once/"+kind, func(t *testing.T) { loseAtFirst(t, kind, 1) })
	}
	if testing.Short() {
		return
	}
	for _, kind := range []string{"ps.registerReply", "ps.joinReply", "ps.tickReply", "ps.commandReply", "ps.MoveReport"} {
		t.Run("thrice/"+kind, func(t *testing.T) { loseAtFirst(t, kind, 3) })
	}
}

func loseAtFirst(t *testing.T, kind string, times int64) {
	t.Parallel()
	c := newCluster(t, dataJob(ps.Consistency{Mode: ps.BSP}, ps.Dataset{Name: "d", Records: 3, RangeRecords: 1}))
	dropped := c.lose(kind, times)
	begin := time.Now()
	c.wholeLife()
	if kind != "ps.retain" { // sent after a while only
		require.NotZero(t, dropped.Load(), "the message was never sent")
	}
	// Each loss costs one attempt, of a second, and a share of the next ones.
	require.Less(t, time.Since(begin), time.Duration(times)*2*time.Second+10*time.Second)
}

// wholeLife sends every kind of control message but those of time.
func (c *cluster) wholeLife() {
	t := c.t
	c.server("s1")
	w1, w2 := c.worker("w1"), c.worker("w2")
	c.placed()
	c.step("a", smallElems, w1, w2)
	c.step("a", smallElems, w1, w2)
	l := newLedger(ps.Dataset{Name: "d", Records: 3, Epochs: 1})
	require.NoError(t, l.consume(c.ctx, w1, always))
	l.requireEachOnce(t)
	c.server("s2")
	c.server("s3")
	c.move(0, "s2")
	c.requireValue(w1, 4)
	c.step("a", smallElems, w1, w2)
	require.NoError(t, c.admin.Drain(c.ctx, "s1", true))
	c.move(1, "s2")
	require.NoError(t, c.admin.Remove(c.ctx, "s1"))
	require.NoError(t, w2.Leave(c.ctx))
	c.step("a", smallElems, w1)
	c.requireValue(w1, 7)
	c.requireValue(c.client("observer"), 7)
	eventually(t, "the reports arrive", func() bool {
		st := c.status()
		pushes := uint64(0)
		for _, w := range st.Workers {
			pushes += w.PushesAcknowledged
		}
		shards := 0
		for _, s := range st.Servers {
			shards += s.Load.Shards
		}
		return pushes == 4 && shards == 2
	})
	c.oneOwner()
	require.NotEmpty(t, c.holds("s2"))
}

// A message that is always lost ends in the deadline of whoever waits for it.
func TestT5MessagesAlwaysLost(t *testing.T) {
	together(t)
	c := newCluster(t, dataJob(ps.Consistency{Mode: ps.BSP}, ps.Dataset{Name: "d", Records: 3, RangeRecords: 1}))
	c.server("s1")
	c.placed()
	w := c.worker("w")
	taken, err := w.NextRange(c.ctx, "d")
	require.NoError(t, err)
	for kind, f := range map[string]func(context.Context) error{
		"ps.tickRequest":   w.Tick,
		"ps.tickReply":     w.Tick,
		"ps.finishRequest": func(ctx context.Context) error { return w.FinishRange(ctx, taken) },
		"ps.takeReply": func(ctx context.Context) error {
			late, err := ps.StartWorker(c.ctx, ps.ClientConfig{Node: c.home, Name: "late", Coordinator: c.ref()})
			require.NoError(t, err)
			defer late.Close()
			_, err = late.NextRange(ctx, "d")
			return err
		},
		"ps.statusRequest": func(ctx context.Context) error { _, err := c.admin.Status(ctx); return err },
		"ps.moveRequest":   func(ctx context.Context) error { _, err := c.admin.Move(ctx, 0, "s2"); return err },
		"ps.drainRequest":  func(ctx context.Context) error { return c.admin.Drain(ctx, "s1", false) },
		"ps.removeRequest": func(ctx context.Context) error { return c.admin.Remove(ctx, "s2") },
		"ps.joinReply": func(ctx context.Context) error {
			_, err := ps.StartWorker(ctx, ps.ClientConfig{Node: c.home, Name: "late", Coordinator: c.ref()})
			return err
		},
		"ps.describeReply": func(ctx context.Context) error {
			_, err := ps.Dial(ctx, ps.ClientConfig{Node: c.home, Name: "late", Coordinator: c.ref()})
			return err
		},
		"ps.routesReply": func(ctx context.Context) error {
			_, err := ps.Dial(ctx, ps.ClientConfig{Node: c.home, Name: "late", Coordinator: c.ref()})
			return err
		},
		"ps.registerReply": func(ctx context.Context) error {
			_, err := ps.StartServer(ctx, ps.ServerConfig{Node: c.home, ID: "s2", Coordinator: c.ref()})
			return err
		},
	} {
		c.lose(kind, 1<<62)
		ctx, cancel := context.WithTimeout(c.ctx, 200*time.Millisecond)
		begin := time.Now()
		err := f(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, kind)
		require.ErrorContains(t, err, "ps/coordinator", kind)
		require.Less(t, time.Since(begin), 10*time.Second, kind)
	}
	c.drop.Store(nil)
	require.NoError(t, w.Tick(c.ctx), "everybody is heard again")
	c.step("a", smallElems, w)
	c.requireValue(w, 1)
	c.oneOwner()
}

// A command that is always lost makes a move end by its deadline.
func TestT5CommandAlwaysLost(t *testing.T) {
	settled(t)
	job := smallJob(ps.Consistency{})
	job.Replicas = ps.NoReplicas // else it may be a follower already
	c := newCluster(t, job, func(c *cluster) {
		c.cfg.StepTimeout, c.cfg.CopyTimeout = 300*time.Millisecond, 300*time.Millisecond
	})
	c.server("s1")
	c.placed()
	c.server("s2")
	c.lose("ps.command", 1)
	r, err := c.admin.Move(c.ctx, 0, "s2")
	require.NoError(t, err)
	require.Equal(t, shard.Aborted, r.Outcome, r.Reason)
	c.drop.Store(nil)
	c.move(0, "s2")
	c.oneOwner()
}
