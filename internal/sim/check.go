package sim

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/elasticps/elasticps/shard"
)

// history is what the outside knows of one shard, kept by an observer who sees
// everything at once.
type history struct {
	w      *World
	id     shard.ID
	pushes []*push
	issued [NumBlocks]int
	seen   [NumBlocks]uint64   // acknowledged to a worker, or read by one
	reads  [NumBlocks][]uint64 // different contents that were read
	losses int
	latest shard.Epoch            // of an answer, or of a beginning after a loss
	epochs map[shard.Epoch]string // which process
}

// lossGrace is how long the coordinator of a move may take to learn that a server has died.
const lossGrace = suspectAfter + 400*time.Millisecond

// answered holds I2: whoever answers is the only one to do so at its epoch.
func (h *history) answered(r *replica) {
	epoch := r.copy.Epoch
	if r.copy.State == shard.Frozen {
		return // what was asked for before it froze
	}
	if first, ok := h.epochs[epoch]; ok && first != r.at.name {
		h.w.fail("I2: shard %d: %s and %s both answered at epoch %d", h.id, first, r.at.name, epoch)
	}
	h.epochs[epoch] = r.at.name
	if epoch < h.latest {
		h.w.fail("I2: shard %d: %s answers at epoch %d after another has answered at epoch %d", h.id, r.at.name, epoch, h.latest)
	}
	h.latest = epoch
}

// acknowledge is called when a server decides to acknowledge a push.
func (h *history) acknowledge(r *replica, p *push) {
	h.answered(r)
	if r.blocks[p.block].set&p.bit == 0 && h.losses == 0 {
		h.w.fail("I1: shard %d: %s acknowledges a push that it has not applied", h.id, r.at.id)
	}
	h.w.note("%s: acknowledges push %d of worker %d to shard %d, block %d bit %x, epoch %d", r.at.name, p.seq, p.incarnation, h.id, p.block, p.bit, r.copy.Epoch)
	h.seen[p.block] |= p.bit
	h.w.count("acknowledged")
	h.checkMembers()
}

// read is called when a server decides to answer a pull. Pulls are linearizable: each
// contains what was acknowledged or read before it began, and all contents that
// were read form one growing sequence.
func (h *history) read(r *replica, o *operation, set uint64) {
	h.answered(r)
	if missing := o.mustSee &^ set; o.loss == h.losses && missing != 0 {
		h.w.fail("I4: shard %d block %d: %s answers a pull at epoch %d without %x, which was acknowledged or read before", h.id, o.block, r.at.id, r.copy.Epoch, missing)
	}
	known := false
	for _, other := range h.reads[o.block] {
		known = known || other == set
		if other&^set != 0 && set&^other != 0 {
			h.w.fail("I4: shard %d block %d: reads of %x and %x cannot be put in order", h.id, o.block, other, set)
		}
	}
	if !known {
		h.reads[o.block] = append(h.reads[o.block], set)
	}
	h.seen[o.block] |= set
	h.w.count("read")
	h.checkMembers()
}

// complete says whether a server holds a copy with everything that was acknowledged.
func (h *history) complete(id shard.ServerID) bool {
	s := h.w.server(id)
	if !s.up || !s.counts() {
		return false
	}
	r := s.replicas[h.id]
	return (r.copy.Owns() || r.copy.State == shard.CaughtUp) && r.has(h.seen)
}

func (r *replica) has(seen [NumBlocks]uint64) bool {
	for b := range seen {
		if seen[b]&^r.blocks[b].set != 0 {
			return false
		}
	}
	return true
}

// checkMembers holds I3 before anybody dies: every follower in the record that could
// be promoted has everything that was acknowledged or read.
func (h *history) checkMembers() {
	rec := h.w.store.entries[h.id].record
	for _, id := range rec.Followers {
		if id == "" || !h.w.server(id).up || !h.w.server(id).counts() {
			continue
		}
		r := h.w.server(id).replicas[h.id]
		if r.copy.State == shard.CaughtUp && !r.has(h.seen) {
			h.w.fail("I3: shard %d: follower %s is in the record and lacks what was acknowledged: %s", h.id, id, describeCopy(r.copy))
		}
	}
	owner := h.w.server(rec.Assignment.Owner)
	if r := owner.replicas[h.id]; owner.up && owner.counts() && r.copy.MayAcknowledge(rec.Assignment.Epoch) && !r.has(h.seen) {
		h.w.fail("I3: shard %d: owner %s lacks what was acknowledged: %s", h.id, owner.id, describeCopy(r.copy))
	}
}

