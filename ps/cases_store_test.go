package ps_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard/store"
)

// A coordination store that holds what this job has not written, and hosts whose clock is set.

// put writes a key as somebody else would.
func (c *cluster) put(key, value string) {
	c.t.Helper()
	e, err := c.store.Get(c.ctx, key)
	if !errors.Is(err, store.ErrNotFound) {
		require.NoError(c.t, err)
	}
	var text []byte // deletes
	if value != "" {
		text = []byte(value)
	}
	_, err = c.store.CompareAndSwap(c.ctx, key, e.Revision, text)
	require.NoError(c.t, err)
}

// TestGarbageInTheStore: a coordinator does not start on keys that it does not understand; it
// names them and changes nothing of what is written there. Keys of others do not matter.
func TestGarbageInTheStore(t *testing.T) {
	settled(t)
	job := dataJob(ps.Consistency{Mode: ps.BSP}, ps.Dataset{Name: "d", Records: 4, RangeRecords: 1})
	c := newCluster(t, job, patient)
	c.server("s1")
	c.placed()
	w := c.worker("w")
	c.step("a", smallElems, w)
	const prefix = "elasticps/job/"
	c.put("garbage", "\x00\xff")
	c.put("elasticps/other/shard/00000000", "{")
	c.put(prefix+"unknown/1", "\x00\xff")
	for i, g := range []struct{ key, value, says string }{
		{"shard/00000001", "\x00\xff", "invalid character"},
		{"shard/00000001", "{}", "shard"},
		{"shard/00000099", `{"Assignment":{"Shard":99,"Owner":"s1","Epoch":1}}`, "shard 99 of 2"},
		{"shard/1", `{"Assignment":{"Shard":1,"Owner":"s1","Epoch":1}}`, "shard 1 of 2"},
		{"server/s9", "[]", "cannot unmarshal"},
		{"server/s9", `{"ID":"s8","Node":"n","Addr":"127.0.0.1:1"}`, `server "s8"`},
		{"server/s9", `{"ID":"s9","Node":"n","Addr":"nowhere"}`, "nowhere"},
		{"member/me", "1", "invalid syntax"},
		{"incarnation", "-1", "invalid syntax"},
		{"incarnation", "0", "must be in [1, "},
		{"incarnation", "18446744073709551615", "must be in [1, "},
		{"dataset/00", "\x00\xff", ""},
		{"job", "\x00\xff", "another description"},
		{"leader", "\x00\xff", "invalid character"},
	} {
		require.NoError(t, c.coord.Close())
		before, err := c.store.Get(c.ctx, prefix+g.key)
		require.True(t, err == nil || errors.Is(err, store.ErrNotFound), "%v", err)
		c.put(prefix+g.key, g.value)
		cfg := c.cfg
		cfg.Node = c.node(fmt.Sprintf("garbage-%d", i))
		_, err = ps.StartCoordinator(c.ctx, cfg)
		require.ErrorContains(t, err, g.says, "%+v", g)
		if g.key != "job" { // that error names the job
			require.ErrorContains(t, err, strconv.Quote(prefix+g.key))
		}
		left, err := c.store.Get(c.ctx, prefix+g.key)
		require.NoError(t, err)
		require.Equal(t, g.value, string(left.Value))
		require.NoError(t, cfg.Node.Close())
		c.put(prefix+g.key, string(before.Value))
		c.startCoordinator()
	}
	c.step("a", smallElems, w)
	c.requireValue(w, 2)
	c.requireValue(c.client("reader"), 2)
}

