package ps

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/collective/codec"
	"github.com/elasticps/elasticps/shard"
)

// ClientConfig has what a client or a worker needs to start.
type ClientConfig struct {
	// Node runs the client's actor. Required; the client does not close it.
	Node *actor.Node
	// Coordinator is the job's coordinator. Required; its node must be known to Node.
	Coordinator actor.Ref
	// Standbys are the processes on other nodes that may become the coordinator, see
	// StandBy. Their nodes must be known to Node (actor.Config.Peers, Node.AddPeer).
	// At most MaxStandbys.
	Standbys []actor.Ref
	// Name appears in status and logs. It need not be unique. Required, at most 128 bytes.
	Name string
	// Timeout bounds operations whose context has no deadline. Such operations share
	// deadlines, so that each has between Timeout and an eighth more. Zero: 30 s.
	Timeout time.Duration
	// TLS is for the data plane, see ServerConfig.TLS. Required if the servers have it.
	TLS *tls.Config
	// ReportInterval is the time between load reports. Zero: 200 ms.
	ReportInterval time.Duration
	// Streams is the number of connections to each server for requests of more than
	// 16 KiB, which are spread over them by shard; smaller requests have one connection of
	// their own. Zero: one for every four processors, at least 1 and at most 4. At most 64.
	Streams int
	// Prefetch is the number of ranges of a dataset that a worker fetches in advance, so that
	// Worker.NextRange need not wait. Other workers do not get them while this one lives: with
	// only a few ranges per worker, use NoPrefetch. Zero: 1. At most MaxPrefetch.
	Prefetch int
	// Feedback, if set, turns on error feedback: what rounding to Layer.Wire has lost of a
	// gradient is added to the next gradient of the same layer, so that losses do not add up. It
	// applies to dense layers whose Wire is not Float32, takes as much memory as they do, and
	// must not be shared with another client. Pushes of one such layer wait for each other. A
	// push that fails drops what was kept of its range.
	Feedback *codec.Feedback
	// Logger gets what an operator should know. Zero: nothing is logged.
	Logger *slog.Logger
}

func (c ClientConfig) validate() error {
	var errs []error
	if c.Node == nil {
		errs = append(errs, errors.New("ps: ClientConfig.Node is nil"))
	}
	if c.Coordinator.IsZero() {
		errs = append(errs, errors.New("ps: ClientConfig.Coordinator is zero"))
	}
	if n := len(c.Name); n == 0 || n > maxNameBytes {
		errs = append(errs, fmt.Errorf("ps: client name of %d bytes, must have 1 to %d", n, maxNameBytes))
	}
	if c.Timeout < 0 || c.ReportInterval < 0 {
		errs = append(errs, fmt.Errorf("ps: Timeout %v and ReportInterval %v, must be at least 0", c.Timeout, c.ReportInterval))
	}
	if c.Streams < 0 || c.Streams > maxStreams {
		errs = append(errs, fmt.Errorf("ps: Streams %d, must be in [0, %d]", c.Streams, maxStreams))
	}
	if c.Prefetch < NoPrefetch || c.Prefetch > MaxPrefetch {
		errs = append(errs, fmt.Errorf("ps: Prefetch %d, must be in [%d, %d]", c.Prefetch, NoPrefetch, MaxPrefetch))
	}
	return errors.Join(append(errs, checkStandbys(c.Standbys))...)
}

const (
	// NoPrefetch as ClientConfig.Prefetch means that no range is fetched in advance.
	NoPrefetch = -1
	// MaxPrefetch is the largest ClientConfig.Prefetch.
	MaxPrefetch = 16

	maxStreams = 64
)

func (c ClientConfig) withDefaults() ClientConfig {
	if c.Streams == 0 {
		c.Streams = min(max(runtime.GOMAXPROCS(0)/4, 1), 4)
	}
	if c.Prefetch == 0 {
		c.Prefetch = 1
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.ReportInterval == 0 {
		c.ReportInterval = defaultReportInterval
	}
	c.TLS = mutual(c.TLS)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Client reads and writes the parameters of a job. All methods are safe from any
// goroutine. It keeps no slice after the call that was given it has returned.
type Client struct {
	cfg         ClientConfig
	coordinator *candidates
	job         Job
	layers      map[string]int
	shards      [][]shard.Shard // by layer, in order of their ranges
	hashes      [][]uint64      // by layer: of a table, the lowest hash of each shard
	routes      *routes
	paths       []lanes      // by shard
	sequences   []*sequencer // by shard
	datasets    []*workerDataset
	ref         actor.Ref
	nonce       string
	observer    bool
	incarnation atomic.Uint64
	clock       atomic.Uint32
	joins       atomic.Uint64 // that were begun, and that were answered
	calls       sync.Pool
	operations  sync.Pool
	groups      freeList[rowGroup]
	finished    atomic.Uint32 // clocks that every member has finished, at least
	asking      chan struct{} // capacity 1: somebody asks for finished
	deadlines   deadlines
	busy        *busy
	stats       clientStats

	ctx  context.Context // ends when the client closes
	stop context.CancelCauseFunc

	mu     sync.Mutex
	links  map[linkKey]*link
	dials  map[linkKey]*dialing
	locals map[uint64]*Server
}

// Dial connects to a job as an observer: it reads and writes, but takes no part in
// the clocks. Under BSP it sees the parameters of the clock that is open.
func Dial(ctx context.Context, cfg ClientConfig) (*Client, error) {
	return dialJob(ctx, cfg, true)
}

func dialJob(ctx context.Context, cfg ClientConfig, observer bool) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg.withDefaults(), coordinator: coordinators(cfg.Coordinator, cfg.Standbys), layers: map[string]int{}, nonce: randomID(), observer: observer,
		links: map[linkKey]*link{}, dials: map[linkKey]*dialing{}, busy: newBusy(), locals: map[uint64]*Server{},
		groups: make(freeList[rowGroup], keptGroups), asking: make(chan struct{}, 1),
	}
	c.calls.New = func() any { return new(call) }
	c.operations.New = func() any { return &operation{c: c} }
	c.deadlines.timeout = c.cfg.Timeout
	c.ctx, c.stop = context.WithCancelCause(context.Background())
	go c.watch()
	if err := c.start(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("ps: start client %q: %w", cfg.Name, err)
	}
	return c, nil
}

