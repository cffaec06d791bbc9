package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
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
	remindAfter = time.Second
)

// join starts a node and connects it to the controller's. It says so if that takes
// long.
func join(ctx context.Context, s settings, name string, out io.Writer) (*actor.Node, training.Refs, error) {
	node, err := actor.Start(ctx, actor.Config{Name: name, Listen: s.listen, AllowInsecure: s.insecure, Secret: s.secret})
	if err != nil {
		return nil, training.Refs{}, err
	}
	joined := remind(out, "waiting for the controller at "+s.controller)
	var peer string
	err = retry(ctx, func(ctx context.Context) (err error) {
		peer, err = node.Connect(ctx, s.controller)
		return err
	})
	joined()
	if err != nil {
		_ = node.Close() // the first error is the one to report
		return nil, training.Refs{}, fmt.Errorf("cluster: join the controller at %s: %w", s.controller, err)
	}
	return node, training.Refs{
		Coordinator: actor.Ref{Node: peer, Name: ps.CoordinatorProcess},
		Feed:        actor.Ref{Node: peer, Name: training.FeedProcess},
	}, nil
}

// remind writes a line after a second, unless the function that it returns is called
// before. Nothing is written after that function has returned.
func remind(out io.Writer, line string) (stop func()) {
	ended := make(chan struct{})
	var reminder sync.WaitGroup
	reminder.Go(func() {
		timer := time.NewTimer(remindAfter)
		defer timer.Stop()
		select {
		case <-timer.C:
			fmt.Fprintln(out, line)
		case <-ended:
		}
	})
	return func() {
		close(ended)
		reminder.Wait()
	}
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

// runServer is a parameter server until ctx ends, when it hands its shards over, or the
// controller is gone.
func runServer(ctx context.Context, s settings, stdout io.Writer) error {
	node, refs, err := join(ctx, s, s.id, stdout)
	if err != nil {
		return err
	}
	defer node.Close()
	sim, err := device.NewSimLink(s.Sim(s.id))
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
	w := &watch{of: refs.Coordinator, gone: make(chan struct{})}
	if _, err := node.Spawn(ctx, "watch", w, actor.Options{}); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: process %d, data on %s\n", readyLine, os.Getpid(), server.DataAddr())
	select {
	case <-ctx.Done():
		return leave(node, s, w, stdout)
	case <-w.gone:
		fmt.Fprintln(stdout, w.farewell())
	}
	return nil
}

// watch tells when a process is gone.
type watch struct {
	of   actor.Ref
	gone chan struct{}
	err  error // why, to be read after gone is closed
}

// isGone reports whether the process is gone.
func (w *watch) isGone() bool {
	select {
	case <-w.gone:
		return true
	default:
		return false
	}
}

// farewell tells the end of the job from that of the controller.
func (w *watch) farewell() string {
	if w.err == nil {
		return "done"
	}
	return "the controller is gone"
}

// Started begins to watch.
func (w *watch) Started(c *actor.Context) error { return c.Monitor(w.of) }

// Receive gets the news.
func (w *watch) Receive(_ *actor.Context, msg any) error {
	if down, ok := msg.(actor.Down); ok {
		w.err = down.Err
		close(w.gone)
		return actor.ErrStop
	}
	return nil
}

// runWorker trains until the job is done, the worker's steps are, or ctx ends.
func runWorker(ctx context.Context, s settings, stdout io.Writer) error {
	train, _, err := training.LoadData(s.Data, s.NumImages, s.NumTest)
	if err != nil {
		return err
	}
	node, refs, err := join(ctx, s, s.name, stdout)
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
