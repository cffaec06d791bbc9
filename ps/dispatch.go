package ps

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// dispatch hands the ranges of a dataset out: a pure state machine over their positions.
// They are handed out in ascending order, but those that come back first. So what there is
// to remember are the positions that were handed out and are not finished: memory is
// bounded by the ranges under way, however many there are.
//
// A coordinator that takes over learns from the store which positions are finished, and
// below which bound (limit) others may have been handed out; not to whom. Those belong to
// nobody that it knows until a worker claims them, or they are given up.
type dispatch struct {
	data      Dataset
	next      int64              // positions below were handed out
	limit     int64              // and may be: the store knows that
	holders   map[int64]uint64   // of the positions below next that are not finished
	held      map[uint64][]int64 // by worker, in the order in which it got them
	free      []int64            // those that nobody has, ascending
	unclaimed int                // those of which it is not known who has them
}

// Holders that are no incarnation.
const (
	nobody  uint64 = 0
	unknown        = ^uint64(0)
)

const (
	// maxTaken bounds the ranges of a dataset that one worker has.
	maxTaken = 64
	// maxOpen bounds those that are handed out and not finished.
	maxOpen = 1 << 15
	// reservedRanges is how many positions the store is told of before they are handed out.
	reservedRanges = 256
)

func newDispatch(d Dataset) *dispatch {
	return &dispatch{data: d, holders: map[int64]uint64{}, held: map[uint64][]int64{}}
}

// take gives a worker what it has not got yet of what was given to it, because the answer
// was lost, and else new positions, so that there are up to want. A repeated request, with
// the same positions that the worker knows to have, gets the same answer. The error wraps
// ErrEndOfData when all are finished, ErrNoRange when others have all that is left,
// errWaiting when the store must be told first, and ErrConflict when the worker has too
// many; then nothing has changed.
func (d *dispatch) take(worker uint64, has []int64, want int) ([]int64, error) {
	var got []int64
	for _, p := range d.held[worker] {
		if !slices.Contains(has, p) {
			got = append(got, p)
		}
	}
	for want = min(want, maxTaken-len(d.held[worker])+len(got)); len(got) < want; {
		p, ok := d.draw()
		if !ok {
			break
		}
		d.give(p, worker)
		got = append(got, p)
	}
	switch {
	case len(got) > 0:
		return got, nil
	case len(d.held[worker]) >= maxTaken:
		return nil, fmt.Errorf("%w: the worker has %d ranges of dataset %q that are not finished, at most %d", ErrConflict, len(d.held[worker]), d.data.Name, maxTaken)
	case d.ended():
		return nil, fmt.Errorf("%w: dataset %q has %d epochs", ErrEndOfData, d.data.Name, d.data.Epochs)
	case d.short() || len(d.holders) >= maxOpen:
		return nil, fmt.Errorf("%w: dataset %q: %d ranges are under way", errWaiting, d.data.Name, len(d.holders))
	}
	return nil, fmt.Errorf("%w: dataset %q: others have the last %d of epoch %d", ErrNoRange, d.data.Name, len(d.holders), d.epoch())
}

// draw returns the next position to hand out, if there is one.
func (d *dispatch) draw() (p int64, ok bool) {
	switch {
	case len(d.free) > 0:
		p, d.free = d.free[0], d.free[1:]
		return p, true
	case d.next == d.limit || d.barred() || len(d.holders) >= maxOpen:
		return 0, false
	}
	d.next++
	return d.next - 1, true
}

// barred reports whether the next position must wait for the end of an epoch.
func (d *dispatch) barred() bool {
	return d.data.EpochBarrier && len(d.holders) > 0 && d.next < d.data.positions() && d.next%d.data.ranges() == 0
}

// short reports whether there is a next position that the store does not know of.
func (d *dispatch) short() bool {
	return d.next == d.limit && d.limit < d.data.positions() && !d.barred()
}

// give makes a worker the holder of a position.
func (d *dispatch) give(p int64, worker uint64) {
	d.holders[p] = worker
	d.held[worker] = append(d.held[worker], p)
}

// claim gives a worker what it says to have and nobody else is known to have.
func (d *dispatch) claim(worker uint64, has []int64) {
	for _, p := range has {
		if d.holders[p] == unknown && len(d.held[worker]) < maxTaken {
			d.unclaimed--
			d.give(p, worker)
		}
	}
}

