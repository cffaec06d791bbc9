package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/examples/internal/mnist"
	"github.com/elasticps/elasticps/examples/internal/training"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
	"github.com/elasticps/elasticps/shard/store/boltstore"
	"github.com/elasticps/elasticps/shard/store/etcdstore"
)

// roleVariable is the environment variable that makes this program one of the processes
// that faults are done to: a role, as JSON.
const roleVariable = "ELASTICPS_CHAOS_ROLE"

// Kinds of roles.
const (
	roleController = "controller"
	roleServer     = "server"
	roleWorker     = "worker"
)

// Names of the nodes that others look for.
const (
	controllerNode = "controller"
	directorNode   = "director"
)

// role is what a process needs to know.
type role struct {
	Kind, Name string
	Secret     string
	Peers      map[string]string // where the controller and the director are

	Listen, Advertise         string // of the node
	DataListen, DataAdvertise string // of a server's data plane

	Plan training.Plan
	// MinServers is how many servers must be there for the layers to be placed.
	MinServers int
	Bolt, Etcd string // file, or address, of the controller's store
	EtcdRoot   string

	Data string // of a worker: folder of the MNIST files
	Logs string // folder of log files, or empty: errors go to the output
}

// logger writes what a process logs to a file of its name, which runs before may have begun.
func (r role) logger(stdout io.Writer) (*slog.Logger, error) {
	if r.Logs == "" {
		return slog.New(slog.NewTextHandler(stdout, &slog.HandlerOptions{Level: slog.LevelError})), nil
	}
	file, err := os.OpenFile(filepath.Join(r.Logs, r.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	return slog.New(slog.NewTextHandler(file, nil)), nil // it is open as long as the process lasts
}

const (
	readyLine   = "ready"
	joinTimeout = 30 * time.Second
	lockTimeout = 10 * time.Second
	// etcdTimeout is short, so that a controller learns soon that its store is away.
	etcdTimeout = 2 * time.Second
)

// runRole is a process of the job, until ctx ends or it is killed.
func runRole(ctx context.Context, text string, stdout io.Writer) error {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return fmt.Errorf("chaos: %s: %w", roleVariable, err)
	}
	log, err := r.logger(stdout)
	if err != nil {
		return err
	}
	node, err := actor.Start(ctx, actor.Config{Name: r.Name, Listen: r.Listen, Advertise: r.Advertise, Secret: r.Secret, Peers: r.Peers})
	if err != nil {
		return err
	}
	defer node.Close()
	switch r.Kind {
	case roleController:
		return r.control(ctx, node, log, stdout)
	case roleServer:
		return r.serve(ctx, node, log, stdout)
	case roleWorker:
		return r.work(ctx, node, stdout)
	}
	return fmt.Errorf("chaos: role %q, have %s, %s and %s", r.Kind, roleController, roleServer, roleWorker)
}

func ready(w io.Writer) { fmt.Fprintf(w, "%s: process %d\n", readyLine, os.Getpid()) }

// startedElsewhere is the provider of servers that somebody else starts.
type startedElsewhere struct{}

// Start refuses.
func (startedElsewhere) Start(_ context.Context, id shard.ServerID) error {
	return fmt.Errorf("%w: %q is for somebody else to start", elastic.ErrUnknownServer, id)
}

// Stop refuses.
func (startedElsewhere) Stop(_ context.Context, id shard.ServerID) error {
	return fmt.Errorf("%w: %q", elastic.ErrUnknownServer, id)
}

// control is coordinator and elastic controller. The controller balances the shards
// again when a server is back; how many servers there are is not up to it.
func (r role) control(ctx context.Context, node *actor.Node, log *slog.Logger, stdout io.Writer) error {
	kv, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer kv.Close()
	job, err := r.Plan.Job()
	if err != nil {
		return err
	}
	job.MinServers = r.MinServers
	coord, err := ps.StartCoordinator(ctx, ps.CoordinatorConfig{Node: node, Job: job, Store: kv, Logger: log})
	if err != nil {
		return err
	}
	defer coord.Close()
	admin, err := ps.NewAdmin(node, coord.Ref())
	if err != nil {
		return err
	}
	balance, err := elastic.Start(ctx, node, elastic.Config{
		Policy: elastic.Policy{Manual: true}, Cluster: elastic.NewCluster(admin, startedElsewhere{}), Interval: 500 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	defer balance.Close()
	ready(stdout)
	<-ctx.Done()
	return nil
}

func (r role) open(ctx context.Context) (store.Store, error) {
	if r.Etcd != "" {
		return openEtcd(ctx, r.Etcd, r.EtcdRoot)
	}
	return boltstore.Open(boltstore.Config{Path: r.Bolt, LockTimeout: lockTimeout})
}

// openEtcd opens what an etcd server has of one job.
func openEtcd(ctx context.Context, address, root string) (*etcdstore.Store, error) {
	return etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{address}, Root: root, Timeout: etcdTimeout})
}

func coordinator() actor.Ref { return actor.Ref{Node: controllerNode, Name: ps.CoordinatorProcess} }

func (r role) serve(ctx context.Context, node *actor.Node, log *slog.Logger, stdout io.Writer) error {
	starting, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	server, err := ps.StartServer(starting, ps.ServerConfig{
		Node: node, ID: shard.ServerID(r.Name), Coordinator: coordinator(), Listen: r.DataListen, Advertise: r.DataAdvertise, Logger: log,
	})
	if err != nil {
		return err
	}
	defer server.Close()
	ready(stdout)
	<-ctx.Done()
	return nil
}

func (r role) work(ctx context.Context, node *actor.Node, stdout io.Writer) error {
	train, _, err := mnist.Load(r.Data)
	if err != nil {
		return err
	}
	feed := actor.Ref{Node: directorNode, Name: training.FeedProcess}
	joining, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	if err := training.AwaitFeed(joining, node, feed); err != nil {
		return err
	}
	err = training.RunWorker(ctx, training.WorkerConfig{
		Node: node, Coordinator: coordinator(), Feed: feed, Name: r.Name, Train: train.First(r.Plan.NumImages),
		Ready: func() { ready(stdout) },
	})
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}
