package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/elasticps/elasticps/shard/store"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Get implements store.KV.
func (s *Store) Get(ctx context.Context, key string) (store.Entry, error) {
	if err := store.CheckKey(key); err != nil {
		return store.Entry{}, err
	}
	var resp *clientv3.GetResponse
	err := s.read(ctx, fmt.Sprintf("get %.64q", key), func(ctx context.Context) (err error) {
		resp, err = s.client.Get(ctx, s.config.Root+key)
		return err
	})
	switch {
	case err != nil:
		return store.Entry{}, err
	case len(resp.Kvs) == 0:
		return store.Entry{}, fmt.Errorf("etcdstore: %w: %.64q", store.ErrNotFound, key)
	}
	return s.entry(resp.Kvs[0])
}

// List implements store.KV. An etcd key that no store can have written gives an
// error that wraps store.ErrCorrupt.
func (s *Store) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	list, _, foreign, err := s.list(ctx, prefix)
	if err == nil && foreign != nil {
		err = foreign
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// list returns the entries under a prefix, the revision at which they are those,
// and what it found of foreign keys among them.
func (s *Store) list(ctx context.Context, prefix string) (list []store.Entry, at store.Revision, foreign, err error) {
	var resp *clientv3.GetResponse
	err = s.read(ctx, fmt.Sprintf("list %.64q", prefix), func(ctx context.Context) (err error) {
		resp, err = s.client.Get(ctx, s.config.Root+prefix, clientv3.WithPrefix())
		return err
	})
	if err != nil {
		return nil, 0, nil, err
	}
	for _, kv := range resp.Kvs {
		e, err := s.entry(kv)
		if err != nil {
			foreign = errors.Join(foreign, err)
			continue
		}
		list = append(list, e)
	}
	return list, store.Revision(resp.Header.Revision), foreign, nil
}

// entry reads one of etcd's; the error wraps store.ErrCorrupt.
func (s *Store) entry(kv *mvccpb.KeyValue) (store.Entry, error) {
	key := strings.TrimPrefix(string(kv.Key), s.config.Root)
	if err := errors.Join(store.CheckKey(key), store.CheckValue(kv.Value)); err != nil {
		return store.Entry{}, fmt.Errorf("etcdstore: etcd key %.320q: %w: %w", kv.Key, store.ErrCorrupt, err)
	}
	return store.Entry{Key: key, Value: append([]byte{}, kv.Value...), Revision: store.Revision(kv.ModRevision)}, nil
}

// CompareAndSwap implements store.KV.
func (s *Store) CompareAndSwap(ctx context.Context, key string, old store.Revision, value []byte) (store.Revision, error) {
	// An etcd key that is put without a lease loses the one it had.
	var keep []clientv3.OpOption
	if old != 0 {
		keep = append(keep, clientv3.WithIgnoreLease())
	}
	return s.swap(ctx, key, old, value, keep...)
}

// CompareAndSwapLease implements store.Attacher.
func (s *Store) CompareAndSwapLease(ctx context.Context, lease store.LeaseID, key string, old store.Revision, value []byte) (store.Revision, error) {
	id, err := etcdLease(lease)
	if err != nil {
		return 0, err
	}
	return s.swap(ctx, key, old, value, clientv3.WithLease(id))
}

// swap is one transaction. A revision that etcd cannot have is no key's.
func (s *Store) swap(ctx context.Context, key string, old store.Revision, value []byte, with ...clientv3.OpOption) (store.Revision, error) {
	if err := errors.Join(store.CheckKey(key), store.CheckValue(value)); err != nil {
		return 0, err
	}
	at := s.config.Root + key
	then := clientv3.OpDelete(at)
	if value != nil {
		then = clientv3.OpPut(at, string(value), with...)
	}
	expected := int64(-1)
	if old <= math.MaxInt64 {
		expected = int64(old)
	}
	var resp *clientv3.TxnResponse
	err := s.change(ctx, fmt.Sprintf("swap %.64q", key), func(ctx context.Context) (err error) {
		resp, err = s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(at), "=", expected)).
			Then(then).Else(clientv3.OpGet(at, clientv3.WithKeysOnly())).Commit()
		return err
	})
	switch {
	case err != nil:
		return 0, err
	case !resp.Succeeded:
		conflict := &store.ConflictError{Key: key, Old: old}
		for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
			conflict.Current = store.Revision(kv.ModRevision)
		}
		return 0, conflict
	case value == nil && old == 0:
		return 0, fmt.Errorf("etcdstore: %w: %.64q", store.ErrNotFound, key)
	}
	return store.Revision(resp.Header.Revision), nil
}
