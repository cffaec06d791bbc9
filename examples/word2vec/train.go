package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/elasticps/elasticps/examples/internal/rows"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// The tables of the job, and what it trains on: the texts, by their numbers.
const (
	inputTable  = "input"
	outputTable = "output"
	seenTable   = "seen"
	textDataset = "texts"
)

// rangesPerEpoch is about how many ranges of texts the workers take in an epoch.
const rangesPerEpoch = 100

// maxShardBytes cuts each table of vectors into several shards, which three servers
// can share evenly.
const maxShardBytes = 256 << 10

// job is what is trained, with so many words and texts: two tables of vectors, and one that
// counts. Moves lose nothing, and no server is going to die, so that no followers are kept.
func (o options) job(numWords, numTexts int) ps.Job {
	vectors := []int{numWords, o.dim}
	return ps.Job{
		Name: "word2vec",
		Model: shard.Model{Layers: []shard.Layer{
			{Name: inputTable, Sparse: true, Shape: vectors, Init: shard.Initializer{Kind: shard.Uniform, Scale: 0.5 / float32(o.dim), Seed: o.seed}},
			{Name: outputTable, Sparse: true, Shape: vectors},
			{Name: seenTable, Sparse: true, Shape: []int{numWords, 1}},
		}},
		Optimizer:  ps.Adagrad(o.learningRate),
		Optimizers: map[string]ps.Optimizer{seenTable: ps.SGD(1)},
		Datasets: []ps.Dataset{{
			Name: textDataset, Records: int64(numTexts), RangeRecords: int64(max(1, numTexts/rangesPerEpoch)),
			Epochs: o.epochs, Shuffle: true, Seed: o.seed,
		}},
		MaxShardBytes: maxShardBytes,
		Replicas:      ps.NoReplicas,
	}
}

// trainer is what the workers share.
type trainer struct {
	opts   options
	corpus *corpus
	keep   []float32
	noise  *distribution

	epoch atomic.Int64 // the last that was begun, counted from 0
	words atomic.Int64 // trained on, those left out as well
	pairs atomic.Int64

	mu   sync.Mutex
	seen []int64 // how often each word was a target of a step that was acknowledged
	loss float64 // per pair, smoothed
}

func newTrainer(o options, c *corpus) *trainer {
	return &trainer{
		opts: o, corpus: c, keep: keeping(c.counts, o.threshold), noise: newDistribution(c.counts, 0.75),
		seen: make([]int64, len(c.counts)),
	}
}

// numWords is how many words all epochs have.
func (t *trainer) numWords() int64 { return t.corpus.numTrained() * int64(t.opts.epochs) }

// work is one worker: it takes ranges of texts until there is none, and trains on them in
// steps of options.batch windows.
func (t *trainer) work(ctx context.Context, worker *ps.Worker) error {
	w := newWindows(t.opts.dim)
	for {
		r, err := worker.NextRange(ctx, textDataset)
		if errors.Is(err, ps.ErrEndOfData) {
			return nil
		}
		if err != nil {
			return err
		}
		t.epoch.Store(int64(r.Epoch))
		for text := range r.Records() {
			if err := t.text(ctx, worker, w, r.Epoch, int(text)); err != nil {
				return err
			}
		}
		if err := t.step(ctx, worker, w); err != nil { // what is left of the last text
			return err
		}
		if err := worker.FinishRange(ctx, r); err != nil {
			return err
		}
	}
}

// text trains on a text. Its windows do not depend on which worker has it.
func (t *trainer) text(ctx context.Context, c rows.Client, w *windows, epoch, number int) error {
	text := t.corpus.train[number]
	rng := rand.New(rand.NewPCG(t.opts.seed, uint64(1+epoch*len(t.corpus.train)+number)))
	w.text = subsample(w.text[:0], text, t.keep, rng)
	for at := range w.text {
		begin, end := around(at, len(w.text), t.opts.window, rng)
		w.add(w.text, at, begin, end, t.opts.negatives, t.noise, rng)
		if len(w.ends) < t.opts.batch {
			continue
		}
		if err := t.step(ctx, c, w); err != nil {
			return err
		}
	}
	t.words.Add(int64(len(text)))
	return nil
}

// step pulls the rows of some windows, pushes their gradients and empties w.
func (t *trainer) step(ctx context.Context, c rows.Client, w *windows) error {
	if len(w.ends) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // a request that need not wait does not look
	}
	for _, b := range []*rows.Batch{w.in, w.out} {
		if err := b.Pull(ctx, c); err != nil {
			return err
		}
	}
	w.seen.Zero()
	loss := w.gradient()
	for _, b := range []*rows.Batch{w.in, w.out, w.seen} {
		if err := b.Push(ctx, c); err != nil {
			return err
		}
	}
	t.done(w, loss)
	w.reset()
	return nil
}

// done accounts for a step that was acknowledged.
func (t *trainer) done(w *windows, loss float64) {
	const weight = 0.01 // of a new loss
	pairs := len(w.inputs)
	t.pairs.Add(int64(pairs))
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, id := range w.seen.IDs() {
		t.seen[id] -= int64(w.seen.Grad(i)[0])
	}
	mean := loss / float64(pairs)
	if t.loss == 0 {
		t.loss = mean
	}
	t.loss += weight * (mean - t.loss)
}

// audit compares the counts in the parameters with those of the workers, who must have
// finished. A difference down is lost, one up is doubled.
func (t *trainer) audit(ctx context.Context, c rows.Client) (lost, doubled int64, err error) {
	ids := make([]int64, len(t.seen))
	for i := range ids {
		ids[i] = int64(i)
	}
	counts := make([]float32, len(ids))
	if err := c.PullRows(ctx, seenTable, ids, counts); err != nil {
		return 0, 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, n := range t.seen {
		lost += max(0, n-int64(counts[i]))
		doubled += max(0, int64(counts[i])-n)
	}
	return lost, doubled, nil
}
