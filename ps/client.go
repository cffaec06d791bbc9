package ps

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/internal/stream"
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
	return errors.Join(errs...)
}

func (c ClientConfig) withDefaults() ClientConfig {
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
	stats       clientStats

	ctx  context.Context // ends when the client closes
	stop context.CancelCauseFunc

	mu     sync.Mutex
	links  map[string]*link // by instance of the server
	dials  map[string]*dialing
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
		links: map[string]*link{}, dials: map[string]*dialing{}, locals: map[string]*Server{},
	}
	c.calls.New = func() any {
		k := &call{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		k.timer.Stop()
		return k
	}
	c.ctx, c.stop = context.WithCancelCause(context.Background())
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

// path returns how to reach a server: the server itself on the same node, else a
// connection, which is opened if there is none.
func (c *Client) path(ctx context.Context, info serverInfo) (*Server, *link, error) {
	c.mu.Lock()
	s, l := c.locals[info.Instance], c.links[info.Instance]
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
	if s = localServer(ctx, c.cfg.Node, info); s != nil {
		c.mu.Lock()
		maps.DeleteFunc(c.locals, func(_ string, old *Server) bool { return old.ctx.Err() != nil })
		c.locals[info.Instance] = s
		c.mu.Unlock()
		return s, nil, nil
	}
	l, err := c.connect(ctx, info)
	return nil, l, err
}

// dialing is a connection that is being made; everybody else who needs it waits.
type dialing struct {
	ended chan struct{}
	err   error // why there is no connection, unless whoever dialled gave up
}

// connect returns the connection to a server. One goroutine at a time dials: many
// operations that begin at once must not look like an attack to the server.
func (c *Client) connect(ctx context.Context, info serverInfo) (*link, error) {
	for {
		c.mu.Lock()
		if l := c.links[info.Instance]; l != nil && l.conn.Err() == nil {
			c.mu.Unlock()
			return l, nil
		}
		d := c.dials[info.Instance]
		if d == nil {
			d = &dialing{ended: make(chan struct{})}
			c.dials[info.Instance] = d
			c.mu.Unlock()
			return c.dial(ctx, info, d)
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

func (c *Client) dial(ctx context.Context, info serverInfo, d *dialing) (*link, error) {
	conn, err := dial(ctx, info, c.cfg.TLS, stream.Config{})
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.dials, info.Instance)
	defer close(d.ended)
	if err != nil {
		if ctx.Err() == nil {
			d.err = err
		}
		return nil, err
	}
	l := newLink(conn)
	maps.DeleteFunc(c.links, func(_ string, old *link) bool { return old.conn.Err() != nil })
	c.links[info.Instance] = l
	if c.ctx.Err() != nil {
		_ = conn.CloseWithError(ErrClosed) // the client closed meanwhile
	}
	return l, nil
}

// begin sends a call on its way. The answer comes on its done channel.
func (c *Client) begin(ctx context.Context, k *call) {
	k.err, k.link, k.text, k.out = nil, nil, "", outcome{}
	o, info, err := c.routes.of(shard.ID(k.header.Shard))
	k.header.Epoch, k.server = uint64(o.epoch), info
	if c.observer {
		k.header.Clock = c.clockNow() // it may have advanced since the last attempt
	}
	if err == nil && k.seqs != nil {
		k.header.Floor = k.seqs.low()
	}
	var s *Server
	var l *link
	if err == nil {
		s, l, err = c.path(ctx, info)
	}
	if err == nil && l != nil {
		err = l.start(ctx, k)
	}
	switch {
	case err != nil:
		k.err = err
		k.done <- struct{}{}
	case s != nil && s.cfg.Device != nil: // takes time, as a socket would
		go func() {
			k.out = performLocal(ctx, s, k)
			k.done <- struct{}{}
		}()
	case s != nil:
		k.out = performLocal(ctx, s, k)
		k.done <- struct{}{}
	}
}

// performLocal is a request to a server in this process: no copy, no socket.
func performLocal(ctx context.Context, s *Server, k *call) outcome {
	started := time.Now()
	o := s.perform(ctx, &k.header, k.values)
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
	k.sent = started
	return o
}
