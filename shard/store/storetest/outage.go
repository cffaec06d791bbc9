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

// place is where one test keeps its stores: several may be open at once.
type place struct {
	*Proxy
	server string
	open   func(address string) store.Store
}

// RunOutages tests how stores take the loss of their server. server is its
// host:port. prepare makes room for one test, empty and apart from all others,
// and returns what opens a store there, through the given address; the suite
// closes those stores before the clean-ups of t run.
func RunOutages(t *testing.T, server string, prepare func(t *testing.T) func(address string) store.Store) {
	for name, test := range map[string]func(*testing.T, context.Context, place){
		"Unreachable":               testUnreachable,
		"WatchAfterFewChanges":      func(t *testing.T, ctx context.Context, p place) { testWatchResumes(t, ctx, p, 10) },
		"WatchAfterManyChanges":     func(t *testing.T, ctx context.Context, p place) { testWatchResumes(t, ctx, p, 600) },
		"WatchDuringOutages":        testWatchDuringOutages,
		"WatchOfASilentServer":      testWatchOfASilentServer,
		"LeaseOfALostHolder":        testLeaseOfALostHolder,
		"LeaseOutlivesShortOutage":  testLeaseOutlivesShortOutage,
		"UnknownOutcomesAreDecided": testUnknownOutcomesAreDecided,
		"CloseDuringAnOutage":       testCloseDuringAnOutage,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			t.Cleanup(cancel)
			open := prepare(t)
			test(t, ctx, place{StartProxy(t, server), server, func(address string) store.Store {
				s := open(address)
				t.Cleanup(func() { require.NoError(t, s.Close()) })
				return s
			}})
		})
	}
}

// eventually repeats a call until it succeeds or ctx ends. Only the errors of
// an outage may come before.
func eventually(t *testing.T, ctx context.Context, call func(context.Context) error) {
	t.Helper()
	for {
		err := call(ctx)
		if err == nil {
			return
		}
		require.NoError(t, ctx.Err(), "the store did not come back: %v", err)
		requireOutage(t, err)
		select {
		case <-time.After(20 * time.Millisecond): // the next try
		case <-ctx.Done():
		}
	}
}

func requireOutage(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, store.ErrUnavailable)
}

// testUnreachable wants every call back by its deadline with ErrUnavailable,
// whether connections fail or only fall silent, and all well afterwards.
func testUnreachable(t *testing.T, ctx context.Context, p place) {
	s := p.open(p.Address())
	rev := put(t, ctx, s, "k", "before")
	lease, err := s.Grant(ctx, time.Hour)
	require.NoError(t, err)
	swapped := func(ctx context.Context) error {
		_, err := s.CompareAndSwap(ctx, "k", rev, []byte("after"))
		return err
	}
	calls := map[string]func(context.Context) error{
		"get":       func(ctx context.Context) error { _, err := s.Get(ctx, "k"); return err },
		"list":      func(ctx context.Context) error { _, err := s.List(ctx, ""); return err },
		"watch":     func(ctx context.Context) error { _, err := s.Watch(ctx, ""); return err },
		"grant":     func(ctx context.Context) error { _, err := s.Grant(ctx, time.Hour); return err },
		"keepalive": func(ctx context.Context) error { return s.KeepAlive(ctx, lease) },
		"swap":      swapped,
	}
	for outage, begin := range map[string]func(){"cut": p.Cut, "stall": p.Stall} {
		begin()
		for name, call := range calls {
			const limit = 300 * time.Millisecond
			short, cancel := context.WithTimeout(ctx, limit)
			started := time.Now()
			err := call(short)
			took := time.Since(started)
			cancel()
			require.ErrorIs(t, err, store.ErrUnavailable, "%s: %s", outage, name)
			require.Less(t, took, limit+2*time.Second, "%s: %s", outage, name)
		}
		p.Restore()
		eventually(t, ctx, calls["get"])
		eventually(t, ctx, calls["keepalive"])
	}
	e, err := s.Get(ctx, "k")
	require.NoError(t, err)
	if e.Revision == rev {
		eventually(t, ctx, func(ctx context.Context) error {
			err := swapped(ctx)
			if errors.Is(err, store.ErrConflict) { // an earlier one took place
				err = nil
			}
			return err
		})
		e, err = s.Get(ctx, "k")
		require.NoError(t, err)
	}
	require.Equal(t, "after", string(e.Value))
}

