package ps

import (
	"context"
	"sync"
	"time"

	"github.com/elasticps/elasticps/internal/invariant"
	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/internal/table"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// BlockElems is the number of parameters of a block: the unit of transfer, of
// exactly-once application and of the optimizer's step count. A shard is a row of
// blocks; a frame carries at most one.
const BlockElems = wire.MaxPayload / 4

// replica is one server's copy of one shard with everything that belongs to its
// state (I6): weights, optimizer slots, the sum of the open clock, step counts,
// clocks, push windows and counters. What the server may do with it is decided by
// shard.Copy. All of it is guarded by mu; a push holds mu for one block.
type replica struct {
	spec  shard.Shard
	layer shard.Layer
	opt   Optimizer
	bsp   bool
	elems int64

	// of a sparse layer
	sparse      bool
	options     Table
	tableConfig table.Config
	tableNumber int // among the tables of the job

	mu      sync.Mutex
	room    sync.Cond // follower queue has room, or is gone
	copy    shard.Copy
	changed chan struct{} // closed and replaced when copy changes

	weights []float32
	slots   [][]float32
	sum     []float32    // BSP: gradients of each block's clock
	table   *table.Table // of a sparse layer, instead of weights, slots and sum
	blocks  []block
	windows shard.Windows
	applied uint64 // pushes applied to this shard, wherever it was
	filled  uint64 // how many of them were in the checkpoint that this copy was filled from
	changes uint64 // of the state: each is numbered, here and at the followers
	// last is the epoch of the owner that made the last change. Two copies with the same
	// number of changes, the last one of the same epoch, are the same.
	last shard.Epoch

	streams   []*followerStream // owner side: to followers and to the target of a move
	cut       *cut              // a checkpoint that is being written, nil without
	deferred  []deferred        // answers that wait for the followers, by change
	failed    failedStream      // the last one that has not made a copy
	source    *session          // follower side: who fills this copy
	progress  receiveProgress
	filling   int         // orders to fill it that are under way: it may be the owner's any moment
	gathering int         // followers of the former owner that are looked for: nothing is answered
	quiet     time.Time   // promoted: nothing is answered before, the former owner may still serve reads
	views     [][]float32 // scratch for step: the slots of a range
	rateClock uint32      // the latest one that factor was asked for
	rate      float64     // and the factor of it

	// of a sparse layer; not part of the state
	begun       time.Time     // since when this copy counts time, zero: it does not yet
	base        uint32        // the time then
	expireNext  int           // block that has its turn
	counts      TableStatus   // of what this copy has done while it was the owner's
	scratch     table.Columns // of rows on their way
	finiteIDs   []int64       // of rows whose gradient is finite, and those
	finiteGrads []float32
}

// block is the metadata of one block.
type block struct {
	steps uint64 // optimizer steps taken; of a table: the time of the last change
	clock uint32 // BSP: clock whose gradients are in sum
	dirty uint32 // BSP: pushes summed in this clock
	ready bool   // has values
	seen  uint64 // last change of the weights; not part of the state
}

type owner struct {
	server shard.ServerID
	epoch  shard.Epoch
}

// outcome is the answer to a request. wait is set with codeRetry when the answer
// changes at a moment that can be waited for, after with codeOK when it is true once the
// followers of copy have that change.
type outcome struct {
	code  code
	to    owner
	wait  <-chan struct{}
	after uint64
	copy  *replica
}

func newReplica(job Job, spec shard.Shard) *replica {
	layer := job.Model.Layers[spec.Range.Layer]
	r := &replica{
		spec:    spec,
		layer:   layer,
		opt:     job.optimizer(layer.Name),
		bsp:     job.Consistency.Mode == BSP,
		elems:   spec.Range.Elems(),
		sparse:  layer.Sparse,
		options: job.Tables[layer.Name],
		changed: make(chan struct{}),
	}
	if r.sparse {
		r.tableConfig, r.tableNumber = tableConfig(job, spec), job.tableNumber(spec.Range.Layer)
	}
	r.room.L = &r.mu
	r.rate = r.opt.Schedule.Factor(0)
	return r
}

// allocate makes room for the state, all zero. The caller holds mu.
func (r *replica) allocate() {
	r.blocks = make([]block, (r.elems+BlockElems-1)/BlockElems)
	r.windows, r.applied, r.filled, r.changes, r.last, r.progress = shard.Windows{}, 0, 0, 0, 0, receiveProgress{}
	if r.sparse {
		r.table = table.New(r.tableConfig)
		return
	}
	r.weights = make([]float32, r.elems)
	r.slots = make([][]float32, r.opt.slots())
	r.views = make([][]float32, len(r.slots))
	for i := range r.slots {
		r.slots[i] = make([]float32, r.elems)
	}
	if r.bsp {
		r.sum = make([]float32, r.elems)
	}
}

// adopt takes the state of another copy of the shard, which nobody else has. The caller
// holds mu.
func (r *replica) adopt(o *replica) {
	r.weights, r.slots, r.views, r.sum, r.table, r.blocks = o.weights, o.slots, o.views, o.sum, o.table, o.blocks
	r.windows, r.applied, r.filled, r.changes, r.last, r.progress = o.windows, o.applied, o.filled, o.changes, o.last, o.progress
}

// free gives the memory back. The caller holds mu.
func (r *replica) free() {
	r.weights, r.slots, r.sum, r.table, r.blocks = nil, nil, nil, nil, nil
	r.windows, r.applied, r.filled, r.changes, r.last, r.progress = shard.Windows{}, 0, 0, 0, 0, receiveProgress{}
}

// initialize gives a fresh owner its first values.
func (r *replica) initialize() {
	in := r.layer.Init
	stream := kernel.Stream(r.layer.Name)
	switch in.Kind {
	case shard.Uniform:
		kernel.Uniform(r.weights, in.Seed, stream, r.spec.Range.Begin, in.Scale)
	case shard.Normal:
		kernel.Normal(r.weights, in.Seed, stream, r.spec.Range.Begin, in.Scale)
	case shard.TruncatedNormal:
		kernel.TruncatedNormal(r.weights, in.Seed, stream, r.spec.Range.Begin, in.Scale)
	case shard.Xavier:
		limit := in.XavierLimit(int64(r.layer.Rows()), int64(r.layer.RowElems()))
		kernel.Uniform(r.weights, in.Seed, stream, r.spec.Range.Begin, limit)
	}
	for i, s := range r.slots {
		if start := r.opt.slotStart(i); start != 0 {
			kernel.Fill(s, start)
		}
	}
	for i := range r.blocks {
		r.blocks[i].ready = in.Kind != shard.Assigned
	}
}

// become changes the copy and wakes whoever waits for that. The caller holds mu.
func (r *replica) become(c shard.Copy) {
	was := r.copy.Owns()
	if r.copy = c; !was || !c.Owns() { // else its time goes on
		r.begun = time.Time{}
	}
	r.room.Broadcast()
	close(r.changed)
	r.changed = make(chan struct{})
}

// isQuiet reports whether the owner before a promoted one may still serve reads. The caller
// holds mu.
func (r *replica) isQuiet() bool { return !r.quiet.IsZero() && time.Now().Before(r.quiet) }

// stateBytes is the memory that the parameters and their state take. The caller
// holds mu.
func (r *replica) stateBytes() int64 {
	if r.table != nil {
		return r.table.Bytes()
	}
	arrays := len(r.slots)
	if r.bsp {
		arrays++
	}
	return 4 * int64(len(r.weights)) * int64(1+arrays)
}

// update takes a push, an assign or a deletion into the state once (I1), or says why not. It
// keeps nothing of ids and values. The header has been decoded; its range is checked here.
func (r *replica) update(ctx context.Context, h *wire.Header, ids []int64, values []float32) outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if o := r.check(h, ids, len(values)); o.code != codeOK {
			return o
		}
		if c := r.fits(h, ids, values); c != codeOK {
			return outcome{code: r.refused(h, ids, c)}
		}
		if !r.followerFull(h.Offset) && !r.cutFull(h) {
			break
		}
		// The checks must be made again after that: the role may have changed.
		if !r.waitBriefly(ctx) {
			return outcome{code: codeRetry}
		}
	}
	if o, fresh := r.admit(h); !fresh {
		if o.code == codeOK { // a repetition is acknowledged when the first one may be
			return r.confirmed(r.changes)
		}
		return o
	}
	if r.sparse {
		h.Time = r.now(h.Clock)
	}
	r.change(h, ids, values)
	r.forward(h, ids, values)
	return r.confirmed(r.changes)
}

