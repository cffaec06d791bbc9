package training

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/examples/internal/mnist"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// askAgain is how long a worker waits when there is no step for it.
const askAgain = 20 * time.Millisecond

// WorkerConfig has what a worker needs.
type WorkerConfig struct {
	// Node runs the worker's actors. Required; it is not closed.
	Node *actor.Node
	// Coordinator and Feed are those of the job; their node must be known to Node.
	Coordinator, Feed actor.Ref
	// Name is unique among the workers of a node.
	Name string
	// Train is the training set, the same one for all workers.
	Train *mnist.Set
	// MaxSteps is after how many steps the worker leaves. Zero: when all is done.
	MaxSteps int
	// Ready, if set, is called when the worker has joined.
	Ready func()
}

// worker trains.
type worker struct {
	cfg  WorkerConfig
	slot int
	// sharedRow is the row of a probe that is everybody's.
	sharedRow int
	client    *ps.Worker
	sampler   *mnist.Sampler
	mlp       *mnist.MLP
	params    mnist.Params
	parts     []part
	one       []float32 // what a step adds to the probe, negated: a gradient
}

// part is a piece of the model that lies on one server.
type part struct {
	name       string
	layer      int // index in mnist.Params
	row        int
	begin, end int64
}

// RunWorker joins the job and trains until all steps are done, MaxSteps are, or ctx
// ends. It returns nil when the worker has left in good order.
func RunWorker(ctx context.Context, cfg WorkerConfig) error {
	if err := register(cfg.Node); err != nil {
		return err
	}
	client, err := ps.StartWorker(ctx, ps.ClientConfig{Node: cfg.Node, Name: cfg.Name, Coordinator: cfg.Coordinator})
	if err != nil {
		return fmt.Errorf("training: worker %q: %w", cfg.Name, err)
	}
	defer client.Close()
	alive, err := cfg.Node.Spawn(ctx, "training/"+cfg.Name, actor.ActorFunc(func(*actor.Context, any) error { return nil }), actor.Options{})
	if err != nil {
		return fmt.Errorf("training: worker %q: %w", cfg.Name, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = cfg.Node.Stop(ctx, alive) // it ends with its node at the latest
	}()
	w := &worker{cfg: cfg, client: client, one: make([]float32, probeElems)}
	for i := range w.one {
		w.one[i] = -1
	}
	if err := w.join(ctx, alive); err != nil {
		return fmt.Errorf("training: worker %q: %w", cfg.Name, err)
	}
	if cfg.Ready != nil {
		cfg.Ready()
	}
	if err := w.run(ctx); err != nil {
		return fmt.Errorf("training: worker %q: %w", cfg.Name, err)
	}
	return nil
}

func (w *worker) join(ctx context.Context, alive actor.Ref) error {
	joined, err := actor.Call[joinReply](ctx, w.cfg.Node, w.cfg.Feed, joinRequest{Worker: alive, Name: w.cfg.Name})
	if err != nil {
		return err
	}
	w.slot, w.sharedRow = joined.Slot, joined.Plan.sharedRow()
	if n := w.cfg.Train.Len(); n < joined.Plan.NumImages {
		return fmt.Errorf("the training set has %d images, the job needs %d", n, joined.Plan.NumImages)
	}
	w.cfg.Train = w.cfg.Train.First(joined.Plan.NumImages)
	if w.sampler, err = joined.Plan.sampler(); err != nil {
		return err
	}
	if w.mlp, err = mnist.NewMLP(mnist.Config{Mean: w.cfg.Train.Mean()}); err != nil {
		return err
	}
	w.params = w.mlp.NewParams()
	w.parts, err = parts(ctx, w.cfg.Node, w.cfg.Coordinator)
	return err
}

// parts asks which pieces the model was cut into.
func parts(ctx context.Context, n *actor.Node, coordinator actor.Ref) ([]part, error) {
	admin, err := ps.NewAdmin(n, coordinator)
	if err != nil {
		return nil, err
	}
	job, err := admin.Job(ctx)
	if err != nil {
		return nil, err
	}
	shards, err := admin.Shards(ctx)
	if err != nil {
		return nil, err
	}
	var out []part
	for _, s := range shards {
		if s.Range.Layer < mnist.NumLayers { // the probes come behind the model
			out = append(out, newPart(job.Model.Layers[s.Range.Layer], s.Range))
		}
	}
	return out, nil
}

func newPart(l shard.Layer, r shard.Range) part {
	return part{name: l.Name, layer: r.Layer, row: int(r.Begin) / l.RowElems(), begin: r.Begin, end: r.End}
}

func (w *worker) run(ctx context.Context) error {
	err := w.each(ctx, func(p part) error {
		return w.client.PullRange(ctx, p.name, p.row, w.params[p.layer][p.begin:p.end])
	})
	if err != nil {
		return err
	}
	next := nextRequest{Slot: w.slot, Done: noStep}
	for steps := 0; ; {
		next.Leave = w.cfg.MaxSteps > 0 && steps >= w.cfg.MaxSteps
		reply, err := w.ask(ctx, next)
		if err != nil {
			return err
		}
		next.Done = noStep
		switch reply.Verdict {
		case stop:
			return w.client.Leave(ctx)
		case wait:
			if err := pause(ctx, askAgain); err != nil {
				return err
			}
			continue
		}
		if next.Samples, next.Loss, err = w.step(ctx, reply.Step); err != nil {
			return fmt.Errorf("step %d: %w", reply.Step, err)
		}
		next.Done = reply.Step
		steps++
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ask confirms the last step and gets the next one.
func (w *worker) ask(ctx context.Context, m nextRequest) (nextReply, error) {
	load := w.client.Load()
	m.Sent, m.Acknowledged = load.PushesSent, load.PushesAcknowledged
	return actor.Call[nextReply](ctx, w.cfg.Node, w.cfg.Feed, m)
}

// step computes a gradient, pushes it and the probe, and pulls what is new.
func (w *worker) step(ctx context.Context, step int) (samples int, loss float32, err error) {
	batch := mnist.Batch{Set: w.cfg.Train, Samples: w.sampler.Batch(step)}
	loss, grads, err := w.mlp.Gradient(w.params, batch)
	if err != nil {
		return 0, 0, err
	}
	probe := probeName(probeOf(step))
	for _, row := range []int{w.slot, w.sharedRow} {
		if err := w.client.PushRange(ctx, probe, row, w.one); err != nil {
			return 0, 0, err
		}
	}
	err = w.each(ctx, func(p part) error {
		if err := w.client.PushRange(ctx, p.name, p.row, grads[p.layer][p.begin:p.end]); err != nil {
			return err
		}
		return w.client.PullRange(ctx, p.name, p.row, w.params[p.layer][p.begin:p.end])
	})
	return len(batch.Samples), loss, err
}

// each handles all parts at the same time: they lie on several servers. The error is
// the first cause, with the number of the others.
func (w *worker) each(ctx context.Context, f func(part) error) error {
	errs := make([]error, len(w.parts))
	var parts sync.WaitGroup
	for i, p := range w.parts {
		parts.Go(func() { errs[i] = f(p) })
	}
	parts.Wait()
	return firstOf(errs)
}

// firstOf returns the first error and says how many more there are: what a server that
// is gone does to each of its parts needs to be read once.
func firstOf(errs []error) error {
	var first error
	more := 0
	for _, err := range errs {
		switch {
		case err == nil:
		case first == nil:
			first = err
		default:
			more++
		}
	}
	if more > 0 {
		return fmt.Errorf("%w, and %d more", first, more)
	}
	return first
}
