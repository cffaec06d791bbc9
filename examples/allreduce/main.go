// Command allreduce trains a perceptron on MNIST without parameter servers: every worker is
// a process with the whole model, and all of them average their gradients by all-reduce.
//
//	go run ./examples/allreduce
//	go run ./examples/allreduce -formats float32,float16,mxe4m3 -workers 2
//
// This process is one of the workers and starts the others. The same training, from the same
// first weights with the same batches, is done once for each of the -formats in which the
// gradients travel: as they are, in 16 bits, in 8 bits. What rounding loses of a gradient is
// added to the next one (feedback), unless -feedback=false. Shown are the test accuracy, what
// a worker has sent in bytes, and whether all workers have the same parameters to the bit.
//
// The run has failed if an accuracy is more than -within below that of the first format,
// if one is below -min-accuracy, or if workers differ. -help lists the flags. The object that
// -json writes has the keys workers, parameters, steps, scheme, reason, runs (format,
// test_accuracy, loss, sent_bytes, bytes_per_step, equal, images_per_second, seconds) and
// wall_seconds; the bytes are those of one worker, without what frames add. Compressed gradients
// go by direct exchange, 2 (n-1)/n times the gradient; those that travel as they are go by the
// algorithm that is fastest by what the group has measured, which may send more.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/codec"
	"github.com/elasticps/elasticps/examples/internal/mnist"
	"github.com/elasticps/elasticps/examples/internal/ranks"
	"github.com/elasticps/elasticps/examples/internal/report"
	"github.com/elasticps/elasticps/examples/internal/training"
	"github.com/elasticps/elasticps/shard"
)

func main() {
	training.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

// options are the flags.
type options struct {
	data, json          string
	workers             int
	formats             string
	feedback            bool
	batch, epochs       int
	images, testImages  int
	learningRate        float64
	seed                uint64
	minAccuracy, within float64
}

func (o *options) AddFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.data, "data", "", "folder with the four MNIST files; default: that of the Go module GoMNIST")
	fs.StringVar(&o.json, "json", "", "write the result as one JSON object to this file")
	fs.IntVar(&o.workers, "workers", 4, "processes that train")
	fs.StringVar(&o.formats, "formats", "float32,bfloat16,e4m3", "how gradients travel: "+strings.Join(formatNames(), ", "))
	fs.BoolVar(&o.feedback, "feedback", true, "add what rounding loses of a gradient to the next one")
	fs.IntVar(&o.batch, "batch", 128, "images of a step, a multiple of the workers")
	fs.IntVar(&o.epochs, "epochs", 3, "epochs")
	fs.IntVar(&o.images, "images", 0, "train on the first so many images; 0: all")
	fs.IntVar(&o.testImages, "test-images", 0, "test on the first so many images; 0: all")
	fs.Float64Var(&o.learningRate, "lr", 0.001, "learning rate of Adam")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of the first weights and of the batches")
	fs.Float64Var(&o.minAccuracy, "min-accuracy", 0.965, "test accuracy below which the run has failed")
	fs.Float64Var(&o.within, "within", 0.005, "most by which an accuracy may be below that of the first format")
}

// Validate reports every fault.
func (o options) Validate() error {
	f := training.Faults{Program: "allreduce"}
	f.Within("workers", o.workers, 1, 16)
	f.Within("batch", o.batch, 1, 1<<14)
	f.Check(o.workers < 1 || o.batch%o.workers == 0, "batch is %d, want a multiple of the %d workers", o.batch, o.workers)
	f.Within("epochs", o.epochs, 1, 1000)
	f.Check(o.images == 0 || o.images >= o.batch, "images is %d, want 0 or at least the %d of a batch", o.images, o.batch)
	f.Within("test-images", o.testImages, 0, mnist.MaxImages)
	f.Rate("lr", o.learningRate)
	f.Check(o.minAccuracy >= 0 && o.minAccuracy <= 1, "min-accuracy is %v, want 0 to 1", o.minAccuracy)
	f.Check(o.within >= 0 && o.within <= 1, "within is %v, want 0 to 1", o.within)
	formats, err := parseFormats(o.formats)
	f.Check(err == nil, "formats: %v", err)
	for _, format := range formats {
		f.Check(format != codec.OneBit || o.feedback, "feedback is false, want true for %v", format)
	}
	f.JSON(o.json)
	return f.Err()
}

// asTheyAre is the format of gradients that are not compressed.
const asTheyAre = "float32"

// formatNames are the words for the formats.
func formatNames() []string {
	names := []string{asTheyAre}
	for f := codec.Format(1); f.Valid(); f++ {
		names = append(names, f.String())
	}
	return names
}

// parseFormats reads a list of formats; zero is not compressed.
func parseFormats(list string) ([]codec.Format, error) {
	var formats []codec.Format
	for name := range strings.SplitSeq(list, ",") {
		format, known := codec.Format(0), name == asTheyAre
		for f := codec.Format(1); f.Valid() && !known; f++ {
			format, known = f, f.String() == name
		}
		if !known {
			return nil, fmt.Errorf("%q, want some of %s", name, strings.Join(formatNames(), ", "))
		}
		formats = append(formats, format)
	}
	return formats, nil
}

// run is the program, of every worker.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	began := time.Now()
	var o options
	if err := training.Parse("allreduce", args, stderr, &o); err != nil {
		return err
	}
	train, test, err := training.LoadData(o.data, o.images, o.testImages)
	if err != nil {
		return err
	}
	group, stop, err := ranks.Join(ctx, ranks.Config{Size: o.workers, Args: args, Stderr: stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if group.Rank() > 0 {
		stdout = io.Discard
	}
	r, err := trainAll(ctx, o, group, train, test, stdout)
	if err != nil || group.Rank() > 0 {
		return err
	}
	r.Seconds = time.Since(began).Seconds()
	r.write(stdout)
	if err := report.WriteObject(o.json, r); err != nil {
		return err
	}
	return r.verdict(o)
}

// trainAll trains once for each format.
func trainAll(ctx context.Context, o options, group *collective.Group, train, test *mnist.Set, out io.Writer) (result, error) {
	mlp, err := mnist.NewMLP(mnist.Config{Mean: train.Mean()})
	if err != nil {
		return result{}, err
	}
	r := result{Workers: o.workers}
	var model shard.Model
	for _, l := range mlp.Layers() {
		model.Layers = append(model.Layers, shard.Layer{Name: l.Name, Shape: l.Shape})
		r.Parameters += l.Len()
	}
	scheme, reason := collective.SelectScheme(model, 0)
	r.Scheme, r.Reason = scheme.String(), reason
	fmt.Fprintf(out, "%d workers; %v: %s\n", o.workers, scheme, reason)
	formats, err := parseFormats(o.formats)
	if err != nil {
		return r, err
	}
	for _, format := range formats {
		w := &worker{options: o, group: group, mlp: mlp, train: train, test: test}
		one, err := w.work(ctx, format)
		if err != nil {
			return r, fmt.Errorf("allreduce: %s: %w", name(format), err)
		}
		r.Runs, r.Steps = append(r.Runs, one), w.steps
		fmt.Fprintf(out, "%-8s  test accuracy %.2f %%, %.1f MB sent by each worker\n", one.Format, 100*one.Accuracy, float64(one.SentBytes)/1e6)
	}
	return r, nil
}

func name(f codec.Format) string {
	if f == 0 {
		return asTheyAre
	}
	return f.String()
}
