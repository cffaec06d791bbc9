package ps

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
)

// What the coordinator does about earlier runs of a server that may live.

// succeeds reports whether no earlier run of a server may have anything: each has ended,
// or has said that it gave up. Only then does what the run that counts does, has or says
// go for the server.
func (c *Coordinator) succeeds(id shard.ServerID) bool {
	at := c.places.where(id)
	if len(at.Before) == 0 {
		return true
	}
	over := c.over(at)
	ctx, cancel := context.WithTimeout(c.ctx, storeTimeout)
	defer cancel()
	if len(over) > 0 && c.places.bury(ctx, id, over...) != nil {
		return false // it is asked again
	}
	return len(over) == len(at.Before)
}

// over are the numbers of those earlier runs of a server that have ended for certain. All are
// asked at once: one that is silent takes no time from the others.
func (c *Coordinator) over(at address) (over []uint64) {
	ctx, cancel := context.WithTimeout(c.ctx, probeTimeout)
	defer cancel()
	var mu sync.Mutex
	var tasks sync.WaitGroup
	for _, e := range at.Before {
		tasks.Go(func() {
			if !c.hasEnded(ctx, at, e) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			over = append(over, e.Run)
		})
	}
	tasks.Wait()
	return over
}

// hasEnded reports whether nobody listens where the node of an earlier run was, or that node
// says that the run's actor has ended.
func (c *Coordinator) hasEnded(ctx context.Context, at address, e earlierRun) bool {
	if e.Addr == "" || vacant(ctx, e.Addr) { // only one run can listen there
		return e.Addr != ""
	}
	if !at.names(e) || c.cfg.Node.AddPeer(e.Node, e.Addr) != nil {
		return false
	}
	_, err := c.cfg.Node.Call(ctx, actor.Ref{Node: e.Node, Name: at.Process}, aliveRequest{})
	return errors.Is(err, actor.ErrNoProcess)
}

// notSeen takes from the records of a server those of shards that its run that counts is not
// known to have had, and returns them: an earlier run may have them.
func (c *Coordinator) notSeen(id shard.ServerID, held map[shard.ID]shard.Record) map[shard.ID]shard.Record {
	rest := map[shard.ID]shard.Record{}
	run := c.places.counts(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.servers[id]
	for i, r := range held {
		if s == nil || run == 0 || s.info.Run != run || s.lost[i] {
			rest[i] = r
			delete(held, i)
		}
	}
	return rest
}

// replaceLost goes on with the shards that the run of their owner that counts does not have:
// a follower may be back by now, or the earlier runs over. The caller holds c.mu.
func (c *Coordinator) replaceLost() {
	for id, s := range c.servers {
		if !s.up || len(s.lost) == 0 || c.failing[id] {
			continue
		}
		shards := c.holdings(id)
		maps.DeleteFunc(shards, func(i shard.ID, r shard.Record) bool {
			return r.Assignment.Owner != id || !s.lost[i] || c.promoting[i] > 0
		})
		if len(shards) == 0 {
			continue
		}
		c.failing[id] = true
		c.running.Go(func() {
			c.failover(id, c.succeeds(id), shards)
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.failing, id)
			c.unsettled = true // it may have gone away meanwhile
		})
	}
}

// leaseWait is how long a new owner waits at most for the leases of the one before.
const leaseWait = leaseTime + leaseDrift

// nobodyReads reports whether no former owner of a shard may serve reads. That the last one
// is dead, which sure says, is no proof: it may have taken the place of one that hangs, and
// not have waited for the leases of that until their end, or not have been told. An earlier
// coordinator may have written its promotion and have ended before that.
func (c *Coordinator) nobodyReads(id shard.ID, sure bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	until, isKnown := c.leases[id]
	if sure && isKnown && !time.Now().Before(until) {
		return true
	}
	delete(c.leases, id) // until the next one has begun to wait
	return false
}

// waits takes note that the owner of a shard waits, at most for so long, until no former one
// may serve reads. If that is known, whoever says it later cannot know better. The caller
// holds c.mu.
func (c *Coordinator) waits(id shard.ID, most time.Duration) {
	if _, isKnown := c.leases[id]; !isKnown {
		c.leases[id] = time.Now().Add(most)
	}
}

// speaks takes note of a server that serves as the owner, if it is that of the record: if it has to wait for the leases
// of the one before, it has begun to. The caller holds c.mu.
func (c *Coordinator) speaks(a shard.Assignment, server shard.ServerID, copy shard.Copy) {
	if a.Owner == server && copy.MayAcknowledge(a.Epoch) {
		c.waits(a.Shard, leaseWait)
	}
}

// bury takes note that a run has given up what it had.
func (c *Coordinator) bury(req *actor.Request, m outRequest) {
	if req == nil {
		return
	}
	c.running.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, storeTimeout)
		defer cancel()
		if err := c.places.bury(ctx, m.ID, m.Run); err != nil {
			req.Fail(err)
			return
		}
		req.Reply(done{})
		c.mu.Lock()
		defer c.mu.Unlock()
		c.replaceLost()
	})
}