// change makes n changes under "w/", among them new keys and deletions.
func change(ctx context.Context, s store.Store, round string, n int) error {
	for i := range n {
		key := fmt.Sprintf("w/%d", i%37)
		old := store.Revision(0)
		e, err := s.Get(ctx, key)
		if err == nil {
			old = e.Revision
		} else if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		value := fmt.Appendf(nil, "%s %d", round, i)
		if i%5 == 4 && old != 0 {
			value = nil
		}
		if _, err := s.CompareAndSwap(ctx, key, old, value); err != nil {
			return err
		}
	}
	return nil
}

// replica is the state that the events of a watch add up to. It refuses events
// that come twice or out of order.
type replica struct {
	last store.Revision
	told map[string]store.Event // by key
}

func (r *replica) apply(t *testing.T, ev store.Event) {
	t.Helper()
	if ev.Kind == store.Synced {
		return
	}
	require.GreaterOrEqual(t, ev.Entry.Revision, r.last, "told too late: %q", ev.Entry.Key)
	require.Greater(t, ev.Entry.Revision, r.told[ev.Entry.Key].Entry.Revision, "told twice: %q", ev.Entry.Key)
	r.last = ev.Entry.Revision
	r.told[ev.Entry.Key] = ev
}

// settle takes events until all changes so far have come: those before a key
// "w/end", and those that a listing brought along with it, before the next one.
func (r *replica) settle(t *testing.T, ctx context.Context, events <-chan store.Event, s store.Store) {
	t.Helper()
	rev := store.Revision(0)
	for range 2 {
		var err error
		rev, err = s.CompareAndSwap(ctx, "w/end", rev, []byte("end"))
		require.NoError(t, err)
		for r.told["w/end"].Entry.Revision != rev {
			r.apply(t, next(t, ctx, events))
		}
	}
	r.requireState(t, ctx, s)
}

// requireState compares what the watch told of with what the store holds.
func (r *replica) requireState(t *testing.T, ctx context.Context, s store.Store) {
	t.Helper()
	list, err := s.List(ctx, "w/")
	require.NoError(t, err)
	held, told := map[string]store.Entry{}, map[string]store.Entry{}
	for _, e := range list {
		held[e.Key] = e
	}
	for key, ev := range r.told {
		if ev.Kind == store.Put {
			told[key] = ev.Entry
		}
	}
	require.Equal(t, held, told)
}

// testWatchResumes cuts a watch off from n changes, which another store makes.
func testWatchResumes(t *testing.T, ctx context.Context, p place, n int) {
	direct, s := p.open(p.server), p.open(p.Address())
	require.NoError(t, change(ctx, direct, "before", 60))
	events, err := s.Watch(ctx, "w/")
	require.NoError(t, err)
	r := &replica{told: map[string]store.Event{}}
	for synced := false; !synced; {
		ev := next(t, ctx, events)
		r.apply(t, ev)
		synced = ev.Kind == store.Synced
	}
	r.requireState(t, ctx, direct)
	p.Cut()
	require.NoError(t, change(ctx, direct, "during", n))
	p.Restore()
	require.NoError(t, change(ctx, direct, "after", 5))
	r.settle(t, ctx, events, direct)
}

// testWatchDuringOutages changes keys all the while that outages come and go.
func testWatchDuringOutages(t *testing.T, ctx context.Context, p place) {
	direct, s := p.open(p.server), p.open(p.Address())
	events, err := s.Watch(ctx, "w/")
	require.NoError(t, err)
	changed := make(chan error, 1)
	go func() {
		for round := range 8 {
			if err := change(ctx, direct, fmt.Sprint("round ", round), 40); err != nil {
				changed <- err
				return
			}
			if round%2 == 0 {
				p.Cut()
			} else {
				p.Restore()
			}
		}
		changed <- nil
	}()
	r := &replica{told: map[string]store.Event{}}
	for going := true; going; {
		select {
		case ev := <-events:
			r.apply(t, ev)
		case err := <-changed:
			require.NoError(t, err)
			going = false
		}
	}
	r.settle(t, ctx, events, direct)
}

// testWatchOfASilentServer lets the connection fall silent without closing it:
// the watch finds that out by itself. New connections are well.
func testWatchOfASilentServer(t *testing.T, ctx context.Context, p place) {
	direct, s := p.open(p.server), p.open(p.Address())
	events, err := s.Watch(ctx, "w/")
	require.NoError(t, err)
	require.Equal(t, store.Synced, next(t, ctx, events).Kind)
	p.Mute()
	(&replica{told: map[string]store.Event{}}).settle(t, ctx, events, direct)
}

