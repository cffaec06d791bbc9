package ps_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard/store"
)

// A store that several processes share, with servers that can be away: one in memory,
// served by an actor of the test's process.

type (
	storeRequest struct {
		Op    string // get, list, swap, grant, keep or revoke
		Key   string
		Old   uint64
		Value []byte
		Set   bool // the value is not nil
		Lease uint64
		TTL   time.Duration
	}
	storeReply struct {
		Entries  []store.Entry
		Revision uint64
		Lease    uint64
	}
)

func registerStore(n *actor.Node) error {
	return errors.Join(n.Register("test.store", storeRequest{}), n.Register("test.stored", storeReply{}),
		n.RegisterError("store.not_found", store.ErrNotFound), n.RegisterError("store.conflict", store.ErrConflict),
		n.RegisterError("store.lease", store.ErrLeaseNotFound), n.RegisterError("store.limit", store.ErrLimit))
}

// storeServer is the actor.
type storeServer struct {
	*store.Memory
	away atomic.Bool // nobody gets an answer, and nothing happens
	// swapping, if set, is called before a swap, which is not done if it says so. What it
	// returns is called in place of the answer.
	swapping atomic.Pointer[func(key string) (done bool, instead func())]
}

// serveStore serves an empty store on a node of the test's process.
func (c *cluster) serveStore() (*storeServer, *actor.Node, actor.Ref) {
	c.t.Helper()
	m, err := store.NewMemory(store.Config{})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = m.Close() })
	n := c.node("store")
	require.NoError(c.t, registerStore(n))
	s := &storeServer{Memory: m}
	ref, err := n.Spawn(c.ctx, "store", s, actor.Options{})
	require.NoError(c.t, err)
	return s, n, ref
}

// Receive answers one request.
func (s *storeServer) Receive(c *actor.Context, msg any) error {
	m, ok := msg.(storeRequest)
	if !ok || s.away.Load() {
		return nil // who asks waits in vain
	}
	if f := s.swapping.Load(); f != nil && m.Op == "swap" {
		if done, instead := (*f)(m.Key); instead != nil {
			if done {
				_, _ = s.perform(c.Context(), m) // nobody gets an answer
			}
			instead()
			return nil
		}
	}
	reply, err := s.perform(c.Context(), m)
	switch {
	case err != nil:
		c.Request().Fail(err)
	default:
		c.Reply(reply)
	}
	return nil
}

func (s *storeServer) perform(ctx context.Context, m storeRequest) (r storeReply, err error) {
	switch m.Op {
	case "get":
		var e store.Entry
		e, err = s.Get(ctx, m.Key)
		r.Entries = []store.Entry{e}
	case "list":
		r.Entries, err = s.List(ctx, m.Key)
	case "swap":
		var revision store.Revision
		if !m.Set {
			m.Value = nil
		} else if m.Value == nil {
			m.Value = []byte{}
		}
		if m.Lease != 0 {
			revision, err = s.CompareAndSwapLease(ctx, store.LeaseID(m.Lease), m.Key, store.Revision(m.Old), m.Value)
		} else {
			revision, err = s.CompareAndSwap(ctx, m.Key, store.Revision(m.Old), m.Value)
		}
		r.Revision = uint64(revision)
	case "grant":
		var lease store.LeaseID
		lease, err = s.Grant(ctx, m.TTL)
		r.Lease = uint64(lease)
	case "keep":
		err = s.KeepAlive(ctx, store.LeaseID(m.Lease))
	case "revoke":
		err = s.Revoke(ctx, store.LeaseID(m.Lease))
	}
	return r, err
}

// storeClient is the store for another process.
type storeClient struct {
	node *actor.Node
	at   actor.Ref
}

var _ store.Store = (*storeClient)(nil)

// storeTimeout is how long a client waits for the server.
const storeTimeout = time.Second

func (s *storeClient) ask(ctx context.Context, m storeRequest) (storeReply, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	r, err := actor.Call[storeReply](ctx, s.node, s.at, m)
	if err == nil || !actor.Retryable(err) {
		return r, err
	}
	err = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	if m.Op == "swap" || m.Op == "grant" {
		err = fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	return r, err
}

func (s *storeClient) Get(ctx context.Context, key string) (store.Entry, error) {
	r, err := s.ask(ctx, storeRequest{Op: "get", Key: key})
	if err != nil {
		return store.Entry{}, err
	}
	return r.Entries[0], nil
}

func (s *storeClient) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	r, err := s.ask(ctx, storeRequest{Op: "list", Key: prefix})
	return r.Entries, err
}

func (s *storeClient) CompareAndSwap(ctx context.Context, key string, old store.Revision, value []byte) (store.Revision, error) {
	return s.CompareAndSwapLease(ctx, 0, key, old, value)
}

func (s *storeClient) CompareAndSwapLease(ctx context.Context, lease store.LeaseID, key string, old store.Revision, value []byte) (store.Revision, error) {
	r, err := s.ask(ctx, storeRequest{Op: "swap", Key: key, Old: uint64(old), Value: value, Set: value != nil, Lease: uint64(lease)})
	return store.Revision(r.Revision), err
}

func (s *storeClient) Grant(ctx context.Context, ttl time.Duration) (store.LeaseID, error) {
	r, err := s.ask(ctx, storeRequest{Op: "grant", TTL: ttl})
	return store.LeaseID(r.Lease), err
}

func (s *storeClient) KeepAlive(ctx context.Context, lease store.LeaseID) error {
	_, err := s.ask(ctx, storeRequest{Op: "keep", Lease: uint64(lease)})
	return err
}

func (s *storeClient) Revoke(ctx context.Context, lease store.LeaseID) error {
	_, err := s.ask(ctx, storeRequest{Op: "revoke", Lease: uint64(lease)})
	return err
}

// Watch is not served: a coordinator does not watch.
func (s *storeClient) Watch(context.Context, string) (<-chan store.Event, error) {
	return nil, errors.ErrUnsupported
}

func (s *storeClient) Close() error { return nil }
