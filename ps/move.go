package ps

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

// MoveReport says what became of one move.
type MoveReport struct {
	Shard   shard.ID
	Kind    shard.Kind
	From    shard.ServerID
	To      shard.ServerID
	Bytes   int64         // size of the parameters and their state; a switch transfers nothing
	Started time.Duration // since the start of the coordinator
	Freeze  time.Duration // in which no push was acknowledged: from the order to freeze until the new owner served
	Total   time.Duration // from the request to the end
	Outcome shard.Outcome
	Reason  string // why it failed, empty if it did not
}

// Err returns nil if the shard was moved.
func (m MoveReport) Err() error {
	if m.Outcome == shard.Moved {
		return nil
	}
	if m == (MoveReport{}) {
		return errors.New("ps: the report of a move that was not begun")
	}
	return fmt.Errorf("ps: %v of shard %d from %q to %q: %v: %s", m.Kind, m.Shard, m.From, m.To, m.Outcome, m.Reason)
}

// underWay is a move that runs, with everybody who waits for its report: nobody for one
// that the coordinator has begun by itself.
type underWay struct {
	nonce   string // of the request; empty for a replication
	begun   time.Time
	waiting []*actor.Request
	run     uint64      // of the target
	asked   *queuedMove // of a move that may be begun again: its target was a follower
}

// queuedMove is a request for a move.
type queuedMove struct {
	request *actor.Request
	message moveRequest
	begun   time.Time
	again   bool // it was begun before, and its target lost its copy
}

// move begins a move, or joins the one that the same request has begun. It is
// answered when the move has ended.
func (c *Coordinator) move(req *actor.Request, m moveRequest) {
	if req == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.moves {
		if k.nonce == m.Nonce {
			req.Reply(k.report) // the answer was lost
			return
		}
	}
	id := shard.ID(m.Shard)
	if w := c.moving[id]; w != nil && w.nonce == m.Nonce {
		w.waiting = append(w.waiting, req)
	} else if q := c.queued[id]; q != nil && q.message.Nonce == m.Nonce {
		q.request = req // an earlier attempt of the request has been given up
	} else {
		c.begin(&queuedMove{request: req, message: m, begun: time.Now()}, true)
	}
}

// begin begins a move, or has it wait for what the coordinator does with its shard by
// itself. First says that the shard was not replicated for it yet. The caller holds c.mu.
func (c *Coordinator) begin(q *queuedMove, first bool) {
	id := shard.ID(q.message.Shard)
	if err := c.check(id, q.message.To); err != nil {
		q.request.Fail(err)
		return
	}
	if c.moving[id] != nil || c.promoting[id] > 0 {
		c.queued[id] = q
		return
	}
	r := c.places.record(id)
	mig, effects, err := shard.Begin(r, q.message.To)
	w := &underWay{nonce: q.message.Nonce, begun: q.begun, waiting: []*actor.Request{q.request}}
	if mig.Kind == shard.KindSwitch && !q.again {
		w.asked = q
	}
	if first && mig.Kind == shard.KindMove && shard.Exposed([]shard.Record{r}, c.eligible(), c.cfg.Job.Replicas) > 0 {
		// The target becomes a follower first, and the source one then: at no time is the
		// shard on one server only that was on two.
		mig, effects, err = shard.Replicate(r, q.message.To)
		w, c.queued[id] = &underWay{}, q
	}
	if err != nil {
		delete(c.queued, id)
		q.request.Fail(err)
		return
	}
	c.run(w, mig, effects)
}

// beginQueued begins the move that waits for its shard, if nothing else is done with that
// any more. The caller holds c.mu.
func (c *Coordinator) beginQueued(id shard.ID, first bool) {
	if q := c.queued[id]; q != nil && c.moving[id] == nil && c.promoting[id] == 0 {
		delete(c.queued, id)
		c.begin(q, first)
	}
}

// check says whether a shard may be moved now. The caller holds c.mu.
func (c *Coordinator) check(id shard.ID, to shard.ServerID) error {
	owners := c.places.owners()
	a, _ := owners.Owner(id)
	proposed := []shard.Move{{Shard: id, From: a.Owner, To: to}}
	if err := shard.ValidateMoves(owners, c.shards, c.known(c.eligible()), proposed); err != nil {
		return err
	}
	w := c.moving[id]
	if c.queued[id] != nil || w != nil && len(w.waiting) > 0 || w == nil && c.places.record(id).Pending != nil {
		return fmt.Errorf("%w: shard %d has another move under way", ErrConflict, id)
	}
	return nil
}

