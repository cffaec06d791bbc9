package collective

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/internal/stream"
)

const (
	// tick is how often a group looks for contexts that have ended and for silent ranks.
	tick = 25 * time.Millisecond
	// announceAfter is how long a call waits before it tells the others what it is: where
	// ranks made different calls, nothing else might arrive anywhere.
	announceAfter = 100 * time.Millisecond
	announceEvery = 500 * time.Millisecond
	// historyLen is how many calls back a rank remembers what it called.
	historyLen = 256
)

// Group is one rank's end of a group of ranks that make the same collective calls in the
// same order. All methods are safe from any goroutine; calls of one group are carried out
// one after the other, in the order in which they were made.
type Group struct {
	cfg     Config
	log     *slog.Logger
	roster  roster
	rank    int
	origin  *origin // where this rank listens; it outlives the group
	model   model
	nodes   []int       // node of each rank
	streams int         // connections for data to a rank, at most
	bargain bargain     // about backends
	shared  *hostMemory // nil without shared memory

	peers []*peer // by rank; nil for this one
	// whole is closed when the group has failed or was closed.
	whole   chan struct{}
	running sync.WaitGroup

	mu        sync.Mutex
	err       error
	lost      map[int]bool
	seq       uint64
	tail      *operation   // the latest call
	active    []*operation // that have not ended, in order; point-to-point ones too
	history   [historyLen]Fingerprint
	completed uint64
	base      uint64 // calls that the group made for itself when it began
	closed    bool   // by Close
	ended     bool   // nothing of it runs any more
	replaced  bool   // another group has taken over the origin, or may yet
	closing   sync.Once

	splitting      sync.Mutex // the numbers of splits and the order of their calls agree
	splits         uint64
	sent, received atomic.Int64 // bytes of payload

	runner   runner // of the call that is being carried out
	together together
	contests map[kind]*contest // of the calls so far; nil: algorithms are chosen by estimate

	allocations uint32 // made so far, by calls
}

// peer is another rank, as this one sees it.
type peer struct {
	rank    int
	control *stream.Conn
	data    lane
	direct  lane          // for Send and Recv
	sending chan struct{} // capacity 1: held by a Send to it
	taking  chan struct{} // and by a Recv from it
	sends   uint64        // of those who hold them
	takes   uint64
	heard   atomic.Int64  // since the group began, in nanoseconds
	left    atomic.Bool   // it has said that it leaves, or failed
	silent  chan struct{} // closed when it will say nothing more

	announced header // the call that it waits in, of which this rank knows nothing yet
}

// newGroup begins a group whose connections are there.
func newGroup(cfg Config, r roster, o *origin, peers []*peer, shared *hostMemory) *Group {
	g := &Group{
		cfg: cfg, log: cfg.Log, roster: r, rank: r.rankOf(o.self.Name), origin: o, peers: peers,
		whole: make(chan struct{}), lost: map[int]bool{}, nodes: r.nodes(), streams: o.maxStreams(r), shared: shared,
	}
	g.runner.init(g)
	g.together = together{hostMemory: shared, group: g, block: make([]byte, foldBytes), sums: make([]float32, foldBytes)}
	for _, p := range peers {
		if p != nil {
			p.sending, p.taking = make(chan struct{}, 1), make(chan struct{}, 1)
			p.silent = make(chan struct{})
			p.heard.Store(int64(time.Since(o.began)))
			g.running.Go(func() { g.listen(p) })
			if l, ok := p.data.(*ringLane); ok {
				g.running.Go(l.mate.listen)
			}
		}
	}
	g.running.Go(g.watch)
	return g
}

// Name returns the name of the group; one that was split from another has a name of its own.
func (g *Group) Name() string { return g.cfg.Group }

// Rank returns the place of this rank in the group, 0 to Size-1.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of ranks.
func (g *Group) Size() int { return len(g.peers) }

// Epoch returns the number of this group among those that have followed each other. All ranks
// of a group have the same.
func (g *Group) Epoch() uint64 { return g.roster.Epoch }

// Members returns the names of the ranks, in their order.
func (g *Group) Members() []string {
	names := make([]string, 0, len(g.peers))
	for _, m := range g.roster.Members {
		names = append(names, m.Name)
	}
	return names
}

// Completed returns how many collective calls this rank has completed without an error. After
// a failure ranks may differ by one call for each that was under way.
func (g *Group) Completed() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.completed
}

// Done returns a channel that is closed when the group cannot be used any more; Err says why.
func (g *Group) Done() <-chan struct{} { return g.whole }

// Traffic is what a rank has sent to others and received from them: bytes of elements, as
// they travel, without what frames add. What ranks of one host combine in memory that they
// share (schedule.Shared) does not travel.
type Traffic struct{ Sent, Received int64 }