// members are the servers from whose copies a shard can go on: the owner, its followers,
// and the frozen source of a move that was committed.
func members(r shard.Record) []shard.ServerID {
	ids := append(r.Followers.IDs(), r.Assignment.Owner)
	if r.Pending != nil && r.Pending.From != r.Assignment.Owner {
		ids = append(ids, r.Pending.From)
	}
	return ids
}

// checkWrite holds I3 where the record changes: no write gives up the last complete
// copy, unless two of those that had one have died; and versions never go back.
func (w *World) checkWrite(id int, before, after shard.Record, seen time.Duration) {
	h, a, b := w.shards[id], before.Assignment, after.Assignment
	if b.Epoch < a.Epoch || b.Attempt < a.Attempt || after.Set < before.Set {
		w.fail("shard %d: the record went from %s to %s", id, describe(before), describe(after))
	}
	if b.Owner != a.Owner && b.Epoch == a.Epoch {
		w.fail("I2: shard %d: another owner at epoch %d", id, a.Epoch)
	}
	isLoss := before.Pending == nil && after.Pending == nil && b.Epoch > a.Epoch && !before.Followers.Has(b.Owner)
	var had []shard.ServerID
	for _, m := range members(before) {
		if h.complete(m) {
			had = append(had, m)
		}
	}
	kept := false
	for _, m := range members(after) {
		kept = kept || h.complete(m)
	}
	if isLoss {
		if len(had) > 0 {
			w.fail("I3: shard %d is filled anew although %v have it", id, had)
		}
		h.lose(b.Epoch)
		return
	}
	if p := after.Pending; p != nil && p.Phase == shard.PendingRestoring && len(had) == 0 {
		h.rollBack(w.server(p.From).replicas[id])
	}
	justDied := w.justDied(h, a.Owner, seen) || w.justDied(h, b.Owner, seen)
	if len(had) > 0 && !kept && !justDied {
		w.fail("I3: shard %d: %v had everything, and after %s nobody in the record has", id, had, describe(after))
	}
	h.checkMembers()
}

// justDied says whether a server has lost its copy since it was seen to have one, or so
// lately that a coordinator may not know.
func (w *World) justDied(h *history, id shard.ServerID, seen time.Duration) bool {
	died := max(w.server(id).diedAt, w.store.runs[id].since)
	if h.complete(id) {
		return false
	}
	return seen > 0 && died > seen || seen == 0 && w.now-max(died, w.lateUntil) < lossGrace
}

// lose accounts for a loss that could not be avoided.
func (h *history) lose(epoch shard.Epoch) {
	lost := 0
	for b := range h.seen {
		lost += bits.OnesCount64(h.seen[b])
	}
	h.w.note("shard %d is lost with %d updates", h.id, lost)
	h.w.count("loss")
	h.seen, h.reads, h.latest = [NumBlocks]uint64{}, [NumBlocks][]uint64{}, epoch
	h.losses++
}

// rollBack accounts for what the target of a move acknowledged before it died, when the
// answer that it serves was lost and no follower has it. That is a loss to report.
func (h *history) rollBack(source *replica) {
	lost := 0
	for b := range h.seen {
		lost += bits.OnesCount64(h.seen[b] &^ source.blocks[b].set)
		h.seen[b] &= source.blocks[b].set
	}
	h.w.note("shard %d goes back to its source without %d updates", h.id, lost)
	h.w.count("roll back")
	h.reads = [NumBlocks][]uint64{}
	h.losses++
}

// checkEqual holds I6: a copy that has caught up is the owner's at that change, and its
// windows know every push that it contains and no other.
func (w *World) checkEqual(r, owner *replica, change uint64) {
	if want, ok := owner.sumAt(change); ok && r.sum() != want {
		w.fail("I6: shard %d: the copy at %s differs from that at %s at change %d", r.index, r.at.name, owner.at.name, change)
	}
	if got, want := r.windows.Horizon(), owner.windows.Horizon(); owner.applied == change && got != want {
		w.fail("I6: shard %d: the copy at %s refuses workers up to %d, that at %s up to %d", r.index, r.at.name, got, owner.at.name, want)
	}
	r.remember(change)
	probe, err := shard.DecodeWindows(r.windows.Append(nil))
	if err != nil {
		w.fail("I6: shard %d: %w", r.index, err)
		return
	}
	for _, p := range w.shards[r.index].pushes {
		applied := r.blocks[p.block].set&p.bit != 0
		if v := probe.Admit(p.incarnation, p.seq, 1); applied && v == shard.Fresh || !applied && v == shard.Duplicate {
			w.fail("I6: shard %d at %s: push %d of worker %d: applied %v, window says %v", r.index, r.at.name, p.seq, p.incarnation, applied, v)
		}
	}
}