// TestClockIsSet: an earlier coordinator has run when the clock of its host was an hour ahead
// or behind. All that lasts longer than a process is numbered from the store, not by the time.
func TestClockIsSet(t *testing.T) {
	for name, by := range map[string]time.Duration{"back": -time.Hour, "forward": time.Hour} {
		t.Run(name, func(t *testing.T) {
			settled(t)
			then := uint64(time.Now().Add(-by).UnixMicro())
			c := newCluster(t, tinyJob(ps.ASP, layer("a", 10)), func(c *cluster) {
				c.put("elasticps/job/incarnation", strconv.FormatUint(then, 10))
			})
			c.server("s1")
			c.server("s2")
			c.placed()
			c.protected()
			old := c.worker("old")
			require.NoError(t, old.Push(c.ctx, "a", vector(10, -1)))
			first := c.coord.Term()
			require.Equal(t, then, first)
			require.NoError(t, c.coord.Close())
			c.startCoordinator()
			require.Greater(t, c.coord.Term(), first)
			fresh := c.worker("fresh")
			require.NoError(t, fresh.Push(c.ctx, "a", vector(10, -1)))
			got := make([]float32, 10)
			require.NoError(t, old.PushPull(c.ctx, "a", vector(10, -1), got))
			require.Equal(t, vector(10, 3), got)
			eventually(t, "the servers are back", func() bool { return c.isUp("s1") && c.isUp("s2") })
			_, err := c.swapOwners("s1", "s2")
			require.NoError(t, err)
			require.NoError(t, fresh.PushPull(c.ctx, "a", vector(10, -1), got))
			require.Equal(t, vector(10, 4), got)
		})
	}
}

// TestClockIsSetBackAndTheStoreIsLost: a coordinator on an empty store begins its numbers with
// the time. If that was an hour later before, the servers take it for an earlier coordinator:
// it ends, and says why; training goes on.
func TestClockIsSetBackAndTheStoreIsLost(t *testing.T) {
	settled(t)
	c := newCluster(t, tinyJob(ps.ASP, layer("a", 10)), func(c *cluster) {
		c.put("elasticps/job/incarnation", strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10))
	})
	c.server("s1")
	c.placed()
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "a", vector(10, -1)))
	require.NoError(t, c.coord.Close())
	cfg := c.cfg
	cfg.Store = nil
	late, err := ps.StartCoordinator(c.ctx, cfg)
	require.NoError(t, err)
	select {
	case <-late.Done():
	case <-c.ctx.Done():
		t.Fatal("it goes on")
	}
	require.ErrorIs(t, late.Err(), ps.ErrDeposed)
	require.ErrorContains(t, late.Err(), `server "s1" has heard of term`)
	require.NoError(t, late.Close())
	got := make([]float32, 10)
	require.NoError(t, w.PushPull(c.ctx, "a", vector(10, -1), got))
	require.Equal(t, vector(10, 2), got)
	c.startCoordinator()
	require.NoError(t, c.worker("fresh").PushPull(c.ctx, "a", vector(10, -1), got))
	require.Equal(t, vector(10, 3), got)
}

// TestOtherJob: who comes with another description of a job is told what differs.
func TestOtherJob(t *testing.T) {
	settled(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	node, err := actor.Start(ctx, actor.Config{})
	require.NoError(t, err)
	defer node.Close()
	kv, err := store.NewMemory(store.Config{})
	require.NoError(t, err)
	defer kv.Close()
	start := func(change func(*ps.Job)) error {
		job := smallJob(ps.Consistency{})
		change(&job)
		c, err := ps.StartCoordinator(ctx, ps.CoordinatorConfig{Node: node, Job: job, Store: kv})
		if err == nil {
			err = c.Close()
		}
		return err
	}
	for range 2 {
		require.NoError(t, start(func(*ps.Job) {}))
	}
	for fields, change := range map[string]func(*ps.Job){
		"[Optimizer]":         func(j *ps.Job) { j.Optimizer = ps.Adam(1) },
		"[Model]":             func(j *ps.Job) { j.Model.Layers = j.Model.Layers[1:] },
		"[Datasets Replicas]": func(j *ps.Job) { j.Replicas, j.Datasets = 2, []ps.Dataset{{Name: "clicks"}} },
	} {
		err := start(change)
		require.ErrorIs(t, err, ps.ErrConflict)
		require.ErrorContains(t, err, fields)
	}
	entry, err := kv.Get(ctx, "elasticps/job/job")
	require.NoError(t, err)
	_, err = kv.CompareAndSwap(ctx, entry.Key, entry.Revision, entry.Value[:64]) // as it was written before
	require.NoError(t, err)
	require.NoError(t, start(func(*ps.Job) {}))
}