// change takes an admitted frame into the state: a push, an assign, a deletion, the end of a
// clock, or the expiry of rows. Owner and follower run the same code on the same frames in the same
// order, which makes their bits equal (I8).
func (r *replica) change(h *wire.Header, ids []int64, values []float32) {
	b := int(h.Offset / BlockElems)
	r.changes++
	r.last = shard.Epoch(h.Epoch)
	switch h.Kind {
	case wire.Assign:
		r.applyAssign(h, values)
	case wire.Push:
		r.apply(h, values)
	case wire.PushRows:
		r.applyRows(h, ids, values)
	case wire.DeleteRows:
		r.deleteRows(h, ids)
	case wire.Expire:
		r.touch(b, h.Time)
		r.counted(TableStatus{Expired: uint64(r.table.Expire(b, h.Time))})
	default:
		r.closeClock(b, h.Clock)
	}
}

// cutFull reports whether a request that changes the weights of its block must wait
// because a checkpoint holds too many blocks already. The caller holds mu.
func (r *replica) cutFull(h *wire.Header) bool {
	c, b := r.cut, int(h.Offset/BlockElems)
	if c == nil || (r.bsp && h.Clock <= max(r.blocks[b].clock, c.clock)) {
		return false // it adds to the sum, or closes a clock before the cut
	}
	return c.full(b) || (r.sparse && c.fullAnywhere())
}

