package store

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"slices"
	"sync"
)

// watcher holds what one receiver has not taken yet: the last event of each
// key, in the order of revisions. It is bounded by the number of keys, however
// slow the receiver is.
type watcher struct {
	prefix string
	wake   chan struct{} // holds a token when there may be work

	mu     sync.Mutex
	queue  *list.List
	latest map[string]*list.Element
}

// Watch implements Watcher.
func (m *Memory) Watch(ctx context.Context, prefix string) (<-chan Event, error) {
	if len(prefix) > MaxKeyBytes {
		return nil, &LimitError{"prefix length in bytes", int64(len(prefix)), 0, MaxKeyBytes}
	}
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	w := &watcher{prefix: prefix, wake: make(chan struct{}, 1), queue: list.New(), latest: make(map[string]*list.Element)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	if len(m.watchers) >= m.config.MaxWatchers {
		return nil, fmt.Errorf("store: watch %.64q: %w", prefix, &LimitError{"number of watchers", int64(len(m.watchers)) + 1, 0, int64(m.config.MaxWatchers)})
	}
	first := m.under(prefix)
	slices.SortFunc(first, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Key, b.Key))
	})
	for _, e := range first {
		w.add(Event{Kind: Put, Entry: e})
	}
	w.add(Event{Kind: Synced})
	m.watchers[w] = struct{}{}
	m.running.Add(1)
	events := make(chan Event)
	go func() {
		defer m.running.Done()
		defer close(events)
		w.send(ctx, m.closing, events)
		m.mu.Lock()
		delete(m.watchers, w)
		m.mu.Unlock()
	}()
	return events, nil
}

// add queues an event and drops an earlier one of the same key. Synced is kept
// apart from keys: no key is empty. It never blocks.
func (w *watcher) add(ev Event) {
	w.mu.Lock()
	if earlier := w.latest[ev.Entry.Key]; earlier != nil {
		w.queue.Remove(earlier)
	}
	w.latest[ev.Entry.Key] = w.queue.PushBack(ev)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) next() (Event, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	front := w.queue.Front()
	if front == nil {
		return Event{}, false
	}
	ev := w.queue.Remove(front).(Event)
	delete(w.latest, ev.Entry.Key)
	ev.Entry.Value = slices.Clone(ev.Entry.Value)
	return ev, true
}

func (w *watcher) send(ctx context.Context, closing <-chan struct{}, events chan<- Event) {
	for {
		ev, ok := w.next()
		if !ok {
			select {
			case <-w.wake:
				continue
			case <-ctx.Done():
				return
			case <-closing:
				return
			}
		}
		select {
		case events <- ev:
		case <-ctx.Done():
			return
		case <-closing:
			return
		}
	}
}
