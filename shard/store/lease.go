package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// startLease puts a lease in force. The caller holds the lock.
func (m *Memory) startLease(id LeaseID, ttl time.Duration) {
	m.last = max(m.last, id)
	l := &lease{ttl: ttl, deadline: m.config.Clock.Now().Add(ttl), keys: make(map[string]struct{})}
	l.stop = m.config.Clock.AfterFunc(ttl, func() { m.expire(id) })
	m.leases[id] = l
}

// Grant implements Leaser.
func (m *Memory) Grant(ctx context.Context, ttl time.Duration) (LeaseID, error) {
	if err := CheckTTL(ttl); err != nil {
		return 0, err
	}
	c, err := m.change(ctx, func(c *Change) error {
		if len(m.leases) >= m.config.MaxLeases {
			return &LimitError{"number of leases", int64(len(m.leases)) + 1, 0, int64(m.config.MaxLeases)}
		}
		c.Grant, c.TTL = m.last+1, ttl
		return nil
	})
	return c.Grant, err
}

// KeepAlive implements Leaser. It is not kept in the journal: a store that is
// opened again starts all leases anew.
func (m *Memory) KeepAlive(ctx context.Context, id LeaseID) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.leases[id]
	now := m.config.Clock.Now()
	if l == nil || !now.Before(l.deadline) {
		return fmt.Errorf("%w: %d", ErrLeaseNotFound, id)
	}
	l.deadline = now.Add(l.ttl)
	return nil
}

// Revoke implements Leaser.
func (m *Memory) Revoke(ctx context.Context, id LeaseID) error {
	_, err := m.change(ctx, func(c *Change) error { return m.planEnd(c, id) })
	return err
}

// planEnd ends a lease and deletes its keys, in the order of their names.
func (m *Memory) planEnd(c *Change, id LeaseID) error {
	l := m.leases[id]
	if l == nil {
		return fmt.Errorf("%w: %d", ErrLeaseNotFound, id)
	}
	c.End = id
	for _, key := range slices.Sorted(maps.Keys(l.keys)) {
		c.Ops = append(c.Ops, Op{Key: key})
	}
	return nil
}

// expire runs when a lease's timer ends: the lease was kept alive meanwhile and
// gets a new timer, or it ends. If the journal cannot keep the end, it is tried
// again after another duration; the lease stays dead for its holder meanwhile.
func (m *Memory) expire(id LeaseID) {
	if m.rearm(id, false) {
		return
	}
	_, err := m.change(context.Background(), func(c *Change) error { return m.planEnd(c, id) })
	if err != nil {
		m.rearm(id, true)
	}
}

// rearm starts a new timer for a lease that has time left, or in any case if
// again is set. It reports whether the lease needs no more care now.
func (m *Memory) rearm(id LeaseID, again bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.leases[id]
	if l == nil || m.closed {
		return true
	}
	left := l.deadline.Sub(m.config.Clock.Now())
	if again {
		left = l.ttl
	}
	if left > 0 {
		l.stop = m.config.Clock.AfterFunc(left, func() { m.expire(id) })
	}
	return left > 0
}