// fits says whether a push or assign fits the state of its block. A push needs values
// and a clock that is open; an assign is of a whole block of a layer that waits for
// its values from a worker.
func (r *replica) fits(h *wire.Header, ids []int64, values []float32) code {
	if r.sparse {
		return r.fitsRows(h, ids, values)
	}
	b := int(h.Offset / BlockElems)
	lo, hi := r.bounds(b)
	switch {
	case h.Kind == wire.Assign && (int64(h.Offset) != lo || int64(h.Count) != hi-lo || r.layer.Init.Kind != shard.Assigned):
		return codeLength
	case h.Kind == wire.Assign:
		return codeOK
	case !r.blocks[b].ready:
		return codeNotInitialized
	case r.bsp && h.Clock < r.openClock(b):
		return codeStaleClock
	}
	return codeOK
}

// openClock is the first clock that a push to a block may still be of: what is pushed in
// clocks before that of a checkpoint under way would come into the cut after its instant.
func (r *replica) openClock(b int) uint32 {
	if r.cut != nil {
		return max(r.blocks[b].clock, r.cut.clock)
	}
	return r.blocks[b].clock
}

// pull copies parameters into dst. Under BSP, the first request of a new clock
// closes the old one, here and on the follower: what has been read stays as it was
// read, whoever pushes late and wherever the shard goes.
func (r *replica) pull(ctx context.Context, h *wire.Header, ids []int64, dst []float32) outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if o := r.check(h, ids, len(dst)); o.code != codeOK {
			return o
		}
		b := int(h.Offset / BlockElems)
		if !r.blocks[b].ready && !r.sparse {
			return outcome{code: codeNotInitialized}
		}
		if !r.bsp || h.Clock <= r.blocks[b].clock {
			break
		}
		if !r.followerFull(h.Offset) && !r.cutFull(h) {
			r.change(h, nil, nil)
			r.forward(h, nil, nil)
			break
		}
		if !r.waitBriefly(ctx) {
			return outcome{code: codeRetry}
		}
	}
	if !r.leased() {
		return outcome{code: codeRetry} // perhaps another server owns the shard by now
	}
	if r.sparse {
		r.table.Pull(ids, dst)
		return r.confirmed(r.changes)
	}
	copy(dst, r.weights[h.Offset:])
	return r.confirmed(r.blocks[h.Offset/BlockElems].seen)
}

