package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/examples/internal/training"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// Roles.
const (
	roleController = "controller"
	roleServer     = "server"
	roleWorker     = "worker"
)

// readyLine begins the line with which a server or worker says that it takes part.
const readyLine = "ready"

const (
	joinTimeout = 30 * time.Second // for servers and workers that are started before the controller
	joinRetry   = 200 * time.Millisecond
)

// join starts a node and connects it to the controller's.
func join(ctx context.Context, s settings, name string) (*actor.Node, training.Refs, error) {
	node, err := actor.Start(ctx, actor.Config{Name: name, Listen: s.listen, AllowInsecure: s.insecure, Secret: s.secret})
	if err != nil {
		return nil, training.Refs{}, err
	}
	var peer string
	err = retry(ctx, func(ctx context.Context) (err error) {
		peer, err = node.Connect(ctx, s.controller)
		return err
	})
	if err != nil {
		_ = node.Close() // the first error is the one to report
		return nil, training.Refs{}, fmt.Errorf("cluster: join the controller at %s: %w", s.controller, err)
	}
	return node, training.Refs{
		Coordinator: actor.Ref{Node: peer, Name: ps.CoordinatorProcess},
		Feed:        actor.Ref{Node: peer, Name: training.FeedProcess},
	}, nil
}

// retry calls f until it succeeds, joinTimeout is over, or the other side refuses
// this one. It returns the last error of f.
func retry(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil || errors.Is(err, actor.ErrHandshake) {
			return err
		}
		timer := time.NewTimer(joinRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// runServer is a parameter server until ctx ends or the controller is gone.
func runServer(ctx context.Context, s settings, stdout io.Writer) error {
	node, refs, err := join(ctx, s, s.id)
	if err != nil {
		return err
	}
	defer node.Close()
	sim, err := device.NewSim(s.Sim(s.id))
	if err != nil {
		return err
	}
	var server *ps.Server
	err = retry(ctx, func(ctx context.Context) (err error) {
		server, err = ps.StartServer(ctx, ps.ServerConfig{
			Node: node, ID: shard.ServerID(s.id), Coordinator: refs.Coordinator, Listen: s.anyPort(), AllowInsecure: s.insecure, Device: sim,
		})
		return err
	})
	if err != nil {
		return err
	}
	defer server.Close()
	gone := make(chan struct{})
	if _, err := node.Spawn(ctx, "watch", &watch{of: refs.Coordinator, gone: gone}, actor.Options{}); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: process %d, data on %s\n", readyLine, os.Getpid(), server.DataAddr())
	select {
	case <-ctx.Done():
	case <-gone:
		fmt.Fprintln(stdout, "the controller is gone")
	}
	return nil
}

// watch tells when a process is gone.
type watch struct {
	of   actor.Ref
	gone chan struct{}
}

// Started begins to watch.
func (w *watch) Started(c *actor.Context) error { return c.Monitor(w.of) }

// Receive gets the news.
func (w *watch) Receive(_ *actor.Context, msg any) error {
	if _, ok := msg.(actor.Down); ok {
		close(w.gone)
		return actor.ErrStop
	}
	return nil
}

// runWorker trains until the job is done, the worker's steps are, or ctx ends.
func runWorker(ctx context.Context, s settings, stdout io.Writer) error {
	train, _, err := training.LoadData(s.Options)
	if err != nil {
		return err
	}
	node, refs, err := join(ctx, s, s.name)
	if err != nil {
		return err
	}
	defer node.Close()
	err = retry(ctx, func(ctx context.Context) error { return training.AwaitFeed(ctx, node, refs.Feed) })
	if err != nil {
		return err
	}
	err = training.RunWorker(ctx, training.WorkerConfig{
		Node: node, Coordinator: refs.Coordinator, Feed: refs.Feed, Name: s.name, Train: train, MaxSteps: s.maxSteps,
		Ready: func() { fmt.Fprintf(stdout, "%s: process %d\n", readyLine, os.Getpid()) },
	})
	if err == nil {
		fmt.Fprintln(stdout, "left")
	}
	return err
}
