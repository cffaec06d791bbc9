package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/elasticps/elasticps/examples/internal/rows"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// The tables of the job.
const (
	inputTable  = "input"
	outputTable = "output"
	seenTable   = "seen"
)

// maxShardBytes cuts each table of vectors into several shards, which three servers
// can share evenly.
const maxShardBytes = 256 << 10

// job is what is trained: two tables of vectors, and one that counts. Moves lose nothing,
// and no server is going to die, so that no followers are kept.
func (o options) job(numWords int) ps.Job {
	vectors := []int{numWords, o.dim}
	return ps.Job{
		Name: "word2vec",
		Model: shard.Model{Layers: []shard.Layer{
			{Name: inputTable, Sparse: true, Shape: vectors, Init: shard.Initializer{Kind: shard.Uniform, Scale: 0.5 / float32(o.dim), Seed: o.seed}},
			{Name: outputTable, Sparse: true, Shape: vectors},
			{Name: seenTable, Sparse: true, Shape: []int{numWords, 1}},
		}},
		Optimizer:     ps.Adagrad(o.learningRate),
		Optimizers:    map[string]ps.Optimizer{seenTable: ps.SGD(1)},
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

	next  atomic.Int64 // of the texts of all epochs
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

// epoch is the one that a text belongs to, counted from 0.
func (t *trainer) epoch(text int64) int {
	return int(min(text/int64(len(t.corpus.train)), int64(t.opts.epochs-1)))
}

// numWords is how many words all epochs have.
func (t *trainer) numWords() int64 { return t.corpus.numTrained() * int64(t.opts.epochs) }

// work is one worker: it takes texts until there is none, and trains on them in steps of
// options.batch windows. What a text gives does not depend on which worker takes it.
func (t *trainer) work(ctx context.Context, c rows.Client) error {
	w := newWindows(t.opts.dim)
	var kept []int32
	numTexts := int64(len(t.corpus.train))
	for {
		next := t.next.Add(1) - 1
		if next >= numTexts*int64(t.opts.epochs) {
			return t.step(ctx, c, w)
		}
		rng := rand.New(rand.NewPCG(t.opts.seed, uint64(next)+1))
		text := t.corpus.train[next%numTexts]
		kept = subsample(kept[:0], text, t.keep, rng)
		for at := range kept {
			begin, end := around(at, len(kept), t.opts.window, rng)
			w.add(kept, at, begin, end, t.opts.negatives, t.noise, rng)
			if len(w.ends) < t.opts.batch {
				continue
			}
			if err := t.step(ctx, c, w); err != nil {
				return err
			}
		}
		t.words.Add(int64(len(text)))
	}
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
