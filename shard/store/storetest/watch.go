package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/elasticps/elasticps/shard/store"
	"github.com/stretchr/testify/require"
)

func next(t *testing.T, ctx context.Context, events <-chan store.Event) store.Event {
	t.Helper()
	select {
	case ev, ok := <-events:
		require.True(t, ok, "the watch ended")
		return ev
	case <-ctx.Done():
		require.NoError(t, ctx.Err(), "no event came")
		return store.Event{}
	}
}

func testWatchState(t *testing.T, ctx context.Context, s store.Store) {
	late := put(t, ctx, s, "w/b", "1")
	put(t, ctx, s, "other", "1")
	last := put(t, ctx, s, "w/a", "2")
	events, err := s.Watch(ctx, "w/")
	require.NoError(t, err)
	require.Equal(t, store.Event{Kind: store.Put, Entry: store.Entry{Key: "w/b", Value: []byte("1"), Revision: late}}, next(t, ctx, events))
	require.Equal(t, store.Event{Kind: store.Put, Entry: store.Entry{Key: "w/a", Value: []byte("2"), Revision: last}}, next(t, ctx, events))
	require.Equal(t, store.Event{Kind: store.Synced}, next(t, ctx, events))
	put(t, ctx, s, "other2", "1")
	gone, err := s.CompareAndSwap(ctx, "w/a", last, nil)
	require.NoError(t, err)
	ev := next(t, ctx, events)
	require.Equal(t, store.Delete, ev.Kind)
	require.Equal(t, "w/a", ev.Entry.Key)
	require.Equal(t, gone, ev.Entry.Revision)
}

// testWatchOrder follows a key and a crowd of others: revisions never fall, and
// the last state of each arrives.
func testWatchOrder(t *testing.T, ctx context.Context, s store.Store) {
	events, err := s.Watch(ctx, "w/")
	require.NoError(t, err)
	const changes = 200
	failed := make(chan error, 1)
	go func() {
		revisions := map[string]store.Revision{}
		for i := range changes {
			key := fmt.Sprintf("w/%d", i%7)
			rev, err := s.CompareAndSwap(ctx, key, revisions[key], fmt.Append(nil, i))
			if err != nil {
				failed <- err
				return
			}
			revisions[key] = rev
		}
		failed <- nil
	}()
	got, last := map[string]string{}, store.Revision(0)
	for len(got) < 7 || got[fmt.Sprintf("w/%d", (changes-1)%7)] != fmt.Sprint(changes-1) {
		ev := next(t, ctx, events)
		if ev.Kind == store.Synced {
			continue
		}
		require.Greater(t, ev.Entry.Revision, last)
		last = ev.Entry.Revision
		got[ev.Entry.Key] = string(ev.Entry.Value)
	}
	require.NoError(t, <-failed)
	for i := changes - 7; i < changes; i++ {
		require.Equal(t, fmt.Sprint(i), got[fmt.Sprintf("w/%d", i%7)])
	}
}

// testWatchSlowReceiver never takes an event while the store changes: writers
// go on, and the last states come when it does.
func testWatchSlowReceiver(t *testing.T, ctx context.Context, s store.Store) {
	events, err := s.Watch(ctx, "w/")
	require.NoError(t, err)
	rev := store.Revision(0)
	for i := range 300 {
		rev, err = s.CompareAndSwap(ctx, "w/k", rev, fmt.Append(nil, i))
		require.NoError(t, err)
	}
	for {
		if ev := next(t, ctx, events); ev.Entry.Revision == rev {
			require.Equal(t, "299", string(ev.Entry.Value))
			return
		}
	}
}

func testWatchEnds(t *testing.T, ctx context.Context, s store.Store) {
	watching, cancel := context.WithCancel(ctx)
	events, err := s.Watch(watching, "")
	require.NoError(t, err)
	require.Equal(t, store.Synced, next(t, ctx, events).Kind)
	cancel()
	select {
	case _, open := <-events:
		require.False(t, open)
	case <-ctx.Done():
		require.NoError(t, ctx.Err(), "the watch did not end")
	}
}

