package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/elasticps/elasticps/shard"
)

// Times of the protocol. Only their order matters: a beat is shorter than a lease, a
// lease than the time after which a server is suspected or a stream is given up.
const (
	beatEvery    = 25 * time.Millisecond
	leaseTime    = 100 * time.Millisecond // as the owner counts it, from the sending of a beat
	leaseWait    = 115 * time.Millisecond // as the follower counts it, from its last answer
	suspectAfter = 130 * time.Millisecond
	gatherTime   = 125 * time.Millisecond // how long a new owner looks for the followers of the former one
	stepTimeout  = 150 * time.Millisecond
	retryPause   = 5 * time.Millisecond
	copyTimeout  = 400 * time.Millisecond
	resendEvery  = 45 * time.Millisecond
	readEvery    = time.Second // how often a coordinator looks at the store for what others wrote
	calmLimit    = 20 * time.Second
	maxDrift     = 0.03
)

// Bounds of what is kept (invariant I7).
const (
	maxQueued  = 12 // frames of updates under way to one follower
	maxWaiting = 64 // requests that wait at one copy
	maxPushes  = 64 // pushes of one block, one bit each
	maxEvents  = 1 << 20
)

// NumBlocks is the number of blocks of each shard.
const NumBlocks = 3

// World is one simulated job: servers, coordinators, workers, a store, and the network
// between them. Everything in it happens in virtual time and follows from the seed.
type World struct {
	rng     *rand.Rand
	mutants Mutants
	now     time.Duration
	queue   eventQueue
	seq     uint64
	events  int
	faulty  bool
	profile profile
	// lateUntil is when the last coordinator that hung went on: it goes by old news at first.
	lateUntil time.Duration

	servers []*server      // by name: the process that counts, as the store has it
	others  []*server      // that live under a name as well: earlier runs, and some that come
	numbers uint64         // of runs so far
	coords  []*coordinator // those whose process lives
	workers []*worker
	store   *store
	shards  []*history
	places  []*process // of every party, for partitions

	incarnations uint64 // of workers so far
	operations   []*operation

	failure error
	verbose bool
	log     []string
	recent  [16]string // lines, so that none is repeated all the time
	// Counts says how often what happened, so that a test can see that the schedules
	// reach what they are meant to reach.
	Counts map[string]int
}

// profile is what a schedule consists of. Each seed draws its own: a schedule in which
// everything happens at once reaches fewer states than many which leave things out.
type profile struct {
	servers, shards, followers, workers int
	length                              time.Duration // of the time with faults
	drop, double, slow                  float64
	weights                             [numFaults]int
	faultEvery                          time.Duration
	streamTimeout                       time.Duration // after which an owner gives a follower up
	twins                               bool          // a server may have several processes
}

type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

// eventQueue is a binary heap in the order of time; events of one instant stay in the
// order in which they were scheduled.
type eventQueue []event

func (q eventQueue) before(i, j int) bool {
	return q[i].at < q[j].at || (q[i].at == q[j].at && q[i].seq < q[j].seq)
}

