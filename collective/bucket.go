package collective

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/elasticps/elasticps/collective/codec"
)

// DefaultBucketBytes is how large the buckets of a Gradients are unless it says
// otherwise: large enough for the bandwidth, small enough to begin early.
const DefaultBucketBytes = 25 << 20

// GradientsConfig says how gradients are averaged.
type GradientsConfig struct {
	// Group averages them. Required.
	Group *Group
	// Sizes has the elements of each tensor, the one whose gradient is ready first in
	// front: usually that of the last layer. The same on all ranks.
	Sizes []int
	// BucketBytes bounds the tensors that are sent together; one that is larger has a
	// bucket of its own. Default DefaultBucketBytes.
	BucketBytes int
	// Op is Average by default; Sum is the other one that makes sense.
	Op Op
	// Compression says how gradients travel. Its Name, if any, goes in front of those of
	// the tensors.
	Compression Compression
	// Names are those of the tensors, under which Compression.Feedback keeps what rounding has
	// lost of them: a tensor has the same one whatever bucket it is in, and after a restart.
	// Default: their places in Sizes.
	Names []string
}

// Gradients averages the gradients of a model over a group while the rest of the backward
// pass goes on: tensors are gathered in buckets, and a bucket is on its way as soon as all
// of its tensors are ready. Buckets are sent in their order, the same on all ranks,
// whichever order the tensors become ready in.
//
//	sync, err := collective.NewGradients(collective.GradientsConfig{Group: g, Sizes: sizes})
//	for each step {
//		for each tensor i of the backward pass {
//			err = sync.Ready(ctx, i, grad[i])
//		}
//		err = sync.Wait(ctx) // grad[i] are the averages now
//	}
type Gradients struct {
	cfg     GradientsConfig
	buckets []*bucket
	place   []placed // of each tensor

	mu   sync.Mutex
	next int // bucket that is sent next
	err  error
}

// bucket is tensors that travel together.
type bucket struct {
	values []float32
	elems  int
	size   int // tensors
	names  []codec.Tensor
	wait   int // those that are not ready
	handle *Handle
}

// placed says where a tensor is.
type placed struct {
	bucket, offset int
	grad           []float32 // the caller's, while a step is under way
}

// NewGradients plans the buckets. It sends nothing.
func NewGradients(cfg GradientsConfig) (*Gradients, error) {
	if cfg.BucketBytes == 0 {
		cfg.BucketBytes = DefaultBucketBytes
	}
	if cfg.Op == 0 {
		cfg.Op = Average
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Gradients{cfg: cfg}
	for i, n := range cfg.Sizes {
		last := len(s.buckets) - 1
		if last < 0 || s.buckets[last].elems > 0 && 4*(s.buckets[last].elems+n) > cfg.BucketBytes {
			s.buckets = append(s.buckets, &bucket{})
			last++
		}
		b := s.buckets[last]
		s.place = append(s.place, placed{bucket: last, offset: b.elems})
		b.elems, b.size, b.wait = b.elems+n, b.size+1, b.size+1
		b.names = append(b.names, codec.Tensor{Name: cfg.name(i), Len: n})
	}
	for _, b := range s.buckets {
		if b.size > 1 { // a tensor alone travels from where it is
			b.values = make([]float32, b.elems)
		}
	}
	return s, nil
}

// validate reports every fault at once.
func (cfg *GradientsConfig) validate() error {
	var faults []error
	if cfg.Group == nil {
		faults = append(faults, argument("gradients need a Group"))
	}
	if cfg.BucketBytes < 4 {
		faults = append(faults, argument("BucketBytes %d, must be at least 4", cfg.BucketBytes))
	}
	if cfg.Op >= opEnd {
		faults = append(faults, argument("Op %v, must be one of those that combine", cfg.Op))
	}
	for i, n := range cfg.Sizes {
		if n < 0 {
			faults = append(faults, argument("tensor %d of %d elements, must not be negative", i, n))
		}
	}
	if len(cfg.Names) > 0 && len(cfg.Names) != len(cfg.Sizes) {
		faults = append(faults, argument("%d Names, must be %d like Sizes", len(cfg.Names), len(cfg.Sizes)))
	} else if cfg.Compression.Format != 0 {
		all, seen := make([]codec.Tensor, len(cfg.Sizes)), map[string]int{}
		for i := range all {
			name := cfg.name(i)
			if first, ok := seen[name]; ok {
				faults = append(faults, argument("tensors %d and %d are both named %q", first, i, name))
			}
			all[i].Name, seen[name] = name, i
		}
		faults = append(faults, cfg.Compression.of(all).check(&Call{Collective: AllReduce, Op: cfg.Op, Src: Buffer{kind: Float32}}))
	}
	return errors.Join(faults...)
}

// name is that of a tensor.
func (cfg *GradientsConfig) name(i int) string {
	if len(cfg.Names) > 0 {
		return cfg.Compression.Name + cfg.Names[i]
	}
	return cfg.Compression.Name + strconv.Itoa(i)
}

// Buckets returns how many all-reduces one step takes.
func (s *Gradients) Buckets() int { return len(s.buckets) }

// Ready hands over the gradient of tensor i, which must not be touched before Wait has
// returned. It copies what shares a bucket, starts the buckets that are complete, and does not wait for
// them. ctx bounds the all-reduces that it starts. Any goroutine may call it.
func (s *Gradients) Ready(ctx context.Context, i int, grad []float32) error {
	if i < 0 || i >= len(s.place) {
		return argument("tensor %d, must be 0 to %d", i, len(s.place)-1)
	}
	if len(grad) != s.cfg.Sizes[i] {
		return argument("tensor %d of %d elements, must be %d", i, len(grad), s.cfg.Sizes[i])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.place[i]
	b := s.buckets[p.bucket]
	if p.grad != nil {
		return argument("tensor %d was ready already in this step", i)
	}
	if s.err != nil {
		return s.err
	}
	p.grad = grad
	if grad == nil {
		p.grad = []float32{} // of no elements, and ready
	}
	if b.size > 1 {
		copy(b.values[p.offset:], grad)
	} else {
		b.values = p.grad
	}
	b.wait--
	for s.next < len(s.buckets) && s.buckets[s.next].wait == 0 {
		b := s.buckets[s.next]
		x := Of(b.values)
		h, err := s.cfg.Group.Start(ctx, Call{Collective: AllReduce, Dst: x, Src: x, Op: s.cfg.Op, Compression: s.cfg.Compression.of(b.names)})
		if err != nil {
			s.err = fmt.Errorf("collective: bucket %d of %d: %w", s.next, len(s.buckets), err)
			return s.err
		}
		b.handle = h
		s.next++
	}
	return nil
}

// Wait waits for all buckets and copies the results to the gradients that Ready was given.
// Every tensor must have been ready: else it is an error, and the step goes on. After any
// other error the Gradients cannot be used any more.
func (s *Gradients) Wait(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	for i := range s.place {
		if s.place[i].grad == nil {
			return argument("tensor %d is not ready", i)
		}
	}
	for i, b := range s.buckets {
		if err := b.handle.Wait(ctx); err != nil {
			s.err = fmt.Errorf("collective: bucket %d of %d: %w", i, len(s.buckets), err)
			return s.err
		}
		b.handle, b.wait = nil, b.size
	}
	for i := range s.place {
		p := &s.place[i]
		if b := s.buckets[p.bucket]; b.size > 1 {
			copy(p.grad, b.values[p.offset:])
		} else {
			b.values = nil // it is the caller's
		}
		p.grad = nil
	}
	s.next = 0
	return nil
}
