package ps

import (
	"context"
	"time"

	"github.com/elasticps/elasticps/shard"
)

// What a server holds is what orders have made of it, and an order may be lost for longer
// than anybody asks, or not be given because the server seems to be down. So servers tell
// with their reports what they hold, and the coordinator compares it with the map.

const (
	// maxCopies bounds the copies in one report, and in one page of an answer; the next ones
	// have the others.
	maxCopies = 256
	// copiesPerPage bounds the copies in one page of a registration, each of at most 24 bytes.
	copiesPerPage = 2048
	// correctAfter is how long a copy is other than the record says before that is put right:
	// whoever has changed the record is about to tell the server, and knows more.
	correctAfter = time.Second
)

// CopyStatus is what a server holds of one shard.
type CopyStatus struct {
	Shard   shard.ID
	State   shard.CopyState
	Epoch   shard.Epoch    // at which it serves; of a follower that of its owner
	Attempt uint64         // of the last move or promotion that it took part in
	Peer    shard.ServerID // the other server of that; of a follower its owner
	Bytes   int64          // parameters and optimizer state
}

// copiesRequest asks a server what it holds, from a shard on.
type copiesRequest struct{ First uint32 }

type copiesReply struct {
	Copies []CopyStatus // at most maxCopies, in order of their shards
	Next   uint32       // where the next page begins, 0 after the last
}

// holdsCopy is what this server has of the shard, if it has anything. The caller holds mu.
func (r *replica) holdsCopy() (c CopyStatus, ok bool) {
	c = CopyStatus{r.spec.ID, r.copy.State, r.copy.Epoch, r.copy.Attempt, r.copy.Peer, r.stateBytes()}
	return c, c.State != shard.Absent && c.State != shard.Released
}

// holding returns what this server has of the first maxCopies shards from first on, and
// where the next page begins, 0 after the last.
func (s *Server) holding(first shard.ID) (held []CopyStatus, next shard.ID) {
	for _, r := range s.inOrder(first) {
		if len(held) == maxCopies {
			return held, r.spec.ID
		}
		r.mu.Lock()
		if c, ok := r.holdsCopy(); ok {
			held = append(held, c)
		}
		r.mu.Unlock()
	}
	return held, 0
}

// Copies asks a server itself what it holds, in order of the shards. Owners and followers
// are in the status of the job; a copy that is neither is part of a move, or is given up soon.
func (a *Admin) Copies(ctx context.Context, s ServerStatus) (held []CopyStatus, err error) {
	for next := uint32(0); ; {
		r, err := askDirectly[copiesReply](ctx, a.node, s, copiesRequest{First: next})
		if err != nil {
			return nil, err
		}
		held = append(held, r.Copies...)
		if r.Next <= next {
			return held, nil
		}
		next = r.Next
	}
}

// copies says what a server holds: one element of each for each copy.
type copies struct {
	Shards   []uint32
	Epochs   []uint64
	Attempts []uint64
	States   []uint8
}

func (c *copies) add(held CopyStatus) {
	c.Shards = append(c.Shards, uint32(held.Shard))
	c.Epochs = append(c.Epochs, uint64(held.Epoch))
	c.Attempts = append(c.Attempts, held.Attempt)
	c.States = append(c.States, uint8(held.State))
}

// put is add for what came in another message.
func (c *copies) put(id shard.ID, held shard.Copy) {
	c.add(CopyStatus{Shard: id, Epoch: held.Epoch, Attempt: held.Attempt, State: held.State})
}

// each calls f for every copy.
func (c *copies) each(f func(shard.ID, shard.Copy)) {
	for i := range min(len(c.Shards), len(c.Epochs), len(c.Attempts), len(c.States)) {
		f(shard.ID(c.Shards[i]), shard.Copy{
			Epoch: shard.Epoch(c.Epochs[i]), Attempt: c.Attempts[i], State: shard.CopyState(c.States[i]),
		})
	}
}

// wrongCopy is a copy that is not what the record says.
type wrongCopy struct {
	order shard.Effect // that puts it right
	since time.Time
	told  bool // the server is being told
}

// compare begins to put right what a server has held for correctAfter and should not. The
// caller holds c.mu.
func (c *Coordinator) compare(s *serverState, held copies) {
	held.each(func(id shard.ID, copy shard.Copy) {
		if int(id) >= len(c.shards) {
			return
		}
		r := c.places.record(id)
		c.speaks(r.Assignment, s.info.ID, copy)
		if p := r.Pending; r.Assignment.Owner == "" || copy.Attempt > r.Assignment.Attempt || p != nil && (p.From == s.info.ID || p.To == s.info.ID) {
			return // whose record is about to be written, or read
		}
		e, isWrong := r.Correct(s.info.ID, copy)
		w := s.wrong[id]
		switch {
		case !isWrong:
			delete(s.wrong, id)
		case w == nil || w.order.Kind != e.Kind: // a later attempt is no reason to begin anew: one that fails may be the next one every time
			s.wrong[id] = &wrongCopy{order: e, since: time.Now()}
		case !w.told && time.Since(w.since) >= correctAfter:
			c.log.Info("copy is put right", "shard", id, "server", s.info.ID, "copy", copy.State, "epoch", copy.Epoch, "attempt", copy.Attempt, "order", e.Kind)
			c.correct(s, &wrongCopy{order: e}, copy)
		}
	})
}

// correct gives a server the order that a copy needs, beside the caller, who holds c.mu.
func (c *Coordinator) correct(s *serverState, w *wrongCopy, copy shard.Copy) {
	server, id := w.order.Server, w.order.Shard
	w.told, s.wrong[id] = true, w
	c.running.Go(func() {
		if w.order.Kind == 0 { // it never had a client
			ctx, cancel := context.WithTimeout(c.ctx, c.cfg.StepTimeout)
			_, _ = c.order(ctx, server, command{Kind: commandEvict, Shard: uint32(id), Epoch: uint64(copy.Epoch), Timeout: c.cfg.StepTimeout})
			cancel()
		} else if err := c.insist(w.order); err != nil && c.ctx.Err() == nil {
			c.log.Warn("copy that nobody owns is still there", "shard", id, "server", server, "err", err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if s.wrong[id] == w {
			delete(s.wrong, id) // until the next report says so
		}
	})
}
