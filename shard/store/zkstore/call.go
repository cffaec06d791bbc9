package zkstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/elasticps/elasticps/shard/store"
	"github.com/go-zookeeper/zk"
)

// errOutrun means that another writer was faster.
var errOutrun = errors.New("zkstore: another writer was faster")

// attempt does something that may be done again as a whole as long as the
// outcome of its change, if it makes one, is known: after a pause while the
// servers are unavailable, and sooner when another writer was faster.
func (s *Store) attempt(ctx context.Context, what string, do func(context.Context) error) error {
	short, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	backoff, race := firstBackoff, time.Millisecond
	for {
		err := s.ready(ctx)
		if err == nil {
			err = do(short)
		}
		var pause time.Duration
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errOutrun):
			pause, race = rand.N(race), min(2*race, firstBackoff)
		case errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrUnknown):
			pause, backoff = backoff, min(2*backoff, lastBackoff)
		default:
			return fmt.Errorf("zkstore: %s: %w", what, err)
		}
		if !s.wait(short, pause) {
			return fmt.Errorf("zkstore: %s: %w: %w", what, ended(short), err)
		}
	}
}

// ready reports why the store takes no call.
func (s *Store) ready(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.life.Err() != nil:
		return store.ErrClosed
	}
	return nil
}

// wait pauses, until the store closes at most. It reports false if ctx ended
// before.
func (s *Store) wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.life.Done():
		return true
	case <-ctx.Done():
		return false
	}
}

// ended is the error of a context that has ended: the caller gave up, or the
// servers took too long.
func ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
	return ctx.Err()
}

// node is what the servers say of one.
type node struct {
	data     []byte
	children []string
	stat     zk.Stat
	events   <-chan zk.Event // one, on a change or at the end of the session
	results  []zk.MultiResponse
}

// call makes one request. The client knows no contexts: when ctx ends first, the
// request goes on until it is answered or the session ends.
func (s *Store) call(ctx context.Context, request func(*zk.Conn) (node, error)) (node, error) {
	sess, err := s.session(ctx)
	if err != nil {
		return node{}, err
	}
	return s.ask(ctx, sess, request)
}

func (s *Store) ask(ctx context.Context, sess *session, request func(*zk.Conn) (node, error)) (node, error) {
	select {
	case s.calls <- struct{}{}:
	case <-ctx.Done():
		return node{}, fmt.Errorf("%w: %d requests wait for answers", ended(ctx), MaxCalls)
	case <-s.life.Done():
		return node{}, store.ErrClosed
	}
	type answer struct {
		node
		error
	}
	answered := make(chan answer, 1)
	if !s.run(func() {
		n, err := request(sess.conn)
		<-s.calls
		answered <- answer{n, err}
	}) {
		<-s.calls
		return node{}, store.ErrClosed
	}
	select {
	case a := <-answered:
		return a.node, s.classify(a.error)
	case <-ctx.Done():
		return node{}, ended(ctx)
	case <-s.life.Done():
		return node{}, store.ErrClosed
	}
}

// classify gives an error of the client the kind that callers branch on: what is
// no answer to the request itself is the absence of one.
func (s *Store) classify(err error) error {
	switch {
	case err == nil:
		return nil
	case s.life.Err() != nil:
		return fmt.Errorf("%w: %w", store.ErrClosed, err)
	}
	for _, answer := range []error{
		zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNotEmpty, zk.ErrNoChildrenForEphemerals,
		zk.ErrNoAuth, zk.ErrAuthFailed, zk.ErrInvalidACL, zk.ErrInvalidPath, zk.ErrBadArguments, zk.ErrAPIError,
	} {
		if errors.Is(err, answer) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// sync waits until the server that the store is connected to knows of every
// change that was complete when it was asked.
func (s *Store) sync(ctx context.Context) error {
	_, err := s.call(ctx, func(c *zk.Conn) (node, error) {
		_, err := c.Sync(s.config.Root)
		return node{}, err
	})
	return err
}

// get reads a node. The error wraps zk.ErrNoNode if there is none.
func (s *Store) get(ctx context.Context, path string) (node, error) {
	return s.call(ctx, func(c *zk.Conn) (node, error) {
		data, stat, err := c.Get(path)
		if err != nil {
			return node{}, fmt.Errorf("%s: %w", path, err)
		}
		return node{data: data, stat: *stat}, nil
	})
}

// getAndWatch is get, and an event when the node changes.
func (s *Store) getAndWatch(ctx context.Context, path string) (node, error) {
	return s.call(ctx, func(c *zk.Conn) (node, error) {
		data, stat, events, err := c.GetW(path)
		if err != nil {
			return node{}, fmt.Errorf("%s: %w", path, err)
		}
		return node{data: data, stat: *stat, events: events}, nil
	})
}

// children lists the names of the nodes below one.
func (s *Store) children(ctx context.Context, path string) (node, error) {
	return s.call(ctx, func(c *zk.Conn) (node, error) {
		names, stat, err := c.Children(path)
		if err != nil {
			return node{}, fmt.Errorf("%s: %w", path, err)
		}
		return node{children: names, stat: *stat}, nil
	})
}

// journal reads the journal, and the version of its node.
func (s *Store) journal(ctx context.Context) (*journal, int32, error) {
	n, err := s.get(ctx, s.path(journalNode))
	if err != nil {
		return nil, 0, err
	}
	j, err := s.decodeJournal(n.data)
	return j, n.stat.Version, err
}

func (s *Store) decodeJournal(data []byte) (*journal, error) {
	j, err := decodeJournal(data)
	if err != nil {
		return nil, s.corrupt(journalNode, err)
	}
	return j, nil
}

func (s *Store) corrupt(name string, err error) error {
	return fmt.Errorf("%.320s: %w: %w", s.path(name), store.ErrCorrupt, err)
}

// commit makes a change, all of it or nothing, if no other writer has changed
// the journal since it had the given version: otherwise it returns errOutrun.
// If the outcome is not known, the error wraps store.ErrUnknown. All else that
// refuses an operation is the work of someone who is no store.
func (s *Store) commit(ctx context.Context, j *journal, version int32, ops ...any) error {
	sess, err := s.session(ctx)
	if err != nil {
		return err
	}
	all := append([]any{&zk.SetDataRequest{Path: s.path(journalNode), Data: j.encode(), Version: version}}, ops...)
	n, err := s.ask(ctx, sess, func(c *zk.Conn) (node, error) {
		results, err := c.Multi(all...)
		return node{results: results}, err
	})
	switch {
	case err == nil:
		return nil
	case len(n.results) > 0 && errors.Is(n.results[0].Error, zk.ErrBadVersion):
		return errOutrun
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNotEmpty), errors.Is(err, zk.ErrBadVersion):
		return fmt.Errorf("%s: %w: nodes do not agree with the journal: %w", s.config.Root, store.ErrCorrupt, err)
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrInvalidACL):
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUnknown, err)
}