// Traffic is that of all calls and messages so far, of those under way too, and of what the
// group has sent for itself: calls when it began, and what ranks compare of their times.
func (g *Group) Traffic() Traffic { return Traffic{g.sent.Load(), g.received.Load()} }

// Err returns the reason why the group cannot be used any more, nil while it can.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Lost returns the ranks that this rank knows to be lost, sorted. They are known on all
// other ranks soon, not at once.
func (g *Group) Lost() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	ranks := make([]int, 0, len(g.lost))
	for r := range g.lost {
		ranks = append(ranks, r)
	}
	slices.Sort(ranks)
	return ranks
}

// Abort ends the group on all ranks: whatever is under way and whatever is called later
// returns an error that wraps ErrAborted. It does not block, and may be called twice.
func (g *Group) Abort() {
	g.fail(&abortError{Rank: g.rank}, true)
}

// abortError says which rank aborted the group.
type abortError struct{ Rank int }

func (e *abortError) Error() string { return fmt.Sprintf("%v by rank %d", ErrAborted, e.Rank) }
func (e *abortError) Unwrap() error { return ErrAborted }

// Close leaves the group. Calls that are under way on this rank end with ErrClosed; those
// of other ranks end when they need this one. It waits for the group's goroutines, may be
// called twice, and comes after Abort and after a failure as well.
func (g *Group) Close() error {
	g.closing.Do(func() {
		g.mu.Lock()
		g.closed = true
		g.mu.Unlock()
		g.fail(ErrClosed, false)
		for _, p := range g.peers {
			if p != nil {
				g.note(p, frameLeave, nil)
				_ = p.control.Flush() // a peer that is gone needs no farewell
				_ = p.control.Close()
			}
		}
		g.running.Wait()
		g.origin.forget(g, true)
		g.shared.free()
		g.mu.Lock()
		g.ended = true
		g.mu.Unlock()
		g.leaveOrigin()
	})
	return nil
}

// leaveOrigin closes the origin of a group that was closed and that no other follows: by
// Close, or by a Shrink that was under way then and has come to nothing.
func (g *Group) leaveOrigin() {
	g.mu.Lock()
	last := g.ended && !g.replaced
	g.mu.Unlock()
	if last {
		g.origin.forget(g, false)
		g.origin.close()
	}
}

// fail ends the group with its first error, and tells the others.
func (g *Group) fail(err error, tell bool) {
	g.mu.Lock()
	if g.err != nil {
		g.mu.Unlock()
		return
	}
	g.err = err
	close(g.whole)
	g.mu.Unlock()
	for _, p := range g.peers {
		if p == nil {
			continue
		}
		if tell {
			g.note(p, frameAbort, encodeCause(g.rank, err))
		}
		p.data.close(err)
		p.direct.close(err)
	}
}

// lose notes that a rank is lost.
func (g *Group) lose(rank int, reason string) {
	g.mu.Lock()
	g.lost[rank] = true
	g.mu.Unlock()
	g.fail(g.rankError([]int{rank}, reason), true)
}

func (g *Group) rankError(ranks []int, reason string) *RankError {
	e := &RankError{Ranks: ranks, Reason: reason}
	for _, r := range ranks {
		e.Names = append(e.Names, g.roster.Members[r].Name)
	}
	return e
}

// note sends a control frame without waiting for the peer.
func (g *Group) note(p *peer, kind frameKind, payload []byte) {
	h := header{kind: kind, epoch: g.roster.Epoch, length: uint32(len(payload))}
	g.noteHeader(p, h, payload)
}

func (g *Group) noteHeader(p *peer, h header, payload []byte) {
	var raw [headerBytes]byte
	h.encode(&raw)
	_ = p.control.Post(raw[:], payload) // whoever listens to it sees the error
}

// cause is an error as it travels.
type cause struct {
	Rank     int // that failed first
	Mismatch *MismatchError
	Lost     *RankError
	Aborted  bool
	Text     string
}

func encodeCause(rank int, err error) []byte {
	c := cause{Rank: rank, Text: err.Error()}
	switch e := err.(type) {
	case *MismatchError:
		c.Mismatch = e
	case *RankError:
		c.Lost = e
	case *abortError:
		c.Aborted, c.Rank = true, e.Rank
	}
	c.Text = c.Text[:min(len(c.Text), maxNote/4)]
	raw, err := json.Marshal(c)
	if err != nil || len(raw) > maxNote {
		raw, _ = json.Marshal(cause{Rank: rank, Text: c.Text}) // numbers and text always encode
	}
	return raw
}

// decodeCause is the error that another rank's group failed with.
func (g *Group) decodeCause(raw []byte) error {
	var c cause
	if err := json.Unmarshal(raw, &c); err != nil {
		return fmt.Errorf("%w: the reason of an abort does not decode: %w", ErrRefused, err)
	}
	switch {
	case c.Mismatch != nil:
		return c.Mismatch
	case c.Lost != nil:
		return c.Lost
	case c.Aborted:
		return &abortError{Rank: c.Rank}
	}
	return fmt.Errorf("%w: rank %d failed: %s", ErrAborted, c.Rank, c.Text)
}

