package zkstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/shard/store"
	"github.com/go-zookeeper/zk"
)

// Grant implements store.Leaser. The lease has a random name; one whose making
// was not answered runs out by itself.
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (store.LeaseID, error) {
	if err := store.CheckTTL(ttl); err != nil {
		return 0, err
	}
	var id store.LeaseID
	err := s.attempt(ctx, "grant", func(ctx context.Context) error {
		leases, err := s.get(ctx, s.path(leasesNode))
		if err != nil {
			return err
		}
		if count := int64(leases.stat.NumChildren) + 1; count > store.DefaultMaxLeases {
			return &store.LimitError{Thing: "number of leases", Value: count, AtMost: store.DefaultMaxLeases}
		}
		var name [8]byte
		rand.Read(name[:])
		id = store.LeaseID(max(1, binary.LittleEndian.Uint64(name[:])))
		_, err = s.call(ctx, func(c *zk.Conn) (node, error) {
			_, err := c.Create(s.path(leaseNode(id)), encodeLease(id, ttl), 0, s.acl)
			return node{}, err
		})
		if errors.Is(err, zk.ErrNodeExists) {
			return errOutrun
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}

// KeepAlive implements store.Leaser: it writes the lease's node anew.
func (s *Store) KeepAlive(ctx context.Context, lease store.LeaseID) error {
	path := s.path(leaseNode(lease))
	return s.attempt(ctx, fmt.Sprintf("keep lease %d alive", lease), func(ctx context.Context) error {
		if err := s.sync(ctx); err != nil {
			return err
		}
		n, err := s.get(ctx, path)
		if err == nil {
			if _, err := decodeLease(lease, n.data); err != nil {
				return s.corrupt(leaseNode(lease), err)
			}
			_, err = s.call(ctx, func(c *zk.Conn) (node, error) {
				_, err := c.Set(path, n.data, -1)
				return node{}, err
			})
		}
		if errors.Is(err, zk.ErrNoNode) {
			return store.ErrLeaseNotFound
		}
		return err
	})
}

// Revoke implements store.Leaser.
func (s *Store) Revoke(ctx context.Context, lease store.LeaseID) error {
	return s.attempt(ctx, fmt.Sprintf("revoke lease %d", lease), func(ctx context.Context) error {
		return s.endLease(ctx, lease, -1)
	})
}

// endLease deletes a lease and its keys if its node has the given version; -1 is
// any.
func (s *Store) endLease(ctx context.Context, lease store.LeaseID, version int32) error {
	if err := s.sync(ctx); err != nil {
		return err
	}
	j, at, err := s.journal(ctx)
	if err != nil {
		return err
	}
	path := s.path(leaseNode(lease))
	n, err := s.children(ctx, path)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return store.ErrLeaseNotFound
	case err != nil:
		return err
	case version != -1 && n.stat.Version != version:
		return errKept
	}
	j.next()
	var ops []any
	for _, name := range n.children {
		key, err := unescape(name)
		if err != nil {
			return s.corrupt(leaseNode(lease)+"/"+name, err)
		}
		held, _, err := s.entry(ctx, key)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if err == nil && held.lease == lease {
			j.record(store.Delete, key)
			ops = append(ops, &zk.DeleteRequest{Path: s.path(keyNode(key)), Version: -1})
		}
		ops = append(ops, &zk.DeleteRequest{Path: path + "/" + name, Version: -1})
	}
	err = s.commit(ctx, j, at, append(ops, &zk.DeleteRequest{Path: path, Version: version})...)
	if errors.Is(err, zk.ErrBadVersion) {
		return errKept
	}
	return err
}

// errKept means that a lease was kept alive meanwhile.
var errKept = errors.New("zkstore: the lease was kept alive")
