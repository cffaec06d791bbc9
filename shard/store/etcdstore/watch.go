package etcdstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/elasticps/elasticps/shard/store"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// errLost means that a watch has to start from a new listing.
var errLost = errors.New("etcdstore: watch lost its place")

// Watch implements store.Watcher. It blocks until the servers have listed the
// present state, at most for Timeout.
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
		queue.Send(ctx, s.closing, events)
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
		return fmt.Errorf("etcdstore: watch %.64q: %w", prefix,
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

// follow queues what changes after a revision until ctx ends. When etcd has
// dropped what it should go on with, or ends the stream, it lists anew.
func (s *Store) follow(ctx context.Context, prefix string, at store.Revision, queue *store.Queue) {
	for pause := firstBackoff; ; {
		last, err := s.stream(ctx, prefix, at, queue)
		if ctx.Err() != nil || s.ready(ctx) != nil {
			return
		}
		if last > at {
			at, pause = last, firstBackoff
		}
		if errors.Is(err, errLost) {
			state, now, _, err := s.list(ctx, prefix)
			if err == nil {
				queue.Reset(state, now)
				at = now
				continue
			}
		}
		if !s.wait(ctx, pause) {
			return
		}
		pause = min(2*pause, lastBackoff)
	}
}

// stream queues the changes after a revision as etcd reports them, and returns
// the last revision that it has queued whole. A server that lost its leader
// ends it, so that it does not wait on the wrong side of a partition.
func (s *Store) stream(ctx context.Context, prefix string, at store.Revision, queue *store.Queue) (store.Revision, error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for resp := range s.client.Watch(ctx, s.config.Root+prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(at)+1)) {
		if resp.CompactRevision != 0 {
			return at, errLost
		}
		if err := resp.Err(); err != nil {
			return at, err
		}
		last := at
		for _, ev := range resp.Events {
			if store.Revision(ev.Kv.ModRevision) <= at { // told before the connection was lost
				continue
			}
			last = store.Revision(ev.Kv.ModRevision)
			e, err := s.entry(ev.Kv)
			switch {
			case err != nil: // a foreign key is no entry
			case ev.Type == mvccpb.DELETE:
				queue.Add(store.Event{Kind: store.Delete, Entry: store.Entry{Key: e.Key, Revision: e.Revision}})
			default:
				queue.Add(store.Event{Kind: store.Put, Entry: e})
			}
		}
		at = last
	}
	return at, ctx.Err()
}
