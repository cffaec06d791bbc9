package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// Transports.
const (
	transportTCP   = "tcp"
	transportUnix  = "unix"
	transportLocal = "local" // server and client in one process
)

const (
	startTimeout = 30 * time.Second
	opTimeout    = 30 * time.Second // of one operation, whatever is measured
)

// present is what new servers need to know of the latest deployment.
type present struct {
	address     string // of the coordinator's node
	checkpoints string // folder, empty for none
}

// bench is one run of the program. It has at most one deployment at a time, so that
// nothing idle takes part in a measurement.
type bench struct {
	options
	out     *report
	servers *elastic.Processes
	stderr  io.Writer
	secret  string
	present atomic.Pointer[present]
	started int // servers so far
	current *deployment
}

func newBench(o options, out *report, stderr io.Writer) (*bench, error) {
	b := &bench{options: o, out: out, stderr: stderr, secret: rand.Text()}
	var err error
	b.servers, err = newServers(b.secret, func() present { return *b.present.Load() }, stderr)
	return b, err
}

// close ends everything that the run has started.
func (b *bench) close() {
	b.retire()
	_ = b.servers.Close() // stops what is left; it has no error to report
}

// layout says what a deployment consists of.
type layout struct {
	transport     string
	model         shard.Model
	optimizer     ps.Optimizer // plain SGD by default
	maxShardBytes int64        // 0: the default
	servers       int
	replicas      int    // followers of each shard; 0 for what a push and a move cost by themselves
	checkpoints   string // folder that they are written to, empty for none
	shared        bool   // by several rows
}

// deployment is a job that is up: a coordinator and workers in this process, servers
// in others, except for the local transport.
type deployment struct {
	layout
	b           *bench
	node        *actor.Node
	coordinator *ps.Coordinator
	admin       *ps.Admin
	worker      *ps.Worker
	server      *ps.Server       // local only
	ids         []shard.ServerID // processes
	limits      []rawLimits      // of each process
	raws        []*rawConn
}

// deployment returns the job that most rows share, over one transport.
func (b *bench) deployment(ctx context.Context, transport string) (*deployment, error) {
	if b.current != nil && b.current.transport == transport && b.current.shared {
		b.current.closeRaw()
		return b.current, nil
	}
	return b.deploy(ctx, layout{transport: transport, model: sharedModel(), servers: 1, shared: true})
}

// deploy ends the present deployment and starts another.
func (b *bench) deploy(ctx context.Context, l layout) (*deployment, error) {
	b.retire()
	d := &deployment{layout: l, b: b}
	b.current = d // so that it is closed, also when it comes up in parts only
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := d.start(ctx); err != nil {
		return nil, fmt.Errorf("bench: start of the servers for %s: %w", l.transport, err)
	}
	return d, nil
}

func (b *bench) retire() {
	if b.current != nil {
		b.current.close()
		b.current = nil
	}
}

func (d *deployment) start(ctx context.Context) error {
	var err error
	if d.node, err = startNode(ctx, "", d.b.secret); err != nil {
		return err
	}
	optimizer := d.optimizer
	if optimizer.Kind == 0 {
		optimizer = ps.SGD(learningRate)
	}
	d.b.present.Store(&present{address: d.node.Addr(), checkpoints: d.checkpoints})
	cfg := ps.CoordinatorConfig{Node: d.node, Job: ps.Job{
		Model: d.model, Optimizer: optimizer, MaxShardBytes: d.maxShardBytes, MinServers: d.layout.servers, Replicas: d.replicas,
	}}
	if d.replicas == 0 {
		cfg.Job.Replicas = ps.NoReplicas
	}
	if d.checkpoints != "" {
		cfg.Checkpoints.Storage, cfg.Checkpoints.Keep = checkpoint.Folder(d.checkpoints), checkpointsKept
	}
	if d.coordinator, err = ps.StartCoordinator(ctx, cfg); err != nil {
		return err
	}
	if d.admin, err = ps.NewAdmin(d.node, d.coordinator.Ref()); err != nil {
		return err
	}
	if err := d.startServers(ctx); err != nil {
		return err
	}
	if d.worker, err = d.newWorker(ctx, "worker-0"); err != nil {
		return err
	}
	// The first operation waits until the layers are placed, and connects.
	first := d.model.Layers[0]
	if first.Sparse {
		return d.worker.PullRows(ctx, first.Name, []int64{0}, make([]float32, first.RowElems()))
	}
	return d.worker.Pull(ctx, first.Name, make([]float32, first.Elems()))
}

