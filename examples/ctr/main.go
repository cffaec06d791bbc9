// Command ctr learns from a click log which advertisements are clicked, with a
// factorization machine whose weights and factors are tables on parameter servers:
//
//	go run ./examples/ctr                          # a synthetic log
//	go run ./examples/ctr -data train.txt -skip    # Criteo's log
//
// The log of -data has the tab-separated format of the Criteo display advertising challenge:
// a label, 13 integers and 26 categories in hex digits, any of which may be empty. A
// malformed line ends the run with its number and field, or is passed over with -skip. It is
// read as a stream, once. Integers enter by their logarithm and every value of every field
// has a row of its own, under a hashed 64-bit id; a row comes into being at the -admit-th step
// that has it, so that the many values which hardly come up take no memory.
//
// Without -data the log is drawn from a planted model of the same kind, with as many rare
// values. Its clicks are drawn from probabilities that are known, so that the best AUC that
// any model could reach is known as well. The third million of samples comes to about 0.76
// of 0.80, the seventh to 0.77: what is missing is what cannot be learnt from so few samples
// of so many values in one pass.
//
// Each sample is predicted before it is trained on (progressive validation), and the AUC of
// every million of them is shown; then the rows on each server. -help lists the flags. The
// object that -json writes has the keys auc and best_auc (of the last full window), windows
// (samples, auc, best_auc), samples, skipped, samples_per_second, rows (server, rows) and
// wall_seconds; best_auc is null with -data.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/elasticps/elasticps/examples/internal/fleet"
	"github.com/elasticps/elasticps/examples/internal/report"
	"github.com/elasticps/elasticps/examples/internal/training"
	"github.com/elasticps/elasticps/ps"
)

func main() {
	training.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

// plantedSamples is the length of a synthetic log.
const plantedSamples = 3_000_000

// options are the flags.
type options struct {
	data, json             string
	skip                   bool
	samples, window, batch int
	dim, admit             int
	workers, servers       int
	learningRate           float64
	alpha, l1              float64
	seed                   uint64
}

func (o *options) AddFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.data, "data", "", "log in Criteo's format; default: a synthetic one")
	fs.BoolVar(&o.skip, "skip", false, "pass over malformed lines of the log and count them")
	fs.StringVar(&o.json, "json", "", "write the result as one JSON object to this file")
	fs.IntVar(&o.samples, "samples", 0, fmt.Sprintf("most samples; 0: all of the log, %d of a synthetic one", plantedSamples))
	fs.IntVar(&o.window, "window", 1_000_000, "samples of which the AUC is shown")
	fs.IntVar(&o.batch, "batch", 512, "samples of a step")
	fs.IntVar(&o.dim, "dim", 8, "elements of a factor")
	fs.IntVar(&o.admit, "admit", 3, "steps that must have a feature until it gets its row")
	fs.IntVar(&o.workers, "workers", 2, "workers that train")
	fs.IntVar(&o.servers, "servers", 2, "parameter servers")
	fs.Float64Var(&o.learningRate, "lr", 0.02, "learning rate of Adagrad, for the factors")
	fs.Float64Var(&o.alpha, "alpha", 0.05, "learning rate of FTRL, for the weights")
	fs.Float64Var(&o.l1, "l1", 0.1, "lambda1 of FTRL, for the weights")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of everything that is drawn")
}

// Validate reports every fault.
func (o options) Validate() error {
	f := training.Faults{Program: "ctr"}
	f.Within("samples", o.samples, 0, math.MaxInt)
	f.Within("window", o.window, 2, 1<<26)
	f.Within("batch", o.batch, 1, 1<<14)
	f.Within("dim", o.dim, 1, 256)
	f.Within("admit", o.admit, 1, ps.MaxAdmitAfter)
	f.Within("workers", o.workers, 1, training.MaxWorkers)
	f.Within("servers", o.servers, 1, 16)
	f.Rate("lr", o.learningRate)
	f.Rate("alpha", o.alpha)
	f.Check(o.l1 >= 0 && o.l1 <= 1e6, "l1 is %v, want 0 to 1e6", o.l1)
	f.JSON(o.json)
	return f.Err()
}

// run is the program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	began := time.Now()
	var o options
	if err := training.Parse("ctr", args, stderr, &o); err != nil {
		return err
	}
	log := source(&planted{seed: o.seed, total: int64(cmp.Or(o.samples, plantedSamples))})
	if o.data != "" {
		file, err := os.Open(o.data)
		if err != nil {
			return fmt.Errorf("ctr: %w", err)
		}
		defer file.Close()
		log = newLines(o.data, file, int64(cmp.Or(o.samples, math.MaxInt)), o.skip)
	}
	fmt.Fprintf(stdout, "%d workers, %d servers; factors of %d elements, rows after %d steps\n", o.workers, o.servers, o.dim, o.admit)
	r, err := train(ctx, o, log, began, stdout)
	if err != nil {
		return err
	}
	r.Seconds = time.Since(began).Seconds()
	r.write(stdout)
	return report.WriteObject(o.json, r)
}

// train trains on a fleet of its own until the log ends, and returns what came of it.
func train(ctx context.Context, o options, log source, began time.Time, out io.Writer) (r result, err error) {
	f, err := fleet.Start(ctx, fleet.Config{Name: "ctr", Job: o.job(), NumServers: o.servers, Began: began})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	v := &validation{size: o.window, out: out}
	started := time.Now()
	err = f.Train(ctx, o.workers, func(ctx context.Context, _ int, w *ps.Worker) error { return o.work(ctx, w, log, v) })
	if err != nil {
		return r, err
	}
	r = result{Samples: v.samples, Skipped: log.skipped(), PerSecond: float64(v.samples) / time.Since(started).Seconds()}
	if r.Samples == 0 {
		return r, errors.New("ctr: the log has no samples")
	}
	var last window
	r.Windows, last = v.result()
	r.AUC, r.BestAUC = last.AUC, last.BestAUC
	r.Rows, err = f.Rows(ctx)
	return r, err
}

// work is one worker: it takes batches until there is none, predicts them, and then trains
// on them.
func (o options) work(ctx context.Context, c client, log source, v *validation) error {
	m := newMachine(o.dim)
	batch, scores := make([]sample, o.batch), make([]float32, o.batch)
	for ctx.Err() == nil {
		n, err := log.next(batch)
		if err != nil || n == 0 {
			return err
		}
		if err := m.pull(ctx, c, batch[:n]); err != nil {
			return err
		}
		for i := range batch[:n] {
			scores[i] = m.logit(i)
			m.learn(i, scores[i], batch[i].click)
		}
		if err := m.push(ctx, c); err != nil {
			return err
		}
		v.add(batch[:n], scores)
	}
	return context.Cause(ctx)
}
