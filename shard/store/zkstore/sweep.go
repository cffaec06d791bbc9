package zkstore

import (
	"context"
	"errors"
	"path"
	"sync"
	"time"

	"github.com/elasticps/elasticps/shard/store"
	"github.com/go-zookeeper/zk"
)

// sweep ends the leases that run out, if no other store on the same root does:
// the one that made the sweeper's node, which goes with its session. Should two
// of them be at work for a while, each ends only leases which it has itself seen
// unchanged for their whole duration.
func (s *Store) sweep() {
	for s.life.Err() == nil {
		sess, err := s.session(s.life)
		if err != nil {
			return
		}
		ctx, cancel := context.WithCancel(s.life)
		s.running.Go(func() {
			defer cancel()
			select {
			case <-sess.down:
			case <-ctx.Done():
			}
		})
		if s.elect(ctx, sess) == nil {
			s.tendAll(ctx)
		}
		cancel()
		s.wait(s.life, lastBackoff)
	}
}

// elect returns when this store is the sweeper, on this session.
func (s *Store) elect(ctx context.Context, sess *session) error {
	at := s.path(sweeperNode)
	for {
		_, err := s.ask(ctx, sess, func(c *zk.Conn) (node, error) {
			_, err := c.Create(at, nil, zk.FlagEphemeral, s.acl)
			return node{}, err
		})
		if !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
		n, err := s.ask(ctx, sess, func(c *zk.Conn) (node, error) {
			_, _, events, err := c.GetW(at)
			return node{events: events}, err
		})
		if errors.Is(err, zk.ErrNoNode) { // gone in between
			continue
		}
		if err != nil {
			return err
		}
		select {
		case <-n.events:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tendAll tends every lease, until ctx ends.
func (s *Store) tendAll(ctx context.Context) {
	var tending sync.WaitGroup
	defer tending.Wait()
	known := make(map[string]bool)
	for ctx.Err() == nil {
		n, err := s.call(ctx, func(c *zk.Conn) (node, error) {
			names, _, events, err := c.ChildrenW(s.path(leasesNode))
			return node{children: names, events: events}, err
		})
		if err != nil {
			s.wait(ctx, lastBackoff)
			continue
		}
		present := make(map[string]bool, len(n.children))
		for _, name := range n.children {
			present[name] = true
			if id, err := parseLease(name); err == nil && !known[name] {
				tending.Go(func() { s.tend(ctx, id) })
			}
		}
		known = present
		select {
		case <-n.events:
		case <-ctx.Done():
		}
	}
}

// tend ends a lease when it has not changed for its duration, by this host's
// monotonic clock; clocks are not compared between hosts. A node that is no
// lease is left as it is.
func (s *Store) tend(ctx context.Context, lease store.LeaseID) {
	for ctx.Err() == nil {
		n, err := s.getAndWatch(ctx, path.Join(s.config.Root, leaseNode(lease)))
		if errors.Is(err, zk.ErrNoNode) {
			return
		}
		if err != nil {
			s.wait(ctx, lastBackoff)
			continue
		}
		ttl, err := decodeLease(lease, n.data)
		if err != nil {
			return
		}
		timer := time.NewTimer(ttl)
		select {
		case <-n.events:
		case <-ctx.Done():
		case <-timer.C:
			err := s.attempt(ctx, "end of a lease", func(ctx context.Context) error { return s.endLease(ctx, lease, n.stat.Version) })
			if err == nil || errors.Is(err, store.ErrLeaseNotFound) {
				return
			}
		}
		timer.Stop()
	}
}
