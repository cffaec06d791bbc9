package ps

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// ClientConfig has what a client or a worker needs to start.
type ClientConfig struct {
	// Node runs the client's actor. Required; the client does not close it.
	Node *actor.Node
	// Coordinator is the job's coordinator. Required; its node must be known to Node.
	Coordinator actor.Ref
	// Name is for people: it appears in status and logs. Two clients may have the
	// same. Required.
	Name string
	// Timeout bounds operations whose context has no deadline. Zero: 30 s.
	Timeout time.Duration
	// TLS is used for TCP connections of the data plane if set.
	TLS *tls.Config
	// ReportInterval is the time between load reports. Zero: 200 ms.
	ReportInterval time.Duration
	// Streams is the number of connections to each server for requests of more than
	// 16 KiB, which are spread by shard; smaller ones have a connection of their own.
	// Zero: one for every four processors, at least 1 and at most 4. At most 64.
	Streams int
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
	return errors.Join(errs...)
}

const maxStreams = 64

func (c ClientConfig) withDefaults() ClientConfig {
	if c.Streams == 0 {
		c.Streams = min(max(runtime.GOMAXPROCS(0)/4, 1), 4)
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.ReportInterval == 0 {
		c.ReportInterval = 200 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Client reads and writes the parameters of a job. All methods are safe from any
// goroutine. It keeps no slice after the call that was given it has returned.
type Client struct {
	cfg         ClientConfig
	job         Job
	layers      map[string]int
	shards      [][]shard.Shard // by layer, in order of their ranges
	routes      *routes
	sequences   []*sequencer // by shard
	ref         actor.Ref
	nonce       string
	observer    bool
	incarnation atomic.Uint64
	clock       atomic.Uint32
	calls       sync.Pool
	operations  sync.Pool
	busy        *busy
	stats       clientStats

	ctx  context.Context // ends when the client closes
	stop context.CancelCauseFunc

	mu     sync.Mutex
	links  map[linkKey]*link
	dials  map[linkKey]*dialing
	locals map[string]*Server
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
		cfg: cfg.withDefaults(), layers: map[string]int{}, nonce: randomID(), observer: observer,
		links: map[linkKey]*link{}, dials: map[linkKey]*dialing{}, busy: newBusy(), locals: map[string]*Server{},
	}
	c.calls.New = func() any { return new(call) }
	c.operations.New = func() any { return &operation{c: c} }
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
	job, err := describe(ctx, n, c.cfg.Coordinator)
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
	c.routes = newRoutes(n, c.cfg.Coordinator, len(all))
	name := "ps/worker/" + processName(c.cfg.Name) + "/" + c.nonce
	c.ref = n.Ref(name)
	if _, err = n.Spawn(ctx, name, &clientActor{c}, actor.Options{}); err != nil {
		return err
	}
	reply, err := c.join(ctx)
	if err != nil {
		return err
	}
	c.incarnation.Store(reply.Incarnation)
	c.clock.Store(reply.Clock)
	return c.routes.refresh(ctx)
}

func (c *Client) join(ctx context.Context) (joinReply, error) {
	return request[joinReply](ctx, c.cfg.Node, c.cfg.Coordinator, joinRequest{
		Worker: c.ref, Name: c.cfg.Name, Nonce: c.nonce, Observer: c.observer,
		Incarnation: c.incarnation.Load(), Clock: c.clock.Load(),
	})
}

// Model returns the job's layers.
func (c *Client) Model() shard.Model { return c.job.Model }

// Close leaves the job and frees everything. It is safe to call it twice.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return c.leave(ctx)
}

func (c *Client) leave(ctx context.Context) error {
	if c.ctx.Err() != nil {
		return nil
	}
	var err error
	if inc := c.incarnation.Load(); inc != 0 {
		_, err = request[done](ctx, c.cfg.Node, c.cfg.Coordinator, leaveRequest{Incarnation: inc})
	}
	if !c.ref.IsZero() {
		_ = c.cfg.Node.Stop(ctx, c.ref) // if it cannot be asked it is gone
	}
	c.mu.Lock()
	c.stop(ErrClosed)
	for _, l := range c.links {
		_ = l.conn.Close() // its reader ends
	}
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("ps: client %q leaves: %w", c.cfg.Name, err)
	}
	return nil
}

// linkKey names a connection: an instance of a server, and which of the connections
// to it.
type linkKey struct {
	instance string
	lane     uint8
}

// smallLane is the lane of small requests; large ones go over the others.
const smallLane = 0

func (c *Client) key(k *call) linkKey {
	if 4*len(k.values) <= smallBytes {
		return linkKey{k.server.Instance, smallLane}
	}
	return linkKey{k.server.Instance, 1 + uint8(k.header.Shard%uint32(c.cfg.Streams))}
}

