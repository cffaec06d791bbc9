package ps

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/shard"
)

// An owner that lives and that its clients cannot reach: it answers the coordinator and
// follows its leases, so no failover replaces it. The clients say so, and if it is most of
// those who use it, its followers take over by a switch, which copies nothing.

const (
	// The pause between two attempts of a client to reach a server doubles from minDialPause
	// to maxDialPause once the server counts as out of reach: until then each attempt counts.
	minDialPause = 100 * time.Millisecond
	maxDialPause = 800 * time.Millisecond
	// reachRest is how long a server that was reached is not asked again.
	reachRest = 500 * time.Millisecond
	// opinionAge is how old a client's report may be to count.
	opinionAge = 2 * time.Second
	// maxUnreached bounds the servers in one report.
	maxUnreached = 64
)

// opinion is what a client says of the servers that it uses.
type opinion struct {
	Served    []shard.ServerID // have acknowledged pushes of the last seconds
	Unreached []shard.ServerID // do not even greet it
}

// complaints is how many clients do not reach each server.
type complaints map[shard.ServerID]int

// cutOff counts the complaints, and returns the servers that more clients do not reach
// than are served by, in order: one client whose own way is broken deposes nobody whom
// the others use. A client that does neither has no say.
func cutOff(opinions []opinion) (ids []shard.ServerID, all complaints) {
	served := map[shard.ServerID]int{}
	all = complaints{}
	for _, o := range opinions {
		for _, id := range o.Unreached {
			all[id]++
		}
		for _, id := range o.Served {
			if !slices.Contains(o.Unreached, id) {
				served[id]++
			}
		}
	}
	for id, n := range all {
		if n > served[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, all
}

// successor is the follower that the fewest clients do not reach, the first among equals,
// or none if it is no better off than the owner: a client that reaches nobody moves
// nothing.
func (c complaints) successor(owner shard.ServerID, followers []shard.ServerID) (to shard.ServerID) {
	least := c[owner]
	for _, id := range followers {
		if c[id] < least {
			to, least = id, c[id]
		}
	}
	return to
}

// opinions are those of the clients that have reported lately.
func (c *Coordinator) opinions() (list []opinion) {
	for _, p := range c.members {
		if time.Since(p.heard) < opinionAge {
			list = append(list, p.opinion)
		}
	}
	return list
}

// hear takes note of a client's report.
func (c *Coordinator) hear(m workerReport) {
	p := c.members[m.Incarnation]
	if p == nil {
		return
	}
	p.load, p.heard, p.opinion = m.Load, time.Now(), opinion{Unreached: m.Unreached}
	for _, l := range m.Load.Servers {
		p.opinion.Served = append(p.opinion.Served, l.Server)
	}
	c.complained = c.complained || len(m.Unreached) > 0
}

// judge has servers replaced that clients cannot reach, if any has said so since the last
// time: all that they say is looked at together, not with each report.
func (c *Coordinator) judge() {
	if !c.complained {
		return
	}
	c.complained = false
	ids, all := cutOff(c.opinions())
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.replace(id, all)
	}
}

// replace gives the shards of a server that lives to followers that clients can reach,
// each shard at most once in a repairPause. What is silent here too is a case for
// suspect. The caller holds c.mu.
func (c *Coordinator) replace(id shard.ServerID, all complaints) {
	if c.failing[id] || !c.up(id) || len(c.switches(id, all)) == 0 || c.ctx.Err() != nil {
		return
	}
	c.failing[id] = true
	c.running.Go(func() {
		lives := c.vital(id, probeTimeout) == answers
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.failing, id)
		c.unsettled = true
		if !lives {
			return
		}
		moves := c.switches(id, all)
		c.log.Warn("server is cut off from its clients", "server", id, "unreached_by", all[id], "shards", len(moves))
		for _, m := range moves {
			if mig, effects, err := shard.Begin(c.places.record(m.Shard), m.To); err == nil { // else another move has begun
				c.rests[m.Shard] = time.Now().Add(repairPause)
				c.run(&underWay{nonce: randomID()}, mig, effects)
			}
		}
	})
}

// switches are the moves to followers that take a server's shards from it. The caller
// holds c.mu.
func (c *Coordinator) switches(id shard.ServerID, all complaints) (moves []shard.Move) {
	for _, r := range c.places.all() {
		s := r.Assignment.Shard
		if r.Assignment.Owner != id || c.moving[s] != nil || time.Now().Before(c.rests[s]) {
			continue
		}
		up := slices.DeleteFunc(r.Followers.IDs(), func(f shard.ServerID) bool { return !c.up(f) })
		if to := all.successor(id, up); to != "" {
			moves = append(moves, shard.Move{Shard: s, From: id, To: to})
		}
	}
	return moves
}

// seek finds out, beside the caller, whether a server can be reached that has left a call
// without an answer: it may only be slow, or the shard frozen. Until it greets, or owns
// nothing any more, the client says that it does not.
//
// It may take twice the suspicion time of the client's node, a second by default, and a new
// connection a fifth of that to be greeted: a lost packet must not count.
func (c *Client) seek(to serverInfo) {
	if to.ID == "" || !c.routes.uses(to) || to.Node == c.cfg.Node.Name() {
		return
	}
	l := c.stats.of(to.ID)
	if !l.sought.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer l.sought.Store(false)
		defer l.unreached.Store(false)
		timeout := 2 * c.cfg.Node.Suspicion()
		pause := minDialPause
		for began := time.Now(); c.ctx.Err() == nil && c.routes.uses(to); {
			if c.greets(to, timeout/5) {
				l.unreached.Store(false)
				sleep(c.ctx, reachRest)
				return
			}
			if time.Since(began) >= timeout {
				if l.unreached.CompareAndSwap(false, true) {
					_ = c.cfg.Node.TryCast(c.ref, reportEarly{}) // else the next report has it
				}
				pause = min(2*pause, maxDialPause)
			}
			sleep(c.ctx, jittered(pause))
		}
	}()
}

// jittered is three quarters of a pause to all of it: clients that have lost a server at the same
// moment do not all come back to it at the same moment.
func jittered(pause time.Duration) time.Duration {
	return pause - time.Duration(rand.Int64N(int64(pause/4)))
}

// greets reports whether a new connection to a server is answered in time, be it by a refusal:
// a client without the right certificate, for example, does reach it.
func (c *Client) greets(to serverInfo, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(c.ctx, timeout)
	defer cancel()
	conn, err := dial(ctx, to, c.cfg.TLS, stream.Config{})
	if err != nil {
		return ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded)
	}
	_ = conn.Close() // only the greeting mattered
	return true
}

// unreached lists the servers that do not greet, in order.
func (s *clientStats) unreached() (ids []shard.ServerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.servers {
		if l.unreached.Load() && len(ids) < maxUnreached {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// uses reports whether this run of a server owns anything, as far as is known.
func (r *routes) uses(s serverInfo) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.servers[s.ID].Run == s.Run && slices.ContainsFunc(r.owners, func(o owner) bool { return o.server == s.ID })
}
