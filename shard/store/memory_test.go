package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticps/elasticps/shard/store"
	"github.com/elasticps/elasticps/shard/store/storetest"
	"github.com/stretchr/testify/require"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s, err := store.NewMemory(store.Config{})
		require.NoError(t, err)
		return s
	})
}

func TestConfigFaults(t *testing.T) {
	_, err := store.NewMemory(store.Config{MaxKeys: -1, MaxBytes: -2, MaxLeases: -3, MaxWatchers: -4})
	for _, want := range []string{"MaxKeys is -1", "MaxBytes is -2", "MaxLeases is -3", "MaxWatchers is -4"} {
		require.ErrorContains(t, err, want)
	}
}

func TestMemoryLimits(t *testing.T) {
	s, err := store.NewMemory(store.Config{MaxKeys: 2, MaxBytes: 10, MaxLeases: 1, MaxWatchers: 1})
	require.NoError(t, err)
	defer s.Close()
	ctx := t.Context()
	rev, err := s.CompareAndSwap(ctx, "a", 0, []byte("1234"))
	require.NoError(t, err)
	_, err = s.CompareAndSwap(ctx, "b", 0, []byte("12345"))
	require.ErrorIs(t, err, store.ErrLimit)
	_, err = s.CompareAndSwap(ctx, "b", 0, []byte("1234"))
	require.NoError(t, err)
	_, err = s.CompareAndSwap(ctx, "c", 0, nil)
	require.ErrorIs(t, err, store.ErrNotFound)
	rev, err = s.CompareAndSwap(ctx, "a", rev, []byte{})
	require.NoError(t, err)
	_, err = s.CompareAndSwap(ctx, "c", 0, []byte{})
	require.ErrorIs(t, err, store.ErrLimit)
	_, err = s.CompareAndSwap(ctx, "a", rev, nil)
	require.NoError(t, err)
	_, err = s.CompareAndSwap(ctx, "c", 0, []byte{})
	require.NoError(t, err)
	_, err = s.Grant(ctx, time.Second)
	require.NoError(t, err)
	_, err = s.Grant(ctx, time.Second)
	require.ErrorIs(t, err, store.ErrLimit)
	_, err = s.Watch(ctx, "")
	require.NoError(t, err)
	_, err = s.Watch(ctx, "")
	require.ErrorIs(t, err, store.ErrLimit)
}

// TestLeaseToTheMillisecond follows a lease on a virtual clock.
func TestLeaseToTheMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.NewMemory(store.Config{})
		require.NoError(t, err)
		defer s.Close()
		ctx := t.Context()
		id, err := s.Grant(ctx, 100*time.Millisecond)
		require.NoError(t, err)
		_, err = s.CompareAndSwapLease(ctx, id, "a", 0, []byte("v"))
		require.NoError(t, err)
		advance := func(d time.Duration) {
			time.Sleep(d) // virtual
			synctest.Wait()
		}
		advance(99 * time.Millisecond)
		require.NoError(t, s.KeepAlive(ctx, id))
		advance(99 * time.Millisecond)
		_, err = s.Get(ctx, "a")
		require.NoError(t, err)
		advance(time.Millisecond)
		_, err = s.Get(ctx, "a")
		require.ErrorIs(t, err, store.ErrNotFound)
		require.ErrorIs(t, s.KeepAlive(ctx, id), store.ErrLeaseNotFound)
	})
}

// journal fails or waits on demand.
type journal struct {
	hold chan struct{}

	mu    sync.Mutex
	fault error
}

func (j *journal) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fault = err
}

func (j *journal) Append(store.Change) error {
	if j.hold != nil {
		<-j.hold
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fault
}

func TestJournalFails(t *testing.T) {
	diskFull := errors.New("disk full")
	j := &journal{fault: diskFull}
	s, err := store.NewMemory(store.Config{Journal: j})
	require.NoError(t, err)
	defer s.Close()
	ctx := t.Context()
	_, err = s.CompareAndSwap(ctx, "a", 0, []byte("v"))
	require.ErrorIs(t, err, store.ErrUnknown)
	require.ErrorIs(t, err, diskFull)
	_, err = s.Get(ctx, "a")
	require.ErrorIs(t, err, store.ErrNotFound)
	j.fail(nil)
	_, err = s.CompareAndSwap(ctx, "a", 0, []byte("v"))
	require.NoError(t, err)
}

// TestJournalHangs holds the disk: reads go on, writers come back by their
// deadlines, and the change takes place in the end.
func TestJournalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{hold: make(chan struct{})}
		s, err := store.NewMemory(store.Config{Journal: j})
		require.NoError(t, err)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.CompareAndSwap(short, "a", 0, []byte("v"))
		require.ErrorIs(t, err, store.ErrUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		second, cancel2 := context.WithTimeout(t.Context(), time.Second)
		defer cancel2()
		_, err = s.CompareAndSwap(second, "b", 0, []byte("v"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, store.ErrUnknown, "it was never begun")
		_, err = s.Get(t.Context(), "a")
		require.ErrorIs(t, err, store.ErrNotFound)
		close(j.hold)
		synctest.Wait()
		_, err = s.Get(t.Context(), "a")
		require.NoError(t, err)
		require.NoError(t, s.Close())
	})
}

// TestLeaseEndsAfterJournalFault lets the disk fail at the moment a lease ends:
// the keys go with the next try.
func TestLeaseEndsAfterJournalFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		s, err := store.NewMemory(store.Config{Journal: j})
		require.NoError(t, err)
		defer s.Close()
		id, err := s.Grant(t.Context(), time.Second)
		require.NoError(t, err)
		_, err = s.CompareAndSwapLease(t.Context(), id, "a", 0, []byte("v"))
		require.NoError(t, err)
		j.fail(errors.New("disk full"))
		time.Sleep(1500 * time.Millisecond) // virtual
		synctest.Wait()
		require.ErrorIs(t, s.KeepAlive(t.Context(), id), store.ErrLeaseNotFound)
		j.fail(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		_, err = s.Get(t.Context(), "a")
		require.ErrorIs(t, err, store.ErrNotFound)
	})
}

func ExampleMemory() {
	s, err := store.NewMemory(store.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	ctx := context.Background()
	rev, _ := s.CompareAndSwap(ctx, "shard/7", 0, []byte("server-1"))
	_, err = s.CompareAndSwap(ctx, "shard/7", 0, []byte("server-2"))
	fmt.Println(rev, errors.Is(err, store.ErrConflict))
	fmt.Println(err)
	// Output:
	// 1 true
	// store: key "shard/7": revision is 1, expected 0
}

// TestCloseLeavesNothing closes a store with leases in force and watches that
// nobody reads; the bubble fails if a goroutine or timer stays.
func TestCloseLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.NewMemory(store.Config{})
		require.NoError(t, err)
		_, err = s.Grant(t.Context(), time.Hour)
		require.NoError(t, err)
		_, err = s.CompareAndSwap(t.Context(), "a", 0, []byte("v"))
		require.NoError(t, err)
		events, err := s.Watch(context.Background(), "")
		require.NoError(t, err)
		require.NoError(t, s.Close())
		for range events { // ends at once, whatever was still queued
		}
	})
}
