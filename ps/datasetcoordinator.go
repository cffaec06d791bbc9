package ps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard/store"
)

// The coordinator's part of handing out record ranges. That one is finished is answered
// when the store has it, so that no later coordinator hands it out again; that one is
// handed out is not written, only in advance how far that may go.

// savePause is the least time from the end of a write of a dataset's progress to the next
// one, which has all that was finished meanwhile. It is as long as the write took at
// least, so that a slow store has time for others.
const savePause = 2 * time.Millisecond

// servedDataset is a dataset with what the store has of it. The actor owns it.
type servedDataset struct {
	*dispatch
	key      string
	revision store.Revision
	changes  uint64 // that the store should know of
	saved    uint64 // how many of them it does
	saving   bool
	waiting  map[finishRequest]finishing
}

// finishing waits until the store knows of changes.
type finishing struct {
	req   *actor.Request
	after uint64
}

// loadDatasets goes on with what an earlier coordinator, or the checkpoint that a new job
// is filled from, has left.
func (c *Coordinator) loadDatasets(ctx context.Context) error {
	saved, err := c.datasetsRestored()
	if err != nil {
		return err
	}
	for i, d := range c.cfg.Job.Datasets {
		s := &servedDataset{dispatch: newDispatch(d), key: fmt.Sprintf("%sdataset/%02d", c.places.prefix, i), waiting: map[finishRequest]finishing{}}
		e, err := c.places.kv.Get(ctx, s.key)
		switch {
		case err == nil:
			var state dispatchState
			if state, err = decodeDispatchState(e.Value); err == nil {
				s.dispatch, err = state.resume(d)
			}
			s.revision = e.Revision
		case errors.Is(err, store.ErrNotFound):
			err = s.begin(ctx, c.places, saved[d.Name])
		}
		if err != nil {
			return fmt.Errorf("ps: store key %q: %w", s.key, err)
		}
		c.datasets = append(c.datasets, s)
	}
	if len(c.missing) == 0 {
		c.settleDatasets()
	}
	return nil
}

// settleDatasets hands out again what no member has claimed.
func (c *Coordinator) settleDatasets() {
	for _, s := range c.datasets {
		s.settle()
	}
}

// begin begins a dataset, with the progress of a checkpoint if there is some. That is
// written before anything else: the next coordinator does not look into the checkpoint.
func (s *servedDataset) begin(ctx context.Context, p *placement, from *dispatch) error {
	if from == nil {
		return nil
	}
	s.dispatch = from
	text, err := s.state(s.limit).encode()
	if err != nil {
		return err
	}
	s.revision, err = p.put(ctx, s.key, 0, text)
	return err
}

// datasetsRestored is the progress in the checkpoint that a new job is filled from, by
// dataset. Nobody has a range by then.
func (c *Coordinator) datasetsRestored() (map[string]*dispatch, error) {
	from := map[string]*dispatch{}
	if c.checks.from == nil || len(c.checks.from.Manifest().Datasets) == 0 {
		return from, nil
	}
	name := c.checks.from.Ref().Name
	var states []dispatchState
	if err := json.Unmarshal(c.checks.from.Manifest().Datasets, &states); err != nil {
		return nil, fmt.Errorf("%w: checkpoint %s: datasets: %w", checkpoint.ErrDamaged, name, err)
	}
	for _, s := range states {
		for _, d := range c.cfg.Job.Datasets {
			if d.Name != s.Dataset.Name {
				continue
			}
			progress, err := s.resume(d)
			if err != nil {
				return nil, fmt.Errorf("%w: checkpoint %s: %w", checkpoint.ErrMismatch, name, err)
			}
			progress.settle()
			from[d.Name] = progress
		}
	}
	return from, nil
}

// datasetStates is the progress of all datasets, for a checkpoint; empty if there are none.
func (c *Coordinator) datasetStates() (json.RawMessage, error) {
	if len(c.datasets) == 0 {
		return nil, nil
	}
	var states []dispatchState
	for _, s := range c.datasets {
		states = append(states, s.state(s.next))
	}
	text, err := json.Marshal(states)
	if err != nil {
		return nil, fmt.Errorf("ps: progress of the datasets of job %q: %w", c.cfg.Job.Name, err)
	}
	return text, nil
}

