// Command word2vec learns vectors for the words of Go programs, the identifiers and
// keywords of the Go source tree of this machine, on parameter servers that grow and shrink
// while it trains, all in this one process:
//
//	go run ./examples/word2vec
//	go run ./examples/word2vec -corpus ~/src -epochs 5 -json result.json
//
// The model is skip-gram with negative sampling (Mikolov et al., Distributed
// Representations of Words and Phrases and their Compositionality, NIPS 2013): two tables
// with a row for each word, of its vector as an input and as an output. The workers get
// their files from the job (ps.Dataset), each file once per epoch, and wait for nobody: a
// step pulls the few rows that it needs and pushes their gradients. After a quarter of the
// words there are three servers instead of one, after six tenths two: the rows move while
// the workers push.
//
// A third table counts how often each word was trained on. What is in it in the end, and
// what the workers know, must be the same: a difference is a push that was lost or doubled.
//
// The end is a figure of merit on files that were held out: how often a word from the
// neighbourhood scores higher than a word drawn by its frequency, where 0.5 is chance; about
// 0.78, and 0.57 for the frequency alone. Then come the nearest neighbours of a few words.
// -help lists the flags. The object that -json writes has the keys words, vocabulary, pairs,
// pairs_per_second, held_out_pairs, merit, baseline_merit, servers (seconds, count),
// migrations, rows (server, rows), lost, doubled and wall_seconds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/elasticps/elasticps/examples/internal/fleet"
	"github.com/elasticps/elasticps/examples/internal/report"
	"github.com/elasticps/elasticps/examples/internal/training"
	"github.com/elasticps/elasticps/ps"
)

func main() {
	training.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

// options are the flags.
type options struct {
	corpus, json       string
	maxWords, minCount int
	dim, window        int
	negatives, epochs  int
	batch, workers     int
	threshold          float64
	learningRate       float64
	seed               uint64
	neighbours         string
}

func (o *options) AddFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.corpus, "corpus", "", "folder with Go sources; default: those of the Go installation")
	fs.StringVar(&o.json, "json", "", "write the result as one JSON object to this file")
	fs.IntVar(&o.maxWords, "words", 4_000_000, "most words to read, those of the held-out files as well")
	fs.IntVar(&o.minCount, "min-count", 5, "leave out words that occur less often")
	fs.IntVar(&o.dim, "dim", 64, "elements of a vector")
	fs.IntVar(&o.window, "window", 5, "words on each side that belong together, at most")
	fs.IntVar(&o.negatives, "negatives", 5, "words drawn for each target that do not belong to it")
	fs.IntVar(&o.epochs, "epochs", 2, "passes over the corpus")
	fs.IntVar(&o.batch, "batch", 256, "targets of a step: the more, the fewer rows travel and the older is what they hold")
	fs.IntVar(&o.workers, "workers", 2, "workers that train")
	fs.Float64Var(&o.threshold, "subsample", 1e-3, "share of all words above which a word is left out at random; 0: none is")
	fs.Float64Var(&o.learningRate, "lr", 0.1, "learning rate of Adagrad")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of everything that is drawn")
	fs.StringVar(&o.neighbours, "neighbours", "err,ctx,Lock,for,int64,Println,Reader,append", "words whose neighbours are shown")
}

// Validate reports every fault.
func (o options) Validate() error {
	f := training.Faults{Program: "word2vec"}
	f.Within("words", o.maxWords, 1000, 1<<30)
	f.Within("min-count", o.minCount, 1, 1<<20)
	f.Within("dim", o.dim, 1, 1024)
	f.Within("window", o.window, 1, 64)
	f.Within("negatives", o.negatives, 1, 64)
	f.Within("epochs", o.epochs, 1, 1000)
	f.Within("batch", o.batch, 1, 1<<16)
	f.Within("workers", o.workers, 1, training.MaxWorkers)
	f.Check(o.threshold >= 0 && o.threshold <= 1, "subsample is %v, want 0 to 1", o.threshold)
	f.Rate("lr", o.learningRate)
	f.JSON(o.json)
	return f.Err()
}

// run is the program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	began := time.Now()
	var o options
	if err := training.Parse("word2vec", args, stderr, &o); err != nil {
		return err
	}
	dir := o.corpus
	if dir == "" {
		root, err := goRoot()
		if err != nil {
			return err
		}
		dir = filepath.Join(root, "src")
	}
	c, err := readCorpus(dir, o.maxWords, o.minCount, o.seed)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d words of %d Go files, %d different ones; %d files are held out; %d workers\n",
		c.numTrained(), len(c.train), len(c.words), len(c.held), o.workers)
	result, v, err := train(ctx, o, c, began, stdout)
	if err != nil {
		return err
	}
	result.Seconds = time.Since(began).Seconds()
	result.write(stdout)
	v.normalize()
	fmt.Fprintf(stdout, "\nNearest words, with their cosines\n%s", v.neighbours(c, strings.Split(o.neighbours, ","), 6, int64(10*o.minCount)))
	return report.WriteObject(o.json, result)
}

// train trains on a fleet of its own, and returns what came of it.
func train(ctx context.Context, o options, c *corpus, began time.Time, out io.Writer) (r result, v vectors, err error) {
	progress, err := report.NewProgress(report.ProgressConfig{Out: out, TotalSteps: int(c.numTrained()) * o.epochs})
	if err != nil {
		return r, v, err
	}
	defer progress.Close()
	f, err := fleet.Start(ctx, fleet.Config{Name: "word2vec", Job: o.job(len(c.words), len(c.train)), Out: progress, Began: began})
	if err != nil {
		return r, v, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	t := newTrainer(o, c)
	started := time.Now()
	scaled := t.scale(ctx, f, progress)
	err = f.Train(ctx, o.workers, func(ctx context.Context, _ int, w *ps.Worker) error { return t.work(ctx, w) })
	seconds := time.Since(started).Seconds()
	if err = errors.Join(err, scaled(err)); err != nil {
		return r, v, err
	}
	progress.Close()
	r = result{Words: c.numTrained(), Vocabulary: len(c.words), Pairs: t.pairs.Load(), PairsPerSecond: float64(t.pairs.Load()) / seconds}
	if r.Lost, r.Doubled, err = t.audit(ctx, f.Client()); err != nil {
		return r, v, err
	}
	if r.Rows, err = f.Rows(ctx); err != nil {
		return r, v, err
	}
	var moves []report.Migration
	if r.Servers, moves, err = f.History(ctx); err != nil {
		return r, v, err
	}
	r.Migrations = len(moves)
	if v, err = pullVectors(ctx, f.Client(), len(c.words), o.dim); err != nil {
		return r, v, err
	}
	r.Merit, r.BaselineMerit, r.HeldOutPairs = v.merit(c, o.window, o.seed)
	return r, v, nil
}