// run drives a move beside the actor. The caller holds c.mu.
func (c *Coordinator) run(w *underWay, mig shard.Migration, effects []shard.Effect) {
	c.moving[mig.Shard], w.run = w, c.places.where(mig.To).Run
	slots := c.slots
	if mig.Kind == shard.KindReplicate && c.queued[mig.Shard] == nil {
		slots = c.repairs
	}
	c.running.Go(func() {
		select {
		case slots <- struct{}{}:
		case <-c.ctx.Done():
			return
		}
		release := sync.OnceFunc(func() { <-slots })
		report := c.drive(mig, effects, release)
		release()
		c.ended(w, report)
	})
}

// resumeMoves finishes or undoes what an earlier coordinator left behind.
func (c *Coordinator) resumeMoves() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.places.pending() {
		c.resume(r)
	}
}

// resume takes over a move that the store shows and nobody here drives. The caller
// holds c.mu.
func (c *Coordinator) resume(r shard.Record) {
	mig, effects, err := shard.Resume(r)
	if err != nil {
		c.log.Error("unfinished move cannot be resumed", "shard", r.Assignment.Shard, "err", err)
		return
	}
	c.run(&underWay{nonce: randomID()}, mig, effects)
}

// drive performs a move step by step until it has ended. It calls release early when
// a server is silent: what is left then is to undo or to finish, which costs nothing
// and may take as long as that server hangs, and other moves must not wait for it.
func (c *Coordinator) drive(m shard.Migration, effects []shard.Effect, release func()) MoveReport {
	report := MoveReport{Shard: m.Shard, Kind: m.Kind, From: m.From, To: m.To, Started: time.Since(c.started)}
	begin := time.Now()
	var frozen time.Time
	for len(effects) > 0 && !m.Done() && c.ctx.Err() == nil {
		e := effects[0]
		if c.cfg.step != nil {
			c.cfg.step(e)
		}
		if e.Kind == shard.EffectFreeze && frozen.IsZero() {
			frozen = time.Now()
		}
		superseded := func() bool { return c.places.record(m.Shard).Assignment.Attempt > m.Attempt }
		ev, bytes := shard.Event{Kind: shard.EventSuperseded, Reason: "a follower was promoted"}, int64(0)
		if !superseded() {
			bytes, ev = c.perform(e)
		}
		if superseded() {
			ev = shard.Event{Kind: shard.EventSuperseded, Reason: "a follower was promoted"}
		}
		report.Bytes = max(report.Bytes, bytes)
		switch ev.Kind {
		case shard.EventTimeout:
			release()
		case shard.EventActivated, shard.EventThawed, shard.EventRestored:
			if !frozen.IsZero() {
				report.Freeze = time.Since(frozen)
			}
		}
		next, more, err := m.Step(ev)
		if err != nil { // a bug in perform: it does not fit the step
			c.log.Error("move is stuck", "shard", m.Shard, "step", e.Kind, "err", err)
			break
		}
		m, effects = next, more
	}
	report.Total, report.Outcome, report.Reason = time.Since(begin), m.Outcome, m.Reason
	if m.Outcome != shard.Moved {
		report.Reason = fmt.Sprintf("%v: %s", m.FailedAt, m.Reason)
	}
	return report
}

// perform does one step and says what came of it.
func (c *Coordinator) perform(e shard.Effect) (bytes int64, ev shard.Event) {
	timeout := c.cfg.StepTimeout
	if e.Kind == shard.EffectFollow {
		timeout = c.cfg.CopyTimeout
	}
	ctx, cancel := context.WithTimeout(c.ctx, timeout)
	defer cancel()
	switch {
	case e.Kind == shard.EffectReadRecord:
		r, err := c.places.read(ctx, e.Shard)
		if err != nil {
			sleep(c.ctx, retryPause)
			return 0, shard.Event{Kind: shard.EventUnknown, Reason: err.Error()}
		}
		return 0, shard.Event{Kind: shard.EventRecord, Record: &r}
	case e.Record != nil:
		err := c.places.swap(ctx, *e.Record)
		if err != nil {
			sleep(c.ctx, retryPause) // a store that is down is asked again and again
		}
		return 0, storeEvent(e.Kind, err)
	}
	reply, err := c.command(ctx, e, timeout, true)
	if err == nil {
		return reply.Bytes, shard.Event{Kind: e.Kind.Success()}
	}
	return 0, c.serverEvent(e, err)
}

