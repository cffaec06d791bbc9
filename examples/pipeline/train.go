package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/pipeline"
	"github.com/elasticps/elasticps/examples/internal/mnist"
	"github.com/elasticps/elasticps/topology"
)

// suspicion is long: the processes use all processors.
const suspicion = 10 * time.Second

// layersOf are the layers of a stage, from the first to the one before the end.
func (o options) layersOf(stage int) (first, end int) {
	n := len(sizes) - 1
	return stage * n / o.stages, (stage + 1) * n / o.stages
}

// trainInStages trains this rank's part. The first rank returns the parameters of all ranks.
func trainInStages(ctx context.Context, o options, world *collective.Group, train *mnist.Set, out io.Writer) (r result, all [][]float32, err error) {
	groups, err := divide(o, world.Size())
	if err != nil {
		return r, nil, err
	}
	parallel, err := world.Parallel(ctx, groups)
	if err != nil {
		return r, nil, err
	}
	defer func() { err = errors.Join(err, parallel.Close()) }()
	node, err := startNode(ctx, world)
	if err != nil {
		return r, nil, err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	stage, replica := parallel.Pipeline.Rank(), parallel.Data.Rank()
	first, end := o.layersOf(stage)
	cfg := pipeline.Config{Node: node, Group: parallel.Pipeline, NumMicros: o.micros}
	if stage > 0 {
		cfg.In = o.rows() * sizes[first]
	}
	if stage < o.stages-1 {
		cfg.Out = o.rows() * sizes[end]
	}
	s, err := pipeline.Start(ctx, cfg)
	if err != nil {
		return r, nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p := newPart(first, end, o.rows(), o.micros, o.seed)
	p.feed, p.scale = newFeed(train, o.rows(), o.micros), 1/float32(o.batch)
	began := time.Now()
	err = o.eachStep(train, func(samples []int32, endOfEpoch int) error {
		p.feed.samples = o.shareOf(samples, replica)
		if err := s.Run(ctx, p); err != nil {
			return err
		}
		grads := collective.Of(p.grads)
		if err := parallel.Data.AllReduce(ctx, grads, grads, collective.Sum); err != nil {
			return err
		}
		p.step(float32(o.learningRate), float32(o.momentum))
		r.Steps++
		return r.endEpoch(ctx, o, world, p, endOfEpoch, out)
	})
	if err != nil {
		return r, nil, err
	}
	r.ImagesPerSecond = float64(r.Steps*o.batch) / time.Since(began).Seconds()
	all, err = gather(ctx, o, world, p.values)
	return r, all, err
}

// divide says who is in which group: all ranks are on one node.
func divide(o options, size int) (topology.Groups, error) {
	const host = "host"
	tree, err := topology.NewTree(topology.Level{Kind: topology.KindCluster})
	if err != nil {
		return topology.Groups{}, err
	}
	if err := tree.Add(topology.Node{Name: host, Devices: size}); err != nil {
		return topology.Groups{}, err
	}
	members := make([]topology.Member, size)
	for rank := range members {
		members[rank] = topology.Member{Node: host, Device: rank}
	}
	return tree.Groups(members, topology.Parallel{Pipeline: o.stages, Data: o.replicas})
}

// startNode starts the node of the queues. The ranks agree on a secret over their group.
func startNode(ctx context.Context, world *collective.Group) (*actor.Node, error) {
	secret := []byte(rand.Text())
	if err := world.Broadcast(ctx, collective.Of(secret), collective.Of(secret), 0); err != nil {
		return nil, err
	}
	return actor.Start(ctx, actor.Config{Name: fmt.Sprint("rank-", world.Rank()), Secret: string(secret), Suspicion: suspicion})
}

// eachStep calls f with the images of each whole batch, and with the number of the epoch
// after its last one, else 0.
func (o options) eachStep(train *mnist.Set, f func(samples []int32, endOfEpoch int) error) error {
	sampler, err := mnist.NewSampler(train.Len(), []mnist.Phase{{Epochs: o.epochs, BatchSize: o.batch}}, o.seed)
	if err != nil {
		return err
	}
	perEpoch := train.Len() / o.batch
	for epoch := range o.epochs {
		begin := epoch * (sampler.NumSteps() / o.epochs)
		for i := range perEpoch {
			end := 0
			if i == perEpoch-1 {
				end = epoch + 1
			}
			if err := f(sampler.Batch(begin+i), end); err != nil {
				return err
			}
		}
	}
	return nil
}

// shareOf is a replica's part of a batch.
func (o options) shareOf(samples []int32, replica int) []int32 {
	n := o.batch / o.replicas
	return samples[replica*n : (replica+1)*n]
}

// endEpoch adds up the loss, which only the last stages know.
func (r *result) endEpoch(ctx context.Context, o options, world *collective.Group, p *part, epoch int, out io.Writer) error {
	if epoch == 0 {
		return nil
	}
	loss := []float64{p.loss}
	p.loss = 0
	if err := world.AllReduce(ctx, collective.Of(loss), collective.Of(loss), collective.Sum); err != nil {
		return err
	}
	r.Loss = loss[0] / float64(p.feed.set.Len()/o.batch)
	fmt.Fprintf(out, "epoch %d/%d  loss %.4f\n", epoch, o.epochs, r.Loss)
	return nil
}

// gather brings the parameters of all ranks to the first one.
func gather(ctx context.Context, o options, world *collective.Group, mine []float32) ([][]float32, error) {
	if world.Rank() > 0 {
		return nil, world.Send(ctx, collective.Of(mine), 0)
	}
	all := [][]float32{mine}
	for rank := 1; rank < world.Size(); rank++ {
		first, end := o.layersOf(rank / o.replicas)
		theirs := make([]float32, len(newPart(first, end, 0, 0, 0).values))
		if err := world.Recv(ctx, collective.Of(theirs), rank); err != nil {
			return nil, err
		}
		all = append(all, theirs)
	}
	return all, nil
}

// compare trains the model in this process alone, and compares its parameters with those of
// all stages and replicas.
func compare(o options, r *result, all [][]float32, train, test *mnist.Set) error {
	p := newPart(0, len(sizes)-1, o.rows(), o.micros, o.seed)
	p.feed, p.scale = newFeed(train, o.rows(), o.micros), 1/float32(o.batch)
	sum := make([]float32, len(p.grads))
	began := time.Now()
	err := o.eachStep(train, func(samples []int32, _ int) error {
		for replica := range o.replicas {
			p.feed.samples = o.shareOf(samples, replica)
			for micro := range o.micros {
				if _, err := p.Forward(micro, nil); err != nil {
					return err
				}
				if _, err := p.Backward(micro, nil); err != nil {
					return err
				}
			}
			if replica == 0 {
				copy(sum, p.grads)
			} else {
				for i, g := range p.grads {
					sum[i] += g
				}
			}
			clear(p.grads)
		}
		copy(p.grads, sum)
		p.step(float32(o.learningRate), float32(o.momentum))
		return nil
	})
	if err != nil {
		return err
	}
	r.SingleImagesPerSecond = float64(r.Steps*o.batch) / time.Since(began).Seconds()
	r.describe(o, len(p.values))
	r.Equal = true
	at := 0
	for stage := range o.stages {
		n := len(all[stage*o.replicas])
		for replica := range o.replicas {
			r.Equal = r.Equal && slices.Equal(all[stage*o.replicas+replica], p.values[at:at+n])
		}
		copy(p.values[at:], all[stage*o.replicas]) // the accuracy is that of the stages
		at += n
	}
	r.Accuracy = accuracy(p, test)
	return nil
}

// accuracy tests a part that is all of the model.
func accuracy(p *part, test *mnist.Set) float64 {
	samples := make([]int32, test.Len())
	for i := range samples {
		samples[i] = int32(i)
	}
	correct := 0
	for chunk := range slices.Chunk(samples, 500) {
		whole := newPart(0, len(sizes)-1, len(chunk), 1, 0)
		copy(whole.values, p.values)
		whole.feed = newFeed(test, len(chunk), 1)
		whole.feed.samples = chunk
		correct += whole.correct()
	}
	return float64(correct) / float64(test.Len())
}
