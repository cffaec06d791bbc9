package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/elasticps/elasticps/examples/internal/fleet"
	"github.com/elasticps/elasticps/examples/internal/report"
	"github.com/elasticps/elasticps/examples/internal/training"
)

const scaleTimeout = time.Minute

// changes are the numbers of servers of a run, and after which share of the words they are
// asked for. It begins with one.
func changes() []change { return []change{{0.25, 3}, {0.6, 2}} }

type change struct {
	after   float64
	servers int
}

// scale changes the number of servers while the workers train, and shows the progress. What
// it returns waits for the end of that, and is told how the training has ended.
func (t *trainer) scale(ctx context.Context, f *fleet.Fleet, progress *report.Progress) (end func(error) error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- t.scaleAll(ctx, f, progress) }()
	show := make(chan struct{})
	go func() {
		defer close(show)
		_ = training.Poll(ctx, func() bool { // until the context ends
			progress.Update(t.status(f.NumServers()))
			return false
		})
	}()
	return func(failed error) error {
		if failed != nil {
			cancel()
		}
		err := <-ended
		cancel()
		<-show
		progress.Update(t.status(f.NumServers()))
		if failed != nil {
			return nil // it was ended
		}
		return err
	}
}

func (t *trainer) scaleAll(ctx context.Context, f *fleet.Fleet, out io.Writer) error {
	for _, c := range changes() {
		if err := training.Poll(ctx, func() bool { return t.share() >= c.after }); err != nil {
			return err
		}
		began, from := time.Now(), t.pairs.Load()
		ctx, cancel := context.WithTimeout(ctx, scaleTimeout)
		err := f.Scale(ctx, c.servers)
		cancel()
		if err != nil {
			return fmt.Errorf("word2vec: scale to %d servers: %w", c.servers, err)
		}
		fmt.Fprintf(out, "%d servers have the rows after %v; meanwhile the workers trained on %d pairs\n",
			c.servers, time.Since(began).Round(time.Millisecond), t.pairs.Load()-from)
	}
	return nil
}

// share is how much of the training is done.
func (t *trainer) share() float64 { return float64(t.words.Load()) / float64(t.numWords()) }

func (t *trainer) status(numServers int) report.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	return report.Status{
		Step: int(t.words.Load()), Epoch: 1 + int(t.epoch.Load()), Epochs: t.opts.epochs, Loss: t.loss,
		Samples: t.pairs.Load(), NumServers: numServers,
	}
}
