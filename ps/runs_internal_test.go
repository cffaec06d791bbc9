package ps

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

func TestAddressAdmits(t *testing.T) {
	five := address{ID: "s", Run: 5}
	for name, c := range map[string]struct {
		known   address
		run     uint64
		isEmpty bool
		refused string
	}{
		"a name that nobody had":            {address{}, 5, false, ""},
		"what an earlier version has noted": {address{ID: "s"}, 5, false, ""},
		"the run that counts":               {five, 5, false, ""},
		"an earlier run":                    {five, 4, true, `run 5 of server "s" has taken the place of run 4`},
		"an earlier run of one that left":   {address{ID: "s", Run: 5, Left: removed}, 4, true, "has taken the place of run 4"},
		"a later run":                       {five, 6, true, ""},
		"a later run with copies":           {five, 6, false, "was replaced by run 5 before"},
		"one that was down":                 {address{ID: "s", Run: 5, Left: forgotten}, 5, false, ""},
		"one that was removed":              {address{ID: "s", Run: 5, Left: removed}, 5, true, "was taken out"},
		"after one that was removed":        {address{ID: "s", Run: 5, Left: removed}, 6, true, ""},
		"a run without a number":            {address{}, 0, true, "has no number"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.known.admits("s", c.run, c.isEmpty)
			if c.refused == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrNotMember)
			require.ErrorContains(t, err, c.refused)
		})
	}
}

func placementOn(t *testing.T, kv store.KV) *placement {
	t.Helper()
	p := newPlacement(kv, "job", 1)
	require.NoError(t, p.loadServers(t.Context()))
	return p
}

func memoryStore(t *testing.T) store.Store {
	t.Helper()
	kv, err := store.NewMemory(store.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = kv.Close() })
	return kv
}

// TestRunsOnlyGrow: whoever writes down a run finds out that another coordinator has written
// a later one, and another one reads what was written.
func TestRunsOnlyGrow(t *testing.T) {
	kv := memoryStore(t)
	first, second := placementOn(t, kv), placementOn(t, kv)
	ctx := t.Context()
	require.NoError(t, first.remember(ctx, serverInfo{ID: "s", Node: "a", Run: 1}))
	require.NoError(t, second.remember(ctx, serverInfo{ID: "s", Node: "b", Run: 2}))
	require.ErrorIs(t, first.remember(ctx, serverInfo{ID: "s", Node: "c", Run: 1}), ErrNotMember)
	require.NoError(t, first.leave(ctx, "s", removed), "what has left is run 1, and that counts no more")
	require.Equal(t, address{ID: "s", Node: "b", Run: 2}, placementOn(t, kv).where("s"))
	require.NoError(t, second.leave(ctx, "s", removed))
	require.NoError(t, second.leave(ctx, "s", forgotten), "it has left already")
	require.ErrorIs(t, first.remember(ctx, serverInfo{ID: "s", Node: "b", Run: 2}), ErrNotMember)
	third := placementOn(t, kv)
	require.Equal(t, removed, third.where("s").Left)
	require.Empty(t, third.known())
	require.NoError(t, third.remember(ctx, serverInfo{ID: "s", Node: "b", Run: 3}))
	require.Equal(t, []shard.ServerID{"s"}, placementOn(t, kv).known())
}

// TestEntryOfEarlierVersion has no run: the first one that comes counts, with what it has.
func TestEntryOfEarlierVersion(t *testing.T) {
	kv := memoryStore(t)
	_, err := kv.CompareAndSwap(t.Context(), "elasticps/job/server/s9", 0, []byte(`{"ID":"s9","Node":"n","Process":"p","Addr":"127.0.0.1:1"}`))
	require.NoError(t, err)
	p := placementOn(t, kv)
	require.Equal(t, address{ID: "s9", Node: "n", Process: "p", Addr: "127.0.0.1:1"}, p.where("s9"))
	require.NoError(t, p.where("s9").admits("s9", 7, false))
	require.NoError(t, p.remember(t.Context(), serverInfo{ID: "s9", Run: 7}))
	require.ErrorIs(t, p.where("s9").admits("s9", 6, true), ErrNotMember)
}

// TestServersThatLeftAreBounded: the store keeps the entries of the maxLeft latest runs.
func TestServersThatLeftAreBounded(t *testing.T) {
	kv := memoryStore(t)
	p := placementOn(t, kv)
	const more = 3
	for i := range maxLeft + more {
		id := shard.ServerID(fmt.Sprintf("s%d", i))
		require.NoError(t, p.remember(t.Context(), serverInfo{ID: id, Run: uint64(i + 1)}))
		require.NoError(t, p.leave(t.Context(), id, departure(1+i%2)))
	}
	require.NoError(t, p.remember(t.Context(), serverInfo{ID: "stays", Run: 1}))
	again := placementOn(t, kv)
	require.Len(t, again.seen, maxLeft+1)
	require.Equal(t, address{}, again.where(shard.ServerID(fmt.Sprintf("s%d", more-1))))
	require.Equal(t, uint64(more+1), again.where(shard.ServerID(fmt.Sprintf("s%d", more))).Run)
	require.Equal(t, []shard.ServerID{"stays"}, again.known())
}

