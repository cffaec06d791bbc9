package sim

import (
	"time"

	"github.com/elasticps/elasticps/shard"
)

// push is one update of a block: one bit of it, for ever.
type push struct {
	incarnation, seq uint64
	block            int
	bit              uint64
}

// worker pushes and pulls, several at a time, each until it is answered. It may go away
// and come back as another incarnation, which knows nothing of what it had under way.
type worker struct {
	*process
	index       int
	incarnation uint64
	routes      []route
	lines       []line // by shard
	open        int
}

type route struct {
	owner shard.ServerID
	epoch shard.Epoch
	at    *server // the process, nil if it is not known
}

// line is the sequence of one worker's pushes to one shard.
type line struct {
	next        uint64
	outstanding []uint64
}

func (l *line) floor() uint64 {
	if len(l.outstanding) > 0 {
		return l.outstanding[0]
	}
	return l.next + 1
}

func (l *line) done(seq uint64) {
	for i, s := range l.outstanding {
		if s == seq {
			l.outstanding = append(l.outstanding[:i:i], l.outstanding[i+1:]...)
			return
		}
	}
}

const maxOpen = 3

func newWorker(w *World, i int) *worker {
	k := &worker{process: w.newProcess("worker-" + string(rune('0'+i))), index: i}
	k.rate = 1
	k.start()
	return k
}

// start begins the life of the next incarnation.
func (k *worker) start() {
	k.run++
	k.w.incarnations++
	k.incarnation = k.w.incarnations
	k.open = 0
	k.routes, k.lines = make([]route, k.w.profile.shards), make([]line, k.w.profile.shards)
	k.after(k.w.between(0, beatEvery), k.work)
}

// work begins an operation now and then. When the faults are over it pulls only, so
// that the bits last.
func (k *worker) work() {
	w := k.w
	k.after(w.between(0, 30*time.Millisecond), k.work)
	if k.open >= maxOpen {
		return
	}
	i := w.rng.IntN(len(w.shards))
	h, b := w.shards[i], w.rng.IntN(NumBlocks)
	k.open++
	if w.rng.IntN(3) == 0 || h.issued[b] == maxPushes || !w.faulty {
		k.begin(&operation{shard: i, block: b, mustSee: h.seen[b], loss: h.losses})
		return
	}
	l := &k.lines[i]
	l.next++
	p := &push{incarnation: k.incarnation, seq: l.next, block: b, bit: 1 << h.issued[b]}
	h.issued[b]++
	h.pushes = append(h.pushes, p)
	l.outstanding = append(l.outstanding, p.seq)
	k.begin(&operation{shard: i, block: b, push: p})
}

func (k *worker) begin(o *operation) {
	o.k, o.incarnation, o.call = k, k.incarnation, k.w.now
	k.w.operations = append(k.w.operations, o)
	o.send()
}

// operation is one push or pull under way.
type operation struct {
	k            *worker
	incarnation  uint64
	shard, block int
	push         *push         // nil for a pull
	call         time.Duration // when it began
	mustSee      uint64        // of a pull: what was acknowledged or read when it began
	loss         int           // losses of the shard at that time
	done         bool
	answered     time.Duration // when the worker got the answer, 0 for never
	set          uint64        // of a pull: the answer
	tries        int
}

// over says whether nobody waits for the operation any more.
func (o *operation) over() bool { return o.done || o.incarnation != o.k.incarnation }

// send sends the operation to the owner as this worker knows it, until it is answered.
func (o *operation) send() {
	k := o.k
	if o.over() {
		return
	}
	if o.push != nil && o.tries > 0 && k.w.faulty && k.w.rng.IntN(60) == 0 {
		o.end() // given up: it may be applied, once
		return
	}
	o.tries++
	to := k.routes[o.shard]
	if to.epoch == 0 || o.tries%3 == 0 {
		k.ask(o.shard)
	}
	if to.epoch != 0 {
		s := to.at
		if s == nil || !s.up {
			s = k.w.anyOf(to.owner)
		}
		floor := k.lines[o.shard].floor()
		k.w.send(k.process, s.process, func() { s.replicas[o.shard].take(o, to.epoch, floor) })
	}
	k.after(resendEvery, o.send)
}

