package ps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/elasticps/elasticps/shard"
)

// Who gets shards, and the first owners of new ones.

// eligible are the servers that may get shards. The caller holds c.mu.
func (c *Coordinator) eligible() []shard.Server {
	var out []shard.Server
	for _, id := range slices.Sorted(maps.Keys(c.servers)) {
		if _, leaves := c.leaving[id]; !leaves && c.servers[id].up {
			s := c.servers[id]
			out = append(out, shard.Server{ID: id, Draining: s.draining, Domain: s.info.Domain})
		}
	}
	return out
}

// place gives new shards their first owners. A shard's record is written after its
// server has created it, so that a record never names a server without the shard.
func (c *Coordinator) place() {
	free := c.places.unplaced()
	c.mu.Lock()
	servers := c.eligible()
	c.mu.Unlock()
	up := slices.DeleteFunc(slices.Clone(servers), func(s shard.Server) bool { return s.Draining })
	if len(free) == 0 || len(up) < c.cfg.Job.MinServers {
		return
	}
	m, err := shard.Assign(c.places.owners(), c.shards, c.known(servers))
	if err != nil {
		c.log.Warn("cannot place", "err", err)
		return
	}
	c.placing = map[shard.ServerID]bool{}
	var todo []shard.Assignment
	for _, id := range free {
		a, _ := m.Owner(id)
		if claimed, ok := c.claims[id]; ok && c.isUp(claimed) {
			a.Owner = claimed
		}
		c.placing[a.Owner] = true
		todo = append(todo, a)
	}
	c.running.Go(func() {
		err := c.create(todo)
		_ = c.cfg.Node.Cast(c.ctx, c.ref, placed{err}) // fails only when closed
	})
}

// known adds the owners that are down, which Assign has to know but must not use.
func (c *Coordinator) known(servers []shard.Server) []shard.Server {
	have := map[shard.ServerID]bool{}
	for _, s := range servers {
		have[s.ID] = true
	}
	for _, a := range c.places.owners().Assignments {
		if a.Owner != "" && !have[a.Owner] {
			have[a.Owner] = true
			servers = append(servers, shard.Server{ID: a.Owner, Draining: true})
		}
	}
	return servers
}

// maxPlacements bounds the new shards that are created at the same time.
const maxPlacements = 16

// create creates new shards, and returns when it has been tried for each.
func (c *Coordinator) create(todo []shard.Assignment) error {
	errs := make([]error, len(todo))
	atOnce(maxPlacements, todo, func(i int, a shard.Assignment) {
		if err := c.createOne(a); err != nil {
			errs[i] = fmt.Errorf("shard %d on %q: %w", a.Shard, a.Owner, err)
		}
	})
	return errors.Join(errs...)
}

func (c *Coordinator) createOne(a shard.Assignment) error {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.CopyTimeout)
	defer cancel()
	_, err := c.order(ctx, a.Owner, command{
		Kind: commandHost, Shard: uint32(a.Shard), Epoch: uint64(a.Epoch), Timeout: c.cfg.CopyTimeout, From: c.restoredFrom(),
	})
	if err != nil {
		return err
	}
	err = c.places.change(ctx, a.Shard, func(shard.Record) (shard.Record, error) { return shard.Record{Assignment: a}, nil })
	if err != nil {
		_, _ = c.places.read(ctx, a.Shard) // it may have been written all the same
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits(a.Shard, 0) // it is the first owner
	return nil
}

// placed hears what place has come to.
func (c *Coordinator) placed(err error) {
	c.placing = nil
	c.mu.Lock()
	c.unsettled = true
	c.mu.Unlock()
	if err != nil {
		c.log.Warn("placement failed, will be tried again", "err", err)
	}
}