// command has a server carry out an effect, with the followers that the record has now.
// Sure says that an owner before is dead or knows that it is none any more.
func (c *Coordinator) command(ctx context.Context, e shard.Effect, timeout time.Duration, sure bool) (commandReply, error) {
	run := c.info(e.Server).Run
	m := command{
		Step: e.Kind, Shard: uint32(e.Shard), Epoch: uint64(e.Epoch), Attempt: e.Attempt,
		Peer: c.info(e.Peer), Timeout: timeout, Join: e.Join, Sure: sure,
	}
	if e.Join && !c.hurries(e.Shard) {
		m.Rate = c.cfg.RepairBytesPerSecond
	}
	r := c.places.record(e.Shard)
	if r.Assignment.Attempt != e.Attempt { // its followers are not those of this attempt
		return commandReply{}, fmt.Errorf("%w: shard %d is at attempt %d", errSuperseded, e.Shard, r.Assignment.Attempt)
	}
	m.Set = r.Set
	for _, id := range r.Followers.IDs() {
		m.Followers = append(m.Followers, c.info(id))
	}
	reply, err := c.order(ctx, e.Server, m)
	if err == nil {
		c.announce(e, run)
	}
	return reply, err
}

func storeEvent(kind shard.EffectKind, err error) shard.Event {
	switch {
	case err == nil:
		return shard.Event{Kind: kind.Success()}
	case errors.Is(err, store.ErrConflict):
		return shard.Event{Kind: shard.EventConflict, Reason: err.Error()}
	case errors.Is(err, store.ErrLimit), errors.Is(err, shard.ErrRecord):
		return shard.Event{Kind: shard.EventFailed, Reason: err.Error()}
	}
	return shard.Event{Kind: shard.EventUnknown, Reason: err.Error()}
}

// errSuperseded means that an effect is of an attempt that is over.
var errSuperseded = errors.New("ps: superseded")

// serverEvent tells a refusal from silence and from death.
func (c *Coordinator) serverEvent(e shard.Effect, err error) shard.Event {
	ev := shard.Event{Kind: shard.EventFailed, Reason: err.Error()}
	if r := c.places.record(e.Shard); e.Kind == shard.EffectActivate && r.Followers.Len() > 0 {
		// Not the source comes back, but a follower: the target may have acknowledged with it,
		// and, if it refuses, has nothing that could serve. But it may be another run of that
		// server, and the one before answer until its lease is over.
		isOurs := r.Assignment.Owner == e.Server && r.Assignment.Attempt == e.Attempt
		if isOurs && errors.Is(err, shard.ErrRefused) && c.promote(r.Assignment, false) {
			c.log.Warn("owner of a move has no copy", "shard", e.Shard, "server", e.Server, "err", err)
		}
		sleep(c.ctx, retryPause)
		ev.Kind = shard.EventTimeout
		return ev
	}
	// A node that closes, here or there, says nothing about what the server has done.
	isRefused := !askAgain(err) && !errors.Is(err, ErrUnavailable) && !errors.Is(err, actor.ErrClosed)
	if isRefused && (e.Kind != shard.EffectActivate || c.succeeds(e.Server)) { // else an earlier run may serve
		return ev
	}
	ev.Kind = shard.EventTimeout
	if isRefused {
		sleep(c.ctx, probeTimeout)
		return ev
	}
	if c.dead(e.Server) {
		ev.Kind = shard.EventSourceDown
		if e.Kind == shard.EffectPrepare || e.Kind == shard.EffectActivate || e.Kind == shard.EffectDiscard {
			ev.Kind = shard.EventTargetDown
		}
	}
	sleep(c.ctx, retryPause) // the steps that must succeed are tried until they do
	return ev
}

const retryPause = 20 * time.Millisecond

// order sends a command to a server until it answers.
func (c *Coordinator) order(ctx context.Context, id shard.ServerID, m command) (commandReply, error) {
	m.Term, m.Run = c.term, c.info(id).Run
	return instruct[commandReply](ctx, c, id, m)
}

// instruct asks a server as long as it is up. One that has heard of a later coordinator
// ends this one.
func instruct[R any](ctx context.Context, c *Coordinator, id shard.ServerID, m any) (R, error) {
	info := c.info(id)
	if info.Node == "" {
		var zero R
		return zero, fmt.Errorf("%w: server %q has not joined", ErrUnavailable, id)
	}
	r, _, err := askFrom[R](ctx, c.cfg.Node, only(actor.Ref{Node: info.Node, Name: info.Process}), m, func() bool { return c.isUp(id) })
	if errors.Is(err, ErrDeposed) {
		c.depose(err)
	}
	return r, err
}