// receiveDataset handles the messages about datasets.
func (c *Coordinator) receiveDataset(ctx *actor.Context, msg any) {
	switch m := msg.(type) {
	case takeRequest:
		reply, err := c.take(m)
		answer(ctx, err, reply)
	case finishRequest:
		c.finish(ctx.Request(), m)
	case progressSaved:
		c.progressSaved(m)
	case progressDue:
		m.dataset.saving = false
		c.saveProgress(m.dataset)
	}
}

// dataset returns the dataset that a member may take ranges from.
func (c *Coordinator) dataset(incarnation uint64, index int) (*servedDataset, error) {
	switch p := c.members[incarnation]; {
	case c.onItsWay(incarnation):
		return nil, errReturning
	case p == nil || p.observer:
		return nil, fmt.Errorf("%w: incarnation %d", ErrNotMember, incarnation)
	case index < 0 || index >= len(c.datasets):
		return nil, fmt.Errorf("%w: number %d, the job has %d", ErrUnknownDataset, index, len(c.datasets))
	}
	return c.datasets[index], nil
}

// take answers a worker that asks for ranges.
func (c *Coordinator) take(m takeRequest) (takeReply, error) {
	s, err := c.dataset(m.Incarnation, m.Dataset)
	if err != nil {
		return takeReply{}, err
	}
	positions, err := s.take(m.Incarnation, m.Has, m.Want)
	if errors.Is(err, ErrNoRange) && !c.cfg.Job.clocked() {
		err = fmt.Errorf("%w: %v", errWaiting, err) // nobody waits for its clock meanwhile
	}
	if !s.saving && s.wanted() > s.limit {
		s.changes++
		c.saveProgress(s)
	}
	return takeReply{Positions: positions}, err
}

// finish takes note of a finished range, and answers when the store has it.
func (c *Coordinator) finish(req *actor.Request, m finishRequest) {
	if req == nil {
		return
	}
	s, err := c.dataset(m.Incarnation, m.Dataset)
	if err != nil {
		req.Fail(err)
		return
	}
	changed, err := s.finish(m.Incarnation, m.Position)
	if err != nil {
		req.Fail(err)
		return
	}
	if changed {
		s.changes++
	}
	if s.saved == s.changes {
		req.Reply(done{})
		return
	}
	s.waiting[m] = finishing{req, s.changes} // an earlier request has been given up
	c.saveProgress(s)
}

// progressSaved says that the store has the progress of a dataset, or will not.
type progressSaved struct {
	dataset  *servedDataset
	changes  uint64
	limit    int64
	revision store.Revision
	err      error
}

// progressDue says that the next write may begin.
type progressDue struct{ dataset *servedDataset }

// saveProgress writes what the store should know, beside the actor, unless it does or is
// being told.
func (c *Coordinator) saveProgress(s *servedDataset) {
	if s.saving || s.saved == s.changes {
		return
	}
	s.saving = true
	m := progressSaved{dataset: s, changes: s.changes, limit: s.wanted()}
	state, key, revision := s.state(m.limit), s.key, s.revision
	c.running.Go(func() {
		began := time.Now()
		text, err := state.encode()
		if m.err = err; err == nil {
			m.revision, m.err = c.places.put(c.ctx, key, revision, text)
		}
		pause := max(savePause, time.Since(began))
		_ = c.cfg.Node.Cast(c.ctx, c.ref, m) // fails only when closed
		if m.err != nil {
			pause = storeTimeout
		}
		sleep(c.ctx, pause)
		_ = c.cfg.Node.Cast(c.ctx, c.ref, progressDue{s}) // likewise
	})
}

// progressSaved answers those who have waited for the store.
func (c *Coordinator) progressSaved(m progressSaved) {
	s := m.dataset
	switch {
	case errors.Is(m.err, store.ErrConflict), errors.Is(m.err, ErrDeposed):
		c.depose(fmt.Errorf("%w: progress of dataset %q: %w", ErrDeposed, s.data.Name, m.err))
		return
	case m.err != nil:
		c.log.Error("progress of a dataset cannot be written", "dataset", s.data.Name, "err", m.err)
		return
	}
	s.saved, s.revision, s.limit = m.changes, m.revision, max(s.limit, m.limit)
	for key, f := range s.waiting {
		if f.after <= s.saved {
			f.req.Reply(done{})
			delete(s.waiting, key)
		} else if time.Until(f.req.Deadline()) < 0 {
			delete(s.waiting, key)
		}
	}
}
