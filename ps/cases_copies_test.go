package ps_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// What servers hold is what the map says, also after orders that were lost for longer than
// anybody asks, or that were never given because a server seemed to be down.

// holds is what a server says it has.
func (c *cluster) holds(id shard.ServerID) []ps.CopyStatus {
	c.t.Helper()
	for _, s := range c.status().Servers {
		if s.ID == id {
			held, err := c.admin.Copies(c.ctx, s)
			require.NoError(c.t, err)
			return held
		}
	}
	return nil
}

// noSpareCopies waits until the servers hold no more than the owners and followers of
// shards of so many elements do.
func (c *cluster) noSpareCopies(elems int) {
	c.t.Helper()
	var found string
	if !assert.Eventually(c.t, func() bool {
		var ok bool
		ok, found = c.compare(elems)
		return ok
	}, patience, 2*time.Millisecond, "there is no copy that nobody needs") {
		c.t.Fatal(found)
	}
}

// compare reports whether the servers hold what the map says and nothing else, and what
// they hold.
func (c *cluster) compare(elems int) (ok bool, found string) {
	var text strings.Builder
	ok = true
	records := c.records()
	for _, r := range records {
		fmt.Fprintf(&text, "record %+v\n", r)
	}
	for _, s := range c.status().Servers {
		load, err := c.admin.Load(c.ctx, s)
		held, failed := c.admin.Copies(c.ctx, s)
		ok = ok && err == nil && failed == nil && load.StateBytes == int64(s.Owned+s.Follows)*4*int64(elems)
		fmt.Fprintf(&text, "server %s: up %v, owns %d, follows %d, has %d bytes (%v)\n", s.ID, s.Up, s.Owned, s.Follows, load.StateBytes, cmp.Or(err, failed))
		for _, h := range held {
			a := records[h.Shard].Assignment
			needed := a.Owner == s.ID || records[h.Shard].Followers.Has(s.ID)
			ok = ok && needed
			fmt.Fprintf(&text, "\tshard %d: %v at epoch %d, attempt %d, peer %q, %d bytes, needed %v\n", h.Shard, h.State, h.Epoch, h.Attempt, h.Peer, h.Bytes, needed)
		}
	}
	return ok, text.String()
}

// TestT5DiscardIsGivenUp: a follower cannot be made, and the order to discard what there is
// of it is lost for as long as the coordinator asks. Another server follows instead.
func TestT5DiscardIsGivenUp(t *testing.T) {
	together(t)
	c := newCluster(t, layersJob(1, 1, 100), func(c *cluster) {
		c.cfg.StepTimeout, c.cfg.CopyTimeout = 300*time.Millisecond, 300*time.Millisecond
	})
	var discards atomic.Int64
	var sound atomic.Bool
	drop := func(_ actor.Ref, msg any) bool {
		switch ps.OrderOf(msg) {
		case "follow":
			return discards.Load() == 0
		case "discard":
			discards.Add(1)
			return !sound.Load()
		}
		return false
	}
	c.drop.Store(&drop)
	for _, id := range []shard.ServerID{"s1", "s2", "s3"} {
		c.server(id)
		c.placed()
	}
	eventually(t, "another server follows", func() bool { return c.status().Exposed == 0 })
	r := c.records()[0]
	stuck := shard.ServerID("s2")
	if r.Followers.Has(stuck) {
		stuck = "s3"
	}
	require.NotZero(t, discards.Load())
	held := c.holds(stuck)
	require.Len(t, held, 1)
	require.Equal(t, shard.Receiving, held[0].State)
	sound.Store(true)
	c.noSpareCopies(100)
}

