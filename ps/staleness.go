package ps

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/actor"
)

// Bounded staleness of single tables: a worker that is too far ahead waits before it pulls
// rows, not before it begins a clock.

// fresh returns when a table may be pulled: its updates of all clocks up to Staleness
// behind this worker's have been applied.
func (c *Client) fresh(ctx context.Context, table string) error {
	staleness, clock := c.job.Tables[table].Staleness, c.clock.Load()
	if staleness == 0 || c.observer || clock <= staleness || c.finished.Load() >= clock-staleness {
		return nil
	}
	select {
	case c.asking <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.asking }()
	if c.finished.Load() >= clock-staleness {
		return nil // somebody else has just asked
	}
	m := staleRequest{Incarnation: c.incarnation.Load(), Finished: clock - staleness}
	r, err := ask[staleReply](ctx, c.cfg.Node, c.coordinator, m)
	if err != nil {
		return fmt.Errorf("ps: worker %q at clock %d pulls from table %q: %w", c.cfg.Name, clock, table, err)
	}
	c.finished.Store(r.Finished)
	return nil
}

// stale has a member wait until all have finished enough clocks.
func (c *Coordinator) stale(ctx *actor.Context, m staleRequest) {
	p, req := c.members[m.Incarnation], ctx.Request()
	switch {
	case req == nil:
		return
	case c.onItsWay(m.Incarnation):
		req.Fail(errReturning)
		return
	case p == nil:
		req.Fail(fmt.Errorf("%w: incarnation %d", ErrNotMember, m.Incarnation))
		return
	}
	p.stale, p.needs = req, m.Finished // an earlier request has been given up
	c.releaseStale()
}

// releaseStale answers the members that need not wait any longer, and those whose attempt
// is about to end.
func (c *Coordinator) releaseStale() {
	finished := c.clocks.finished()
	for _, p := range c.members {
		switch {
		case p.stale == nil:
		case finished >= p.needs:
			p.stale.Reply(staleReply{Finished: finished})
			p.stale = nil
		case time.Until(p.stale.Deadline()) < 2*reconcileInterval:
			p.stale.Fail(fmt.Errorf("%w: %d clocks are finished by all, not %d", errWaiting, finished, p.needs))
			p.stale = nil
		}
	}
}