// finish notes that a worker has finished a position. Doing that twice is fine. It
// reports whether something has changed; the error wraps ErrConflict.
func (d *dispatch) finish(worker uint64, p int64) (changed bool, err error) {
	holder, open := d.holders[p]
	switch {
	case p < 0 || p >= d.next:
		return false, fmt.Errorf("%w: range %d of dataset %q was not handed out, %d were", ErrConflict, p, d.data.Name, d.next)
	case !open:
		return false, nil
	case holder == unknown: // it has not said yet that it has it
		d.unclaimed--
	case holder != worker:
		return false, fmt.Errorf("%w: range %d of dataset %q is not this worker's any more", ErrConflict, p, d.data.Name)
	}
	delete(d.holders, p)
	if rest := slices.DeleteFunc(d.held[worker], func(q int64) bool { return q == p }); len(rest) > 0 {
		d.held[worker] = rest
	} else {
		delete(d.held, worker)
	}
	return true, nil
}

// lose takes back what a worker has that is gone.
func (d *dispatch) lose(worker uint64) {
	for _, p := range d.held[worker] {
		d.holders[p] = nobody
	}
	d.free = append(d.free, d.held[worker]...)
	slices.Sort(d.free)
	delete(d.held, worker)
}

// settle gives up waiting for those who have what was handed out by an earlier coordinator.
func (d *dispatch) settle() {
	if d.unclaimed == 0 {
		return
	}
	for p, holder := range d.holders {
		if holder == unknown {
			d.holders[p] = nobody
			d.free = append(d.free, p)
		}
	}
	slices.Sort(d.free)
	d.unclaimed = 0
}

// ended reports whether everything is finished.
func (d *dispatch) ended() bool { return d.next == d.data.positions() && len(d.holders) == 0 }

// epoch is that of the next position, or the last one.
func (d *dispatch) epoch() int {
	if d.data.ranges() == 0 {
		return 0
	}
	return int(min(d.next/d.data.ranges(), int64(d.data.Epochs)-1))
}

// wanted is the limit that the store should know of.
func (d *dispatch) wanted() int64 {
	if d.limit-d.next > reservedRanges/2 {
		return d.limit
	}
	return d.next + min(reservedRanges, d.data.positions()-d.next)
}

// status describes the dataset.
func (d *dispatch) status() DatasetStatus {
	return DatasetStatus{
		Name: d.data.Name, Epoch: d.epoch(), Ranges: d.data.positions(), Finished: d.next - int64(len(d.holders)),
		Outstanding: len(d.holders) - len(d.free), Returned: len(d.free),
	}
}

// dispatchState is a dispatch as the store and a checkpoint have it.
type dispatchState struct {
	Dataset Dataset
	Next    int64
	Limit   int64
	// Open has the positions below Next that are not finished, ascending: the first as it
	// is, then the differences.
	Open []int64
}

// state is what is to be kept, with a limit. It does not say who has what: a worker
// knows that itself.
func (d *dispatch) state(limit int64) dispatchState {
	open := slices.Sorted(maps.Keys(d.holders))
	for i := len(open) - 1; i > 0; i-- {
		open[i] -= open[i-1]
	}
	return dispatchState{Dataset: d.data, Next: d.next, Limit: limit, Open: open}
}

// encode returns a state as JSON.
func (s dispatchState) encode() ([]byte, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("ps: progress of dataset %q: %w", s.Dataset.Name, err)
	}
	return text, nil
}

// decodeDispatchState reads what encode wrote.
func decodeDispatchState(text []byte) (s dispatchState, err error) {
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%w: progress of a dataset: %w", ErrConflict, err)
	}
	return s, nil
}

// resume is the dispatch of a dataset that goes on from a state. Nobody is known to have
// what is not finished. The error wraps ErrConflict when the state is that of other ranges,
// or makes no sense. A dataset may go on for more epochs, or for fewer as long as none of
// the others was begun.
func (s dispatchState) resume(data Dataset) (*dispatch, error) {
	was, is := s.Dataset, data
	was.Epochs, was.EpochBarrier = is.Epochs, is.EpochBarrier
	if was != is {
		return nil, fmt.Errorf("%w: progress of dataset %+v, this one is %+v", ErrConflict, s.Dataset, data)
	}
	if s.Next < 0 || s.Limit < s.Next || s.Next > data.positions() || s.Limit-s.Next > reservedRanges || len(s.Open) > maxOpen {
		return nil, fmt.Errorf("%w: progress of dataset %q: %d open of the first %d to %d ranges, of %d; at most %d and %d more",
			ErrConflict, data.Name, len(s.Open), s.Next, s.Limit, data.positions(), maxOpen, reservedRanges)
	}
	d := newDispatch(data)
	d.next = min(s.Limit, data.positions())
	d.limit = d.next
	p := int64(0)
	for i, step := range s.Open {
		if step < int64(min(i, 1)) || step >= s.Next-p {
			return nil, fmt.Errorf("%w: progress of dataset %q: open range %d is %d after %d, must ascend and be below %d",
				ErrConflict, data.Name, i, step, p, s.Next)
		}
		p += step
		d.holders[p] = unknown
	}
	for p = s.Next; p < d.next; p++ {
		d.holders[p] = unknown
	}
	d.unclaimed = len(d.holders)
	return d, nil
}