// finish is the answer; set is what a pull got.
func (o *operation) finish(set uint64) {
	if !o.over() {
		o.answered, o.set = o.k.w.now, set
		o.end()
	}
}

func (o *operation) end() {
	o.done = true
	o.k.open--
	if o.push != nil {
		o.k.lines[o.shard].done(o.push.seq)
	}
}

// ask asks a coordinator for the owner of a shard.
func (k *worker) ask(i int) {
	if len(k.w.coords) == 0 {
		return
	}
	c := k.w.coords[k.w.rng.IntN(len(k.w.coords))]
	k.w.send(k.process, c.process, func() {
		a := c.known[i].record.Assignment
		at := c.view(a.Owner).at
		k.w.send(c.process, k.process, func() { k.learn(i, route{a.Owner, a.Epoch, at}) })
	})
}

func (k *worker) learn(i int, r route) {
	if r.epoch > k.routes[i].epoch {
		k.routes[i] = r
	}
}

// take is what a server does with an operation.
func (r *replica) take(o *operation, epoch shard.Epoch, floor uint64) {
	w, k := r.at.w, o.k
	if !r.copy.MayAcknowledge(epoch) {
		if to, at, ok := r.copy.Redirect(epoch); ok {
			where := route{owner: to, epoch: at}
			if to == "" {
				where.owner, where.at = r.at.id, r.at
			}
			w.send(r.at.process, k.process, func() { k.learn(o.shard, where) })
		}
		return // else retry
	}
	if r.mute > r.at.clock() || r.gathering > 0 || len(r.waiting) >= maxWaiting {
		return // retry
	}
	if o.push == nil {
		r.pull(o)
		return
	}
	for _, s := range r.streams {
		if s.inFlight >= maxQueued {
			return // retry
		}
	}
	r.push(o, floor)
}

func (r *replica) pull(o *operation) {
	b := r.blocks[o.block]
	change, set := b.change, b.set
	if r.at.w.mutants.ReadUnconfirmed {
		change = 0
	}
	r.waiting = append(r.waiting, request{change, true, func() {
		r.at.w.shards[r.index].read(r, o, set)
		r.at.w.send(r.at.process, o.k.process, func() { o.finish(set) })
	}})
	r.release()
}

func (r *replica) push(o *operation, floor uint64) {
	w, p := r.at.w, o.push
	verdict := r.windows.Admit(p.incarnation, p.seq, floor)
	if w.mutants.SkipWindow {
		verdict = shard.Fresh
	}
	change := r.applied
	switch verdict {
	case shard.Fresh:
		r.applied, r.last = r.applied+1, r.copy.Epoch
		change = r.applied
		u := update{p, o.block, change, r.last, floor}
		r.change(u)
		for _, s := range append([]*stream(nil), r.streams...) {
			s.forward(u)
		}
	case shard.Duplicate:
		if w.mutants.DuplicateAtOnce {
			change = 0
		}
	case shard.Stale:
		if !o.over() && floor <= p.seq {
			w.fail("I1: push %d of worker %d to shard %d is stale and was not given up", p.seq, p.incarnation, r.index)
		}
		return
	case shard.Fenced:
		w.count("fenced")
		if !o.over() {
			w.fail("I1: push %d of worker %d to shard %d is fenced and its worker is alive", p.seq, p.incarnation, r.index)
		}
		return
	default:
		w.fail("I7: push %d of worker %d to shard %d: %v", p.seq, p.incarnation, r.index, verdict)
		return
	}
	r.waiting = append(r.waiting, request{change, false, func() {
		w.shards[r.index].acknowledge(r, p)
		w.send(r.at.process, o.k.process, func() { o.finish(0) })
	}})
	r.release()
}
