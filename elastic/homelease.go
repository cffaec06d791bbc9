package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/shard/store"
)

// homeLease is the right to be the Home of a federation: a key of the store that vanishes when it
// is not renewed. Its holder takes a quarter less time for granted than the store promised.
type homeLease struct {
	kv    store.Store
	id    store.LeaseID
	ttl   time.Duration
	term  uint64
	began time.Time
	until atomic.Int64 // after began
}

// homeLeaseParts is into how many parts a lease is divided: it is renewed after each, and taken for
// over after the last but one.
const homeLeaseParts = 4

// campaign waits until nobody else has the lease, and takes it.
func campaign(ctx context.Context, c HomeConfig, key, name string) (*homeLease, error) {
	var last error
	for {
		attempt, cancel := context.WithTimeout(ctx, c.LeaseTTL)
		l, err := elect(attempt, c, key, name)
		cancel()
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrLimit):
			return nil, err
		case ctx.Err() == nil:
			last = err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), last)
		case <-time.After(c.LeaseTTL / 10):
		}
	}
}

// elect makes one attempt. The error wraps store.ErrConflict when another one has the lease.
func elect(ctx context.Context, c HomeConfig, key, name string) (*homeLease, error) {
	e, err := c.Store.Get(ctx, key)
	if err == nil {
		return nil, &store.ConflictError{Key: key, Current: e.Revision}
	}
	if !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	l := &homeLease{kv: c.Store, ttl: c.LeaseTTL, began: time.Now()}
	if l.id, err = c.Store.Grant(ctx, c.LeaseTTL); err != nil {
		return nil, err
	}
	revision, err := c.Store.CompareAndSwapLease(ctx, l.id, key, 0, []byte(name))
	if err != nil {
		l.resign() // also if the key was written after all
		return nil, err
	}
	l.term = uint64(revision)
	l.extend(0)
	return l, nil
}

// extend notes that the lease began anew after the store was asked for it.
func (l *homeLease) extend(asked time.Duration) {
	l.until.Store(int64(asked + l.ttl*(homeLeaseParts-1)/homeLeaseParts))
}

// left is how long the lease can be counted on.
func (l *homeLease) left() time.Duration { return time.Duration(l.until.Load()) - time.Since(l.began) }

// keep renews the lease until ctx ends, or it is lost: then it returns why.
func (l *homeLease) keep(ctx context.Context) error {
	var last error
	for {
		left := l.left()
		if left <= 0 {
			return fmt.Errorf("elastic: the lease of the home was not renewed in time: %w", errors.Join(last, context.DeadlineExceeded))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(left, l.ttl/(2*homeLeaseParts))):
		}
		asked := time.Since(l.began)
		attempt, cancel := context.WithTimeout(ctx, max(l.left(), time.Millisecond))
		err := l.kv.KeepAlive(attempt, l.id)
		cancel()
		switch {
		case errors.Is(err, store.ErrLeaseNotFound):
			return fmt.Errorf("elastic: the lease of the home has ended: %w", err)
		case err != nil:
			last = err
		case l.left() > 0: // an answer that comes too late is none
			l.extend(asked)
		}
	}
}

// resign gives the lease back, so that the next one need not wait for its end.
func (l *homeLease) resign() {
	l.until.Store(0)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.kv.Revoke(ctx, l.id) // it ends by itself as well
}
