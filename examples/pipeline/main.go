// Command pipeline trains a perceptron with three hidden layers on MNIST whose layers are
// divided into stages, each in a process of its own:
//
//	go run ./examples/pipeline                            # 2 stages, 2 replicas: 4 processes
//	go run ./examples/pipeline -stages 4 -replicas 1
//
// This process is one of them and starts the others. topology says which of them form a
// pipeline and which hold the same stage; each batch is divided among the replicas, and there
// into micro-batches that go through the stages by one forward, one backward. At the end of a
// batch the replicas of a stage add their gradients by all-reduce, and each takes the same step.
//
// Then this process trains the same model alone, adding the gradients in the same order, and
// compares: all parameters of all stages and replicas have to be equal to the bit, or the run
// has failed. -help lists the flags. The object that -json writes has the keys stages,
// replicas, micro_batches, in_flight (of each stage), bubble (the share of time for which
// stages have nothing to do in theory), parameters, steps, loss, test_accuracy, equal,
// images_per_second, single_images_per_second and wall_seconds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/elasticps/elasticps/examples/internal/mnist"
	"github.com/elasticps/elasticps/examples/internal/ranks"
	"github.com/elasticps/elasticps/examples/internal/report"
	"github.com/elasticps/elasticps/examples/internal/training"
)

func main() {
	training.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

// options are the flags.
type options struct {
	data, json               string
	stages, replicas, micros int
	batch, epochs            int
	images, testImages       int
	learningRate, momentum   float64
	seed                     uint64
	minAccuracy              float64
}

func (o *options) AddFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.data, "data", "", "folder with the four MNIST files; default: that of the Go module GoMNIST")
	fs.StringVar(&o.json, "json", "", "write the result as one JSON object to this file")
	fs.IntVar(&o.stages, "stages", 2, "stages that the layers are divided into")
	fs.IntVar(&o.replicas, "replicas", 2, "pipelines that share each batch")
	fs.IntVar(&o.micros, "micro-batches", 4, "micro-batches of a replica's share of a batch")
	fs.IntVar(&o.batch, "batch", 128, "images of a step, a multiple of replicas times micro-batches")
	fs.IntVar(&o.epochs, "epochs", 3, "epochs")
	fs.IntVar(&o.images, "images", 20_000, "train on the first so many images; 0: all")
	fs.IntVar(&o.testImages, "test-images", 0, "test on the first so many images; 0: all")
	fs.Float64Var(&o.learningRate, "lr", 0.05, "learning rate")
	fs.Float64Var(&o.momentum, "momentum", 0.9, "momentum")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of the first weights and of the batches")
	fs.Float64Var(&o.minAccuracy, "min-accuracy", 0.94, "test accuracy below which the run has failed")
}

// Validate reports every fault.
func (o options) Validate() error {
	f := training.Faults{Program: "pipeline"}
	f.Within("stages", o.stages, 1, len(sizes)-1)
	f.Within("replicas", o.replicas, 1, 8)
	f.Within("micro-batches", o.micros, 1, 1024)
	f.Within("batch", o.batch, 1, 1<<14)
	f.Check(o.replicas < 1 || o.micros < 1 || o.batch%(o.replicas*o.micros) == 0,
		"batch is %d, want a multiple of %d replicas times %d micro-batches", o.batch, o.replicas, o.micros)
	f.Within("epochs", o.epochs, 1, 1000)
	f.Check(o.images == 0 || o.images >= o.batch, "images is %d, want 0 or at least the %d of a batch", o.images, o.batch)
	f.Within("test-images", o.testImages, 0, mnist.MaxImages)
	f.Rate("lr", o.learningRate)
	f.Check(o.momentum >= 0 && o.momentum < 1, "momentum is %v, want 0 to below 1", o.momentum)
	f.Check(o.minAccuracy >= 0 && o.minAccuracy <= 1, "min-accuracy is %v, want 0 to 1", o.minAccuracy)
	f.JSON(o.json)
	return f.Err()
}

// run is the program, of every rank.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	began := time.Now()
	var o options
	if err := training.Parse("pipeline", args, stderr, &o); err != nil {
		return err
	}
	train, test, err := training.LoadData(o.data, o.images, o.testImages)
	if err != nil {
		return err
	}
	world, stop, err := ranks.Join(ctx, ranks.Config{Size: o.stages * o.replicas, Args: args, Stderr: stderr, Deterministic: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if world.Rank() > 0 {
		stdout = io.Discard
	}
	fmt.Fprintf(stdout, "%d stages, %d replicas of each: %d processes; %d micro-batches of %d images\n",
		o.stages, o.replicas, world.Size(), o.micros, o.rows())
	r, stages, err := trainInStages(ctx, o, world, train, stdout)
	if err != nil || world.Rank() > 0 {
		return err
	}
	if err := compare(o, &r, stages, train, test); err != nil {
		return err
	}
	r.Seconds = time.Since(began).Seconds()
	r.write(stdout)
	if err := report.WriteObject(o.json, r); err != nil {
		return err
	}
	return r.verdict(o)
}

// rows are the images of a micro-batch.
func (o options) rows() int { return o.batch / o.replicas / o.micros }
