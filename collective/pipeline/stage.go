package pipeline

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/collective"
)

// Work is what a stage computes. Run calls it from its own goroutine, forward and backward once
// for each micro-batch, backward in the order of the micro-batches.
type Work interface {
	// Forward computes the output of the stage from its input, which is nil in the first
	// stage, and remembers what Backward needs. The input stays as it is until Backward has
	// returned. The last stage returns nil.
	Forward(micro int, in []float32) (out []float32, err error)
	// Backward computes from the gradient of the output, which is nil in the last stage,
	// the gradient of the input; the first stage returns nil.
	Backward(micro int, grad []float32) (gradIn []float32, err error)
}

// Config says what a stage is connected with. All but Depth is needed.
type Config struct {
	// Node runs the actors of the queues. Stages on different hosts need nodes that know the
	// same secret, and addresses that can be dialled from the others.
	Node *actor.Node
	// Group has the stages in their order. It carries nothing else while a Stage is open.
	Group *collective.Group
	// NumMicros is how many micro-batches a batch has. The same for all stages.
	NumMicros int
	// In and Out are the elements of the tensors that come from the stage before and go to
	// the next one; 0 at the ends of the pipeline.
	In, Out int
	// Depth is that of the queues, the same for all stages. Default: one more than micro-batches
	// can be in flight in the first stage.
	Depth int
}

// Stage is one stage of a pipeline.
type Stage struct {
	cfg             Config
	steps           []Step
	forward, grads  *Inlet  // what comes; nil at the ends
	onward, upwards *Outlet // where it goes
	held            map[int]*Tensor
}

// card is what the stages tell each other when they start.
type card struct {
	In, Out, NumMicros, Depth int64
	Node, Address             [256]byte
}

// Start connects the stages; all of the group call it. It blocks until all are there, at most
// until ctx ends. Errors wrap collective.ErrArgument, also where the tensors of neighbours
// are not of the same length; other errors are those of group and node.
func Start(ctx context.Context, cfg Config) (*Stage, error) {
	if cfg.Node == nil || cfg.Group == nil {
		return nil, fmt.Errorf("%w: a stage needs a Node and a Group", collective.ErrArgument)
	}
	stage, stages := cfg.Group.Rank(), cfg.Group.Size()
	steps, err := Steps(stage, stages, cfg.NumMicros)
	if err != nil {
		return nil, err
	}
	inFlight := InFlight(0, stages, cfg.NumMicros)
	if cfg.Depth == 0 {
		cfg.Depth = inFlight + 1
	}
	switch {
	case (cfg.In > 0) != (stage > 0) || cfg.In < 0:
		return nil, fmt.Errorf("%w: In is %d for stage %d, must be 0 for the first one and more for others", collective.ErrArgument, cfg.In, stage)
	case (cfg.Out > 0) != (stage < stages-1) || cfg.Out < 0:
		return nil, fmt.Errorf("%w: Out is %d for stage %d, must be 0 for the last one and more for others", collective.ErrArgument, cfg.Out, stage)
	case cfg.Depth < inFlight:
		return nil, fmt.Errorf("%w: Depth is %d, must be at least the %d micro-batches that can be in flight", collective.ErrArgument, cfg.Depth, inFlight)
	}
	s := &Stage{cfg: cfg, steps: steps, held: make(map[int]*Tensor)}
	if err := s.connect(ctx, stage); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// connect opens this stage's inlets before it tells the others of them.
func (s *Stage) connect(ctx context.Context, stage int) (err error) {
	cfg := &s.cfg
	inlet := func(from, elems int) (*Inlet, error) {
		return OpenInlet(ctx, InletConfig{Node: cfg.Node, Name: inletName(cfg.Group, from, stage), Group: cfg.Group, From: from, Elems: elems, Depth: cfg.Depth})
	}
	if cfg.In > 0 {
		if s.forward, err = inlet(stage-1, cfg.In); err != nil {
			return err
		}
	}
	if cfg.Out > 0 {
		if s.grads, err = inlet(stage+1, cfg.Out); err != nil {
			return err
		}
	}
	cards, err := exchange(ctx, cfg)
	if err != nil {
		return err
	}
	for i, c := range cards {
		switch {
		case c.NumMicros != cards[0].NumMicros || c.Depth != cards[0].Depth:
			return fmt.Errorf("%w: NumMicros and Depth are %d and %d for stage 0, %d and %d for stage %d",
				collective.ErrArgument, cards[0].NumMicros, cards[0].Depth, c.NumMicros, c.Depth, i)
		case i > 0 && cards[i-1].Out != c.In:
			return fmt.Errorf("%w: Out is %d for stage %d, In is %d for stage %d", collective.ErrArgument, cards[i-1].Out, i-1, c.In, i)
		}
	}
	if cfg.In > 0 {
		if s.upwards, err = outlet(cfg, &cards[stage-1], stage-1); err != nil {
			return err
		}
	}
	if cfg.Out > 0 {
		s.onward, err = outlet(cfg, &cards[stage+1], stage+1)
	}
	return err
}

// inletName is that of the actor of a queue, for whatever groups there are on a node.
func inletName(g *collective.Group, from, to int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", g.Epoch(), g.Name()))
	return fmt.Sprintf("pipeline/%x/%d/%d", sum[:8], from, to)
}

// exchange gives every stage the cards of all.
func exchange(ctx context.Context, cfg *Config) ([]card, error) {
	mine := card{In: int64(cfg.In), Out: int64(cfg.Out), NumMicros: int64(cfg.NumMicros), Depth: int64(cfg.Depth)}
	if n := copy(mine.Address[:], cfg.Node.Addr()); n < len(cfg.Node.Addr()) {
		return nil, fmt.Errorf("%w: address of the node of %d bytes, must be at most %d", collective.ErrArgument, len(cfg.Node.Addr()), n)
	}
	copy(mine.Node[:], cfg.Node.Name()) // of 128 bytes at most
	size := binary.Size(mine)
	var raw bytes.Buffer
	_ = binary.Write(&raw, binary.LittleEndian, &mine) // a buffer takes everything
	all := make([]byte, size*cfg.Group.Size())
	if err := cfg.Group.AllGather(ctx, collective.Of(all), collective.Of(raw.Bytes())); err != nil {
		return nil, err
	}
	cards := make([]card, cfg.Group.Size())
	return cards, binary.Read(bytes.NewReader(all), binary.LittleEndian, cards)
}

// outlet leads to the inlet of a neighbour.
func outlet(cfg *Config, to *card, stage int) (*Outlet, error) {
	text := func(b []byte) string { return string(bytes.TrimRight(b, "\x00")) }
	node := text(to.Node[:])
	if node != cfg.Node.Name() {
		if err := cfg.Node.AddPeer(node, text(to.Address[:])); err != nil {
			return nil, err
		}
	}
	ref := actor.Ref{Node: node, Name: inletName(cfg.Group, cfg.Group.Rank(), stage)}
	return OpenOutlet(OutletConfig{Node: cfg.Node, To: ref, Group: cfg.Group, Rank: stage, Depth: cfg.Depth})
}

// Run takes one batch through the stage, in the order of Steps. It returns when the stage has
// done its part, at most when ctx ends. After an error the stage cannot be used any more, and
// the group is aborted, so that all other stages have an error, too.
func (s *Stage) Run(ctx context.Context, w Work) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	for _, step := range s.steps {
		do := s.goForward
		if step.Backward {
			do = s.goBackward
		}
		if err := do(ctx, w, step.Micro); err != nil {
			s.cfg.Group.Abort()
			return fmt.Errorf("pipeline: stage %d, %v: %w", s.cfg.Group.Rank(), step, s.explain(err))
		}
	}
	return nil
}