func (c *Client) start(ctx context.Context) error {
	n := c.cfg.Node
	if err := register(n); err != nil {
		return err
	}
	job, err := describe(ctx, n, c.coordinator)
	if err != nil {
		return err
	}
	all, err := job.partition()
	if err != nil {
		return err
	}
	c.job = job
	c.shards = make([][]shard.Shard, len(job.Model.Layers))
	for i, l := range job.Model.Layers {
		c.layers[l.Name] = i
	}
	for _, s := range all {
		c.shards[s.Range.Layer] = append(c.shards[s.Range.Layer], s)
		c.sequences = append(c.sequences, newSequencer())
	}
	c.hashes = make([][]uint64, len(c.shards))
	for i, l := range job.Model.Layers {
		if l.Sparse {
			c.hashes[i] = lowestHashes(l, c.shards[i])
		}
	}
	for i, d := range job.Datasets {
		c.datasets = append(c.datasets, &workerDataset{index: i, data: d, has: map[int64]bool{}})
	}
	c.routes = newRoutes(n, c.coordinator, len(all))
	c.paths = make([]lanes, len(all))
	name := "ps/worker/" + processName(c.cfg.Name) + "/" + c.nonce
	c.ref = n.Ref(name)
	if _, err = n.Spawn(ctx, name, &clientActor{c}, actor.Options{}); err != nil {
		return err
	}
	reply, _, err := c.join(ctx)
	if err != nil {
		return err
	}
	c.incarnation.Store(reply.Incarnation)
	c.clock.Store(reply.Clock)
	return c.routes.refresh(ctx)
}

// join makes the client a member. It returns which coordinator knows that now. A range
// that is given to the client meanwhile, perhaps by an earlier coordinator, is not taken:
// the one that it comes back to would not know of it.
func (c *Client) join(ctx context.Context) (joinReply, actor.Ref, error) {
	c.joins.Add(1)
	defer c.joins.Add(1)
	return askFrom[joinReply](ctx, c.cfg.Node, c.coordinator, joinRequest{
		Worker: c.ref, Name: c.cfg.Name, Nonce: c.nonce, Observer: c.observer,
		Incarnation: c.incarnation.Load(), Clock: c.clock.Load(), Has: c.unfinished(),
	}, nil)
}

// Model returns the job's layers.
func (c *Client) Model() shard.Model { return c.job.Model }

// Close leaves the job and ends all connections; operations under way fail with ErrClosed. It
// is safe to call it twice. It waits at most 2 s for the coordinator: an error means that the
// coordinator has not answered, and finds out by itself that the client is gone.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return c.leave(ctx)
}

func (c *Client) leave(ctx context.Context) error {
	if c.ctx.Err() != nil {
		return nil
	}
	var err error
	if inc := c.incarnation.Load(); inc != 0 {
		_, err = ask[done](ctx, c.cfg.Node, c.coordinator, leaveRequest{Incarnation: inc})
	}
	if !c.ref.IsZero() {
		_ = c.cfg.Node.Stop(ctx, c.ref) // if it cannot be asked it is gone
	}
	c.mu.Lock()
	c.stop(ErrClosed)
	c.deadlines.close(ErrClosed)
	for _, l := range c.links {
		_ = l.conn.Close() // whoever waits for an answer gets the error
	}
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("ps: client %q leaves: %w", c.cfg.Name, err)
	}
	return nil
}

// release gives a call back; its sequence number is of no interest any more.
func (c *Client) release(k *call) {
	if k.seqs != nil {
		k.seqs.resolve(k.header.Seq)
	}
	k.ids, k.values, k.seqs, k.link, k.ctx, k.cause = nil, nil, nil, nil, nil, nil
	c.calls.Put(k)
}
