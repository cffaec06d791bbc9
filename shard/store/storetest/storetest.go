package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elasticps/elasticps/shard/store"
	"github.com/stretchr/testify/require"
)

const patience = 20 * time.Second

// Run tests the stores that open makes. open may register clean-ups with t.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for name, test := range map[string]func(*testing.T, context.Context, store.Store){
		"GetAndSwap":           testGetAndSwap,
		"Conflict":             testConflict,
		"Delete":               testDelete,
		"ValuesAreCopied":      testValuesAreCopied,
		"List":                 testList,
		"Limits":               testLimits,
		"Context":              testContext,
		"Closed":               testClosed,
		"ConcurrentSwaps":      testConcurrentSwaps,
		"WatchState":           testWatchState,
		"WatchOrder":           testWatchOrder,
		"WatchSlowReceiver":    testWatchSlowReceiver,
		"WatchEnds":            testWatchEnds,
		"LeaseExpires":         testLeaseExpires,
		"LeaseKeptAlive":       testLeaseKeptAlive,
		"LeaseRevoked":         testLeaseRevoked,
		"LeaseEnded":           testLeaseEnded,
		"LeaseFollowsItsKeys":  testLeaseFollowsItsKeys,
		"RevisionsOfDeadNames": testRevisionsOfDeadNames,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			s := open(t)
			defer func() { require.NoError(t, s.Close()) }()
			test(t, ctx, s)
		})
	}
}

func testGetAndSwap(t *testing.T, ctx context.Context, s store.Store) {
	_, err := s.Get(ctx, "k")
	require.ErrorIs(t, err, store.ErrNotFound)
	first, err := s.CompareAndSwap(ctx, "k", 0, []byte("one"))
	require.NoError(t, err)
	require.Positive(t, first)
	second, err := s.CompareAndSwap(ctx, "k", first, []byte{})
	require.NoError(t, err)
	require.Greater(t, second, first)
	e, err := s.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, store.Entry{Key: "k", Value: []byte{}, Revision: second}, e, "an empty value is a value")
}

func testConflict(t *testing.T, ctx context.Context, s store.Store) {
	rev := put(t, ctx, s, "k", "one")
	for _, old := range []store.Revision{0, rev + 1, rev - 1} {
		_, err := s.CompareAndSwap(ctx, "k", old, []byte("two"))
		require.ErrorIs(t, err, store.ErrConflict)
		var conflict *store.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, store.ConflictError{Key: "k", Old: old, Current: rev}, *conflict)
		_, err = s.CompareAndSwap(ctx, "k", old, nil)
		require.ErrorIs(t, err, store.ErrConflict)
	}
	_, err := s.CompareAndSwap(ctx, "absent", rev, []byte("two"))
	require.ErrorIs(t, err, store.ErrConflict)
	e, err := s.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, store.Entry{Key: "k", Value: []byte("one"), Revision: rev}, e)
}

func testDelete(t *testing.T, ctx context.Context, s store.Store) {
	_, err := s.CompareAndSwap(ctx, "k", 0, nil)
	require.ErrorIs(t, err, store.ErrNotFound)
	rev := put(t, ctx, s, "k", "one")
	gone, err := s.CompareAndSwap(ctx, "k", rev, nil)
	require.NoError(t, err)
	require.Greater(t, gone, rev)
	_, err = s.Get(ctx, "k")
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Greater(t, put(t, ctx, s, "k", "again"), gone)
}

func testValuesAreCopied(t *testing.T, ctx context.Context, s store.Store) {
	value := []byte("one")
	_, err := s.CompareAndSwap(ctx, "k", 0, value)
	require.NoError(t, err)
	value[0] = 'X'
	e, err := s.Get(ctx, "k")
	require.NoError(t, err)
	e.Value[1] = 'X'
	e, err = s.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, "one", string(e.Value))
}

func testList(t *testing.T, ctx context.Context, s store.Store) {
	for _, key := range []string{"b/2", "a/1", "b/10", "b", "b/1", "c"} {
		put(t, ctx, s, key, key)
	}
	require.Equal(t, []string{"b/1", "b/10", "b/2"}, keys(t, ctx, s, "b/"))
	require.Equal(t, []string{"a/1", "b", "b/1", "b/10", "b/2", "c"}, keys(t, ctx, s, ""))
	require.Empty(t, keys(t, ctx, s, "z"))
}

