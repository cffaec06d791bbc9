package ps

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
)

// refreshGap is the shortest time between two questions for the routes.
const refreshGap = 5 * time.Millisecond

// routes is what a client knows about who owns what. It only moves forward: an
// answer with a lower epoch than is known changes nothing.
type routes struct {
	node        *actor.Node
	coordinator *candidates

	version atomic.Uint64 // grows with every change

	mu      sync.RWMutex
	owners  []owner
	lost    []bool
	servers map[shard.ServerID]serverInfo
	clock   uint32
	joined  int // servers up, of needed for the first placement
	needed  int

	refreshing chan struct{} // has a value while a question is under way: one at a time
	asked      time.Time     // guarded by refreshing
}

func newRoutes(n *actor.Node, coordinator *candidates, shards int) *routes {
	return &routes{
		node: n, coordinator: coordinator,
		owners: make([]owner, shards), lost: make([]bool, shards), servers: map[shard.ServerID]serverInfo{},
		refreshing: make(chan struct{}, 1),
	}
}

// of returns the owner of a shard and how to reach it.
func (r *routes) of(id shard.ID) (owner, serverInfo, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	o := r.owners[id]
	switch {
	case r.lost[id]:
		return o, serverInfo{}, ErrShardLost
	case o.server == "":
		return o, serverInfo{}, fmt.Errorf("%w: %d of %d servers have joined", ErrNotPlaced, r.joined, r.needed)
	}
	info, ok := r.servers[o.server]
	if !ok {
		return o, serverInfo{}, fmt.Errorf("%w: server %q is not known yet", ErrUnavailable, o.server)
	}
	return o, info, nil
}

// epoch is the epoch at which a shard has the owner that is known.
func (r *routes) epoch(id shard.ID) shard.Epoch {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.owners[id].epoch
}

// moved takes note of what a server said about an owner.
func (r *routes) moved(id shard.ID, to owner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to.epoch > r.owners[id].epoch {
		r.owners[id], r.lost[id] = to, false
		r.version.Add(1)
	}
}

// learn takes note of a move that the coordinator announced.
func (r *routes) learn(m routesChanged) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if int(m.Shard) >= len(r.owners) {
		return
	}
	if to := (owner{m.To.ID, shard.Epoch(m.Epoch)}); to.epoch > r.owners[m.Shard].epoch {
		r.owners[m.Shard], r.lost[m.Shard] = to, false
		r.servers[m.To.ID] = m.To
		r.version.Add(1)
	}
}

// refresh asks the coordinator for all routes.
func (r *routes) refresh(ctx context.Context) error {
	called := time.Now()
	select {
	case r.refreshing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-r.refreshing }()
	if r.asked.After(called) || time.Since(r.asked) < refreshGap {
		return nil // somebody else has just asked
	}
	first := 0
	for {
		reply, err := ask[routesReply](ctx, r.node, r.coordinator, routesRequest{First: first})
		if err != nil {
			r.asked = time.Now() // those who wait for the lock try their old routes first
			return fmt.Errorf("ps: ask %v for routes: %w", r.coordinator, err)
		}
		r.take(first, reply)
		first += len(reply.Owners)
		if first >= reply.Shards || len(reply.Owners) == 0 {
			r.asked = time.Now()
			r.prune()
			return nil
		}
	}
}

// prune forgets the servers that own nothing: there may be new names all the time.
func (r *routes) prune() {
	r.mu.Lock()
	defer r.mu.Unlock()
	owners := map[shard.ServerID]bool{}
	for _, o := range r.owners {
		owners[o.server] = true
	}
	maps.DeleteFunc(r.servers, func(id shard.ServerID, _ serverInfo) bool { return !owners[id] })
}

func (r *routes) take(first int, reply routesReply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.version.Add(1)
	r.clock = max(r.clock, reply.Clock)
	r.joined, r.needed = reply.Joined, reply.Needed
	for _, s := range reply.Servers {
		r.servers[s.ID] = s
	}
	for i, n := range reply.Owners {
		id := first + i
		if id >= len(r.owners) || i >= len(reply.Epochs) {
			return
		}
		r.lost[id] = false
		if n > 0 && int(n) <= len(reply.Servers) && shard.Epoch(reply.Epochs[i]) >= r.owners[id].epoch {
			r.owners[id] = owner{reply.Servers[n-1].ID, shard.Epoch(reply.Epochs[i])}
		}
	}
	for _, id := range reply.Lost {
		if int(id) < len(r.lost) {
			r.lost[id] = true
		}
	}
}

func (r *routes) openClock() uint32 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.clock
}
