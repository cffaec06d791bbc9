package ps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

// CheckpointConfig says where checkpoints go, and when they are taken.
type CheckpointConfig struct {
	// Storage is where they are. All servers have the same (ServerConfig.Checkpoints).
	// Zero: there are none.
	Storage checkpoint.Storage
	// Interval is the time between the beginnings of two checkpoints. Zero: they are taken
	// when Admin.Checkpoint asks for one.
	Interval time.Duration
	// Keep is how many of the newest are kept. Zero: 3. Older ones are removed after the
	// newest is there, and before the next one is.
	Keep int
	// FullEvery is how many checkpoints there are to a full one; the others hold what has
	// changed since the one before. Zero: 10. One: all are full.
	FullEvery int
	// BytesPerSecond bounds the pace at which each server writes, so that pushes keep the
	// processors and the disk that they need; blocks that change meanwhile are copied
	// (ServerConfig.CheckpointMemory). Zero: as fast as it can.
	BytesPerSecond int64
	// Timeout bounds the writing of one. Zero: 10 min.
	Timeout time.Duration
	// Restore names the checkpoint that the shards of a new job are filled from:
	// RestoreLatest, or one by its name. It is read as a whole first. A job that the
	// coordination store knows goes on as it is. Datasets go on where they were when the
	// checkpoint was taken; of those that it has, Epochs and EpochBarrier alone may differ.
	// Zero: none.
	Restore string
}

// RestoreLatest as CheckpointConfig.Restore means the newest checkpoint that is whole; none
// at all if there is none yet.
const RestoreLatest = "latest"

func (c CheckpointConfig) withDefaults() CheckpointConfig {
	if c.Keep == 0 {
		c.Keep = 3
	}
	if c.FullEvery == 0 {
		c.FullEvery = 10
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Minute
	}
	return c
}

func (c CheckpointConfig) validate() error {
	var errs []error
	if c.Interval < 0 || c.Keep < 0 || c.FullEvery < 0 || c.Timeout < 0 || c.BytesPerSecond < 0 {
		errs = append(errs, fmt.Errorf("ps: Checkpoints: Interval %v, Keep %d, FullEvery %d, Timeout %v and BytesPerSecond %d, must be at least 0",
			c.Interval, c.Keep, c.FullEvery, c.Timeout, c.BytesPerSecond))
	}
	if c.Storage == nil && (c.Interval > 0 || c.Restore != "") {
		errs = append(errs, errors.New("ps: Checkpoints: Interval or Restore without Storage"))
	}
	return errors.Join(errs...)
}

// CheckpointReport is what became of one checkpoint.
type CheckpointReport struct {
	Name   string
	Parent string // it is an increment to; empty for a full one
	Clock  uint32 // the last one begun; BSP: it has the updates of all earlier ones, and no others
	Files  int
	Bytes  int64
	Took   time.Duration
	Reason string // why there is none
}

// Err returns nil for a checkpoint that was written.
func (r CheckpointReport) Err() error {
	if r.Reason == "" {
		return nil
	}
	return fmt.Errorf("ps: checkpoint %s: %s", r.Name, r.Reason)
}

// Checkpoint has a checkpoint written, an increment if one is due, and returns when it is
// there. Training goes on meanwhile. An error of Checkpoint itself means that it is not
// known whether it will be written.
func (a *Admin) Checkpoint(ctx context.Context, full bool) (CheckpointReport, error) {
	return ask[CheckpointReport](ctx, a.node, a.coordinator, checkpointRequest{Nonce: randomID(), Full: full})
}

// checkpoints is the coordinator's side.
type checkpoints struct {
	mu      sync.Mutex
	nonce   string // of the request under way, empty for none
	waiting []*actor.Request
	last    CheckpointReport // and of which request
	lastOf  string
	began   time.Time
	ref     *checkpoint.Ref // the newest one that was written
	length  int             // of its chain
	pruned  chan struct{}   // closed when what the last one has made superfluous is gone

	from *checkpoint.Checkpoint // that the shards of a new job are filled from
}

// checkpoint answers a request for one.
func (c *Coordinator) checkpoint(req *actor.Request, m checkpointRequest) {
	if req == nil {
		return
	}
	if c.cfg.Checkpoints.Storage == nil {
		req.Fail(errNoStorage)
		return
	}
	k := &c.checks
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.lastOf == m.Nonce:
		req.Reply(k.last)
	case k.nonce == m.Nonce:
		k.waiting = append(k.waiting, req)
	case k.nonce != "":
		req.Fail(fmt.Errorf("%w: a checkpoint is being written", ErrConflict))
	default:
		k.nonce, k.waiting = m.Nonce, []*actor.Request{req}
		c.beginCheckpoint(m.Full)
	}
}

// periodic begins a checkpoint when it is time.
func (c *Coordinator) periodic() {
	k := &c.checks
	k.mu.Lock()
	defer k.mu.Unlock()
	every := c.cfg.Checkpoints.Interval
	if every == 0 || k.nonce != "" || time.Since(k.began) < every || len(c.places.unplaced()) > 0 {
		return
	}
	k.nonce, k.waiting = randomID(), nil
	c.beginCheckpoint(false)
}

