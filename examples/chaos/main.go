// Command chaos trains MNIST in separate processes while it kills, stops and cuts off
// those processes at random, and counts what became of every push:
//
//	go run ./examples/chaos [-duration 2m] [-seed 1] [-json FILE]
//
// # What runs
//
// A controller (coordinator and elastic controller, with its coordination store in a bbolt
// file, or in etcd with -etcd), parameter servers, and workers are processes of their own.
// Each shard has one follower. This process is the director: it hands out the steps, keeps
// the accounts, probes and does the faults, and is spared itself.
//
// # What is done
//
// Servers, workers and the controller are killed (SIGKILL) and started again under the same
// name and address after a while, or stopped (SIGSTOP) for a while. Servers are cut off: all
// that others send them, all that they send, or both is held back by a proxy for a while;
// the streams that a server itself opens to its followers go on. With -etcd the store is
// cut off from the controller in the same ways. -seed decides the faults, their order and
// how long they last.
//
// # What is promised
//
// One follower survives the loss of one server. So the next fault comes when all processes
// run and every shard has its follower again (ps.Status.Exposed is 0), at that moment. With -overlap faults
// come without waiting; then a shard can lose both copies, and what is lost is counted.
//
// # What is measured
//
// A probe client pushes to and pulls from every shard again and again, as fast as it is
// served. The recovery of a fault is the time from it until the end of the last round that
// failed or took more than 250 ms, or of the first round if none did.
//
// Lost and doubled are counted from the parameters: each step pushes exact ones to a layer
// of their own (see package training), whose sums are compared with what the workers have
// confirmed. The run without faults, which follows, has the same seed, first weights and
// optimizer, and does the same number of steps on the same batches; only which worker does
// which step differs, and so the order in which updates are applied.
//
// The exit code is 1 if a push was lost or doubled, a shard was lost with all its copies, or
// something did not recover. -logs keeps what the controller and the servers have logged.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/elasticps/elasticps/examples/internal/mnist"
	"github.com/elasticps/elasticps/examples/internal/report"
	"github.com/elasticps/elasticps/examples/internal/training"
	"github.com/elasticps/elasticps/ps"
)

func main() {
	training.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

// settings are the flags.
type settings struct {
	Data, JSON, Etcd, Logs string
	Seed                   uint64
	Duration               time.Duration
	Overlap                bool
	NumServers, NumWorkers int
	NumImages, NumTest     int
	BatchSize              int
	LearningRate           float64
}

// Bounds of the flags.
const (
	maxServers  = 64
	maxWorkers  = 64
	maxDuration = 24 * time.Hour
)

func (s *settings) AddFlags(fs *flag.FlagSet) {
	fs.StringVar(&s.Data, "data", "", "folder with the four MNIST files; default: that of the Go module GoMNIST")
	fs.StringVar(&s.JSON, "json", "", "write the result as one JSON object to this file")
	fs.StringVar(&s.Etcd, "etcd", "", "host:port of an etcd server that is the coordination store, and is cut off as well")
	fs.StringVar(&s.Logs, "logs", "", "folder, made if need be, for what the controller and the servers log; default: errors only, here")
	fs.Uint64Var(&s.Seed, "seed", 1, "seed of the faults, of the first weights and of the batches")
	fs.DurationVar(&s.Duration, "duration", 2*time.Minute, "how long faults are done")
	fs.BoolVar(&s.Overlap, "overlap", false, "do not wait for followers between faults: what has one copy can be lost")
	fs.IntVar(&s.NumServers, "servers", 3, "parameter servers")
	fs.IntVar(&s.NumWorkers, "workers", 3, "workers")
	fs.IntVar(&s.NumImages, "images", 0, "train on the first so many images; 0: all")
	fs.IntVar(&s.NumTest, "test-images", 0, "test on the first so many images; 0: all")
	fs.IntVar(&s.BatchSize, "batch", 96, "images of a step")
	fs.Float64Var(&s.LearningRate, "lr", 0.01, "learning rate of Adagrad")
}

// Validate reports every fault at once.
func (s *settings) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("chaos: "+format, args...))
		}
	}
	fault(s.Duration <= 0 || s.Duration > maxDuration, "-duration is %v, want over 0 and at most %v", s.Duration, maxDuration)
	fault(s.NumServers < 2 || s.NumServers > maxServers, "-servers is %d, want 2 to %d: a follower is on another server", s.NumServers, maxServers)
	fault(s.NumWorkers < 1 || s.NumWorkers > maxWorkers, "-workers is %d, want 1 to %d", s.NumWorkers, maxWorkers)
	fault(s.NumImages < 0, "-images is %d, want 0 or more", s.NumImages)
	fault(s.NumTest < 0, "-test-images is %d, want 0 or more", s.NumTest)
	fault(s.BatchSize < 1, "-batch is %d, want 1 or more", s.BatchSize)
	if s.Etcd != "" {
		_, _, err := net.SplitHostPort(s.Etcd)
		fault(err != nil, "-etcd %q: %w", s.Etcd, err)
	}
	err := report.CheckFile(s.JSON)
	fault(err != nil, "-json: %w", err)
	return errors.Join(faults...)
}