func leased(t *testing.T, ctx context.Context, s store.Store, ttl time.Duration, names ...string) (store.LeaseID, <-chan store.Event) {
	t.Helper()
	lease, err := s.Grant(ctx, ttl)
	require.NoError(t, err)
	require.NotZero(t, lease)
	for _, name := range names {
		_, err = s.CompareAndSwapLease(ctx, lease, name, 0, []byte("v"))
		require.NoError(t, err)
	}
	events, err := s.Watch(ctx, "")
	require.NoError(t, err)
	for next(t, ctx, events).Kind != store.Synced {
	}
	return lease, events
}

func testLeaseExpires(t *testing.T, ctx context.Context, s store.Store) {
	put(t, ctx, s, "stays", "v")
	lease, events := leased(t, ctx, s, 2*time.Second, "a", "b")
	gone := map[string]bool{}
	for len(gone) < 2 {
		ev := next(t, ctx, events)
		require.Equal(t, store.Delete, ev.Kind)
		gone[ev.Entry.Key] = true
	}
	require.Equal(t, map[string]bool{"a": true, "b": true}, gone)
	require.Equal(t, []string{"stays"}, keys(t, ctx, s, ""))
	require.ErrorIs(t, s.KeepAlive(ctx, lease), store.ErrLeaseNotFound)
}

func testLeaseKeptAlive(t *testing.T, ctx context.Context, s store.Store) {
	const ttl = 2 * time.Second
	lease, events := leased(t, ctx, s, ttl, "a")
	begin := time.Now()
	tick := time.NewTicker(ttl / 8)
	defer tick.Stop()
	for time.Since(begin) < 2*ttl {
		select {
		case <-tick.C:
			require.NoError(t, s.KeepAlive(ctx, lease))
		case ev := <-events:
			require.Failf(t, "the key vanished", "%+v after %v", ev, time.Since(begin))
		}
	}
	require.Equal(t, store.Delete, next(t, ctx, events).Kind)
}

func testLeaseRevoked(t *testing.T, ctx context.Context, s store.Store) {
	lease, events := leased(t, ctx, s, time.Hour, "a")
	require.NoError(t, s.Revoke(ctx, lease))
	require.Equal(t, store.Delete, next(t, ctx, events).Kind)
	require.Empty(t, keys(t, ctx, s, ""))
	require.ErrorIs(t, s.Revoke(ctx, lease), store.ErrLeaseNotFound)
}

func testLeaseEnded(t *testing.T, ctx context.Context, s store.Store) {
	lease, _ := leased(t, ctx, s, time.Hour)
	require.NoError(t, s.Revoke(ctx, lease))
	for _, id := range []store.LeaseID{0, lease, lease + 1000} {
		_, err := s.CompareAndSwapLease(ctx, id, "a", 0, []byte("v"))
		require.ErrorIs(t, err, store.ErrLeaseNotFound)
		require.ErrorIs(t, s.KeepAlive(ctx, id), store.ErrLeaseNotFound)
	}
	require.Empty(t, keys(t, ctx, s, ""))
}

// testLeaseFollowsItsKeys changes an attached key without naming the lease (it
// stays attached), deletes one and makes it anew (it is free), and moves one to
// another lease.
func testLeaseFollowsItsKeys(t *testing.T, ctx context.Context, s store.Store) {
	lease, _ := leased(t, ctx, s, time.Hour, "changed", "anew", "moved")
	other, err := s.Grant(ctx, time.Hour)
	require.NoError(t, err)
	revision := func(key string) store.Revision {
		e, err := s.Get(ctx, key)
		require.NoError(t, err)
		return e.Revision
	}
	_, err = s.CompareAndSwap(ctx, "changed", revision("changed"), []byte("2"))
	require.NoError(t, err)
	_, err = s.CompareAndSwap(ctx, "anew", revision("anew"), nil)
	require.NoError(t, err)
	put(t, ctx, s, "anew", "2")
	_, err = s.CompareAndSwapLease(ctx, other, "moved", revision("moved"), []byte("2"))
	require.NoError(t, err)
	require.NoError(t, s.Revoke(ctx, lease))
	require.Equal(t, []string{"anew", "moved"}, keys(t, ctx, s, ""))
	require.NoError(t, s.Revoke(ctx, other))
	require.Equal(t, []string{"anew"}, keys(t, ctx, s, ""))
}