// beginCheckpoint writes a checkpoint beside the actor. The caller holds checks.mu.
func (c *Coordinator) beginCheckpoint(full bool) {
	k := &c.checks
	k.began = time.Now()
	before, pruned := k.pruned, make(chan struct{})
	k.pruned = pruned
	c.running.Go(func() {
		defer close(pruned)
		ctx, cancel := context.WithTimeout(c.ctx, c.cfg.Checkpoints.Timeout)
		defer cancel()
		if c.takeCheckpoint(ctx, full, before) != nil {
			return
		}
		if _, err := checkpoint.Prune(ctx, c.cfg.Checkpoints.Storage, c.cfg.Checkpoints.Keep); err != nil {
			c.log.Warn("old checkpoints are still there", "err", err)
		}
	})
}

// takeCheckpoint writes a checkpoint and tells those who wait for it: it is there when it is
// committed, and what it has made superfluous need not be removed by then.
func (c *Coordinator) takeCheckpoint(ctx context.Context, full bool, before <-chan struct{}) error {
	k := &c.checks
	report := CheckpointReport{}
	err := c.writeCheckpoint(ctx, &report, k.nonce, full, before)
	report.Took = time.Since(k.began)
	if err != nil {
		report.Reason = err.Error()
		c.log.Error("checkpoint failed", "name", report.Name, "err", err)
	} else {
		c.log.Info("checkpoint written", "name", report.Name, "parent", report.Parent, "bytes", report.Bytes, "took", report.Took)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, req := range k.waiting {
		req.Reply(report)
	}
	k.last, k.lastOf, k.nonce, k.waiting = report, k.nonce, "", nil
	return err
}

// writeCheckpoint writes a checkpoint. It is committed when those before it have been pruned:
// one at a time does either in a storage.
func (c *Coordinator) writeCheckpoint(ctx context.Context, report *CheckpointReport, nonce string, full bool, before <-chan struct{}) error {
	storage := c.cfg.Checkpoints.Storage
	name, err := checkpoint.Next(ctx, storage)
	if err != nil {
		return err
	}
	report.Name = name
	parent, err := c.parent(ctx, full)
	if err != nil {
		return err
	}
	if parent != nil {
		report.Parent = parent.Name
	}
	m := saveRequest{Nonce: nonce, Name: name, Parent: report.Parent, Rate: c.cfg.Checkpoints.BytesPerSecond, Timeout: c.cfg.Checkpoints.Timeout}
	parts, datasets, err := c.cut(ctx, &m)
	if err != nil {
		return err
	}
	report.Clock = m.Clock
	manifest := checkpoint.Manifest{
		Name: name, Parent: parent, Time: time.Now(), Clock: uint64(m.Clock), Model: c.cfg.Job.Model, Shards: c.shards, Datasets: datasets,
	}
	if manifest.Job, err = json.Marshal(c.cfg.Job); err != nil {
		return fmt.Errorf("ps: description of job %q: %w", c.cfg.Job.Name, err)
	}
	for _, p := range parts {
		for _, file := range p.files {
			f, err := checkpoint.Describe(ctx, storage, name, file)
			if err != nil {
				return err
			}
			manifest.Files = append(manifest.Files, f)
			report.Bytes += f.Bytes
		}
	}
	report.Files = len(manifest.Files)
	if !c.leads() { // the next one may be writing files of the same names
		return c.Err()
	}
	select {
	case <-before:
	case <-ctx.Done():
		return fmt.Errorf("ps: wait until the checkpoint before is pruned: %w", context.Cause(ctx))
	}
	ref, err := checkpoint.Commit(ctx, storage, manifest)
	if err != nil {
		return err
	}
	c.committed(ref, parent)
	return nil
}

// parent is the checkpoint that the next one is an increment to, nil if it is to be full.
func (c *Coordinator) parent(ctx context.Context, full bool) (*checkpoint.Ref, error) {
	k := &c.checks
	k.mu.Lock()
	ref, length := k.ref, k.length
	k.mu.Unlock()
	if full || c.cfg.Checkpoints.FullEvery == 1 {
		return nil, nil
	}
	if ref == nil { // the first one of this coordinator
		latest, _, err := checkpoint.Latest(ctx, c.cfg.Checkpoints.Storage, "")
		if errors.Is(err, checkpoint.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if c.fits(latest) != nil {
			return nil, nil // of another job, which used the storage before
		}
		r := latest.Ref()
		ref, length = &r, len(latest.Chain())
	}
	if length >= c.cfg.Checkpoints.FullEvery {
		return nil, nil
	}
	return ref, nil
}

func (c *Coordinator) committed(ref checkpoint.Ref, parent *checkpoint.Ref) {
	k := &c.checks
	k.mu.Lock()
	defer k.mu.Unlock()
	if parent == nil {
		k.length = 0
	}
	k.ref, k.length = &ref, max(k.length, 0)+1
}

// fits returns an error unless a checkpoint is of this job's model, cut in the same way,
// with the same optimizers.
func (c *Coordinator) fits(from *checkpoint.Checkpoint) error {
	if err := from.Match(c.cfg.Job.Model); err != nil {
		return err
	}
	if !slices.Equal(from.Manifest().Shards, c.shards) {
		return fmt.Errorf("%w: checkpoint %s has %d shards, this job has %d, or others: MaxShardBytes must be the same",
			checkpoint.ErrMismatch, from.Ref().Name, len(from.Manifest().Shards), len(c.shards))
	}
	var saved Job
	if err := json.Unmarshal(from.Manifest().Job, &saved); err != nil {
		return fmt.Errorf("%w: checkpoint %s: job: %w", checkpoint.ErrMismatch, from.Ref().Name, err)
	}
	for _, l := range c.cfg.Job.Model.Layers {
		was, is := saved.optimizer(l.Name), c.cfg.Job.optimizer(l.Name)
		if err := was.validate(); err != nil || !slices.Equal(was.slotNames(), is.slotNames()) {
			return fmt.Errorf("%w: checkpoint %s has layer %q under %v, this job under %v", checkpoint.ErrMismatch, from.Ref().Name, l.Name, was.Kind, is.Kind)
		}
		if was, is := saved.Tables[l.Name], c.cfg.Job.Tables[l.Name]; was.AdmitAfter > 1 && is.AdmitAfter > 1 && was.FilterBytes != is.FilterBytes {
			return fmt.Errorf("%w: checkpoint %s has the counters of table %q in filters of %d bytes, this job has %d (0: exact)",
				checkpoint.ErrMismatch, from.Ref().Name, l.Name, was.FilterBytes, is.FilterBytes)
		}
	}
	return nil
}

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

// restoring opens the checkpoint that a new job is filled from. One that the store knows
// goes on as it is.
func (c *Coordinator) restoring(ctx context.Context) error {
	cfg := c.cfg.Checkpoints
	if cfg.Restore == "" {
		return nil
	}
	unplaced := len(c.places.unplaced())
	started, err := c.places.restoredFrom(ctx)
	if err != nil {
		return err
	}
	if unplaced < len(c.shards) && started == "" || unplaced == 0 {
		if cfg.Restore != RestoreLatest && cfg.Restore != started {
			return fmt.Errorf("%w: restore of %s: the job has %d shards on servers already", ErrConflict, cfg.Restore, len(c.shards)-unplaced)
		}
		return nil
	}
	if started != "" { // an earlier coordinator has begun
		cfg.Restore = started
	}
	from, err := c.whole(ctx, cfg.Restore)
	if err != nil || from == nil {
		return err
	}
	if err := c.fits(from); err != nil {
		return err
	}
	c.checks.from = from
	c.clocks.next = max(c.clocks.next, uint32(from.Manifest().Clock))
	c.log.Info("shards are filled from a checkpoint", "name", from.Ref().Name)
	return c.places.setRestored(ctx, from.Ref().Name)
}

// whole opens a checkpoint after reading all of it: the newest that is whole, or the one
// with that name.
func (c *Coordinator) whole(ctx context.Context, name string) (*checkpoint.Checkpoint, error) {
	storage := c.cfg.Checkpoints.Storage
	if name != RestoreLatest {
		from, err := checkpoint.Open(ctx, storage, name)
		if err == nil {
			err = from.Verify(ctx)
		}
		return from, err
	}
	for before := ""; ; {
		from, skipped, err := checkpoint.Latest(ctx, storage, before)
		for _, why := range skipped {
			c.log.Warn("checkpoint is passed over", "err", why)
		}
		if errors.Is(err, checkpoint.ErrNotFound) && len(skipped) == 0 && before == "" {
			return nil, nil // the first run
		}
		if err != nil {
			return nil, err
		}
		err = from.Verify(ctx)
		if err == nil || !errors.Is(err, checkpoint.ErrDamaged) {
			return from, err
		}
		c.log.Warn("checkpoint is passed over", "err", err)
		before = from.Ref().Name
	}
}

// restoredFrom is the name of the checkpoint that new shards are filled from, or empty.
func (c *Coordinator) restoredFrom() string {
	if c.checks.from == nil {
		return ""
	}
	return c.checks.from.Ref().Name
}

// restoredFrom is the checkpoint that the job was restored from, as the store has it.
func (p *placement) restoredFrom(ctx context.Context) (string, error) {
	e, err := p.kv.Get(ctx, p.prefix+"restored")
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	return string(e.Value), err
}

func (p *placement) setRestored(ctx context.Context, name string) error {
	_, err := p.kv.CompareAndSwap(ctx, p.prefix+"restored", 0, []byte(name))
	if errors.Is(err, store.ErrConflict) {
		return nil // by an earlier coordinator, or an earlier attempt
	}
	return err
}
