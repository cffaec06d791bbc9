package ps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

// What a new job is filled from: the part of the coordinator that opens checkpoints.

// savedJob is what a checkpoint says of its job.
type savedJob struct {
	Job
	Identity string // of the job that wrote it
}

// wrote reports whether a checkpoint was written by this job, under whichever coordinator.
func (c *Coordinator) wrote(saved *checkpoint.Checkpoint) bool {
	var by savedJob
	return json.Unmarshal(saved.Manifest().Job, &by) == nil && by.Identity == c.identity
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

// lastNumber is the highest incarnation that the checkpoint knows which new shards are filled
// from: a worker of this job with one of those would have its pushes refused, or taken for
// repeated ones. Numbers begin with the time, and clocks may be set back.
func (c *Coordinator) lastNumber(ctx context.Context) (last uint64, err error) {
	if c.checks.from == nil {
		return 0, nil
	}
	for _, s := range c.shards {
		state, err := c.checks.from.Shard(ctx, s.ID)
		if err != nil {
			return 0, err
		}
		windows, err := shard.DecodeWindows(state.Windows)
		if err != nil {
			return 0, fmt.Errorf("%w: checkpoint %s: shard %d: %w", checkpoint.ErrDamaged, c.restoredFrom(), s.ID, err)
		}
		last = max(last, windows.Last())
	}
	return last, nil
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
