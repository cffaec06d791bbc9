package training

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/examples/internal/mnist"
	"github.com/elasticps/elasticps/examples/internal/report"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

const (
	controlInterval  = 200 * time.Millisecond
	progressInterval = 50 * time.Millisecond
	scaleInTimeout   = 20 * time.Second
	placeTimeout     = time.Minute

	// firstServer is the server that a run starts with.
	firstServer shard.ServerID = "ps-0"
)

// Refs says where a worker or server finds its job.
type Refs struct {
	Coordinator, Feed actor.Ref
}

// Provider starts and stops the servers of a run.
type Provider interface {
	elastic.Provider
	io.Closer
}

// RunConfig has what the controlling side of a run needs.
type RunConfig struct {
	// Node runs coordinator, feed and controller. It is not closed.
	Node    *actor.Node
	Options Options
	// Train and Test are the data.
	Train, Test *mnist.Set
	// Servers returns the provider of the job's servers. The run closes it.
	Servers func(coordinator actor.Ref) (Provider, error)
	// Workers runs the workers and returns when all have ended, with an error if
	// the job cannot be finished without them.
	Workers func(ctx context.Context, refs Refs, progress func() Progress) error
	// Out gets the progress. Whatever else is written during the run should go
	// through the writer that Attach is given.
	Out    io.Writer
	Attach func(io.Writer)
	// Began is the start of the program.
	Began time.Time
}

// run is the controlling side while it runs.
type run struct {
	cfg      RunConfig
	plan     Plan
	progress *report.Progress
	coord    *ps.Coordinator
	admin    *ps.Admin
	provider Provider
	client   *ps.Client
	feed     *Feed
	control  *elastic.Controller
	recorder *Recorder
}

// Run trains and returns what came of it. The report is meaningful if the error is
// nil, or a *FailedError. Nothing of the run is left when it returns.
func Run(ctx context.Context, cfg RunConfig) (result report.Report, err error) {
	r := &run{cfg: cfg}
	defer func() {
		if closeErr := r.close(); err == nil {
			err = closeErr
		}
	}()
	if err := r.start(ctx); err != nil {
		return report.Report{}, err
	}
	if err := r.train(ctx); err != nil {
		return report.Report{}, err
	}
	return r.result(ctx)
}