// check says whether this copy may answer the request at all: I2, and the bounds.
func (r *replica) check(h *wire.Header, ids []int64, n int) outcome {
	switch {
	case r.copy.MayAcknowledge(shard.Epoch(h.Epoch)):
		if r.gathering > 0 || r.isQuiet() {
			return outcome{code: codeRetry, wait: r.changed}
		}
		switch rows := ofRows(h.Kind); {
		case rows != r.sparse:
			return outcome{code: codeLength}
		case rows:
			return r.checkRows(h, ids, n)
		}
		return r.checkRange(h, n)
	case r.copy.State == shard.Absent:
		return outcome{code: codeUnknownShard}
	}
	if to, at, ok := r.copy.Redirect(shard.Epoch(h.Epoch)); ok {
		return outcome{code: codeMoved, to: owner{to, at}}
	}
	return outcome{code: codeRetry, wait: r.changed}
}

// checkRange compares the range of a request, n elements, with the shard.
func (r *replica) checkRange(h *wire.Header, n int) outcome {
	count := uint64(h.Count)
	if r.sparse || count == 0 || uint64(n) != count || h.Offset >= uint64(r.elems) || count > uint64(r.elems)-h.Offset ||
		h.Offset/BlockElems != (h.Offset+count-1)/BlockElems {
		return outcome{code: codeLength}
	}
	return outcome{}
}

var verdictCodes = map[shard.Verdict]code{
	shard.Duplicate: codeOK,
	shard.Stale:     codeStale,
	shard.TooFar:    codeTooFar,
	shard.Fenced:    codeFenced,
	shard.Full:      codeRefused,
}

func (r *replica) admit(h *wire.Header) (outcome, bool) {
	v := r.windows.Admit(h.Incarnation, h.Seq, h.Floor)
	if v == shard.Fresh {
		return outcome{}, true
	}
	return outcome{code: verdictCodes[v]}, false
}

// apply takes an admitted gradient into the state.
func (r *replica) apply(h *wire.Header, grad []float32) {
	b := int(h.Offset / BlockElems)
	lo, hi := int64(h.Offset), int64(h.Offset)+int64(h.Count)
	r.applied++
	if r.bsp {
		r.closeClock(b, h.Clock)
		kernel.Add(r.sum[lo:hi], grad)
		r.blocks[b].dirty++
		return
	}
	r.step(b, lo, hi, grad, h.Clock)
}

// applyAssign sets the values of one block unless it has some: the first one wins.
func (r *replica) applyAssign(h *wire.Header, values []float32) {
	b := int(h.Offset / BlockElems)
	if r.blocks[b].ready {
		return
	}
	r.cut.before(b)
	copy(r.weights[h.Offset:], values)
	r.blocks[b].ready, r.blocks[b].seen = true, r.changes
}

// closeClock applies the sum of a block's clock when a later one has begun. That
// the later one has begun means that every member has finished the earlier.
func (r *replica) closeClock(b int, clock uint32) {
	m := &r.blocks[b]
	if !r.bsp || clock <= m.clock {
		return
	}
	if r.sparse {
		r.closeRows(clock)
		return
	}
	if m.dirty > 0 {
		lo, hi := r.bounds(b)
		r.step(b, lo, hi, r.sum[lo:hi], m.clock)
		clear(r.sum[lo:hi])
		m.dirty = 0
	}
	m.clock = clock
}

// step applies a gradient of a clock.
func (r *replica) step(b int, lo, hi int64, grad []float32, clock uint32) {
	invariant.Check(r.blocks[b].ready, "I1: step on block %d of shard %d before it has values", b, r.spec.ID)
	r.cut.before(b)
	m := &r.blocks[b]
	m.steps++
	m.seen = r.changes
	for i, s := range r.slots {
		r.views[i] = s[lo:hi]
	}
	r.opt.step(r.weights[lo:hi], grad, r.views, m.steps, r.factor(clock))
}

// factor is that of the learning rate for gradients of a clock, whenever and wherever they are
// applied.
func (r *replica) factor(clock uint32) float64 {
	if clock != r.rateClock {
		r.rateClock, r.rate = clock, r.opt.Schedule.Factor(clock)
	}
	return r.rate
}

// bounds returns the elements of block b within the shard.
func (r *replica) bounds(b int) (lo, hi int64) {
	lo = int64(b) * BlockElems
	return lo, min(lo+BlockElems, r.elems)
}