// plan says what is trained on so many images, until it is ended.
func (s settings) plan(numImages int) training.Plan {
	return training.Plan{
		Phases:    []training.Phase{{Epochs: mnist.MaxEpochs, BatchSize: min(s.BatchSize, numImages)}},
		Optimizer: ps.Adagrad(s.LearningRate), Seed: s.Seed, NumImages: numImages, Slots: s.slots(),
	}
}

// run is the program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if text := os.Getenv(roleVariable); text != "" {
		return runRole(ctx, text, stdout)
	}
	var s settings
	if err := training.Parse("chaos", args, stderr, &s); err != nil {
		return err
	}
	if s.Logs != "" {
		if err := os.MkdirAll(s.Logs, 0o755); err != nil {
			return fmt.Errorf("chaos: -logs: %w", err)
		}
	}
	var err error
	if s.Etcd != "" { // else the processes look for it for a minute
		kv, err := openEtcd(ctx, s.Etcd, etcdRoot("nobody"))
		if err != nil {
			return fmt.Errorf("chaos: -etcd: %w", err)
		}
		if err := kv.Close(); err != nil {
			return err
		}
	}
	if s.Data, err = mnist.Find(s.Data); err != nil {
		return err
	}
	train, test, err := training.LoadData(s.Data, s.NumImages, s.NumTest)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "MNIST, %d images; %d servers, %d workers and a controller, faults for %v with seed %d\n",
		train.Len(), s.NumServers, s.NumWorkers, s.Duration, s.Seed)
	j := job{settings: s, plan: s.plan(train.Len()), train: train, test: test, out: stdout}
	var r result
	if r.with, err = j.run(ctx, s.newSchedule()); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "the same %d steps without faults\n", r.with.steps)
	calm := job{settings: s, plan: j.plan, train: train, test: test, out: stdout}
	calm.plan.MaxSteps = r.with.steps
	if r.without, err = calm.run(ctx, nil); err != nil {
		return err
	}
	return r.finish(s, stdout)
}

// finish shows the result and returns what is wrong with it.
func (r result) finish(s settings, stdout io.Writer) error {
	err := r.write(stdout)
	if s.JSON != "" {
		err = errors.Join(err, r.writeJSON(s))
	}
	for _, o := range []outcome{r.with, r.without} {
		if o.gone != "" {
			err = errors.Join(err, fmt.Errorf("chaos: a shard was lost with all its copies: %s", o.gone))
		}
		if o.lost != 0 || o.doubled != 0 {
			err = errors.Join(err, fmt.Errorf("chaos: %d pushes were lost and %d applied twice", o.lost, o.doubled))
		}
	}
	return err
}