// explain adds why a neighbour cannot be reached, if that is so: the group knows only that it
// was aborted for it.
func (s *Stage) explain(err error) error {
	for _, o := range []*Outlet{s.onward, s.upwards} {
		if o != nil && o.Err() != nil && !errors.Is(err, o.Err()) {
			err = errors.Join(err, o.Err())
		}
	}
	return err
}

func (s *Stage) goForward(ctx context.Context, w Work, micro int) error {
	var in []float32
	if s.forward != nil {
		t, err := take(ctx, s.forward, micro)
		if err != nil {
			return err
		}
		s.held[micro], in = t, t.Values
	}
	out, err := w.Forward(micro, in)
	if err != nil || s.onward == nil {
		return err
	}
	return s.onward.Put(ctx, micro, out)
}

func (s *Stage) goBackward(ctx context.Context, w Work, micro int) error {
	var grad []float32
	if s.grads != nil {
		t, err := take(ctx, s.grads, micro)
		if err != nil {
			return err
		}
		defer t.Release()
		grad = t.Values
	}
	gradIn, err := w.Backward(micro, grad)
	if err != nil || s.upwards == nil {
		return err
	}
	s.held[micro].Release()
	delete(s.held, micro)
	return s.upwards.Put(ctx, micro, gradIn)
}

// take takes the tensor that is due.
func take(ctx context.Context, q *Inlet, micro int) (*Tensor, error) {
	t, err := q.Take(ctx)
	if err != nil {
		return nil, err
	}
	if t.Micro != micro {
		return nil, &Error{Op: "take", Queue: q.Ref(), Micro: t.Micro, Err: fmt.Errorf("%w: micro-batch %d is due", ErrOrder, micro)}
	}
	return t, nil
}

// Close ends the queues of this stage, not the group. It may be called twice.
func (s *Stage) Close() error {
	var errs []error
	for _, o := range []*Outlet{s.onward, s.upwards} {
		if o != nil {
			errs = append(errs, o.Close())
		}
	}
	for _, q := range []*Inlet{s.forward, s.grads} {
		if q != nil {
			errs = append(errs, q.Close())
		}
	}
	return errors.Join(errs...)
}