func (d *deployment) startServers(ctx context.Context) error {
	if d.transport == transportLocal {
		var err error
		d.server, err = ps.StartServer(ctx, ps.ServerConfig{
			Node: d.node, ID: "local", Coordinator: d.coordinator.Ref(), Listen: ps.ListenNone,
		})
		return err
	}
	for range d.layout.servers {
		if err := d.startServer(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startServer starts one more process.
func (d *deployment) startServer(ctx context.Context) error {
	id := shard.ServerID(fmt.Sprintf("%s-%d", d.transport, d.b.started))
	d.b.started++
	if err := d.b.servers.Start(ctx, id); err != nil {
		return err
	}
	d.ids = append(d.ids, id)
	limits, err := actor.Call[rawLimits](ctx, d.node, d.attendant(id), askLimits{})
	d.limits = append(d.limits, limits)
	return err
}

// attendant addresses the one of a server's process, whose node has the server's name.
func (d *deployment) attendant(id shard.ServerID) actor.Ref {
	return actor.Ref{Node: string(id), Name: attendantProcess}
}

func (d *deployment) newWorker(ctx context.Context, name string) (*ps.Worker, error) {
	return ps.StartWorker(ctx, ps.ClientConfig{Node: d.node, Name: name, Coordinator: d.coordinator.Ref(), Timeout: opTimeout})
}

// newWorkers starts n workers; close ends those that were started, also after an error.
func (d *deployment) newWorkers(ctx context.Context, n int) (workers []*ps.Worker, closeAll func(), err error) {
	closeAll = func() {
		for _, w := range workers {
			_ = w.Close() // it has nothing left to lose
		}
	}
	for i := range n {
		w, err := d.newWorker(ctx, fmt.Sprintf("crew-%d", i))
		if err != nil {
			return workers, closeAll, err
		}
		workers = append(workers, w)
	}
	return workers, closeAll, nil
}

// raw begins an exchange with the raw server in the process of the first server, over
// the transport of the deployment. It ends with the measurement of the row.
func (d *deployment) raw(ctx context.Context, e exchange) (*rawConn, error) {
	return d.rawOver(ctx, d.transport, e)
}

func (d *deployment) rawOver(ctx context.Context, network string, e exchange) (*rawConn, error) {
	if len(d.limits) == 0 {
		return nil, errors.New("bench: a local deployment has no raw server")
	}
	address := d.limits[0].TCP
	if network == transportUnix {
		address = d.limits[0].Unix
	}
	c, err := dialRaw(ctx, network, address, e)
	if err == nil {
		d.raws = append(d.raws, c)
	}
	return c, err
}

func (d *deployment) closeRaw() {
	for _, c := range d.raws {
		_ = c.Close() // nothing is under way
	}
	d.raws = nil
}

// close ends the deployment, in whatever state it is.
func (d *deployment) close() {
	d.closeRaw()
	if d.worker != nil {
		_ = d.worker.Close() // everything is thrown away
	}
	if d.server != nil {
		_ = d.server.Close() // as above
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for _, id := range d.ids {
		_ = d.b.servers.Stop(ctx, id) // unknown at most
	}
	if d.coordinator != nil {
		_ = d.coordinator.Close() // as above
	}
	if d.node != nil {
		_ = d.node.Close() // as above
	}
}