// unsettled is why the job has not come to rest, nil when it has (I5).
func (w *World) unsettled() error {
	if len(w.coords) != 1 {
		return fmt.Errorf("%d coordinators", len(w.coords))
	}
	for _, s := range w.others {
		if s.up {
			return fmt.Errorf("%s lives beside the run that counts", s.name)
		}
	}
	for _, d := range w.coords[0].moves {
		if d != nil {
			return fmt.Errorf("move of shard %d: %v", d.m.Shard, d.m.Phase)
		}
	}
	for i := range w.shards {
		if err := w.unsettledShard(i); err != nil {
			return err
		}
	}
	for _, k := range w.workers {
		for i := range k.lines {
			if n := len(k.lines[i].outstanding); n > 0 {
				return fmt.Errorf("%s has %d pushes outstanding at shard %d", k.name, n, i)
			}
		}
	}
	return nil
}

func (w *World) unsettledShard(i int) error {
	rec := w.store.entries[i].record
	a := rec.Assignment
	owner := w.server(a.Owner).replicas[i]
	c := owner.copy
	switch {
	case rec.Pending != nil, rec.Followers.Len() != w.profile.followers:
		return errors.New(describe(rec))
	case c.State != shard.Serving || c.Epoch != a.Epoch || c.Joining != "" || c.Followers != rec.Followers:
		return fmt.Errorf("shard %d: record %s, owner's copy %s", i, describe(rec), describeCopy(c))
	}
	for _, s := range w.servers {
		r := s.replicas[i]
		switch {
		case s.id == a.Owner:
		case rec.Followers.Has(s.id):
			st := owner.streamTo(s.id)
			if r.copy.State != shard.CaughtUp || st == nil || r.in != st || st.confirmed != owner.applied {
				return fmt.Errorf("shard %d: follower %s is %s", i, s.id, describeCopy(r.copy))
			}
		case r.copy.State != shard.Absent && r.copy.State != shard.Released:
			return fmt.Errorf("shard %d: leftover copy at %s: %s", i, s.id, describeCopy(r.copy))
		}
		if len(r.orders) > 0 {
			return fmt.Errorf("shard %d: an order waits at %s", i, s.id)
		}
	}
	return nil
}

// checkEnd compares what is left with what was promised.
func (w *World) checkEnd() {
	for i, h := range w.shards {
		rec := w.store.entries[i].record
		owner := w.server(rec.Assignment.Owner).replicas[i]
		if !owner.has(h.seen) {
			w.fail("I3: shard %d: acknowledged pushes are missing at the end", i)
		}
		for _, id := range rec.Followers.IDs() {
			f := w.server(id).replicas[i]
			if f.applied != owner.applied || f.blocks != owner.blocks {
				w.fail("I6: shard %d: follower %s is not equal to the owner at the end", i, id)
			}
			w.checkEqual(f, owner, f.applied)
		}
	}
}

func describe(r shard.Record) string {
	a := r.Assignment
	text := fmt.Sprintf("%s epoch %d attempt %d followers %v set %d", a.Owner, a.Epoch, a.Attempt, r.Followers.IDs(), r.Set)
	if p := r.Pending; p != nil {
		text += fmt.Sprintf(", %v %v %s->%s from epoch %d", p.Kind, p.Phase, p.From, p.To, p.Epoch)
	}
	return text
}

func describeCopy(c shard.Copy) string {
	text := fmt.Sprintf("%v epoch %d attempt %d", c.State, c.Epoch, c.Attempt)
	if c.Ended {
		text += " ended"
	}
	if c.Peer != "" {
		text += " peer " + string(c.Peer)
	}
	if c.Set > 0 || c.Joining != "" {
		text += fmt.Sprintf(" followers %v set %d joining %q", c.Followers.IDs(), c.Set, c.Joining)
	}
	return text
}
