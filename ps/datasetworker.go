package ps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// The worker's part of handing out record ranges.

// workerDataset is what a worker has of a dataset.
type workerDataset struct {
	index int
	data  Dataset

	mu    sync.Mutex
	has   map[int64]bool // positions that were given to it and are not finished
	ready []RecordRange  // those of them that nobody has taken yet
	asked *takeUnderWay  // a request for more, nil if there is none
}

// takeUnderWay is one request for ranges. It is over when ended is closed, and has its
// error then.
type takeUnderWay struct {
	ended chan struct{}
	err   error
}

// dataset returns what the worker has of a dataset.
func (w *Worker) dataset(name string) (*workerDataset, error) {
	if err := w.ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: worker %q", ErrClosed, w.cfg.Name)
	}
	var names []string
	for _, s := range w.datasets {
		if s.data.Name == name {
			return s, nil
		}
		names = append(names, s.data.Name)
	}
	return nil, fmt.Errorf("%w: %.64q, the job has %.64q", ErrUnknownDataset, name, names)
}

// NextRange returns a range of a dataset to train on. No other worker gets it unless this
// one leaves or dies. When everything that was computed from it is pushed and acknowledged,
// FinishRange says so; a worker may have 64 ranges that are not finished.
//
// It waits while other workers have all that is left of the data, or of the epoch under
// Dataset.EpochBarrier, because they may be gone before they have finished. Under BSP and
// SSP, where a worker that waits would hold the others, the error wraps ErrNoRange instead:
// tick, and ask again. When all ranges of all epochs are finished it wraps ErrEndOfData.
// Other errors: ErrUnknownDataset, ErrNotMember, ErrClosed, ErrConflict when the worker has
// too many ranges, or the context's; then NextRange may be called again.
func (w *Worker) NextRange(ctx context.Context, dataset string) (RecordRange, error) {
	s, err := w.dataset(dataset)
	if err != nil {
		return RecordRange{}, err
	}
	ctx, cancel := bounded(ctx, w.cfg.Timeout)
	defer cancel()
	for {
		s.mu.Lock()
		if len(s.ready) > 0 {
			r := s.ready[0]
			s.ready = s.ready[1:]
			if len(s.ready) < max(w.cfg.Prefetch, 0) {
				w.fetch(s)
			}
			s.mu.Unlock()
			return r, nil
		}
		a := w.fetch(s)
		s.mu.Unlock()
		select {
		case <-a.ended:
			if a.err != nil && !askAgain(a.err) {
				return RecordRange{}, fmt.Errorf("ps: worker %q: next range of dataset %q: %w", w.cfg.Name, dataset, a.err)
			}
		case <-ctx.Done():
			return RecordRange{}, fmt.Errorf("ps: worker %q: next range of dataset %q: no answer from %v yet: %w", w.cfg.Name, dataset, w.coordinator, ctx.Err())
		}
	}
}

// fetch has one request for ranges under way: one more than are wanted in advance if there
// are none. The caller holds s.mu.
func (w *Worker) fetch(s *workerDataset) *takeUnderWay {
	if s.asked != nil {
		return s.asked
	}
	a := &takeUnderWay{ended: make(chan struct{})}
	s.asked = a
	joins := w.joins.Load()
	m := takeRequest{
		Incarnation: w.incarnation.Load(), Dataset: s.index, Has: slices.Sorted(maps.Keys(s.has)),
		Want: max(1, w.cfg.Prefetch-len(s.ready)),
	}
	go func() {
		ctx, cancel := context.WithTimeout(w.ctx, w.cfg.Timeout)
		defer cancel()
		r, err := ask[takeReply](ctx, w.cfg.Node, w.coordinator, m)
		if w.ctx.Err() != nil {
			err = fmt.Errorf("%w: worker %q", ErrClosed, w.cfg.Name)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err != nil:
		case joins != w.joins.Load(): // asked again, the coordinator gives them again
			err = errReturning
		default:
			err = s.add(r.Positions)
		}
		a.err, s.asked = err, nil
		close(a.ended)
	}()
	return a
}

// add takes in what the coordinator has given. The caller holds s.mu.
func (s *workerDataset) add(positions []int64) error {
	for _, p := range positions {
		if p < 0 || p >= s.data.positions() {
			return fmt.Errorf("%w: range %d of dataset %q, which has %d", ErrRefused, p, s.data.Name, s.data.positions())
		}
		if !s.has[p] {
			s.has[p] = true
			s.ready = append(s.ready, s.data.at(p))
		}
	}
	return nil
}

// FinishRange says that the pushes of a range are acknowledged, and returns when the
// coordination store has that: a range is never handed out again, by no coordinator, after
// its FinishRange has returned nil, and exactly one worker's does. Under BSP it goes before
// the Tick that ends the clock of the last push. Doing it twice is fine. Errors:
// ErrConflict when the range is not this worker's, ErrNotMember, ErrUnknownDataset,
// ErrClosed, or the context's; then it is not known whether the range is finished, and
// FinishRange may be called again. It waits as long as the store cannot be reached.
func (w *Worker) FinishRange(ctx context.Context, r RecordRange) error {
	s, err := w.dataset(r.Dataset)
	if err != nil {
		return err
	}
	if r.Position < 0 || r.Position >= s.data.positions() || s.data.at(r.Position) != r {
		return fmt.Errorf("%w: dataset %q has no range %+v", ErrConflict, r.Dataset, r)
	}
	ctx, cancel := bounded(ctx, w.cfg.Timeout)
	defer cancel()
	_, err = ask[done](ctx, w.cfg.Node, w.coordinator, finishRequest{Incarnation: w.incarnation.Load(), Dataset: s.index, Position: r.Position})
	if err == nil || errors.Is(err, ErrConflict) {
		s.mu.Lock()
		delete(s.has, r.Position)
		s.mu.Unlock()
	}
	if err != nil {
		return fmt.Errorf("ps: worker %q: finish range %d of dataset %q: %w", w.cfg.Name, r.Position, r.Dataset, err)
	}
	return nil
}

// unfinished has the positions that the client has, by dataset.
func (c *Client) unfinished() [][]int64 {
	var all [][]int64
	for _, s := range c.datasets {
		s.mu.Lock()
		all = append(all, slices.Sorted(maps.Keys(s.has)))
		s.mu.Unlock()
	}
	return all
}