// TestPagesOfARegistration: they are taken in order, a repeated one changes nothing, and
// whatever is out of order has the server begin again.
func TestPagesOfARegistration(t *testing.T) {
	c := &Coordinator{arriving: map[shard.ServerID]*arrival{}, shards: make([]shard.Shard, 8)}
	page := func(run uint64, first, next uint32, ids ...uint32) (*arrival, error) {
		m := registerRequest{Info: serverInfo{ID: "s", Run: run}, First: first, Next: next}
		for _, id := range ids {
			m.Copies.add(CopyStatus{Shard: shard.ID(id), State: shard.Serving, Epoch: 1})
		}
		return c.arrive(m)
	}
	has := func(a *arrival, err error) []uint32 {
		require.NoError(t, err)
		return a.copies.Shards
	}
	_, err := page(1, 3, 0, 3)
	require.ErrorIs(t, err, errPages, "the first one is missing")
	require.Equal(t, []uint32{0, 2}, has(page(1, 0, 3, 0, 2)))
	_, err = page(2, 3, 0, 3)
	require.ErrorIs(t, err, errPages, "of another run")
	_, err = page(1, 5, 0, 5)
	require.ErrorIs(t, err, errPages, "one is missing")
	require.Equal(t, []uint32{0, 2, 3}, has(page(1, 3, 5, 3)))
	require.Equal(t, []uint32{0, 2, 3}, has(page(1, 3, 5, 3)))
	require.Equal(t, []uint32{0, 2, 3, 7}, has(page(1, 5, 0, 7, 99)), "the job has no shard 99")
	require.Equal(t, []uint32{1}, has(page(1, 0, 3, 1)), "it begins again")
}

// TestEarlierRunsAreAwaited until each is known to be over: one at the address of a later one
// is, and of too many the first are not forgotten.
func TestEarlierRunsAreAwaited(t *testing.T) {
	kv := memoryStore(t)
	p := placementOn(t, kv)
	run := func(number uint64, addr string) []earlierRun {
		require.NoError(t, p.remember(t.Context(), serverInfo{ID: "s", Run: number, Addr: addr}))
		return placementOn(t, kv).where("s").Before
	}
	require.Empty(t, run(1, "a"))
	require.Empty(t, run(2, "a"), "two cannot listen there")
	require.Equal(t, []earlierRun{{2, "a", ""}}, run(3, "b"))
	require.Equal(t, []earlierRun{{2, "a", ""}}, run(3, "b"), "the same one")
	require.Equal(t, []earlierRun{{2, "a", ""}, {3, "b", ""}}, run(4, "c"))
	require.Equal(t, []earlierRun{{3, "b", ""}, {4, "c", ""}}, run(5, "a"))
	require.NoError(t, p.bury(t.Context(), "s", 4, 99))
	require.NoError(t, p.bury(t.Context(), "none", 1))
	require.Equal(t, []earlierRun{{3, "b", ""}}, placementOn(t, kv).where("s").Before)
	require.NoError(t, p.leave(t.Context(), "s", removed))
	require.Equal(t, []earlierRun{{3, "b", ""}}, run(6, "d"), "who has left had nothing")
	for i := range uint64(2 * maxBefore) {
		run(7+i, fmt.Sprint("e", i))
	}
	before := placementOn(t, kv).where("s").Before
	require.Len(t, before, maxBefore)
	require.Equal(t, earlierRun{}, before[0], "more than are known by name: never over")
	require.NoError(t, p.bury(t.Context(), "s", 3))
	require.Len(t, placementOn(t, kv).where("s").Before, maxBefore)
}

// TestRunIsOpen while the outcome of a write is not known, and until the next one is.
func TestRunIsOpen(t *testing.T) {
	fails := true
	p := placementOn(t, &unsureStore{memoryStore(t), &fails})
	require.ErrorIs(t, p.remember(t.Context(), serverInfo{ID: "s", Run: 2}), store.ErrUnknown)
	require.True(t, p.isOpen("s"))
	require.Zero(t, p.counts("s"))
	require.ErrorIs(t, p.remember(t.Context(), serverInfo{ID: "s", Run: 1}), ErrNotMember, "the write took place")
	fails = false
	require.NoError(t, p.remember(t.Context(), serverInfo{ID: "s", Run: 2}))
	require.False(t, p.isOpen("s"))
	require.EqualValues(t, 2, p.counts("s"))
}

// unsureStore writes and does not say so, while it fails.
type unsureStore struct {
	store.KV
	fails *bool
}

func (u *unsureStore) CompareAndSwap(ctx context.Context, key string, old store.Revision, value []byte) (store.Revision, error) {
	r, err := u.KV.CompareAndSwap(ctx, key, old, value)
	if *u.fails {
		return 0, store.ErrUnknown
	}
	return r, err
}

// TestNameOfANode is no proof about an earlier run where another run has that name elsewhere.
func TestNameOfANode(t *testing.T) {
	e := earlierRun{1, "a", "n"}
	require.True(t, address{Node: "m", Before: []earlierRun{e, {2, "a", "n"}}}.names(e))
	require.False(t, address{Node: "n", Addr: "b", Before: []earlierRun{e}}.names(e))
	require.False(t, address{Node: "m", Before: []earlierRun{e, {2, "b", "n"}}}.names(e))
	require.False(t, address{Node: "m"}.names(earlierRun{1, "a", ""}), "of an entry without one")
}