func (r *run) start(ctx context.Context) error {
	plan := r.cfg.Options.Plan(r.cfg.Train.Len())
	r.plan = plan
	job, err := plan.Job()
	if err != nil {
		return err
	}
	sampler, err := plan.sampler()
	if err != nil {
		return err
	}
	if r.progress, err = report.NewProgress(report.ProgressConfig{Out: r.cfg.Out, TotalSteps: sampler.NumSteps()}); err != nil {
		return err
	}
	if r.cfg.Attach != nil {
		r.cfg.Attach(r.progress)
	}
	node := r.cfg.Node
	log := slog.New(slog.NewTextHandler(r.progress, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if r.coord, err = ps.StartCoordinator(ctx, ps.CoordinatorConfig{Node: node, Job: job, Logger: log}); err != nil {
		return err
	}
	if r.admin, err = ps.NewAdmin(node, r.coord.Ref()); err != nil {
		return err
	}
	if r.provider, err = r.cfg.Servers(r.coord.Ref()); err != nil {
		return err
	}
	if err := r.provider.Start(ctx, firstServer); err != nil {
		return err
	}
	if err := r.initialize(ctx, plan); err != nil {
		return err
	}
	if r.feed, err = StartFeed(ctx, node, plan); err != nil {
		return err
	}
	r.recorder = StartRecorder(r.admin, r.cfg.Began)
	r.control, err = elastic.Start(ctx, node, elastic.Config{
		Policy: r.cfg.Options.Policy(), Cluster: elastic.NewCluster(r.admin, r.provider), Interval: controlInterval, Logger: log,
		Observe: elastic.Observer{Decision: r.decided},
	})
	return err
}

// decided shows the line of a decision that changes the number of servers.
func (r *run) decided(d elastic.Decision) {
	if d.Scaled() {
		fmt.Fprintln(r.progress, d)
	}
}

func (r *run) initialize(ctx context.Context, plan Plan) (err error) {
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	if r.client, err = ps.Dial(ctx, ps.ClientConfig{Node: r.cfg.Node, Name: "controller", Coordinator: r.coord.Ref()}); err != nil {
		return err
	}
	return Initialize(ctx, r.client, plan)
}

// train returns when every step is done and the workers have ended.
func (r *run) train(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	refs := Refs{Coordinator: r.coord.Ref(), Feed: r.feed.Ref()}
	go func() { ended <- r.cfg.Workers(ctx, refs, r.feed.Progress) }()
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	var stuck stall
	for {
		select {
		case err := <-ended:
			r.show()
			if p := r.feed.Progress(); err == nil && !p.Done {
				err = fmt.Errorf("training: all workers ended after step %d of %d", p.Step, p.Steps)
			}
			return err
		case now := <-tick.C:
			r.show()
			if err := stuck.check(now, r.feed.Progress(), r.recorder.Stranded()); err != nil {
				cancel()
				<-ended // nothing of the workers is left
				return err
			}
		}
	}
}

func (r *run) show() {
	p := r.feed.Progress()
	r.progress.Update(report.Status{
		Step: p.Step, Epoch: p.Epoch, Epochs: p.Epochs, Loss: p.Loss, Samples: p.Samples, NumServers: r.recorder.NumServers(),
		Waiting: p.Workers == 0 && !p.Done,
	})
}

// result waits for the servers to go, and judges what is then in the parameters: all
// shards have moved back by now.
func (r *run) result(ctx context.Context) (out report.Report, err error) {
	waiting, cancel := context.WithTimeout(ctx, scaleInTimeout)
	scaleIn := r.recorder.AwaitServers(waiting, 1)
	cancel()
	r.progress.Close()
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	if out.TestAccuracy, err = Accuracy(ctx, r.client, r.cfg.Train, r.cfg.Test); err != nil {
		return out, err
	}
	accounts := r.feed.Accounts()
	if out.Lost, out.Doubled, err = Audit(ctx, r.client, r.plan, accounts); err != nil {
		return out, err
	}
	if out.PushesApplied, err = applied(ctx, r.admin); err != nil {
		return out, err
	}
	for _, a := range accounts {
		out.PushesSent += int64(a.Sent)
		out.PushesAcknowledged += int64(a.Acknowledged)
	}
	if err := r.recorder.Sample(ctx); err != nil {
		return out, err
	}
	out.Servers, out.Migrations = r.recorder.History()
	out.Wall = time.Since(r.cfg.Began)
	return out, r.judge(out, scaleIn)
}

// FailedError says what a finished run did not reach.
type FailedError struct{ Err error }

// Error lists what was not reached.
func (e *FailedError) Error() string { return "training: failed: " + e.Err.Error() }

// Unwrap returns the list as one error.
func (e *FailedError) Unwrap() error { return e.Err }

func (r *run) judge(out report.Report, scaleIn error) error {
	faults := []error{scaleIn}
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	least := r.cfg.Options.MinAccuracy
	fault(out.TestAccuracy < least, "test accuracy is %.2f %%, want at least %.2f %%", 100*out.TestAccuracy, 100*least)
	fault(out.Lost != 0, "%d pushes were lost", out.Lost)
	fault(out.Doubled != 0, "%d pushes were applied twice", out.Doubled)
	fault(len(out.Migrations) == 0, "no shard moved: the load of the workers was not too much for one server")
	if err := errors.Join(faults...); err != nil {
		return &FailedError{err}
	}
	return nil
}

// close frees what start and train made, the last first.
func (r *run) close() error {
	var errs []error
	if r.progress != nil {
		r.progress.Close()
	}
	if r.control != nil {
		errs = append(errs, r.control.Close())
	}
	if r.recorder != nil {
		r.recorder.Close()
	}
	if r.feed != nil {
		errs = append(errs, r.feed.Close())
	}
	if r.client != nil {
		errs = append(errs, r.client.Close())
	}
	if r.coord != nil {
		errs = append(errs, r.coord.Close()) // before the servers, which it would miss
	}
	if r.provider != nil {
		errs = append(errs, r.provider.Close())
	}
	return errors.Join(errs...)
}
