// Command quickstart trains a perceptron on MNIST on parameter servers that grow and
// shrink while it trains, all in this one process:
//
//	go run ./examples/quickstart
//
// Four workers push gradients to one parameter server, whose simulated device cannot
// carry that. The controller measures it and adds servers; shards move to them while
// the workers push. In the last epochs one worker with large batches is enough, the
// load falls, and the servers go again. In the middle one server is killed, and the
// followers of its shards take its place. The table at the end says what became of every
// push. -help lists the flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/examples/internal/mnist"
	"github.com/elasticps/elasticps/examples/internal/training"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

func main() {
	training.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

// options are the flags.
type options struct {
	training.Options
	workers int
}

func (o *options) AddFlags(fs *flag.FlagSet) {
	o.Options.AddFlags(fs)
	fs.IntVar(&o.workers, "workers", 4, "workers that train")
}

// Validate reports every fault at once.
func (o *options) Validate() error {
	f := training.Faults{Program: "quickstart"}
	f.Within("workers", o.workers, 1, training.MaxWorkers)
	return errors.Join(f.Err(), o.Options.Validate())
}

// run is the program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	began := time.Now()
	var o options
	if err := training.Parse("quickstart", args, stderr, &o); err != nil {
		return err
	}
	train, test, err := training.LoadData(o.Data, o.NumImages, o.NumTest)
	if err != nil {
		return err
	}
	node, err := actor.Start(ctx, actor.Config{Name: "quickstart"})
	if err != nil {
		return err
	}
	defer node.Close()
	fmt.Fprintf(stdout, "MNIST, %d images, %d workers on one node; %s\n", train.Len(), o.workers, o.Device(o.workers))
	c := crash{node: node, out: stdout}
	result, err := training.Run(ctx, training.RunConfig{
		Node: node, Options: o.Options, Train: train, Test: test, Out: stdout, Began: began,
		Attach: func(w io.Writer) { c.out = w },
		Servers: func(coordinator actor.Ref) (training.Provider, error) {
			c.provider = servers(node, coordinator, o.Options)
			return c.provider, nil
		},
		Workers: func(ctx context.Context, refs training.Refs, progress func() training.Progress) error {
			crashed := c.begin(ctx, refs.Coordinator, progress)
			return errors.Join(workers(ctx, node, refs, o.workers, train), crashed())
		},
	})
	result.ServersKilled, result.TakenOver, result.Recovery = c.killed, c.takenOver, c.recovery
	return training.Finish(stdout, o.Options, result, err)
}

// servers are in this process, without a socket, each behind a device of its own.
func servers(node *actor.Node, coordinator actor.Ref, o training.Options) *elastic.InProcess {
	return elastic.NewInProcess(func(ctx context.Context, id shard.ServerID) (io.Closer, error) {
		sim, err := device.NewSimLink(o.Sim(string(id)))
		if err != nil {
			return nil, err
		}
		return ps.StartServer(ctx, ps.ServerConfig{Node: node, ID: id, Coordinator: coordinator, Listen: ps.ListenNone, Device: sim})
	})
}

// workers trains with n workers at once. The first that fails ends the others.
func workers(ctx context.Context, node *actor.Node, refs training.Refs, n int, train *mnist.Set) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			errs[i] = training.RunWorker(ctx, training.WorkerConfig{
				Node: node, Coordinator: refs.Coordinator, Feed: refs.Feed, Name: fmt.Sprintf("worker-%d", i), Train: train,
			})
			if errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