// testLeaseOfALostHolder cuts off a store that holds a lease, for good: others
// see its keys go, and when it comes back it learns that the lease has ended.
func testLeaseOfALostHolder(t *testing.T, ctx context.Context, p place) {
	holder, other := p.open(p.Address()), p.open(p.server)
	lease, err := holder.Grant(ctx, 2*time.Second)
	require.NoError(t, err)
	_, err = holder.CompareAndSwapLease(ctx, lease, "w/k", 0, []byte("v"))
	require.NoError(t, err)
	events, err := other.Watch(ctx, "w/")
	require.NoError(t, err)
	require.Equal(t, "w/k", next(t, ctx, events).Entry.Key)
	require.Equal(t, store.Synced, next(t, ctx, events).Kind)
	p.Cut()
	ev := next(t, ctx, events)
	require.Equal(t, store.Delete, ev.Kind)
	require.Equal(t, "w/k", ev.Entry.Key)
	p.Restore()
	require.ErrorIs(t, holder.KeepAlive(ctx, lease), store.ErrLeaseNotFound)
	_, err = holder.CompareAndSwapLease(ctx, lease, "w/k", 0, []byte("v"))
	require.ErrorIs(t, err, store.ErrLeaseNotFound)
}

func testLeaseOutlivesShortOutage(t *testing.T, ctx context.Context, p place) {
	holder := p.open(p.Address())
	lease, err := holder.Grant(ctx, time.Minute)
	require.NoError(t, err)
	rev, err := holder.CompareAndSwapLease(ctx, lease, "k", 0, []byte("v"))
	require.NoError(t, err)
	p.Cut()
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	requireOutage(t, holder.KeepAlive(short, lease))
	p.Restore()
	require.NoError(t, holder.KeepAlive(ctx, lease))
	e, err := holder.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, rev, e.Revision)
	require.NoError(t, holder.Revoke(ctx, lease))
}

// testUnknownOutcomesAreDecided lets writers add a token each, over and over,
// while connections break: whoever does not know reads before trying again, and
// each token is there once in the end.
func testUnknownOutcomesAreDecided(t *testing.T, ctx context.Context, p place) {
	const writers, each = 4, 15
	direct := p.open(p.server)
	put(t, ctx, direct, "n", "")
	stores := make([]store.Store, writers)
	for i := range stores {
		stores[i] = p.open(p.Address())
	}
	stop := make(chan struct{})
	var breaking, writing sync.WaitGroup
	breaking.Go(func() {
		defer p.Restore()
		for {
			for _, step := range []func(){p.Cut, p.Restore} {
				select {
				case <-time.After(60 * time.Millisecond): // how long each state lasts
					step()
				case <-stop:
					return
				}
			}
		}
	})
	errs := make(chan error, writers)
	for i, s := range stores {
		writing.Go(func() {
			for n := range each {
				if err := addToken(ctx, s, fmt.Sprintf("<%d.%d>", i, n)); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		})
	}
	writing.Wait()
	close(stop)
	breaking.Wait()
	for range writers {
		require.NoError(t, <-errs)
	}
	e, err := direct.Get(ctx, "n")
	require.NoError(t, err)
	for i := range writers {
		for n := range each {
			token := fmt.Sprintf("<%d.%d>", i, n)
			require.Equal(t, 1, strings.Count(string(e.Value), token), token)
		}
	}
}

func addToken(ctx context.Context, s store.Store, token string) error {
	for {
		e, err := s.Get(ctx, "n")
		if err == nil {
			if strings.Contains(string(e.Value), token) {
				return nil
			}
			_, err = s.CompareAndSwap(ctx, "n", e.Revision, append(e.Value, token...))
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrUnavailable):
			return err
		}
	}
}

// testCloseDuringAnOutage closes a store that has a watch while its server is
// away: the watch ends, and so does a call that waits.
func testCloseDuringAnOutage(t *testing.T, ctx context.Context, p place) {
	s := p.open(p.Address())
	events, err := s.Watch(ctx, "")
	require.NoError(t, err)
	p.Stall()
	waiting := make(chan error, 1)
	go func() {
		_, err := s.Get(ctx, "k")
		waiting <- err
	}()
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-waiting, store.ErrClosed)
	for range events { // ends
	}
}
