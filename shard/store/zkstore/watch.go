package zkstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/elasticps/elasticps/shard/store"
	"github.com/go-zookeeper/zk"
)

// readers is how many nodes a listing reads at once.
const readers = 16

// Watch implements store.Watcher. It blocks until the present state is read, at
// most for Timeout.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan store.Event, error) {
	if err := store.CheckPrefix(prefix); err != nil {
		return nil, err
	}
	if err := s.admit(prefix); err != nil {
		return nil, err
	}
	state, at, _, err := s.list(ctx, prefix)
	if err != nil {
		s.dismiss()
		return nil, err
	}
	queue := store.NewQueue()
	queue.Reset(state, at)
	watching, cancel := context.WithCancel(ctx)
	events := make(chan store.Event)
	s.running.Go(func() { s.follow(watching, prefix, at, queue) })
	go func() {
		defer s.dismiss()
		defer close(events)
		defer cancel()
		queue.Send(ctx, s.life.Done(), events)
	}()
	return events, nil
}

// admit counts a watch; dismiss is its end.
func (s *Store) admit(prefix string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	if s.watchers >= s.config.MaxWatchers {
		return fmt.Errorf("zkstore: watch %.64q: %w", prefix,
			&store.LimitError{Thing: "number of watchers", Value: int64(s.watchers) + 1, AtMost: int64(s.config.MaxWatchers)})
	}
	s.watchers++
	s.running.Add(1)
	return nil
}

func (s *Store) dismiss() {
	s.mu.Lock()
	s.watchers--
	s.mu.Unlock()
	s.running.Done()
}

// follow queues what changes after a revision until ctx ends or the store
// closes.
func (s *Store) follow(ctx context.Context, prefix string, at store.Revision, queue *store.Queue) {
	for pause := firstBackoff; ctx.Err() == nil && s.life.Err() == nil; {
		now, changed, err := s.catchUp(ctx, prefix, at, queue)
		if err != nil {
			s.wait(ctx, pause)
			pause = min(2*pause, lastBackoff)
			continue
		}
		at, pause = max(at, now), firstBackoff
		select {
		case <-changed: // or the session has ended
		case <-ctx.Done():
		case <-s.life.Done():
		}
	}
}

// catchUp queues the changes after a revision, from the journal if it goes back
// so far and else from a listing. It returns the revision that it has come to,
// and what tells of the next change.
//
// A key that has changed again since the journal was read is left to the next
// time, so that revisions stay in order.
func (s *Store) catchUp(ctx context.Context, prefix string, at store.Revision, queue *store.Queue) (store.Revision, <-chan zk.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	n, err := s.getAndWatch(ctx, s.path(journalNode))
	if err != nil {
		return 0, nil, err
	}
	j, err := s.decodeJournal(n.data)
	if err != nil {
		return 0, nil, err
	}
	steps, whole := j.since(at, prefix)
	if !whole {
		state, now, _, err := s.list(ctx, prefix)
		if err != nil {
			return 0, nil, err
		}
		queue.Reset(state, now)
		return now, n.events, nil
	}
	present, _, err := s.entries(ctx, keysOf(steps, store.Put))
	if err != nil {
		return 0, nil, err
	}
	for _, st := range steps {
		if st.kind == store.Delete {
			queue.Add(store.Event{Kind: store.Delete, Entry: store.Entry{Key: st.key, Revision: st.revision}})
		} else if e, ok := present[st.key]; ok && e.Revision == st.revision {
			queue.Add(store.Event{Kind: store.Put, Entry: e})
		}
	}
	return j.revision, n.events, nil
}

func keysOf(steps []step, kinds ...store.EventKind) []string {
	var keys []string
	for _, st := range steps {
		if slices.Contains(kinds, st.kind) {
			keys = append(keys, st.key)
		}
	}
	return keys
}

// list returns the entries under a prefix, sorted by key, the revision at which
// they are those, and what it found of foreign nodes among them.
func (s *Store) list(ctx context.Context, prefix string) (list []store.Entry, at store.Revision, foreign, err error) {
	err = s.attempt(ctx, fmt.Sprintf("list %.64q", prefix), func(ctx context.Context) (err error) {
		list, at, foreign, err = s.tryList(ctx, prefix)
		return err
	})
	slices.SortFunc(list, func(a, b store.Entry) int { return strings.Compare(a.Key, b.Key) })
	return list, at, foreign, err
}

// tryList reads the journal, all keys, and the journal again; what changed
// meanwhile it reads again, until nothing has. Then all entries are of one
// moment.
func (s *Store) tryList(ctx context.Context, prefix string) ([]store.Entry, store.Revision, error, error) {
	if err := s.sync(ctx); err != nil {
		return nil, 0, nil, err
	}
	j, _, err := s.journal(ctx)
	if err != nil {
		return nil, 0, nil, err
	}
	n, err := s.children(ctx, s.path(keysNode))
	if err != nil {
		return nil, 0, nil, err
	}
	keys, foreign := s.keysUnder(prefix, n.children)
	found := make(map[string]store.Entry)
	damaged := make(map[string]error)
	for {
		present, faults, err := s.entries(ctx, keys)
		if err != nil {
			return nil, 0, nil, err
		}
		for _, key := range keys {
			delete(found, key)
			delete(damaged, key)
			if e, ok := present[key]; ok {
				found[key] = e
			}
			if fault := faults[key]; fault != nil {
				damaged[key] = fault
			}
		}
		now, _, err := s.journal(ctx)
		if err != nil {
			return nil, 0, nil, err
		}
		if now.revision == j.revision {
			break
		}
		steps, whole := now.since(j.revision, prefix)
		if !whole {
			return nil, 0, nil, errOutrun
		}
		j, keys = now, keysOf(steps, store.Put, store.Delete)
	}
	list := make([]store.Entry, 0, len(found))
	for _, e := range found {
		list = append(list, e)
	}
	for _, fault := range damaged {
		foreign = errors.Join(foreign, fault)
	}
	return list, j.revision, foreign, nil
}

// keysUnder returns the keys with a prefix, and what is wrong with names that
// are no key's.
func (s *Store) keysUnder(prefix string, names []string) (keys []string, foreign error) {
	for _, name := range names {
		key, err := unescape(name)
		if err != nil {
			if loose, _ := url.PathUnescape(name); strings.HasPrefix(loose, prefix) {
				foreign = errors.Join(foreign, s.corrupt(keysNode+"/"+name, err))
			}
			continue
		}
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, foreign
}

// entries reads keys, several at a time. It returns those that are there, and
// the faults of those whose nodes are no store's.
func (s *Store) entries(ctx context.Context, keys []string) (map[string]store.Entry, map[string]error, error) {
	var (
		mu     sync.Mutex
		first  error
		found  = make(map[string]store.Entry, len(keys))
		faults = make(map[string]error)
		work   = make(chan string)
		group  sync.WaitGroup
	)
	read := func(key string) {
		e, _, err := s.entry(ctx, key)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			found[key] = store.Entry{Key: key, Value: e.value, Revision: e.revision}
		case errors.Is(err, zk.ErrNoNode):
		case errors.Is(err, store.ErrCorrupt):
			faults[key] = err
		case first == nil:
			first = err
		}
	}
	for range min(readers, len(keys)) {
		group.Go(func() {
			for key := range work {
				read(key)
			}
		})
	}
	for _, key := range keys {
		work <- key
	}
	close(work)
	group.Wait()
	return found, faults, first
}
