package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/elasticps/elasticps/examples/internal/fleet"
	"github.com/elasticps/elasticps/examples/internal/rows"
	"github.com/elasticps/elasticps/ps"
)

// trainer trains on some ratings and tests on others.
type trainer struct {
	opts        options
	train, test []rating
	out         io.Writer

	mu     sync.Mutex
	errors map[int]sum // by epoch
}

// sum adds up squared errors, or ratings.
type sum struct {
	total float64
	n     int
}

// run trains on a fleet of its own, and returns what came of it.
func (t *trainer) run(ctx context.Context, began time.Time) (r result, err error) {
	f, err := fleet.Start(ctx, fleet.Config{Name: "recommend", Job: t.opts.job(len(t.train)), NumServers: t.opts.servers, Began: began})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	mean := meanOf(t.train)
	t.errors = map[int]sum{}
	started := time.Now()
	err = f.Train(ctx, t.opts.workers, func(ctx context.Context, _ int, w *ps.Worker) error {
		return t.work(ctx, w, newFactorization(t.opts.dim, mean, float32(t.opts.decaying)))
	})
	if err != nil {
		return r, err
	}
	r = result{
		Ratings: len(t.train), HeldOut: len(t.test), PerSecond: float64(len(t.train)*t.opts.epochs) / time.Since(started).Seconds(),
		MeanRMSE: rmse(constant(mean, len(t.test)), t.test), ItemMeanRMSE: rmse(itemMeans(t.train, t.test), t.test),
		TrainRMSE: t.errors[t.opts.epochs-1].root(),
	}
	if r.RMSE, err = t.evaluate(ctx, f.Client(), newFactorization(t.opts.dim, mean, 0)); err != nil {
		return r, err
	}
	r.Rows, err = f.Rows(ctx)
	return r, err
}

// work is one worker: it takes ranges of the ratings until there is none, and goes through
// them in batches.
func (t *trainer) work(ctx context.Context, w *ps.Worker, f *factorization) error {
	var batch []rating
	for {
		r, err := w.NextRange(ctx, ratingDataset)
		if errors.Is(err, ps.ErrEndOfData) {
			return nil
		}
		if err != nil {
			return err
		}
		batch = batch[:0]
		left := r.End - r.Begin
		for record := range r.Records() {
			batch = append(batch, t.train[record])
			if left--; len(batch) < t.opts.batch && left > 0 {
				continue
			}
			if err := t.step(ctx, w, r.Epoch, f, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
		if err := w.FinishRange(ctx, r); err != nil {
			return err
		}
	}
}

// step predicts a batch, and then trains on it.
func (t *trainer) step(ctx context.Context, c rows.Client, epoch int, f *factorization, batch []rating) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // a request that need not wait does not look
	}
	predictions, err := f.predict(ctx, c, batch)
	if err != nil {
		return err
	}
	if err := f.learn(ctx, c, batch); err != nil {
		return err
	}
	t.predicted(epoch, predictions, batch)
	return nil
}

// predicted takes note of the errors on a batch, and shows those of an epoch that is over.
func (t *trainer) predicted(epoch int, predictions []float32, batch []rating) {
	root := rmse(predictions, batch)
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.errors[epoch]
	s.total += root * root * float64(len(batch))
	s.n += len(batch)
	t.errors[epoch] = s
	if s.n == len(t.train) {
		fmt.Fprintf(t.out, "epoch %d/%d: root-mean-square error %.4f on the training set, before each step\n", epoch+1, t.opts.epochs, s.root())
	}
}

func (s sum) root() float64 { return math.Sqrt(s.total / float64(s.n)) }

// evaluate returns the error on the ratings that were held out.
func (t *trainer) evaluate(ctx context.Context, c rows.Client, f *factorization) (float64, error) {
	var all []float32
	for begin := 0; begin < len(t.test); begin += t.opts.batch {
		predictions, err := f.predict(ctx, c, t.test[begin:min(begin+t.opts.batch, len(t.test))])
		if err != nil {
			return 0, err
		}
		all = append(all, predictions...)
	}
	return rmse(all, t.test), nil
}

// meanOf is the mean of some ratings.
func meanOf(ratings []rating) float32 {
	total := 0.0
	for _, r := range ratings {
		total += float64(r.value)
	}
	return float32(total / float64(len(ratings)))
}

// constant predicts the same for n ratings.
func constant(value float32, n int) []float32 {
	predictions := make([]float32, n)
	for i := range predictions {
		predictions[i] = value
	}
	return predictions
}

// itemMeans predicts for each test rating the mean of its item in train, with one rating of
// the mean of all added to it.
func itemMeans(train, test []rating) []float32 {
	mean := float64(meanOf(train))
	items := map[int64]sum{}
	for _, r := range train {
		s := items[r.item]
		items[r.item] = sum{total: s.total + float64(r.value), n: s.n + 1}
	}
	predictions := make([]float32, len(test))
	for i, r := range test {
		s := items[r.item]
		predictions[i] = float32((s.total + mean) / float64(s.n+1))
	}
	return predictions
}
