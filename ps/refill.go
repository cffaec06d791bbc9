package ps

import (
	"context"
	"errors"
	"time"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// Shards whose servers are all dead go back to the last checkpoint: they alone, and what
// was lost is counted.

// refill gives a shard that nobody has any more to another server, which fills it from
// the newest checkpoint that has it undamaged. It reports how many of the pushes that are
// known to have been applied are lost, and false if there is no checkpoint or no server, or
// a follower that is not dead for certain.
func (c *Coordinator) refill(was shard.Assignment, dead func(shard.ServerID) bool, newest func(before string) found) (lost uint64, ok bool) {
	id := was.Shard
	if c.cfg.Checkpoints.Storage == nil {
		return 0, false
	}
	c.mu.Lock()
	known, rests := c.applied[id], time.Now().Before(c.rests[id]) // before the next owner reports
	c.mu.Unlock()
	if rests {
		return 0, false
	}
	c.promotes(id, 1) // nothing else is done with the shard before it is there
	defer func() {
		if !ok {
			c.mu.Lock()
			c.rests[id] = time.Now().Add(repairPause)
			c.mu.Unlock()
		}
		c.promotes(id, -1)
	}()
	for before := ""; c.ctx.Err() == nil; {
		saved := newest(before)
		if !c.canFill(id, saved.err) {
			return 0, false
		}
		now, err := c.refilled(was, dead)
		to := now.Owner
		if errors.Is(err, errSettled) {
			return 0, false
		}
		if err != nil {
			c.log.Warn("lost shard cannot be given to a server", "shard", id, "err", err)
			return 0, false
		}
		if !c.nobodyReads(id, true) {
			sleep(c.ctx, leaseWait) // the owner before the one that is gone may have its lease
		}
		reply, err := c.fillFrom(id, saved.Ref().Name)
		if err == nil {
			lost = max(known, reply.Filled) - reply.Filled
			c.log.Warn("lost shard was filled from a checkpoint", "shard", id, "server", to, "checkpoint", saved.Ref().Name, "lost_pushes", lost)
			return lost, true
		}
		c.loses(to, id) // it may have it all the same, and is asked before another one gets it
		if !errors.Is(err, checkpoint.ErrDamaged) || !c.lacks(now) {
			return 0, false
		}
		before, was = saved.Ref().Name, now
	}
	return 0, false
}

// loses takes note that a server is not known to have a shard.
func (c *Coordinator) loses(id shard.ServerID, i shard.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.servers[id]; s != nil {
		s.lost[i] = true
	}
}

// canFill takes note whether there is a checkpoint to fill lost shards from. If not it is tried
// again and again, and said once.
func (c *Coordinator) canFill(id shard.ID, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hopeless = errors.Is(err, checkpoint.ErrNotFound) || errors.Is(err, checkpoint.ErrMismatch) // else the storage may come back
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != "" && why != c.unfilled {
		c.log.Error("lost shards cannot be filled", "first", id, "err", err)
	}
	c.unfilled = why
	return err == nil
}

// found is a checkpoint, or why there is none.
type found struct {
	*checkpoint.Checkpoint
	err error
}

// newest is the newest checkpoint of this job, older than the one named before. One looks at a
// time, for all who have asked before that, however many servers have lost shards; and when
// there was none nobody does for a while.
func (c *Coordinator) newest(before string) found {
	asked := time.Now()
	c.looking.Lock()
	defer c.looking.Unlock()
	if before == "" && (c.looked.After(asked) || time.Since(c.looked) < repairPause && c.found.err != nil) {
		return c.found
	}
	began := time.Now()
	saved, err := c.look(before)
	if before == "" {
		c.looked, c.found = began, found{saved, err}
	}
	return found{saved, err}
}

// look looks for the newest checkpoint of this job before another one. The storage may have
// those of other jobs of the same model.
func (c *Coordinator) look(before string) (*checkpoint.Checkpoint, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.Checkpoints.Timeout)
	defer cancel()
	for {
		saved, skipped, err := checkpoint.Latest(ctx, c.cfg.Checkpoints.Storage, before)
		for _, why := range skipped {
			c.log.Warn("checkpoint is passed over", "err", why)
		}
		if err != nil {
			return nil, err
		}
		before = saved.Ref().Name
		isOurs := c.wrote(saved)
		if !isOurs {
			restored, err := c.places.restoredFrom(ctx)
			if err != nil {
				return nil, err
			}
			isOurs = before == restored
		}
		if isOurs {
			return saved, c.fits(saved)
		}
	}
}

// refilled writes down that another server owns a lost shard, and returns what it wrote. One
// that was given to somebody else meanwhile, to a follower perhaps, is not lost there.
func (c *Coordinator) refilled(was shard.Assignment, dead func(shard.ServerID) bool) (now shard.Assignment, err error) {
	id := was.Shard
	var gone shard.Followers
	var wrote shard.Assignment
	for _, f := range c.places.record(id).Followers.IDs() {
		if dead(f) {
			gone = gone.With(f)
		}
	}
	for c.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(c.ctx, storeTimeout)
		err = c.places.change(ctx, id, func(cur shard.Record) (shard.Record, error) {
			now = cur.Assignment
			switch {
			case now == wrote:
				return cur, nil // what came of the write was not known
			case !now.SameOwner(was):
				return cur, errSettled
			}
			free, err := c.places.owners().WithOwner(id, "")
			if err != nil {
				return cur, err
			}
			c.mu.Lock()
			servers := c.eligible()
			c.mu.Unlock()
			m, err := shard.Assign(free, c.shards, c.known(servers))
			if err != nil {
				return cur, err
			}
			a, _ := m.Owner(id)
			for _, f := range gone.IDs() {
				cur = cur.Drop(f)
			}
			next, err := cur.Refill(a.Owner)
			now, wrote = next.Assignment, next.Assignment
			return next, err
		})
		cancel()
		if err == nil || errors.Is(err, errSettled) || errors.Is(err, shard.ErrRecord) || errors.Is(err, shard.ErrPlace) {
			return now, err
		}
		c.reread(id, err)
	}
	return now, context.Cause(c.ctx)
}

// fillFrom has the owner of a shard fill it from a checkpoint, and tells the workers.
func (c *Coordinator) fillFrom(id shard.ID, name string) (commandReply, error) {
	a := c.places.record(id).Assignment
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.CopyTimeout)
	defer cancel()
	reply, err := c.order(ctx, a.Owner, command{
		Kind: commandHost, Shard: uint32(id), Epoch: uint64(a.Epoch), Attempt: a.Attempt, From: name, Timeout: c.cfg.CopyTimeout,
	})
	if err == nil {
		c.announce(shard.Effect{Kind: shard.EffectActivate, Shard: id, Server: a.Owner, Epoch: a.Epoch}, c.info(a.Owner).Run)
	}
	return reply, err
}

// shardCount is how many pushes were applied to a shard.
type shardCount struct {
	Shard   uint32
	Applied uint64
}

// maxCounts bounds the shards in one report; the following ones have the others.
const maxCounts = 512

// counts returns those of the first maxCounts shards from first on that are owned here, and
// where the next ones begin, 0 after the last.
func (s *Server) counts(first shard.ID) (counts []shardCount, next shard.ID) {
	for _, r := range s.inOrder(first) {
		if len(counts) == maxCounts {
			return counts, r.spec.ID
		}
		r.mu.Lock()
		if r.copy.Owns() {
			counts = append(counts, shardCount{uint32(r.spec.ID), r.applied})
		}
		r.mu.Unlock()
	}
	return counts, 0
}
