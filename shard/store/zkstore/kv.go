package zkstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elasticps/elasticps/shard/store"
	"github.com/go-zookeeper/zk"
)

// Get implements store.KV.
func (s *Store) Get(ctx context.Context, key string) (store.Entry, error) {
	if err := store.CheckKey(key); err != nil {
		return store.Entry{}, err
	}
	var found store.Entry
	err := s.attempt(ctx, fmt.Sprintf("get %.64q", key), func(ctx context.Context) error {
		if err := s.sync(ctx); err != nil {
			return err
		}
		e, _, err := s.entry(ctx, key)
		if errors.Is(err, zk.ErrNoNode) {
			return store.ErrNotFound
		}
		found = store.Entry{Key: key, Value: append([]byte{}, e.value...), Revision: e.revision}
		return err
	})
	if err != nil {
		return store.Entry{}, err
	}
	return found, nil
}

// entry reads the node of a key, and its version. The error wraps zk.ErrNoNode
// if there is none, store.ErrCorrupt if it is no store's.
func (s *Store) entry(ctx context.Context, key string) (entry, int32, error) {
	n, err := s.get(ctx, s.path(keyNode(key)))
	if err != nil {
		return entry{}, 0, err
	}
	e, err := decodeEntry(key, n.data)
	if err != nil {
		return entry{}, 0, s.corrupt(keyNode(key), err)
	}
	return e, n.stat.Version, nil
}

// List implements store.KV. A node that is no store's gives an error that wraps
// store.ErrCorrupt.
func (s *Store) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	list, _, foreign, err := s.list(ctx, prefix)
	if err == nil && foreign != nil {
		err = fmt.Errorf("zkstore: list %.64q: %w", prefix, foreign)
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// CompareAndSwap implements store.KV.
func (s *Store) CompareAndSwap(ctx context.Context, key string, old store.Revision, value []byte) (store.Revision, error) {
	return s.swap(ctx, 0, key, old, value)
}

// CompareAndSwapLease implements store.Attacher.
func (s *Store) CompareAndSwapLease(ctx context.Context, lease store.LeaseID, key string, old store.Revision, value []byte) (store.Revision, error) {
	if lease == 0 {
		return 0, fmt.Errorf("zkstore: %w: 0", store.ErrLeaseNotFound)
	}
	return s.swap(ctx, lease, key, old, value)
}

// longestValue is what fits into a request.
func (s *Store) longestValue() int64 {
	return min(store.MaxValueBytes, int64(s.config.MaxRequestBytes-overheadBytes))
}

func (s *Store) swap(ctx context.Context, lease store.LeaseID, key string, old store.Revision, value []byte) (store.Revision, error) {
	if err := store.CheckKey(key); err != nil {
		return 0, err
	}
	if longest := s.longestValue(); int64(len(value)) > longest {
		return 0, &store.LimitError{Thing: "value length in bytes", Value: int64(len(value)), AtMost: longest}
	}
	value = slices.Clone(value) // a request may outlive the call
	var revision store.Revision
	err := s.attempt(ctx, fmt.Sprintf("swap %.64q", key), func(ctx context.Context) (err error) {
		revision, err = s.trySwap(ctx, lease, key, old, value)
		return err
	})
	if err != nil {
		return 0, err
	}
	return revision, nil
}

// trySwap reads the journal before all else, so that what it reads then is true
// of the moment of its commit.
func (s *Store) trySwap(ctx context.Context, lease store.LeaseID, key string, old store.Revision, value []byte) (store.Revision, error) {
	if err := s.sync(ctx); err != nil {
		return 0, err
	}
	j, at, err := s.journal(ctx)
	if err != nil {
		return 0, err
	}
	held, version, err := s.entry(ctx, key)
	exists := err == nil
	switch {
	case errors.Is(err, zk.ErrNoNode) && old == 0 && value == nil:
		return 0, store.ErrNotFound
	case err != nil && !errors.Is(err, zk.ErrNoNode):
		return 0, err
	case held.revision != old:
		return 0, &store.ConflictError{Key: key, Old: old, Current: held.revision}
	case lease == 0:
		lease = held.lease
	default:
		if err := s.checkRoom(ctx, lease, held.lease); err != nil {
			return 0, err
		}
	}
	revision := j.next()
	var ops []any
	put := entry{revision, lease, value}
	switch {
	case value == nil:
		j.record(store.Delete, key)
		ops, lease = append(ops, &zk.DeleteRequest{Path: s.path(keyNode(key)), Version: version}), 0
	case exists:
		j.record(store.Put, key)
		ops = append(ops, &zk.SetDataRequest{Path: s.path(keyNode(key)), Data: put.encode(key), Version: version})
	default:
		j.record(store.Put, key)
		ops = append(ops, &zk.CreateRequest{Path: s.path(keyNode(key)), Data: put.encode(key), Acl: s.acl})
	}
	if held.lease != lease && held.lease != 0 {
		ops = append(ops, &zk.DeleteRequest{Path: s.path(attachNode(held.lease, key)), Version: -1})
	}
	if held.lease != lease && lease != 0 {
		ops = append(ops, &zk.CreateRequest{Path: s.path(attachNode(lease, key)), Acl: s.acl})
	}
	return revision, s.commit(ctx, j, at, ops...)
}

// checkRoom wants a lease to be in force and to have room for a key that is
// attached to held now.
func (s *Store) checkRoom(ctx context.Context, lease, held store.LeaseID) error {
	n, err := s.get(ctx, s.path(leaseNode(lease)))
	if errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("%w: %d", store.ErrLeaseNotFound, lease)
	}
	if err != nil {
		return err
	}
	most := (int64(s.config.MaxRequestBytes) - overheadBytes) / leaseKeyBytes
	if count := int64(n.stat.NumChildren) + 1; held != lease && count > most {
		return &store.LimitError{Thing: fmt.Sprintf("number of keys of lease %d", lease), Value: count, AtMost: most}
	}
	return nil
}