// path returns how a call reaches its server: the server itself on the same node, else
// a connection, which is opened if there is none.
func (c *Client) path(ctx context.Context, k *call) (*Server, *link, error) {
	info, key := &k.server, c.key(k)
	c.mu.Lock()
	s, l := c.locals[info.Instance], c.links[key]
	c.mu.Unlock()
	if s != nil {
		if s.ctx.Err() == nil {
			return s, nil, nil
		}
		return nil, nil, fmt.Errorf("%w: server %q is closed", ErrUnavailable, info.ID)
	}
	if l != nil && l.conn.Err() == nil {
		return nil, l, nil
	}
	if s = localServer(ctx, c.cfg.Node, *info); s != nil {
		c.mu.Lock()
		maps.DeleteFunc(c.locals, func(_ string, old *Server) bool { return old.ctx.Err() != nil })
		c.locals[info.Instance] = s
		c.mu.Unlock()
		return s, nil, nil
	}
	l, err := c.connect(ctx, *info, key)
	return nil, l, err
}

// dialing is a connection that is being made; everybody else who needs it waits.
type dialing struct {
	ended chan struct{}
	err   error // why there is no connection, unless whoever dialled gave up
}

// connect returns the connection to a server. One goroutine at a time dials: many
// operations that begin at once must not look like an attack to the server.
func (c *Client) connect(ctx context.Context, info serverInfo, key linkKey) (*link, error) {
	for {
		c.mu.Lock()
		if l := c.links[key]; l != nil && l.conn.Err() == nil {
			c.mu.Unlock()
			return l, nil
		}
		d := c.dials[key]
		if d == nil {
			d = &dialing{ended: make(chan struct{})}
			c.dials[key] = d
			c.mu.Unlock()
			for _, l := range c.appendLinks(nil) {
				l.probe() // servers that have gone, perhaps
			}
			return c.dial(ctx, info, key, d)
		}
		c.mu.Unlock()
		select {
		case <-d.ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if d.err != nil {
			return nil, d.err
		}
	}
}

func (c *Client) dial(ctx context.Context, info serverInfo, key linkKey, d *dialing) (*link, error) {
	conn, err := dial(ctx, info, c.cfg.TLS, stream.Config{BufferBytes: frameBuffer})
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.dials, key)
	defer close(d.ended)
	if err != nil {
		if ctx.Err() == nil {
			d.err = err
		}
		return nil, err
	}
	inFlight := maxInFlight
	if key.lane == smallLane {
		inFlight = maxSmallInFlight
	}
	l := newLink(conn, inFlight, c.busy)
	maps.DeleteFunc(c.links, func(_ linkKey, old *link) bool { return old.conn.Err() != nil })
	c.links[key] = l
	if c.ctx.Err() != nil {
		_ = conn.CloseWithError(ErrClosed) // the client closed meanwhile
	}
	return l, nil
}

// aim finds out where a call goes: to a server in this process, or over a connection.
func (c *Client) aim(ctx context.Context, k *call) (*Server, *link, error) {
	k.err, k.link, k.ctx, k.text, k.out = nil, nil, ctx, "", outcome{}
	o, info, err := c.routes.of(shard.ID(k.header.Shard))
	k.header.Epoch, k.server = uint64(o.epoch), info
	if err != nil {
		return nil, nil, err
	}
	if c.observer {
		k.header.Clock = c.clockNow() // it may have advanced since the last attempt
	}
	if k.seqs != nil {
		k.header.Floor = k.seqs.low()
	}
	return c.path(ctx, k)
}

// performLocal is a request to a server in this process: no copy, no socket. With a
// device it takes time, as a socket would.
func performLocal(ctx context.Context, s *Server, k *call) {
	if s.cfg.Device == nil {
		k.performOn(ctx, s)
		return
	}
	go k.performOn(ctx, s)
}

func (k *call) performOn(ctx context.Context, s *Server) {
	started := time.Now()
	o := k.perform(ctx, s)
	if o.code == codeMoved {
		k.text = string(o.to.server)
	}
	if o.code == codeRetry && o.wait != nil {
		select {
		case <-o.wait:
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
	}
	k.began, k.out = started, o
	k.leg.answered(k)
}

// perform hands the caller's slice to the server. What would be rounded on the way over a
// socket is rounded here too, so that results do not depend on where a server is.
func (k *call) perform(ctx context.Context, s *Server) outcome {
	t := shard.DType(k.header.Encoding)
	if t == shard.Float32 {
		return s.perform(ctx, &k.header, k.values)
	}
	if k.header.Kind == wire.Pull {
		o := s.perform(ctx, &k.header, k.values)
		round(k.values, k.values, t)
		return o
	}
	b := s.free.get()
	defer s.free.put(b)
	round(b.floats(k.header.Count), k.values, t)
	return s.perform(ctx, &k.header, b.floats(k.header.Count))
}

// release gives a call back; its sequence number is of no interest any more.
func (c *Client) release(k *call) {
	if k.seqs != nil {
		k.seqs.resolve(k.header.Seq)
	}
	k.values, k.seqs, k.link, k.ctx, k.cause = nil, nil, nil, nil, nil
	c.calls.Put(k)
}