func (q *eventQueue) push(e event) {
	*q = append(*q, e)
	h := *q
	for i := len(h) - 1; i > 0 && h.before(i, (i-1)/2); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

func (q *eventQueue) pop() event {
	h := *q
	first, n := h[0], len(h)-1
	h[0], h[n] = h[n], event{}
	h = h[:n]
	*q = h
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < n; c++ {
			if h.before(c, least) {
				least = c
			}
		}
		if least == i {
			return first
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// process is one party that can be cut off; servers and coordinators stop and hang too.
type process struct {
	w         *World
	name      string
	index     int // among places
	up        bool
	run       int
	hungUntil time.Duration
	rate      float64         // of its clock
	cutUntil  []time.Duration // by index of the receiver
}

func (w *World) newProcess(name string) *process {
	p := &process{w: w, name: name, index: len(w.places), up: true, rate: 1 + maxDrift*(2*w.rng.Float64()-1)}
	w.places = append(w.places, p)
	return p
}

// clock is the time that the process reads.
func (p *process) clock() time.Duration { return time.Duration(float64(p.w.now) * p.rate) }

// after has the process do something when its clock has gone on by d, unless its run
// has ended by then.
func (p *process) after(d time.Duration, do func()) {
	run := p.run
	p.w.after(time.Duration(float64(d)/p.rate), func() { p.wake(run, do) })
}

func (p *process) wake(run int, do func()) {
	switch {
	case !p.up || p.run != run:
	case p.hungUntil > p.w.now:
		p.w.after(p.hungUntil-p.w.now, func() { p.wake(run, do) })
	default:
		do()
	}
}

func (p *process) cut(to *process) bool {
	return to.index < len(p.cutUntil) && p.cutUntil[to.index] > p.w.now
}

func (p *process) cutOff(to *process, until time.Duration) {
	for len(p.cutUntil) <= to.index {
		p.cutUntil = append(p.cutUntil, 0)
	}
	p.cutUntil[to.index] = until
}

func (w *World) after(d time.Duration, do func()) {
	w.seq++
	w.queue.push(event{w.now + max(d, 0), w.seq, do})
}

func (w *World) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

// between draws a duration.
func (w *World) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.rng.Int64N(int64(hi-lo)+1))
}

func (w *World) delay() time.Duration {
	if w.faulty && w.chance(w.profile.slow) {
		return w.between(0, 300*time.Millisecond)
	}
	return w.between(50*time.Microsecond, 2*time.Millisecond)
}

// send carries one message, which may be lost, doubled, late or overtaken, to whatever
// run of the receiver there is then.
func (w *World) send(from, to *process, do func()) {
	copies := 1
	if w.faulty {
		switch {
		case w.chance(w.profile.drop):
			copies = 0
		case w.chance(w.profile.double):
			copies = 2
		}
	}
	for range copies {
		w.after(w.delay(), func() {
			if !from.cut(to) {
				to.wake(to.run, do)
			}
		})
	}
}

func (w *World) note(format string, args ...any) {
	if !w.verbose {
		return
	}
	text := fmt.Sprintf(format, args...)
	for _, other := range w.recent {
		if text == other {
			return // again and again
		}
	}
	w.recent[w.events%len(w.recent)] = text
	w.log = append(w.log, fmt.Sprintf("%10.3f ms  %s", float64(w.now)/1e6, text))
}

func (w *World) count(what string) { w.Counts[what]++ }

// fail notes the first violation; the schedule ends there.
func (w *World) fail(format string, args ...any) {
	if w.failure == nil {
		w.failure = fmt.Errorf(format, args...)
		w.note("FAILURE %v", w.failure)
	}
}

// Log is what happened, a line for each thing, if the world was made verbose.
func (w *World) Log() []string { return w.log }

// Events is the number of events of the schedule.
func (w *World) Events() int { return w.events }

// New makes the world of a seed. Verbose keeps a log.
func New(seed uint64, mutants Mutants, verbose bool) *World {
	return NewFrom(rand.NewPCG(seed, 0x51), mutants, verbose)
}

// NewFrom makes the world that follows from a source of numbers.
func NewFrom(source rand.Source, mutants Mutants, verbose bool) *World {
	return newWorld(source, mutants, verbose, false)
}

// NewTwins makes the world of a seed in which other processes are started under the names
// of servers that live: one coordinator at a time then, because the next one fences the one
// before, which is not simulated.
func NewTwins(seed uint64, mutants Mutants, verbose bool) *World {
	return newWorld(rand.NewPCG(seed, 0x52), mutants, verbose, true)
}

func newWorld(source rand.Source, mutants Mutants, verbose, twins bool) *World {
	w := &World{rng: rand.New(source), mutants: mutants, verbose: verbose, faulty: true, Counts: map[string]int{}}
	w.profile = w.draw()
	if w.profile.twins = twins; twins {
		w.profile.weights[faultSecond] = 0
		w.after(w.between(0, w.profile.length/2), w.nextTwin)
	}
	w.store = newStore(w)
	for i := range w.profile.servers {
		w.servers = append(w.servers, newServer(w, i))
	}
	for i := range w.profile.shards {
		w.shards = append(w.shards, &history{w: w, id: shard.ID(i), epochs: map[shard.Epoch]string{}})
		a := shard.Assignment{Shard: shard.ID(i), Epoch: 1, Owner: w.servers[i%len(w.servers)].id}
		w.store.entries = append(w.store.entries, entry{record: shard.Record{Assignment: a}, revision: 1})
		w.servers[i%len(w.servers)].replicas[i].copy = shard.ServeFirst(a)
	}
	for i := range w.profile.workers {
		w.workers = append(w.workers, newWorker(w, i))
	}
	w.startCoordinator()
	w.after(w.profile.faultEvery, w.nextFault)
	w.note("%d servers, %d shards, %d followers, %d workers, faults for %v", len(w.servers), len(w.shards), w.profile.followers, len(w.workers), w.profile.length)
	return w
}

func (w *World) draw() profile {
	r := w.rng
	p := profile{
		servers: 3 + r.IntN(3), shards: 1 + r.IntN(2), followers: r.IntN(3), workers: 1 + r.IntN(3),
		length: w.between(500*time.Millisecond, 3*time.Second), faultEvery: w.between(10*time.Millisecond, 120*time.Millisecond),
	}
	p.followers = min(p.followers, p.servers-2)
	p.streamTimeout = suspectAfter
	if r.IntN(4) > 0 {
		p.streamTimeout = 2 * suspectAfter
	}
	if r.IntN(2) == 0 {
		p.drop = 0.1 * r.Float64()
	}
	if r.IntN(2) == 0 {
		p.double = 0.1 * r.Float64()
	}
	if r.IntN(2) == 0 {
		p.slow = 0.1 * r.Float64()
	}
	for i := range p.weights {
		if r.IntN(2) == 0 {
			p.weights[i] = 1 + r.IntN(4)
		}
	}
	p.weights[faultMove] += 2
	return p
}

// Run lets the schedule happen: first with faults, then without until everything has
// settled. It returns the first violation of an invariant.
func (w *World) Run() error {
	for w.failure == nil && w.now < w.profile.length {
		w.step()
	}
	if w.failure == nil {
		w.calm()
	}
	begin, next := w.now, w.now
	for w.failure == nil {
		w.step()
		if w.now < next {
			continue
		}
		next = w.now + beatEvery
		why := w.unsettled()
		if why == nil {
			w.checkEnd()
			break
		}
		if w.now-begin > calmLimit {
			w.fail("I5: not settled %v after the last fault: %w", calmLimit, why)
		}
	}
	return w.failure
}

func (w *World) step() {
	e := w.queue.pop() // never empty: servers and coordinators have timers
	w.now = max(w.now, e.at)
	w.events++
	e.do()
	if w.events > maxEvents {
		w.fail("I7: %d events by %v", w.events, w.now)
	}
	if len(w.queue) > 20000 {
		w.fail("I7: %d events are scheduled", len(w.queue))
	}
}
