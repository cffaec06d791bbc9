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

// run is the program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	began := time.Now()
	var o training.Options
	fs := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	o.AddFlags(fs)
	numWorkers := fs.Int("workers", 4, "workers that train")
	if err := training.Parse(fs, args, stderr); err != nil {
		return err
	}
	if *numWorkers < 1 || *numWorkers > training.MaxWorkers {
		return fmt.Errorf("quickstart: -workers is %d, want 1 to %d", *numWorkers, training.MaxWorkers)
	}
	if err := o.Validate(); err != nil {
		return err
	}
	train, test, err := training.LoadData(o)
	if err != nil {
		return err
	}
	node, err := actor.Start(ctx, actor.Config{Name: "quickstart"})
	if err != nil {
		return err
	}
	defer node.Close()
	fmt.Fprintf(stdout, "MNIST, %d images, %d workers on one node; %s\n", train.Len(), *numWorkers, o.Device(*numWorkers))
	c := crash{node: node, out: stdout}
	result, err := training.Run(ctx, training.RunConfig{
		Node: node, Options: o, Train: train, Test: test, Out: stdout, Began: began,
		Attach: func(w io.Writer) { c.out = w },
		Servers: func(coordinator actor.Ref) (training.Provider, error) {
			c.provider = servers(node, coordinator, o)
			return c.provider, nil
		},
		Workers: func(ctx context.Context, refs training.Refs, progress func() training.Progress) error {
			crashed := c.begin(ctx, refs.Coordinator, progress)
			return errors.Join(workers(ctx, node, refs, *numWorkers, train), crashed())
		},
	})
	result.ServersKilled, result.TakenOver, result.Recovery = c.killed, c.takenOver, c.recovery
	return training.Finish(stdout, o, result, err)
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
