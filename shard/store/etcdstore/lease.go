package etcdstore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/elasticps/elasticps/shard/store"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// etcdLease returns etcd's name of a lease; there is no lease 0, and none above
// what etcd can count.
func etcdLease(id store.LeaseID) (clientv3.LeaseID, error) {
	if id == 0 || id > math.MaxInt64 {
		return 0, fmt.Errorf("etcdstore: %w: %d", store.ErrLeaseNotFound, id)
	}
	return clientv3.LeaseID(id), nil
}

// Grant implements store.Leaser. The duration is rounded up to whole seconds,
// and to the servers' minimum.
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (store.LeaseID, error) {
	if err := store.CheckTTL(ttl); err != nil {
		return 0, err
	}
	var id store.LeaseID
	err := s.change(ctx, "grant", func(ctx context.Context) error {
		resp, err := s.client.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
		if err == nil {
			id = store.LeaseID(resp.ID)
		}
		return err
	})
	return id, err
}

// KeepAlive implements store.Leaser. It asks through the protocol itself: the
// client's KeepAliveOnce asks again without a pause while no server is there.
func (s *Store) KeepAlive(ctx context.Context, lease store.LeaseID) error {
	id, err := etcdLease(lease)
	if err != nil {
		return err
	}
	var left int64
	err = s.read(ctx, fmt.Sprintf("keep lease %d alive", lease), func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := s.leases.LeaseKeepAlive(ctx, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
			return err
		}
		resp, err := stream.Recv()
		if err == nil {
			left = resp.TTL
		}
		return err
	})
	if err == nil && left <= 0 {
		err = fmt.Errorf("etcdstore: %w: %d", store.ErrLeaseNotFound, lease)
	}
	return err
}

// Revoke implements store.Leaser.
func (s *Store) Revoke(ctx context.Context, lease store.LeaseID) error {
	id, err := etcdLease(lease)
	if err != nil {
		return err
	}
	return s.change(ctx, fmt.Sprintf("revoke lease %d", lease), func(ctx context.Context) error {
		_, err := s.client.Revoke(ctx, id)
		return err
	})
}
