package ps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/elasticps/elasticps/shard"
)

// When a checkpoint is taken, and which server writes what of it.

// shardsPerSave keeps a saveRequest within one message.
const shardsPerSave = 8192

// part is what one server does for a checkpoint.
type part struct {
	server shard.ServerID
	shards []uint32
	files  []string
}

// cut has every shard written. Under BSP all are of the same clock: nobody begins it
// before the servers have taken their cuts, which they write afterwards. Otherwise the
// shards are cut one after the other, after the progress of the datasets, which it returns.
func (c *Coordinator) cut(ctx context.Context, m *saveRequest) ([]part, json.RawMessage, error) {
	at := make(chan instant, 1)
	if err := c.cfg.Node.Cast(ctx, c.ref, barrierRequest{at}); err != nil {
		return nil, nil, err
	}
	over := sync.OnceFunc(func() { _ = c.cfg.Node.Cast(c.ctx, c.ref, barrierOver{}) }) // fails only when closed
	defer over()
	var now instant
	select {
	case now = <-at:
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("ps: wait for the end of a clock: %w", context.Cause(ctx))
	}
	if now.err != nil {
		return nil, nil, now.err
	}
	if c.cfg.Job.Consistency.Mode != BSP {
		m.Clock = now.clock
		parts, err := c.divide(ctx, *m)
		return parts, now.datasets, err
	}
	parts, err := c.cutClock(ctx, m, now.clock, over)
	return parts, now.datasets, err
}

// cutClock has the cuts of a clock taken, lets the workers go on, and has the cuts written.
func (c *Coordinator) cutClock(ctx context.Context, m *saveRequest, clock uint32, over func()) ([]part, error) {
	m.Clock = clock
	arm := *m
	arm.Arm = true
	brief, cancel := context.WithTimeout(ctx, c.cfg.StepTimeout)
	defer cancel()
	parts, err := c.divide(brief, arm)
	over()
	if err != nil {
		return nil, err
	}
	m.Armed = true
	parts = byServer(parts)
	for i := range parts {
		save := *m
		save.Shards = parts[i].shards
		reply, err := c.askServer(ctx, parts[i].server, save)
		if err != nil {
			return nil, fmt.Errorf("server %q: %w", parts[i].server, err)
		}
		parts[i].files = reply.Files
	}
	return parts, nil
}

// divide has every owner do its part of a checkpoint, and those again that become owners
// meanwhile.
func (c *Coordinator) divide(ctx context.Context, m saveRequest) (parts []part, err error) {
	done := map[uint32]bool{}
	for round := 0; len(done) < len(c.shards); round++ {
		before := len(done)
		answers := c.askOwners(ctx, m, round, done)
		var errs []error
		fatal := false
		for _, a := range answers {
			if a.err != nil {
				errs = append(errs, fmt.Errorf("server %q: %w", a.server, a.err))
				fatal = fatal || !(Retryable(a.err) || errors.Is(a.err, ErrClosed)) && c.isUp(a.server)
				continue
			}
			for _, id := range a.shards {
				done[id] = true
			}
			parts = append(parts, a.part)
		}
		switch {
		case ctx.Err() != nil:
			return nil, errors.Join(append(errs, context.Cause(ctx))...)
		case fatal:
			return nil, errors.Join(errs...)
		case len(done) == before:
			sleep(ctx, rejoinPause) // shards are on their way, or a server is being replaced
		}
	}
	return parts, nil
}

// byServer makes one part of those of a server, which has taken cuts more than once.
func byServer(parts []part) (all []part) {
	for _, p := range parts {
		i := slices.IndexFunc(all, func(other part) bool { return other.server == p.server })
		if i < 0 {
			all = append(all, p)
			continue
		}
		all[i].shards = append(all[i].shards, p.shards...)
	}
	return all
}

type partAnswer struct {
	part
	err error
}

// askOwners asks the owners of the shards that are not done, all at the same time.
func (c *Coordinator) askOwners(ctx context.Context, m saveRequest, round int, done map[uint32]bool) []partAnswer {
	owners := map[shard.ServerID][]uint32{}
	for _, r := range c.places.all() {
		id, owner := uint32(r.Assignment.Shard), r.Assignment.Owner
		if !done[id] && len(owners[owner]) < shardsPerSave {
			owners[owner] = append(owners[owner], id)
		}
	}
	if !m.Arm {
		m.Nonce = fmt.Sprintf("%s-%d", m.Nonce, round) // what was written is not written again
	}
	answers := make(chan partAnswer, len(owners))
	for owner, ids := range owners {
		go func() {
			request := m
			request.Shards = ids
			reply, err := c.askServer(ctx, owner, request)
			mine := slices.DeleteFunc(slices.Clone(ids), func(id uint32) bool { return slices.Contains(reply.Left, id) })
			answers <- partAnswer{part{owner, mine, reply.Files}, err}
		}()
	}
	var all []partAnswer
	for range owners {
		all = append(all, <-answers)
	}
	return all
}

func (c *Coordinator) askServer(ctx context.Context, id shard.ServerID, m saveRequest) (saveReply, error) {
	m.Term = c.term
	return instruct[saveReply](ctx, c, id, m)
}

// instant is when a checkpoint is taken. Whatever was pushed before a range was finished
// that is finished in datasets is in the checkpoint.
type instant struct {
	clock    uint32
	datasets json.RawMessage
	err      error
}

// barrierRequest asks the coordinator's actor to hold the workers, under BSP, when all have
// finished the same clock, and to say which is next.
type barrierRequest struct{ at chan<- instant }

// beginCut answers at once unless there are clocks to be held.
func (c *Coordinator) beginCut(m barrierRequest) {
	c.barrier, c.clocks.cut = m.at, c.cfg.Job.Consistency.Mode == BSP
	if !c.clocks.cut {
		c.cutAt(c.clocks.next) // the next job goes on from there: rows expire by clocks
	}
}

// cutAt says that a checkpoint is to be taken now.
func (c *Coordinator) cutAt(clock uint32) {
	datasets, err := c.datasetStates()
	c.barrier <- instant{clock, datasets, err}
	c.barrier = nil
}

// barrierOver lets them go on.
type barrierOver struct{}

// atBarrier says so if the workers are where a barrierRequest wants them.
func (c *Coordinator) atBarrier() {
	if c.barrier == nil || c.settling() {
		return
	}
	if clock, all := c.clocks.barrier(); all {
		c.cutAt(clock)
	}
}