func testLimits(t *testing.T, ctx context.Context, s store.Store) {
	long := strings.Repeat("k", store.MaxKeyBytes)
	testValueLimit(t, ctx, s, long)
	for _, key := range []string{"", long + "k"} {
		_, err := s.CompareAndSwap(ctx, key, 0, []byte("v"))
		requireLimit(t, err)
		_, err = s.Get(ctx, key)
		requireLimit(t, err)
	}
	_, err := s.Watch(ctx, long+"k")
	requireLimit(t, err)
	for _, ttl := range []time.Duration{0, -1, store.MaxLeaseTTL + 1} {
		_, err := s.Grant(ctx, ttl)
		requireLimit(t, err)
	}
}

// testValueLimit finds the longest value, which servers may bound more tightly
// than MaxValueBytes, at the bound that the error names: such a value is kept,
// and one byte more is refused.
func testValueLimit(t *testing.T, ctx context.Context, s store.Store, key string) {
	longest := int64(store.MaxValueBytes)
	_, err := s.CompareAndSwap(ctx, key, 0, make([]byte, longest+1))
	longest = requireLimit(t, err).AtMost
	require.LessOrEqual(t, longest, int64(store.MaxValueBytes))
	require.GreaterOrEqual(t, longest, int64(store.MaxValueBytes*9/10))
	value := make([]byte, longest)
	value[longest-1] = 1
	_, err = s.CompareAndSwap(ctx, key, 0, value)
	require.NoError(t, err)
	e, err := s.Get(ctx, key)
	require.NoError(t, err)
	require.Equal(t, value, e.Value)
	require.Equal(t, []string{key}, keys(t, ctx, s, ""))
}

func requireLimit(t *testing.T, err error) *store.LimitError {
	t.Helper()
	require.ErrorIs(t, err, store.ErrLimit)
	var limit *store.LimitError
	require.ErrorAs(t, err, &limit)
	return limit
}

func testContext(t *testing.T, ctx context.Context, s store.Store) {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err := s.Get(ended, "k")
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.CompareAndSwap(ended, "k", 0, []byte("v"))
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.List(ended, "")
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Get(ctx, "k")
	require.ErrorIs(t, err, store.ErrNotFound)
}

func testClosed(t *testing.T, ctx context.Context, s store.Store) {
	lease, err := s.Grant(ctx, time.Minute)
	require.NoError(t, err)
	events, err := s.Watch(ctx, "")
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "twice is fine")
	for range events { // ends
	}
	_, err = s.Get(ctx, "k")
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = s.List(ctx, "")
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = s.CompareAndSwap(ctx, "k", 0, []byte("v"))
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = s.Watch(ctx, "")
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = s.Grant(ctx, time.Second)
	require.ErrorIs(t, err, store.ErrClosed)
	require.ErrorIs(t, s.KeepAlive(ctx, lease), store.ErrClosed)
	require.ErrorIs(t, s.Revoke(ctx, lease), store.ErrClosed)
}

// testConcurrentSwaps counts up one key from many goroutines: no increment is
// lost, and revisions are never given twice.
func testConcurrentSwaps(t *testing.T, ctx context.Context, s store.Store) {
	const writers, each = 8, 25
	put(t, ctx, s, "n", "")
	var group sync.WaitGroup
	errs := make(chan error, writers)
	for range writers {
		group.Go(func() { errs <- increments(ctx, s, each) })
	}
	group.Wait()
	for range writers {
		require.NoError(t, <-errs)
	}
	e, err := s.Get(ctx, "n")
	require.NoError(t, err)
	require.Len(t, e.Value, writers*each)
}

func increments(ctx context.Context, s store.Store, n int) error {
	for done := 0; done < n; {
		e, err := s.Get(ctx, "n")
		if err != nil {
			return err
		}
		_, err = s.CompareAndSwap(ctx, "n", e.Revision, append(e.Value, 'x'))
		switch {
		case err == nil:
			done++
		case !errors.Is(err, store.ErrConflict):
			return err
		}
	}
	return nil
}

func testRevisionsOfDeadNames(t *testing.T, ctx context.Context, s store.Store) {
	last := store.Revision(0)
	for i := range 10 {
		rev := put(t, ctx, s, fmt.Sprintf("k%d", i%2), "v")
		require.Greater(t, rev, last)
		gone, err := s.CompareAndSwap(ctx, fmt.Sprintf("k%d", i%2), rev, nil)
		require.NoError(t, err)
		require.Greater(t, gone, rev)
		last = gone
	}
}

func put(t *testing.T, ctx context.Context, s store.Store, key, value string) store.Revision {
	t.Helper()
	rev, err := s.CompareAndSwap(ctx, key, 0, []byte(value))
	require.NoError(t, err)
	return rev
}

func keys(t *testing.T, ctx context.Context, s store.Store, prefix string) []string {
	t.Helper()
	list, err := s.List(ctx, prefix)
	require.NoError(t, err)
	var names []string
	for _, e := range list {
		names = append(names, e.Key)
	}
	return names
}
