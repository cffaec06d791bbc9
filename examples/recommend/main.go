// Command recommend predicts what users think of items from what they and others have
// rated, by matrix factorization on parameter servers:
//
//	go run ./examples/recommend                     # synthetic ratings
//	go run ./examples/recommend -data ml-100k/u.data -decay 0.05
//
// The file of -data has the format of u.data of the MovieLens data sets: user, item, rating
// and time between tabs. Any 64-bit number is an id, and no list of them is needed: a row
// comes into being when it is first pushed to. The workers get their ratings from the job
// (ps.Dataset): each rating is trained on once per epoch, in a shuffled order. Without -data the ratings are drawn from
// planted factors with noise of a known size.
//
// A tenth of the ratings is held out. The end is the root-mean-square error on it, with that
// of two baselines (the mean of all ratings; the mean of each item) and, for synthetic
// ratings, the noise floor: the error of the planted factors themselves, below which no
// model comes but by luck. -help lists the flags. The object that -json writes has the keys
// rmse, noise_floor (null with -data), mean_rmse, item_mean_rmse, train_rmse, ratings,
// held_out, ratings_per_second, rows (server, rows) and wall_seconds.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/elasticps/elasticps/examples/internal/report"
	"github.com/elasticps/elasticps/examples/internal/training"
)

func main() {
	training.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

// heldOutShare is the share of the ratings that is not trained on.
const heldOutShare = 0.1

// options are the flags.
type options struct {
	data, json             string
	ratings, users, items  int
	dim, batch, epochs     int
	workers, servers       int
	learningRate, decaying float64
	seed                   uint64
}

func (o *options) AddFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.data, "data", "", "ratings in the format of MovieLens' u.data; default: synthetic ones")
	fs.StringVar(&o.json, "json", "", "write the result as one JSON object to this file")
	fs.IntVar(&o.ratings, "ratings", 1_000_000, "synthetic ratings")
	fs.IntVar(&o.users, "users", 5000, "users who give synthetic ratings")
	fs.IntVar(&o.items, "items", 5000, "items that get synthetic ratings")
	fs.IntVar(&o.dim, "dim", 8, "factors of a user or an item")
	fs.IntVar(&o.batch, "batch", 1024, "ratings of a step")
	fs.IntVar(&o.epochs, "epochs", 10, "passes over the ratings")
	fs.IntVar(&o.workers, "workers", 2, "workers that train")
	fs.IntVar(&o.servers, "servers", 2, "parameter servers")
	fs.Float64Var(&o.learningRate, "lr", 0.1, "learning rate of Adagrad")
	fs.Float64Var(&o.decaying, "decay", 0.02, "weight decay for each rating")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of everything that is drawn")
}

// Validate reports every fault.
func (o options) Validate() error {
	f := training.Faults{Program: "recommend"}
	f.Within("ratings", o.ratings, 1, maxRatings)
	f.Within("users", o.users, 1, 1<<24)
	f.Within("items", o.items, 1, 1<<24)
	f.Within("dim", o.dim, 1, 1024)
	f.Within("batch", o.batch, 1, 1<<18)
	f.Within("epochs", o.epochs, 1, 10_000)
	f.Within("workers", o.workers, 1, training.MaxWorkers)
	f.Within("servers", o.servers, 1, 16)
	f.Rate("lr", o.learningRate)
	f.Check(o.decaying >= 0 && o.decaying <= 10, "decay is %v, want 0 to 10", o.decaying)
	f.JSON(o.json)
	return f.Err()
}

// run is the program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	began := time.Now()
	var o options
	if err := training.Parse("recommend", args, stderr, &o); err != nil {
		return err
	}
	all, truth, err := o.load()
	if err != nil {
		return err
	}
	t := trainer{opts: o, out: stdout}
	var testTruth []float32
	if t.train, t.test, testTruth, err = split(all, truth, heldOutShare, o.seed); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d ratings, %d are held out; %d workers, %d servers; %d factors\n",
		len(t.train), len(t.test), o.workers, o.servers, o.dim)
	r, err := t.run(ctx, began)
	if err != nil {
		return err
	}
	if truth != nil {
		floor := rmse(testTruth, t.test)
		r.NoiseFloor = &floor
	}
	r.Seconds = time.Since(began).Seconds()
	r.write(stdout)
	return report.WriteObject(o.json, r)
}

// load reads the ratings, or draws them; then truth is what their model predicts.
func (o options) load() (all []rating, truth []float32, err error) {
	if o.data == "" {
		all, truth = plant(o.ratings, o.users, o.items, o.seed)
		return all, truth, nil
	}
	file, err := os.Open(o.data)
	if err != nil {
		return nil, nil, fmt.Errorf("recommend: %w", err)
	}
	defer file.Close()
	all, err = readRatings(o.data, file)
	return all, nil, err
}
