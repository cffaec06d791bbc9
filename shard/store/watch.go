package store

import (
	"context"
	"fmt"
)

// watcher is one watch of a Memory store.
type watcher struct {
	prefix string
	*Queue
}

// Watch implements Watcher.
func (m *Memory) Watch(ctx context.Context, prefix string) (<-chan Event, error) {
	if err := CheckPrefix(prefix); err != nil {
		return nil, err
	}
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	w := &watcher{prefix, NewQueue()}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	if len(m.watchers) >= m.config.MaxWatchers {
		return nil, fmt.Errorf("store: watch %.64q: %w", prefix, &LimitError{"number of watchers", int64(len(m.watchers)) + 1, 0, int64(m.config.MaxWatchers)})
	}
	first := m.under(prefix)
	sortByRevision(first)
	for _, e := range first {
		w.Add(Event{Kind: Put, Entry: e})
	}
	w.Add(Event{Kind: Synced})
	m.watchers[w] = struct{}{}
	m.running.Add(1)
	events := make(chan Event)
	go func() {
		defer m.running.Done()
		defer close(events)
		w.Send(ctx, m.closing, events)
		m.mu.Lock()
		delete(m.watchers, w)
		m.mu.Unlock()
	}()
	return events, nil
}
