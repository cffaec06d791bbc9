package codec

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/elasticps/elasticps/internal/kernel"
)

// Limits of a Feedback.
const (
	MaxNameBytes = 1 << 10
	MaxTensors   = 1 << 20
)

// Feedback keeps what encoding has lost of tensors, and adds it to their next values. The
// zero value is empty and ready. It must not be copied.
type Feedback struct {
	mu      sync.Mutex
	free    sync.Cond // somebody has let go; its L is set at first use
	tensors map[string]*tensor
}

// tensor is where a residual lies.
type tensor struct {
	run    *run
	offset int
	len    int
}

// run is the residuals of tensors that travel together, one behind the other.
type run struct {
	values []float32
	place  Place
	loaded bool // of whatever group and epoch
	held   bool
}

// Place is the rank that a residual belongs to, in a group. The zero value stands for no
// group.
type Place struct {
	Group      string
	Rank, Size int
	Epoch      uint64
}

// Tensor is a name and a number of elements.
type Tensor struct {
	Name string
	Len  int
}

// check refuses what Save could not write.
func check(tensors []Tensor) error {
	for i, t := range tensors {
		if t.Name == "" || len(t.Name) > MaxNameBytes {
			return fmt.Errorf("%w: name of tensor %d has %d bytes, must be 1 to %d", ErrLength, i, len(t.Name), MaxNameBytes)
		}
		if t.Len < 0 {
			return fmt.Errorf("%w: tensor %q has %d elements, must not be negative", ErrLength, t.Name, t.Len)
		}
	}
	return nil
}

// Encode adds the residual of a tensor to src, packs the sum into dst as Format.Encode does,
// and keeps what that loses. src stays as it is. It waits as Hold does.
func (f *Feedback) Encode(ctx context.Context, format Format, name string, dst []byte, src []float32) error {
	if err := format.check(len(src), len(dst)); err != nil {
		return err
	}
	h, err := f.Hold(ctx, Place{}, Tensor{name, len(src)})
	if err != nil {
		return err
	}
	defer h.Release()
	kernel.Add(h.Values, src)
	return format.EncodeRest(dst, h.Values)
}

// Held is residuals that somebody works on.
type Held struct {
	// Values are the residuals of the tensors, one behind the other. They may be changed
	// until Release; what is not finite is set to zero then.
	Values []float32

	feedback *Feedback
	run      *run
}

// Hold returns the residuals of tensors, zero for those that are new or have had another
// length or place, and keeps others from them until Release. It waits while somebody else
// holds one of them, at most until ctx ends.
func (f *Feedback) Hold(ctx context.Context, at Place, tensors ...Tensor) (*Held, error) {
	if err := check(tensors); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tensors == nil {
		f.tensors, f.free.L = map[string]*tensor{}, &f.mu
	}
	if err := f.wait(ctx, tensors); err != nil {
		return nil, err
	}
	r := f.together(tensors)
	if r == nil {
		var err error
		if r, err = f.gather(at, tensors); err != nil {
			return nil, err
		}
	}
	if !r.at(at) {
		clear(r.values)
	}
	r.place, r.loaded, r.held = at, false, true
	return &Held{Values: r.values, feedback: f, run: r}, nil
}

// Release ends the use of Values.
func (h *Held) Release() {
	dropNonFinite(h.Values)
	h.feedback.mu.Lock()
	defer h.feedback.mu.Unlock()
	h.run.held, h.Values = false, nil
	h.feedback.free.Broadcast()
}

// wait waits until nobody holds one of the tensors. The caller holds mu.
func (f *Feedback) wait(ctx context.Context, tensors []Tensor) error {
	if !f.anyHeld(tensors) {
		return nil
	}
	defer context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.free.Broadcast()
	})()
	for f.anyHeld(tensors) {
		if ctx.Err() != nil {
			return fmt.Errorf("codec: residual of %q is in use: %w", tensors[0].Name, context.Cause(ctx))
		}
		f.free.Wait()
	}
	return nil
}

func (f *Feedback) anyHeld(tensors []Tensor) bool {
	for _, t := range tensors {
		if x := f.tensors[t.Name]; x != nil && x.run.held {
			return true
		}
	}
	return false
}

// at reports whether the residuals are of that place.
func (r *run) at(p Place) bool {
	if r.loaded {
		p.Group, p.Epoch = r.place.Group, r.place.Epoch
	}
	return r.place == p
}

// together is the run of tensors that lie in it as they are given, and nothing else; nil if
// there is none.
func (f *Feedback) together(tensors []Tensor) *run {
	var r *run
	offset := 0
	for i, t := range tensors {
		x := f.tensors[t.Name]
		if x == nil || i > 0 && x.run != r || x.offset != offset || x.len != t.Len {
			return nil
		}
		r = x.run
		offset += t.Len
	}
	if r == nil || len(r.values) != offset {
		return nil
	}
	return r
}

// gather makes a run of tensors, with the residuals that some have already.
func (f *Feedback) gather(at Place, tensors []Tensor) (*run, error) {
	total, more, names := 0, 0, make(map[string]bool, len(tensors))
	for _, t := range tensors {
		if names[t.Name] {
			return nil, fmt.Errorf("%w: tensor %q is given twice", ErrLength, t.Name)
		}
		if names[t.Name] = true; f.tensors[t.Name] == nil {
			more++
		}
		total += t.Len
	}
	if len(f.tensors)+more > MaxTensors {
		return nil, fmt.Errorf("%w: %d tensors, must be at most %d", ErrLength, len(f.tensors)+more, MaxTensors)
	}
	r := &run{values: make([]float32, total), place: at}
	offset := 0
	for _, t := range tensors {
		if x := f.tensors[t.Name]; x != nil && x.len == t.Len && x.run.at(at) {
			copy(r.values[offset:], x.values())
		}
		f.tensors[t.Name] = &tensor{r, offset, t.Len}
		offset += t.Len
	}
	return r, nil
}

func (t *tensor) values() []float32 { return t.run.values[t.offset : t.offset+t.len] }

// Reset forgets all residuals that nobody holds, and those that somebody holds when they are
// let go.
func (f *Feedback) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tensors = nil
	if f.free.L != nil {
		f.tensors = map[string]*tensor{}
	}
}

// Tensors returns the tensors that have a residual, by name.
func (f *Feedback) Tensors() []Tensor {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]Tensor, 0, len(f.tensors))
	for name, t := range f.tensors {
		all = append(all, Tensor{name, t.len})
	}
	slices.SortFunc(all, func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
	return all
}
