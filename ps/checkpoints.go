package ps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps/checkpoint"
)

// CheckpointConfig says where checkpoints go, and when they are taken.
type CheckpointConfig struct {
	// Storage is where checkpoints are kept. All servers must have the same one
	// (ServerConfig.Checkpoints); one that has none is refused at its start. It is for one job
	// at a time: Keep counts all that is there, and RestoreLatest takes the newest. Nil: there
	// are no checkpoints.
	Storage checkpoint.Storage
	// Interval is the time from the start of one checkpoint to the start of the next. Zero:
	// checkpoints are taken on request only (Admin.Checkpoint).
	Interval time.Duration
	// Keep is the number of checkpoints that are kept; older ones are removed once the newest
	// is complete. Zero: 3.
	Keep int
	// FullEvery says that every n-th checkpoint is a full one; the others hold what has
	// changed since the one before. The first one of a coordinator is full, and so is one
	// after a failure. Zero: 10. One: all are full.
	FullEvery int
	// BytesPerSecond limits the rate at which each server writes, so that processors and disk
	// are left for pushes. Blocks that change before they are written are copied, within
	// ServerConfig.CheckpointMemory. Zero: no limit.
	BytesPerSecond int64
	// Timeout bounds the time that one checkpoint may take. Zero: 10 min.
	Timeout time.Duration
	// Restore names the checkpoint that a new job starts from: RestoreLatest, or one by its
	// name. All of it is read and verified before the first shard is filled. A job that the
	// coordination store already knows goes on as it is. Datasets go on where they were when
	// the checkpoint was taken; Epochs and EpochBarrier of a dataset may differ from those in
	// the checkpoint, nothing else. Empty: the job starts from its initial values.
	Restore string
}

// RestoreLatest as CheckpointConfig.Restore names the newest checkpoint that is undamaged. If
// there is no checkpoint yet, the job starts from its initial values.
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

// CheckpointReport says what became of one checkpoint.
type CheckpointReport struct {
	Name   string
	Parent string // the checkpoint that it is an increment to; empty if it is full
	Clock  uint32 // latest clock begun; under BSP the checkpoint has the updates of all earlier clocks and no others
	Files  int    // number of files
	Bytes  int64  // their size
	Took   time.Duration
	Reason string // why it was not written; empty if it was
}

// Err returns nil if the checkpoint was written.
func (r CheckpointReport) Err() error {
	if r.Reason == "" {
		return nil
	}
	return fmt.Errorf("ps: checkpoint %s: %s", r.Name, r.Reason)
}

// Checkpoint takes a checkpoint and returns when it is complete; training goes on meanwhile. It
// is a full one if full is set or one is due (CheckpointConfig.FullEvery), else an increment.
// CheckpointReport.Err says whether it was written. Before the layers are placed, Checkpoint
// waits until they are, or fails with ErrNotPlaced when ctx ends. Other errors of Checkpoint
// itself mean that none was begun (ErrConflict: another one is under way, or there is no
// storage), or that ctx ended first: then the checkpoint may still be written.
func (a *Admin) Checkpoint(ctx context.Context, full bool) (CheckpointReport, error) {
	r, err := ask[CheckpointReport](ctx, a.node, a.coordinator, checkpointRequest{Nonce: randomID(), Full: full})
	return r, failed(err, "checkpoint")
}

// checkpoints is the coordinator's side.
type checkpoints struct {
	mu      sync.Mutex
	nonce   string // of the request under way, empty for none
	waiting []*actor.Request
	last    CheckpointReport // and of which request
	lastOf  string
	began   time.Time
	ref     *checkpoint.Ref // the one that this coordinator wrote last, nil if it has failed since
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
	k, unplaced := &c.checks, len(c.places.unplaced())
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.lastOf == m.Nonce:
		req.Reply(k.last)
	case k.nonce == m.Nonce:
		k.waiting = append(k.waiting, req)
	case k.nonce != "":
		req.Fail(fmt.Errorf("%w: a checkpoint is being written", ErrConflict))
	case unplaced > 0: // it is asked again
		req.Fail(fmt.Errorf("%w: %d of %d shards have no server", ErrNotPlaced, unplaced, len(c.shards)))
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
			<-before // those before may still be pruned
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
	if err != nil {
		k.ref = nil // the next one does not need what may have been the cause
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
	parent := c.parent(full)
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
	if manifest.Job, err = json.Marshal(savedJob{c.cfg.Job, c.identity}); err != nil {
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

// parent is the checkpoint that the next one is an increment to, nil if it is to be full. Only
// one that this coordinator has written will do: of any other that the storage has, nothing
// says that what the servers have now follows from it.
func (c *Coordinator) parent(full bool) *checkpoint.Ref {
	k := &c.checks
	k.mu.Lock()
	ref, length := k.ref, k.length
	k.mu.Unlock()
	if full || length >= c.cfg.Checkpoints.FullEvery {
		return nil
	}
	return ref
}

func (c *Coordinator) committed(ref checkpoint.Ref, parent *checkpoint.Ref) {
	k := &c.checks
	k.mu.Lock()
	defer k.mu.Unlock()
	if parent == nil {
		k.length = 0
	}
	k.ref, k.length = &ref, k.length+1
}
