package ps

import (
	"time"

	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/internal/table"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// The state of a shard of a table: what replica.go does with the arrays of a dense shard,
// done with rows. Blocks are runs of hash values; the clock is that of the whole shard.

// tableConfig describes the part of a table that a shard has.
func tableConfig(job Job, spec shard.Shard) table.Config {
	l := job.Model.Layers[spec.Range.Layer]
	t := job.Tables[l.Name]
	c := table.Config{
		Name: l.Name, Rows: int64(l.Rows()), Dim: l.RowElems(), Begin: spec.Range.Begin, End: spec.Range.End, Init: l.Init,
		Rule: job.optimizer(l.Name).rowRule(l.RowElems()), Sums: job.Consistency.Mode == BSP,
		ExpireAfter: t.expiry(), MaxRows: share(t.MaxRows, l, spec), Evict: t.Evict.policy(),
	}
	c.Admit.Touches, c.Admit.FilterBytes = t.AdmitAfter, share(t.FilterBytes, l, spec)
	c.BlockRows = min(maxBlockBytes/rowBytes(c.Dim, c.Rule, false), table.MaxBlockRows)
	return c
}

// Bounds of one block, which together fit a checkpoint: its rows, and its filter or as many
// exact counters as it may have.
const (
	maxFilterBytes = 16 * table.MaxBlockRows
	maxBlockBytes  = checkpoint.MaxRowsBytes - maxFilterBytes - 4
)

// share is the part of n that belongs to a shard of a table, at least 1 unless n is zero,
// which has a meaning of its own. The shares of all shards add up to n, or to one for each.
func share(n int64, l shard.Layer, spec shard.Shard) int64 {
	if n == 0 {
		return 0
	}
	before := func(element int64) int64 {
		rows := float64(element / int64(l.RowElems()))
		if element == l.Elems() {
			return n
		}
		return int64(float64(n) * (rows / float64(l.Rows())))
	}
	return max(before(spec.Range.End)-before(spec.Range.Begin), 1)
}

// checkRows says whether a request is of rows of this shard: n values for them, or none to
// delete them.
func (r *replica) checkRows(h *wire.Header, ids []int64, n int) outcome {
	want := len(ids) * r.layer.RowElems()
	if h.Kind == wire.DeleteRows {
		want = 0
	}
	if r.table == nil || len(ids) == 0 || int(h.Count) != n || n != want || h.Offset != 0 || !r.table.Holds(ids) {
		return outcome{code: codeLength}
	}
	return outcome{}
}

// fitsRows says whether a push or a deletion of rows is one that the table takes.
func (r *replica) fitsRows(h *wire.Header, ids []int64, values []float32) code {
	switch {
	case r.bsp && h.Clock < r.openClock(0):
		return codeStaleClock
	case r.options.NonFinite == RejectNonFinite && !kernel.AllFinite(values):
		return codeNotFinite
	case h.Kind == wire.PushRows && r.table.Refuses(ids) && !r.windows.Has(h.Incarnation, h.Seq, h.Floor): // a repeated one was taken
		return codeTableFull
	}
	return codeOK
}

// applyRows takes admitted gradients of rows into the state, at the time in the header.
func (r *replica) applyRows(h *wire.Header, ids []int64, grads []float32) {
	r.applied++
	r.closeClock(0, h.Clock)
	if n := r.options.NonFinite; n == ClipNonFinite || n == SkipNonFinite && !kernel.AllFinite(grads) {
		ids, grads = r.finite(ids, grads)
	}
	if r.cut != nil {
		r.table.Touched(ids, r.cut.before)
	}
	r.table.Scale(r.factor(h.Clock))
	r.countedPush(r.table.Push(ids, grads, h.Time))
	r.table.Changed(func(b int) { r.mark(b, h.Time) })
}

// deleteRows removes rows, with what was pushed to them in the open clock, at the time in the
// header.
func (r *replica) deleteRows(h *wire.Header, ids []int64) {
	r.applied++
	r.closeClock(0, h.Clock)
	r.table.Touched(ids, func(b int) { r.touch(b, h.Time) })
	r.counted(TableStatus{Deleted: uint64(r.table.Delete(ids))})
}

// touch notes that a block is about to change, at a time of the table.
func (r *replica) touch(b int, now uint32) {
	r.cut.before(b)
	r.mark(b, now)
}

// mark notes which change is the last one of a block, and when it was.
func (r *replica) mark(b int, now uint32) {
	r.blocks[b].seen = r.changes
	r.blocks[b].steps = max(r.blocks[b].steps, uint64(now))
}

// finite returns gradients without those that are not finite, in memory that the next call
// uses again: rows that have one are left out, or all are clipped and rows with a NaN left out.
func (r *replica) finite(ids []int64, grads []float32) ([]int64, []float32) {
	dim := r.layer.RowElems()
	keptIDs, kept := r.finiteIDs[:0], r.finiteGrads[:0]
	skipped := uint64(0)
	for i, id := range ids {
		row := grads[i*dim : (i+1)*dim]
		if !kernel.AllFinite(row) && !r.clippable(row) {
			skipped++
			continue
		}
		keptIDs = append(keptIDs, id)
		for _, x := range row {
			if r.options.NonFinite == ClipNonFinite {
				x = min(max(x, -r.options.Clip), r.options.Clip)
			}
			kept = append(kept, x)
		}
	}
	r.finiteIDs, r.finiteGrads = keptIDs, kept
	r.counted(TableStatus{NotFinite: skipped})
	return keptIDs, kept
}

// clippable reports whether a row with infinities can be clipped: there is no NaN in it.
func (r *replica) clippable(row []float32) bool {
	if r.options.NonFinite != ClipNonFinite {
		return false
	}
	for _, x := range row {
		if x != x {
			return false
		}
	}
	return true
}

// closeRows is closeClock for a table: its blocks have one clock.
func (r *replica) closeRows(clock uint32) {
	for b := range r.blocks {
		if r.table.Dirty(b) > 0 {
			r.touch(b, 0)
			r.table.Scale(r.factor(r.blocks[b].clock))
			r.table.Close(b)
		}
		r.blocks[b].clock = clock
	}
}

// now is the time that the rows of a table are touched at: the clock of the request, or
// seconds that a server has owned the shard for, whoever that was. It never goes back, and
// stands still while nobody serves. The caller holds mu and the copy is the owner's.
func (r *replica) now(clock uint32) uint32 {
	if r.begun.IsZero() {
		r.begun, r.base = time.Now(), 0
		for _, b := range r.blocks {
			r.base = max(r.base, uint32(b.steps))
		}
	}
	if r.options.ExpireClocks > 0 {
		r.base = max(r.base, clock)
		return r.base
	}
	return r.base + uint32(time.Since(r.begun)/time.Second)
}

// expire removes rows that were not touched for long, in its turn from each block.
func (s *Server) expire() {
	for _, r := range s.all() {
		if r.options.expiry() > 0 {
			r.expire(s.cfg.ReportInterval)
		}
	}
}

// expiryRounds is how often a block is looked at while a row that is not touched lives.
const expiryRounds = 8

// expire removes rows from as many blocks as have their turn in one interval. The owner
// decides when; followers get it in its place among the changes.
func (r *replica) expire(interval time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.copy.Serves() || r.gathering > 0 || r.isQuiet() || r.cut != nil {
		return
	}
	round := max(time.Second, r.options.ExpireAfter/expiryRounds)
	turns := min(max(int(float64(len(r.blocks))*interval.Seconds()/round.Seconds()), 1), len(r.blocks))
	for range turns {
		b := r.expireNext % len(r.blocks)
		h := wire.Header{Kind: wire.Expire, Shard: uint32(r.spec.ID), Epoch: uint64(r.copy.Epoch), Offset: uint64(b) * BlockElems, Time: r.now(0)}
		if r.followerFull(h.Offset) || r.cutFull(&h) {
			return
		}
		if r.table.Expires(b, h.Time) {
			r.change(&h, nil, nil)
			r.forward(&h, nil, nil)
		}
		r.expireNext = b + 1
	}
}
