package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/codec"
	"github.com/elasticps/elasticps/examples/internal/mnist"
)

// worker trains a copy of the model that stays equal to those of the others.
type worker struct {
	options
	group       *collective.Group
	mlp         *mnist.MLP
	train, test *mnist.Set
	params      mnist.Params
	adam        *mnist.Adam
	steps       int
	loss        float64 // of the last epoch, this worker's share
}

// work trains with gradients that travel in a format, and tests.
func (w *worker) work(ctx context.Context, format codec.Format) (one oneRun, err error) {
	w.params = w.mlp.Init(w.seed)
	w.adam = mnist.NewAdam(w.mlp, w.learningRate)
	cfg := collective.GradientsConfig{Group: w.group, Compression: collective.Compression{Format: format}}
	if format != 0 && w.feedback {
		cfg.Compression.Feedback = &codec.Feedback{}
	}
	for i := range w.mlp.Layers() { // the gradient of the last one is ready first
		l := w.mlp.Layers()[mnist.NumLayers-1-i]
		cfg.Sizes, cfg.Names = append(cfg.Sizes, l.Len()), append(cfg.Names, l.Name)
	}
	sync, err := collective.NewGradients(cfg)
	if err != nil {
		return one, err
	}
	before, began := w.group.Traffic(), time.Now()
	if err := w.epochsOf(ctx, sync); err != nil {
		return one, err
	}
	seconds := time.Since(began).Seconds()
	one = oneRun{
		Format: name(format), SentBytes: w.group.Traffic().Sent - before.Sent, Seconds: seconds,
		ImagesPerSecond: float64(w.steps*w.batch) / seconds,
	}
	one.BytesPerStep = one.SentBytes / int64(w.steps)
	if one.Loss, one.Equal, err = w.compare(ctx); err != nil {
		return one, err
	}
	if w.group.Rank() == 0 {
		one.Accuracy, err = w.mlp.Accuracy(w.params, w.test)
	}
	return one, err
}

// epochsOf goes through all whole batches, of each of which every worker has its share.
func (w *worker) epochsOf(ctx context.Context, sync *collective.Gradients) error {
	sampler, err := mnist.NewSampler(w.train.Len(), []mnist.Phase{{Epochs: w.epochs, BatchSize: w.batch}}, w.seed)
	if err != nil {
		return err
	}
	share := w.batch / w.workers
	epoch := 0
	for step := range sampler.NumSteps() {
		samples := sampler.Batch(step)
		if len(samples) < w.batch {
			continue // all workers count the same
		}
		if e := sampler.Epoch(step); e != epoch {
			epoch, w.loss = e, 0
		}
		mine := samples[w.group.Rank()*share : (w.group.Rank()+1)*share]
		loss, grads, err := w.mlp.Gradient(w.params, mnist.Batch{Set: w.train, Samples: mine})
		if err != nil {
			return err
		}
		w.loss += float64(loss) / float64(w.train.Len()/w.batch)
		for i := range grads {
			if err := sync.Ready(ctx, i, grads[mnist.NumLayers-1-i]); err != nil {
				return err
			}
		}
		if err := sync.Wait(ctx); err != nil {
			return err
		}
		w.adam.Step(w.params, grads)
		w.steps++
	}
	return nil
}

// compare averages the losses of the workers, and says whether all have the same parameters.
func (w *worker) compare(ctx context.Context) (loss float64, equal bool, err error) {
	sum := sha256.New()
	for _, layer := range w.params {
		if err := binary.Write(sum, binary.LittleEndian, layer); err != nil {
			return 0, false, err
		}
	}
	digest := int64(binary.LittleEndian.Uint64(sum.Sum(nil)))
	low, high, losses := []int64{digest}, []int64{digest}, []float64{w.loss}
	for _, c := range []struct {
		buffer collective.Buffer
		op     collective.Op
	}{{collective.Of(low), collective.Min}, {collective.Of(high), collective.Max}, {collective.Of(losses), collective.Average}} {
		if err := w.group.AllReduce(ctx, c.buffer, c.buffer, c.op); err != nil {
			return 0, false, err
		}
	}
	return losses[0], low[0] == high[0], nil
}
