package ps

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

// heldStore answers nothing about servers and members while it isHeld and not open.
type heldStore struct {
	store.Store
	isHeld      atomic.Bool
	asked, open chan struct{}
}

func (s *heldStore) Get(ctx context.Context, key string) (store.Entry, error) {
	if s.isHeld.Load() && (strings.Contains(key, "/server/") || strings.Contains(key, "/member/")) {
		s.asked <- struct{}{}
		select {
		case <-s.open:
		case <-ctx.Done():
			return store.Entry{}, ctx.Err()
		}
	}
	return s.Store.Get(ctx, key)
}

// reception is a coordinator that nothing but the test asks.
type reception struct {
	*Coordinator
	t     *testing.T
	ctx   context.Context
	node  *actor.Node
	store *heldStore
}

func newReception(t *testing.T) *reception {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	n, err := actor.Start(ctx, actor.Config{Name: "n"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.Close() })
	s := &heldStore{Store: memoryStore(t), asked: make(chan struct{}, 64), open: make(chan struct{})}
	c, err := StartCoordinator(ctx, CoordinatorConfig{
		Node: n, Store: s,
		Job: Job{Model: shard.Model{Layers: []shard.Layer{{Name: "a", Shape: []int{1}}}}, Optimizer: SGD(1), Consistency: Consistency{Mode: BSP}, MinServers: 9},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return &reception{c, t, ctx, n, s}
}

// process starts one that says nothing.
func (r *reception) process(name string) actor.Ref {
	ref, err := r.node.Spawn(r.ctx, name, actor.ActorFunc(func(*actor.Context, any) error { return nil }), actor.Options{})
	require.NoError(r.t, err)
	return ref
}

// run is a new run of server s, in a process of its own.
func (r *reception) run(process string) registerRequest {
	r.process(process)
	number, err := ask[runReply](r.ctx, r.node, only(r.Ref()), runRequest{})
	require.NoError(r.t, err)
	return registerRequest{Info: serverInfo{ID: "s", Node: r.node.Name(), Addr: r.node.Addr(), Process: process, Run: number.Run}}
}

// attempt asks once, beside the test.
func (r *reception) attempt(msg any) <-chan error {
	answer := make(chan error, 1)
	go func() {
		_, err := r.node.Call(r.ctx, r.Ref(), msg)
		answer <- err
	}()
	return answer
}

// TestEarlierRunComesBackMeanwhile: a server that was taken for gone comes back while the store
// is told of its next run. It waits, and the next one counts.
func TestEarlierRunComesBackMeanwhile(t *testing.T) {
	r := newReception(t)
	first, next := r.run("first"), r.run("next")
	require.NoError(t, <-r.attempt(first))
	require.NoError(t, r.node.Stop(r.ctx, r.node.Ref("first")))
	require.Eventually(t, func() bool { return !r.isUp("s") }, 10*time.Second, time.Millisecond)
	r.store.isHeld.Store(true)
	comes := r.attempt(next)
	<-r.store.asked
	r.process("first")
	require.ErrorIs(t, <-r.attempt(first), errStoreAway)
	close(r.store.open)
	require.NoError(t, <-comes)
	require.ErrorIs(t, <-r.attempt(first), ErrNotMember)
	require.Equal(t, next.Info.Run, r.info("s").Run)
}

// TestEarlierAttemptIsAnswered: who asks again while the store is told of it, of a new connection
// perhaps, does not leave its earlier request without an answer.
func TestEarlierAttemptIsAnswered(t *testing.T) {
	for name, asks := range map[string]func(r *reception) any{
		"server": func(r *reception) any { return r.run("s") },
		"worker": func(r *reception) any { return joinRequest{Worker: r.process("w"), Name: "w", Nonce: "w"} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newReception(t)
			msg := asks(r)
			r.store.isHeld.Store(true)
			earlier := r.attempt(msg)
			<-r.store.asked
			again := r.attempt(msg)
			select {
			case err := <-earlier:
				require.ErrorIs(t, err, errStoreAway)
			case <-time.After(storeTimeout / 2):
				t.Error("the earlier request has no answer")
			}
			close(r.store.open)
			require.NoError(t, <-again)
		})
	}
}