// listen takes control frames of a peer until its connection ends.
func (g *Group) listen(p *peer) {
	defer close(p.silent)
	for {
		err := g.listenOnce(p)
		if err == nil {
			p.heard.Store(int64(time.Since(g.origin.began)))
			continue
		}
		if !p.left.Load() && g.Err() != ErrClosed {
			g.lose(p.rank, err.Error())
		}
		return
	}
}

func (g *Group) listenOnce(p *peer) error {
	raw, err := p.control.Next(headerBytes)
	if err != nil {
		return err
	}
	var h header
	if err := h.decode(raw); err != nil {
		return err
	}
	if h.length > maxNote {
		return fmt.Errorf("%w: note of %d bytes, limit %d", ErrRefused, h.length, maxNote)
	}
	payload, err := p.control.Next(int(h.length))
	if err != nil {
		return err
	}
	switch h.kind {
	case frameBeat:
	case frameLeave:
		p.left.Store(true)
	case frameAbort:
		p.left.Store(true)
		g.aborted(payload)
	case frameAnnounce:
		g.announcement(p, h)
	default:
		return fmt.Errorf("%w: frame of kind %d between calls", ErrRefused, h.kind)
	}
	return nil
}

// aborted takes another rank's failure over.
func (g *Group) aborted(payload []byte) {
	err := g.decodeCause(payload)
	g.mu.Lock()
	for _, r := range Lost(err) {
		if r >= 0 && r < len(g.peers) && r != g.rank {
			g.lost[r] = true
		}
	}
	g.mu.Unlock()
	g.fail(err, true) // a rank that the first one could not reach hears it from here
}

// announcement compares what a peer waits in with what this rank called there.
func (g *Group) announcement(p *peer, h header) {
	g.mu.Lock()
	if h.seq > g.seq {
		p.announced = h
		g.mu.Unlock()
		return
	}
	mine := g.history[h.seq%historyLen]
	known := g.seq-h.seq < historyLen
	g.mu.Unlock()
	if known && mine != h.call {
		g.fail(&MismatchError{Seq: h.seq - g.base, Rank: g.rank, Peer: p.rank, Mine: mine, Theirs: h.call}, true)
	}
}

// watch ends calls whose context has ended, says what this rank waits in, and finds ranks
// that have stopped without a word.
func (g *Group) watch() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last := time.Now()
	beat := last
	for {
		select {
		case <-g.whole:
			return
		case <-ticker.C:
		}
		now := time.Now()
		if now.Sub(last) > g.cfg.PeerTimeout/2 {
			beat = time.Time{} // this process stood still itself: who knows what it missed
		} else {
			g.findSilent()
		}
		last = now
		if now.Sub(beat) >= g.cfg.PeerTimeout/8 {
			beat = now
			for _, p := range g.peers {
				if p != nil {
					g.note(p, frameBeat, nil)
				}
			}
		}
		g.checkCalls(now)
	}
}

func (g *Group) findSilent() {
	now := time.Since(g.origin.began)
	for _, p := range g.peers {
		if p != nil && !p.left.Load() && now-time.Duration(p.heard.Load()) > g.cfg.PeerTimeout {
			g.lose(p.rank, fmt.Sprintf("silent for %v", g.cfg.PeerTimeout))
		}
	}
}

// checkCalls fails the group when the time of a call is over, and announces the one that
// is being carried out.
func (g *Group) checkCalls(now time.Time) {
	g.mu.Lock()
	var over error
	var waiting *operation
	for _, o := range g.active {
		if over == nil {
			over = o.over(now)
		}
		if waiting == nil && o.collective() && now.Sub(o.began) > announceAfter && now.Sub(o.announced) > announceEvery {
			waiting = o
			o.announced = now
		}
	}
	g.mu.Unlock()
	if over != nil {
		g.fail(over, true)
		return
	}
	if waiting != nil {
		for _, p := range g.peers {
			if p != nil {
				g.noteHeader(p, header{kind: frameAnnounce, epoch: g.roster.Epoch, seq: waiting.seq, call: waiting.asked}, nil)
			}
		}
	}
}

// over is the error of an operation whose time is over, else nil.
func (o *operation) over(now time.Time) error {
	if o.ctx.Err() != nil {
		return fmt.Errorf("collective: rank gave up: %w", context.Cause(o.ctx))
	}
	if !o.deadline.IsZero() && now.After(o.deadline) {
		return fmt.Errorf("collective: no end within %v: %w", o.deadline.Sub(o.began), context.DeadlineExceeded)
	}
	return nil
}
