package ps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

// A coordinator that takes over a job knows from the store which members there were,
// but not at which clock each is, nor which ranges of the data it has. Until all have come
// back, or the time for it is over, it hands nothing out that one of them may have; and
// where there are clocks it releases nobody and takes in nobody new: who ran ahead would
// close clocks in which the others still push.

// errReturning answers requests that are to be repeated when more members are back.
var errReturning = errors.New("ps: the coordinator has just started, and members are on their way back")

// errReplacing answers requests that are to be repeated when the followers on a server
// have been replaced.
var errReplacing = errors.New("ps: the followers on the server are being replaced")

// clocked reports whether the job has clocks that members wait for.
func (j Job) clocked() bool { return j.Consistency.Mode != ASP }

// awaited reports whether others wait for what a member has: its clock, or its ranges.
func (j Job) awaited() bool { return j.clocked() || len(j.Datasets) > 0 }

// expect takes note of the members that an earlier coordinator has left.
func (c *Coordinator) expect(ctx context.Context) error {
	if !c.cfg.Job.awaited() {
		return nil
	}
	members, err := c.places.membersLeft(ctx)
	if err != nil {
		return err
	}
	c.missing = members
	c.clocks.held = c.cfg.Job.clocked() && len(members) > 0
	return nil
}

// back takes note that a member has come back, or will not. The last one lets the
// clocks go on.
func (c *Coordinator) back(incarnation uint64) {
	if !c.missing[incarnation] {
		return
	}
	delete(c.missing, incarnation)
	if len(c.missing) == 0 {
		c.clocks.held = false
		c.release(c.clocks.release())
		c.settleDatasets()
	}
}

// giveUp ends the wait for members that have not come back.
func (c *Coordinator) giveUp() {
	for _, inc := range slices.Sorted(maps.Keys(c.missing)) {
		c.log.Warn("worker has not come back", "incarnation", inc)
		c.forgetMember(inc)
		c.back(inc)
	}
}

// settling reports whether the open clock is not known yet: that of the members, or
// of those who were there before, which the servers have seen.
func (c *Coordinator) settling() bool {
	switch {
	case !c.cfg.Job.clocked():
		return false
	case len(c.missing) > 0:
		return true
	case c.cfg.Job.Consistency.Mode != BSP, time.Since(c.started) > retainGrace:
		return false
	}
	for _, a := range c.places.owners().Assignments {
		if a.Owner != "" && !c.heard[a.Owner] {
			return true
		}
	}
	return false
}

// awaits reports whether a server that has copies may still be on its way to this
// coordinator, which has just taken over: its followers need not be replaced. The
// caller holds c.mu.
func (c *Coordinator) awaits(records []shard.Record) bool {
	if time.Since(c.started) > retainGrace {
		return false
	}
	for _, r := range records {
		if owner := r.Assignment.Owner; owner != "" && !c.heard[owner] {
			return true
		}
		for _, id := range r.Followers.IDs() {
			if !c.heard[id] {
				return true
			}
		}
	}
	return false
}

// maxProbes bounds the servers that are asked at the same time whether they live.
const maxProbes = 64

// returning is how many servers are known to the store that have not come back yet to
// this coordinator, and may. The caller holds c.mu.
func (c *Coordinator) returning() (n int) {
	if time.Since(c.started) > retainGrace {
		return 0
	}
	for _, id := range c.places.known() {
		if c.isReturning(id) {
			n++
		}
	}
	return n
}

// isReturning reports whether a server that is known to the store has not come back and is
// not known to be dead. What ended is one run: another one that counts by now may be on its
// way. The caller holds c.mu.
func (c *Coordinator) isReturning(id shard.ServerID) bool {
	run, isOver := c.endedRuns[id]
	return c.servers[id] == nil && (!isOver || run != c.places.counts(id))
}

// askReturning asks the servers that may return whether they live, beside the caller, who
// holds c.mu: of most that have ended their machines say so at once.
func (c *Coordinator) askReturning() {
	if c.asking || c.ctx.Err() != nil || c.returning() == 0 {
		return
	}
	ids := slices.DeleteFunc(c.places.known(), func(id shard.ServerID) bool { return !c.isReturning(id) })
	c.asking = true
	c.running.Go(func() {
		atOnce(maxProbes, ids, func(_ int, id shard.ServerID) {
			run := c.places.counts(id)
			if run == 0 || c.vital(id, probeTimeout) != ended || c.places.counts(id) != run {
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.endedRuns[id] = run
		})
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asking = false
	})
}

// forgetMember deletes what the store has of a member, beside the actor: a member
// too many costs the next coordinator some time and nothing else.
func (c *Coordinator) forgetMember(incarnation uint64) {
	if !c.cfg.Job.awaited() || c.ctx.Err() != nil {
		return
	}
	c.running.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, storeTimeout)
		defer cancel()
		if err := c.places.setMember(ctx, incarnation, nil); err != nil && c.ctx.Err() == nil {
			c.log.Warn("member stays in the store", "incarnation", incarnation, "err", err)
		}
	})
}

func (p *placement) memberKey(incarnation uint64) string {
	return p.prefix + "member/" + strconv.FormatUint(incarnation, 10)
}

// setMember writes that a member exists, or with nil that it does not any more.
func (p *placement) setMember(ctx context.Context, incarnation uint64, value []byte) error {
	key := p.memberKey(incarnation)
	for {
		e, err := p.kv.Get(ctx, key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if value == nil && err != nil {
			return nil // there is none
		}
		_, err = p.kv.CompareAndSwap(ctx, key, e.Revision, value)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// membersLeft lists the members that the store has.
func (p *placement) membersLeft(ctx context.Context) (map[uint64]bool, error) {
	prefix := p.prefix + "member/"
	entries, err := p.kv.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	members := map[uint64]bool{}
	for _, e := range entries {
		inc, err := strconv.ParseUint(e.Key[len(prefix):], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("ps: store key %q: %w", e.Key, err)
		}
		members[inc] = true
	}
	return members, nil
}