// hurries reports whether a move waits for the replication of its shard.
func (c *Coordinator) hurries(id shard.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queued[id] != nil
}

func (c *Coordinator) info(id shard.ServerID) serverInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.servers[id]; s != nil {
		return s.info
	}
	return serverInfo{ID: id}
}

func (c *Coordinator) isUp(id shard.ServerID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.servers[id]
	return s != nil && s.up
}

// announce tells the workers about a new owner, to save them a redirect. If the run of
// the server that has said so still lasts, the shard is not lost there, whatever
// earlier runs have lost.
func (c *Coordinator) announce(e shard.Effect, run uint64) {
	if e.Kind != shard.EffectActivate && e.Kind != shard.EffectRestore {
		return
	}
	c.mu.Lock()
	if s := c.servers[e.Server]; s != nil && s.info.Run == run {
		delete(s.lost, e.Shard)
	}
	c.mu.Unlock()
	_ = c.cfg.Node.TryCast(c.ref, routesChanged{Shard: uint32(e.Shard), Epoch: uint64(e.Epoch), To: c.info(e.Server)}) // the redirect does as well
}

// keptMove is the report of a move that has ended, for requests that come again.
type keptMove struct {
	nonce  string
	report MoveReport
}

// ended keeps the report of a move and answers everybody who waits for it.
func (c *Coordinator) ended(w *underWay, r MoveReport) {
	if c.ctx.Err() != nil {
		return // not ended: the next coordinator will go on with it
	}
	isMade := r.Kind == shard.KindReplicate && r.Outcome == shard.Moved
	if !isMade { // those are told together
		c.log.Info("move ended", "shard", r.Shard, "kind", r.Kind, "from", r.From, "to", r.To, "outcome", r.Outcome,
			"freeze", r.Freeze, "total", r.Total, "bytes", r.Bytes, "reason", r.Reason)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.moving, r.Shard)
	c.unsettled = true
	if !w.begun.IsZero() {
		r.Started, r.Total = w.begun.Sub(c.started), time.Since(w.begun)
	}
	if w.asked != nil && r.Outcome == shard.Aborted && !c.places.record(r.Shard).Followers.Has(r.To) {
		w.asked.request, w.asked.again = w.waiting[len(w.waiting)-1], true // the latest attempt of the request
		c.begin(w.asked, true)                                             // the follower was lost meanwhile: the shard is copied
		return
	}
	if r.Kind != shard.KindReplicate {
		c.moves = append(c.moves, keptMove{w.nonce, r})
		c.moves = c.moves[max(0, len(c.moves)-keptMoves):]
	}
	for _, req := range w.waiting {
		req.Reply(r)
	}
	// What this move has met in the store may be a write of an earlier one here that was
	// given up and came late: nobody else would end it.
	if found := c.places.record(r.Shard); r.Outcome == shard.Superseded && found.Pending != nil {
		c.resume(found)
	}
	if isMade {
		c.made.shards++
		c.made.bytes += r.Bytes
	}
	if r.Kind == shard.KindReplicate {
		delete(c.rests, r.Shard)
		delete(c.unfit, r.Shard)
		s := c.servers[r.To]
		switch {
		case r.Outcome != shard.Moved:
			c.rests[r.Shard], c.unfit[r.Shard] = time.Now().Add(repairPause), r.To
		case c.places.where(r.To).Run != w.run: // what follows is no run that counts
			c.drop(c.places.record(r.Shard).Assignment, r.To)
		case s != nil && s.info.Run == w.run:
			delete(s.lost, r.Shard)
		}
		defer func() {
			c.repair()
			c.tellMade()
		}()
	}
	c.beginQueued(r.Shard, r.Kind != shard.KindReplicate)
}

// made counts the followers that the log does not tell yet.
type made struct{ shards, bytes int64 }

// tellMade logs the followers that were made together, when no more are being made: a job that
// starts has one for each shard. The caller holds c.mu.
func (c *Coordinator) tellMade() {
	for _, w := range c.moving {
		if w.nonce == "" {
			return
		}
	}
	if c.made.shards > 0 {
		c.log.Info("followers are there", "shards", c.made.shards, "bytes", c.made.bytes)
		c.made = made{}
	}
}
