package store

import (
	"cmp"
	"container/list"
	"context"
	"slices"
	"sync"
)

// Queue holds what one receiver of a watch has not taken yet: the last event of
// each key, in the order in which they were added. It is bounded by the number
// of keys, however slow the receiver is. Implementations of Watcher share it.
// Make one with NewQueue; its methods may be called from any number of
// goroutines.
type Queue struct {
	wake chan struct{} // holds a token when there may be work

	mu     sync.Mutex
	events *list.List
	latest map[string]*list.Element
	known  map[string]Revision // nil before Reset
}

// NewQueue makes an empty queue.
func NewQueue() *Queue {
	return &Queue{wake: make(chan struct{}, 1), events: list.New(), latest: make(map[string]*list.Element)}
}

// Add queues an event, which the queue then owns, and drops an earlier one of
// the same key. It never blocks.
func (q *Queue) Add(ev Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(ev)
}

// add keeps Synced apart from keys: no key is empty.
func (q *Queue) add(ev Event) {
	if earlier := q.latest[ev.Entry.Key]; earlier != nil {
		q.events.Remove(earlier)
	}
	q.latest[ev.Entry.Key] = q.events.PushBack(ev)
	switch {
	case q.known == nil:
	case ev.Kind == Put:
		q.known[ev.Entry.Key] = ev.Entry.Revision
	case ev.Kind == Delete:
		delete(q.known, ev.Entry.Key)
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Reset tells the queue what the store holds under the watch's prefix at a
// revision. The first time it queues the entries in the order of their
// revisions, and Synced. A watch that lost its place calls it again: then it
// queues the entries that the receiver has not been told of, and a Delete at
// that revision for each key that is gone. From the first call on the queue
// remembers the revision of each key; entries come through Add or Reset, in the
// order of revisions. It never blocks.
func (q *Queue) Reset(state []Entry, at Revision) {
	q.mu.Lock()
	defer q.mu.Unlock()
	first := q.known == nil
	if first {
		q.known = make(map[string]Revision, len(state))
	}
	sortByRevision(state)
	present := make(map[string]struct{}, len(state))
	for _, e := range state {
		present[e.Key] = struct{}{}
		if q.known[e.Key] != e.Revision {
			q.add(Event{Kind: Put, Entry: e})
		}
	}
	var gone []string
	for key := range q.known {
		if _, ok := present[key]; !ok {
			gone = append(gone, key)
		}
	}
	slices.Sort(gone)
	for _, key := range gone {
		q.add(Event{Kind: Delete, Entry: Entry{Key: key, Revision: at}})
	}
	if first {
		q.add(Event{Kind: Synced})
	}
}

func sortByRevision(list []Entry) {
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Key, b.Key))
	})
}

func (q *Queue) next() (Event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	front := q.events.Front()
	if front == nil {
		return Event{}, false
	}
	ev := q.events.Remove(front).(Event)
	delete(q.latest, ev.Entry.Key)
	ev.Entry.Value = slices.Clone(ev.Entry.Value)
	return ev, true
}

// Send hands the events to a receiver, each with a value of its own, until ctx
// ends or closing is closed. It blocks that long. One goroutine calls it.
func (q *Queue) Send(ctx context.Context, closing <-chan struct{}, events chan<- Event) {
	for {
		ev, ok := q.next()
		if !ok {
			select {
			case <-q.wake:
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