// TestT5ActivateIsGivenUp: a follower is promoted, and cannot be told because it seems to
// be down: the news of a connection that broke comes after the server is back, which does
// not know of it. Its next report shows that it lives, and what it has.
func TestT5ActivateIsGivenUp(t *testing.T) {
	together(t)
	c := newCluster(t, layersJob(1, 1, 100))
	var sound atomic.Bool
	drop := func(_ actor.Ref, msg any) bool {
		order := ps.OrderOf(msg)
		return !sound.Load() && (order == "activate" || order == "report")
	}
	owner := c.server("s1")
	c.placed()
	c.server("s2")
	c.protected()
	c.server("s3") // a follower is to be made there, again and again, of a shard that its owner does not know it owns
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	c.drop.Store(&drop)
	require.NoError(t, owner.Close())
	eventually(t, "the other one is to take over", func() bool { return c.owner(0) == "s2" })
	for _, s := range c.status().Servers {
		if s.ID == "s2" {
			require.NoError(t, c.home.Cast(c.ctx, c.coord.Ref(), actor.Down{Ref: actor.Ref{Node: s.Node, Name: s.Process}}))
		}
	}
	eventually(t, "the coordinator has given up", func() bool { return len(c.status().Failovers) == 1 })
	require.False(t, c.isUp("s2"))
	require.Equal(t, shard.CaughtUp, c.holds("s2")[0].State)
	soon, cancel := context.WithTimeout(c.ctx, 1500*time.Millisecond)
	defer cancel()
	err := w.Push(soon, "l0", vector(100, -1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, ps.ErrUnavailable, "it says what the push has met")
	sound.Store(true)
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	got := make([]float32, 100)
	require.NoError(t, w.Pull(c.ctx, "l0", got))
	require.Equal(t, vector(100, 2), got)
	c.oneOwner()
}

// promotedUnheard is a job of three servers whose owner has died, after a push of w, while such
// orders do not arrive until sound is set. activates counts how often the follower is told.
func promotedUnheard(t *testing.T, lost ...string) (c *cluster, w *ps.Worker, activates *atomic.Int64, sound *atomic.Bool) {
	c = newCluster(t, layersJob(1, 1, 100), func(c *cluster) { c.cfg.StepTimeout = 300 * time.Millisecond })
	activates, sound = new(atomic.Int64), new(atomic.Bool)
	drop := func(_ actor.Ref, msg any) bool {
		order := ps.OrderOf(msg)
		if order == "activate" {
			activates.Add(1)
		}
		return !sound.Load() && slices.Contains(lost, order)
	}
	owner := c.server("s1")
	c.placed()
	c.server("s2")
	c.protected()
	c.server("s3")
	w = c.worker("w")
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	c.drop.Store(&drop)
	require.NoError(t, owner.Close())
	return c, w, activates, sound
}

// TestT5ActivateIsLateForRepair: a promoted follower is not told for a while, and a follower
// in its place is due.
func TestT5ActivateIsLateForRepair(t *testing.T) {
	together(t)
	c, w, activates, sound := promotedUnheard(t, "activate", "prepare")
	eventually(t, "it is asked for longer than a repair is not thought of", func() bool { return activates.Load() > 6 })
	sound.Store(true)
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	got := make([]float32, 100)
	require.NoError(t, w.Pull(c.ctx, "l0", got))
	require.Equal(t, vector(100, 2), got)
	c.protected()
	require.Equal(t, 1, c.follows("s3"))
}

// TestT5MoveDuringFailover: a shard is asked to be moved that a failover has not done with.
// Whoever asks cannot know of that: the move waits for its turn.
func TestT5MoveDuringFailover(t *testing.T) {
	settled(t)
	c, w, late, sound := promotedUnheard(t, "activate")
	eventually(t, "the follower is told to serve", func() bool { return late.Load() > 0 })
	moved := make(chan error, 1)
	go func() {
		r, err := c.admin.Move(c.ctx, 0, "s3")
		moved <- errors.Join(err, r.Err())
	}()
	before := late.Load()
	eventually(t, "it is told again", func() bool { return late.Load() > before+1 })
	sound.Store(true)
	require.NoError(t, <-moved)
	require.Equal(t, shard.ServerID("s3"), c.status().Map.Assignments[0].Owner)
	got := make([]float32, 100)
	require.NoError(t, w.PushPull(c.ctx, "l0", vector(100, -1), got))
	require.Equal(t, vector(100, 2), got)
}

// TestReportsHaveAllCopies: a server that has more than fit one report tells of all of them.
func TestReportsHaveAllCopies(t *testing.T) {
	settled(t)
	const layers = 600
	c := newCluster(t, layersJob(ps.NoReplicas, layers, 1))
	var mu sync.Mutex
	told := map[shard.ID]bool{}
	hear := func(_ actor.Ref, msg any) bool {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range ps.ReportedCopies(msg) {
			told[id] = true
		}
		return false
	}
	c.drop.Store(&hear)
	c.server("s1")
	c.placed()
	eventually(t, "all copies are told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(told) == layers
	})
	held := c.holds("s1")
	require.Len(t, held, layers)
	for i, h := range held {
		require.Equal(t, ps.CopyStatus{Shard: shard.ID(i), State: shard.Serving, Epoch: 1, Bytes: 4}, h)
	}
}
