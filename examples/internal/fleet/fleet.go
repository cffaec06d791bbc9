package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/examples/internal/report"
	"github.com/elasticps/elasticps/examples/internal/training"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

const (
	controlInterval = 100 * time.Millisecond
	startTimeout    = time.Minute
)

// Config has what a Fleet needs.
type Config struct {
	// Name is the name of the node. Required.
	Name string
	// Job is what is trained. Required.
	Job ps.Job
	// NumServers is how many servers there are at first, of which all get their share of the
	// shards. Zero: 1.
	NumServers int
	// Out gets a line for each change of the number of servers. Nil: nobody.
	Out io.Writer
	// Began is the start of the program, from which the history counts.
	Began time.Time
}

// Fleet is a job, its servers and what scales them.
type Fleet struct {
	node     *actor.Node
	coord    *ps.Coordinator
	admin    *ps.Admin
	servers  *elastic.InProcess
	control  *elastic.Controller
	recorder *training.Recorder
	client   *ps.Client
}

// Start returns when the first servers have the layers of the job. Close frees all of it.
func Start(ctx context.Context, cfg Config) (*Fleet, error) {
	if cfg.Out == nil {
		cfg.Out = io.Discard
	}
	cfg.NumServers = max(cfg.NumServers, 1)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	f := &Fleet{}
	if err := f.start(ctx, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("fleet: start: %w", err), f.Close())
	}
	return f, nil
}

func (f *Fleet) start(ctx context.Context, cfg Config) (err error) {
	if f.node, err = actor.Start(ctx, actor.Config{Name: cfg.Name}); err != nil {
		return err
	}
	cfg.Job.MinServers = cfg.NumServers
	log := slog.New(slog.NewTextHandler(cfg.Out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if f.coord, err = ps.StartCoordinator(ctx, ps.CoordinatorConfig{Node: f.node, Job: cfg.Job, Logger: log}); err != nil {
		return err
	}
	if f.admin, err = ps.NewAdmin(f.node, f.coord.Ref()); err != nil {
		return err
	}
	f.servers = elastic.NewInProcess(func(ctx context.Context, id shard.ServerID) (io.Closer, error) {
		return ps.StartServer(ctx, ps.ServerConfig{Node: f.node, ID: id, Coordinator: f.coord.Ref(), Listen: ps.ListenNone})
	})
	for i := range cfg.NumServers {
		if err := f.servers.Start(ctx, shard.ServerID(fmt.Sprintf("ps-%d", i))); err != nil {
			return err
		}
	}
	if f.client, err = ps.Dial(ctx, ps.ClientConfig{Node: f.node, Name: "observer", Coordinator: f.coord.Ref()}); err != nil {
		return err
	}
	f.recorder = training.StartRecorder(f.admin, cfg.Began)
	f.control, err = elastic.Start(ctx, f.node, elastic.Config{
		Policy: elastic.Policy{Manual: true}, Cluster: elastic.NewCluster(f.admin, f.servers), Interval: controlInterval, Logger: log,
		Observe: elastic.Observer{Decision: func(d elastic.Decision) {
			if d.Scaled() {
				fmt.Fprintln(cfg.Out, d)
			}
		}},
	})
	return err
}

// Scale returns when there are n servers and each has its share of the shards. The history
// has it, however soon the next change comes.
func (f *Fleet) Scale(ctx context.Context, n int) error {
	if err := f.recorder.Sample(ctx); err != nil {
		return err
	}
	if err := f.control.Scale(ctx, n); err != nil {
		return err
	}
	return f.recorder.Sample(ctx)
}

// Client reads and writes the parameters without being a worker. It belongs to the Fleet.
func (f *Fleet) Client() *ps.Client { return f.client }

// NumServers returns how many servers there were a moment ago.
func (f *Fleet) NumServers() int { return f.recorder.NumServers() }

// Train calls work with n workers at once and returns when all have returned. The first
// error ends the context of the others; all errors are returned, joined.
func (f *Fleet) Train(ctx context.Context, n int, work func(ctx context.Context, i int, w *ps.Worker) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if errs[i] = f.worker(ctx, i, work); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (f *Fleet) worker(ctx context.Context, i int, work func(ctx context.Context, i int, w *ps.Worker) error) error {
	name := fmt.Sprintf("worker-%d", i)
	w, err := ps.StartWorker(ctx, ps.ClientConfig{Node: f.node, Name: name, Coordinator: f.coord.Ref()})
	if err != nil {
		return fmt.Errorf("fleet: start %s: %w", name, err)
	}
	defer w.Close()
	if err := work(ctx, i, w); err != nil {
		return fmt.Errorf("fleet: %s: %w", name, err)
	}
	return w.Leave(ctx)
}

// ServerRows is how many rows a server has, of all tables.
type ServerRows struct {
	Server string `json:"server"`
	Rows   int64  `json:"rows"`
}

// Rows asks every server, in the order of their names.
func (f *Fleet) Rows(ctx context.Context) ([]ServerRows, error) {
	status, err := f.admin.Status(ctx)
	if err != nil {
		return nil, err
	}
	var out []ServerRows
	for _, s := range status.Servers {
		if !s.Up {
			continue
		}
		load, err := f.admin.Load(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("fleet: load of server %q: %w", s.ID, err)
		}
		out = append(out, ServerRows{Server: string(s.ID), Rows: load.Rows})
	}
	return out, nil
}

// ServerCount says how many servers there were from a moment of the run on.
type ServerCount struct {
	Seconds float64 `json:"seconds"`
	Count   int     `json:"count"`
}

// History returns the changes of the number of servers and the moves of shards.
func (f *Fleet) History(ctx context.Context) ([]ServerCount, []report.Migration, error) {
	if err := f.recorder.Sample(ctx); err != nil {
		return nil, nil, err
	}
	servers, moves := f.recorder.History()
	out := make([]ServerCount, len(servers))
	for i, s := range servers {
		out[i] = ServerCount{Seconds: math.Round(1000*s.At.Seconds()) / 1000, Count: s.Count}
	}
	return out, moves, nil
}

// Close frees what Start made, the last first. A second Close does nothing more.
func (f *Fleet) Close() error {
	var errs []error
	if f.control != nil {
		errs = append(errs, f.control.Close())
	}
	if f.recorder != nil {
		f.recorder.Close()
	}
	if f.client != nil {
		errs = append(errs, f.client.Close())
	}
	if f.coord != nil {
		errs = append(errs, f.coord.Close()) // before the servers, which it would miss
	}
	if f.servers != nil {
		errs = append(errs, f.servers.Close())
	}
	if f.node != nil {
		errs = append(errs, f.node.Close())
	}
	return errors.Join(errs...)
}
