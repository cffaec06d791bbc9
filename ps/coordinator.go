package ps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

// CoordinatorConfig has what a coordinator needs to start.
type CoordinatorConfig struct {
	// Node runs the coordinator's actor. Required; the coordinator does not close it.
	Node *actor.Node
	// Job is what is trained. Required.
	Job Job
	// Store is the coordination store, which keeps who owns what. Nil: in memory, so that a
	// restarted coordinator knows nothing; if the clock of its host was set back meanwhile,
	// the servers of the earlier one refuse it (ErrDeposed). The coordinator does not close it.
	Store store.Store
	// MaxMoves is the number of moves that run at the same time; others wait. Zero: 4.
	MaxMoves int
	// MaxRepairs is the number of shards that are copied to new followers at the same time.
	// Zero: 2.
	MaxRepairs int
	// RepairBytesPerSecond limits the rate of each of those copies. Zero: 256 MiB/s.
	RepairBytesPerSecond int64
	// Checkpoints says where checkpoints go, when they are taken, and what a new job is
	// restored from.
	Checkpoints CheckpointConfig
	// LeaseTTL is for coordinators started by StandBy: the time to live of the leader's lease.
	// When the leader dies, another takes its place within LeaseTTL and about a second. A leader
	// that has not reached the store for LeaseTTL less a second ends. Zero: 3 s. At least 1.5 s.
	LeaseTTL time.Duration
	// StepTimeout bounds each step of a move except the copying of the shard. Zero: 5 s.
	StepTimeout time.Duration
	// CopyTimeout bounds the copying of a shard, and its filling from a checkpoint. Zero: 5 min.
	CopyTimeout time.Duration
	// Logger gets what an operator should know. Zero: nothing is logged.
	Logger *slog.Logger

	step func(shard.Effect) // called before each step of a move: tests stop a party there
}

func (c CoordinatorConfig) withDefaults() CoordinatorConfig {
	c.Job = c.Job.withDefaults()
	c.Checkpoints = c.Checkpoints.withDefaults()
	if c.MaxMoves == 0 {
		c.MaxMoves = 4
	}
	if c.MaxRepairs == 0 {
		c.MaxRepairs = 2
	}
	if c.RepairBytesPerSecond == 0 {
		c.RepairBytesPerSecond = 256 << 20
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = defaultLeaseTTL
	}
	if c.StepTimeout == 0 {
		c.StepTimeout = 5 * time.Second
	}
	if c.CopyTimeout == 0 {
		c.CopyTimeout = 5 * time.Minute
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c CoordinatorConfig) validate() error {
	var errs []error
	if c.Node == nil {
		errs = append(errs, errors.New("ps: CoordinatorConfig.Node is nil"))
	}
	if c.MaxMoves < 0 || c.MaxRepairs < 0 || c.RepairBytesPerSecond < 0 || c.StepTimeout < 0 || c.CopyTimeout < 0 {
		errs = append(errs, fmt.Errorf("ps: MaxMoves %d, MaxRepairs %d, RepairBytesPerSecond %d, StepTimeout %v and CopyTimeout %v, must be at least 0",
			c.MaxMoves, c.MaxRepairs, c.RepairBytesPerSecond, c.StepTimeout, c.CopyTimeout))
	}
	errs = append(errs, c.Checkpoints.validate())
	if c.LeaseTTL < minLeaseTTL || c.LeaseTTL > store.MaxLeaseTTL {
		errs = append(errs, fmt.Errorf("ps: LeaseTTL %v, must be in [%v, %v]", c.LeaseTTL, minLeaseTTL, store.MaxLeaseTTL))
	}
	return errors.Join(append(errs, c.Job.validate())...)
}

// CoordinatorProcess is the name of the coordinator's process on its node: its actor.Ref,
// which servers and workers are given, is that node and this name.
const CoordinatorProcess = "ps/coordinator"

const (
	reconcileInterval = 100 * time.Millisecond
	// retainGrace is how long after its start a coordinator takes no worker for
	// gone that it has not seen: they may still be on their way back to it.
	retainGrace = 10 * time.Second
	keptMoves   = 256
	// auditInterval is how often all shards are looked at even if nothing has happened.
	auditInterval = time.Second
)

// Coordinator is the actor that knows who owns what and who takes part: it places
// shards, drives moves, and keeps the clocks. It is not on the way of a push or a
// pull. What must survive it is in the store.
type Coordinator struct {
	cfg     CoordinatorConfig
	log     *slog.Logger
	ref     actor.Ref
	shards  []shard.Shard
	places  *placement
	started time.Time
	ctx     context.Context
	stop    context.CancelCauseFunc
	running sync.WaitGroup
	closing sync.Once
	// closeErr is what Close returns.
	closeErr error
	// leadership is nil for a coordinator that was not elected.
	leadership *leadership
	identity   string        // of the job among others of the same model
	term       uint64        // the first incarnation that it has reserved
	slots      chan struct{} // moves under way
	repairs    chan struct{} // new followers under way

	// Owned by the actor.
	clocks     clocks
	members    map[uint64]*participant
	nonces     map[string]uint64
	gone       map[uint64]bool              // left during retainGrace
	missing    map[uint64]bool              // members of an earlier coordinator that are not back yet
	heard      map[shard.ServerID]bool      // servers that have registered with this coordinator
	arriving   map[shard.ServerID]*arrival  // servers of whose copies a part is here
	entering   map[shard.ServerID]*entrance // servers that have told everything, and of which the store is told
	next       uint64                       // incarnation to hand out
	limit      uint64                       // incarnations below are reserved in the store
	reserves   bool                         // more of them are being reserved
	unreserved error                        // why the last attempt failed
	enrolling  map[string]*enrolment        // workers of which the store is told, by nonce
	placing    map[shard.ServerID]bool      // who gets the shards that are being created, nil for none
	claims     map[shard.ID]shard.ServerID  // shards created before their record was written
	barrier    chan<- instant               // a checkpoint that waits for the end of a clock
	// complained means that a client has said that it does not reach a server.
	complained bool

	datasets []*servedDataset

	checks checkpoints

	looking sync.Mutex // for the newest checkpoint, and guards when that began last and what was found
	looked  time.Time
	found   found

	mu      sync.Mutex // guards what moves share with the actor
	servers map[shard.ServerID]*serverState
	moving  map[shard.ID]*underWay
	queued  map[shard.ID]*queuedMove // requests that wait for what the coordinator does by itself
	moves   []keptMove               // the last keptMoves
	// unsettled means that a shard may lack followers, or an owner.
	unsettled bool
	audited   time.Time                           // when all shards were looked at for no particular reason
	failing   map[shard.ServerID]bool             // failovers under way
	leaving   map[shard.ServerID][]*actor.Request // servers that are being taken out, and who waits for it
	telling   map[shard.ID]bool                   // owners that are told about their followers
	promoting map[shard.ID]int                    // promotions under way: the new owner does not serve yet
	leases    map[shard.ID]time.Time              // until when an owner before the last may serve reads; not known of the others
	rests     map[shard.ID]time.Time              // until when a shard rests that could not get a follower
	failovers []Failover                          // the last keptFailovers
	hopeless  bool                                // there is no checkpoint that a lost shard could be filled from
	unfilled  string                              // why lost shards could not be filled, as last logged
	applied   map[shard.ID]uint64                 // pushes to shards, as their owners last reported
	unfit     map[shard.ID]shard.ServerID         // the server that could not be that follower
	endedRuns map[shard.ServerID]uint64           // runs of servers that ended before they came back to this coordinator
	made      made                                // followers, since they were last told
	asking    bool                                // whether those that have not come back live
}

// participant is a worker or observer.
type participant struct {
	name     string
	ref      actor.Ref
	nonce    string
	observer bool
	load     WorkerLoad
	heard    time.Time // when it has last reported
	opinion  opinion
	tick     *actor.Request // waiting
	stale    *actor.Request // waiting until all have finished so many clocks
	needs    uint32
}

// serverState is what the coordinator knows of a server.
type serverState struct {
	info     serverInfo
	up       bool
	draining bool
	load     ServerLoad
	lost     map[shard.ID]bool       // in the record of the shard, but the state is gone
	wrong    map[shard.ID]*wrongCopy // held, but not what the record says
}

// StartCoordinator starts the coordinator of a job. If the store knows the job already, it
// takes over: it reads who owns what, and finishes or undoes the moves that were under way.
//
// An earlier coordinator must have ended, which is up to the operator; StandBy elects one
// instead. The two must not be mixed in one job: StartCoordinator fails with ErrConflict while
// an elected coordinator leads, and the coordinator ends with ErrDeposed when one is elected.
func StartCoordinator(ctx context.Context, cfg CoordinatorConfig) (*Coordinator, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return startCoordinator(ctx, cfg, nil)
}

// startCoordinator starts one that was elected, or with nil one that needs no election.
func startCoordinator(ctx context.Context, cfg CoordinatorConfig, l *leadership) (*Coordinator, error) {
	c, err := newCoordinator(cfg, l)
	if err != nil {
		if l != nil {
			l.resign()
		}
		return nil, err
	}
	c.lead()
	loading, loaded := context.WithCancel(ctx)
	context.AfterFunc(c.ctx, loaded) // a coordinator that is deposed meanwhile need not go on
	err = c.load(loading)
	loaded()
	if err != nil {
		err = errors.Join(c.Err(), err)
		c.Close()
		return nil, fmt.Errorf("ps: start coordinator of job %q: %w", cfg.Job.Name, err)
	}
	if _, err = cfg.Node.Spawn(ctx, CoordinatorProcess, &coordinatorActor{c}, actor.Options{}); err != nil {
		c.Close()
		return nil, fmt.Errorf("ps: start coordinator of job %q: %w", cfg.Job.Name, err)
	}
	c.resumeMoves()
	if l == nil && cfg.Store != nil {
		c.running.Go(c.yield)
	}
	return c, nil
}

func newCoordinator(cfg CoordinatorConfig, l *leadership) (*Coordinator, error) {
	shards, err := cfg.Job.partition()
	if err != nil {
		return nil, err
	}
	if err := register(cfg.Node); err != nil {
		return nil, err
	}
	c := &Coordinator{
		cfg: cfg, log: cfg.Logger, shards: shards, leadership: l, started: time.Now(),
		slots: make(chan struct{}, cfg.MaxMoves), repairs: make(chan struct{}, cfg.MaxRepairs),
		clocks: newClocks(cfg.Job.Consistency), members: map[uint64]*participant{}, nonces: map[string]uint64{}, gone: map[uint64]bool{},
		heard: map[shard.ServerID]bool{}, arriving: map[shard.ServerID]*arrival{}, entering: map[shard.ServerID]*entrance{},
		enrolling: map[string]*enrolment{}, claims: map[shard.ID]shard.ServerID{},
		servers: map[shard.ServerID]*serverState{}, moving: map[shard.ID]*underWay{}, queued: map[shard.ID]*queuedMove{},
		failing: map[shard.ServerID]bool{}, leaving: map[shard.ServerID][]*actor.Request{}, telling: map[shard.ID]bool{}, promoting: map[shard.ID]int{},
		leases: map[shard.ID]time.Time{}, rests: map[shard.ID]time.Time{}, applied: map[shard.ID]uint64{}, unfit: map[shard.ID]shard.ServerID{},
		endedRuns: map[shard.ServerID]uint64{},
	}
	c.ctx, c.stop = context.WithCancelCause(context.Background())
	return c, nil
}

// load reads what an earlier coordinator left in the store.
func (c *Coordinator) load(ctx context.Context) error {
	kv := c.cfg.Store
	if kv == nil {
		memory, err := store.NewMemory(store.Config{})
		if err != nil {
			return err
		}
		kv = memory
	}
	c.places = newPlacement(fenced{kv, c.leadership}, c.cfg.Job.Name, len(c.shards))
	before := c.places.vacant
	if c.leadership != nil {
		before = c.places.takeOver
	}
	if err := before(ctx); err != nil {
		return err
	}
	if err := c.places.claim(ctx, c.cfg.Job); err != nil {
		return err
	}
	identity, err := c.places.identity(ctx)
	if err != nil {
		return err
	}
	c.identity = identity
	if err := errors.Join(c.places.load(ctx), c.places.loadServers(ctx)); err != nil {
		return err
	}
	for _, id := range c.places.known() {
		at := c.places.where(id)
		if at.Node == c.cfg.Node.Name() {
			continue
		}
		if err := c.cfg.Node.AddPeer(at.Node, at.Addr); err != nil {
			return fmt.Errorf("ps: store key %q: %w", c.places.serverKey(at.ID), err)
		}
	}
	if err := errors.Join(c.expect(ctx), c.restoring(ctx)); err != nil {
		return err
	}
	c.checks.began, c.checks.pruned = c.started, make(chan struct{})
	close(c.checks.pruned)
	if err := c.loadDatasets(ctx); err != nil {
		return err
	}
	above, err := c.lastNumber(ctx)
	if err != nil {
		return err
	}
	c.next, c.limit, err = c.places.reserve(ctx, above)
	c.term = c.next
	return err
}

// Ref addresses the coordinator.
func (c *Coordinator) Ref() actor.Ref { return c.ref }

// Close stops the coordinator. Servers and workers go on with the routes that they
// have and look for it until it is back. It is safe to call it twice: each call returns
// when nothing of the coordinator is left, and the next one may have its name.
func (c *Coordinator) Close() error {
	c.closing.Do(func() { c.closeErr = c.close() })
	return c.closeErr
}

func (c *Coordinator) close() error {
	c.stop(ErrClosed)
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var err error
	if !c.ref.IsZero() {
		err = c.cfg.Node.Stop(ctx, c.ref)
	}
	c.running.Wait() // everything under way ends with c.ctx
	if c.leadership != nil {
		c.leadership.resign()
	}
	if err != nil && !errors.Is(err, actor.ErrNoProcess) && !errors.Is(err, actor.ErrClosed) {
		return fmt.Errorf("ps: stop coordinator: %w", err)
	}
	return nil
}

// coordinatorActor is the control side of a Coordinator.
type coordinatorActor struct{ c *Coordinator }

type reconcileNow struct{}

type placed struct{ err error }

// Started begins the level-triggered work.
func (a *coordinatorActor) Started(ctx *actor.Context) error {
	a.c.ref = ctx.Self() // before anybody is heard
	ctx.SendAfter(0, reconcileNow{})
	return nil
}

// Receive handles one control message.
func (a *coordinatorActor) Receive(ctx *actor.Context, msg any) error {
	c := a.c
	if !c.leads() {
		return actor.ErrStop
	}
	switch m := msg.(type) {
	case describeRequest:
		ctx.Reply(c.describe(m))
	case routesRequest:
		ctx.Reply(c.routes(m))
	case runRequest:
		run, err := c.number()
		answer(ctx, err, runReply{run, c.cfg.Checkpoints.Storage != nil})
	case outRequest:
		c.bury(ctx.Request(), m)
	case registerRequest:
		c.register(ctx, m)
	case noted:
		c.noted(ctx, m)
	case serverReport:
		c.report(ctx, m)
	case joinRequest:
		c.join(ctx, m)
	case numbered:
		c.numbered(m)
	case enrolled:
		c.enrolled(ctx, m)
	case tickRequest:
		c.tick(ctx, m)
	case staleRequest:
		c.stale(ctx, m)
	case leaveRequest:
		c.leave(m.Incarnation)
		ctx.Reply(done{})
	case workerReport:
		c.hear(m)
	case statusRequest:
		ctx.Reply(c.status(m))
	case drainRequest:
		answer(ctx, c.drain(m), done{})
	case removeRequest:
		c.remove(ctx.Request(), m.Server)
	case left:
		c.left(m.server)
	case moveRequest:
		c.move(ctx.Request(), m)
	case checkpointRequest:
		c.checkpoint(ctx.Request(), m)
	case takeRequest, finishRequest, progressSaved, progressDue:
		c.receiveDataset(ctx, msg)
	case barrierRequest:
		c.beginCut(m)
	case barrierOver:
		c.barrier, c.clocks.cut = nil, false
		c.release(c.clocks.release())
	case routesChanged:
		for _, p := range c.members {
			_ = ctx.TryCast(p.ref, m) // without it the worker is redirected
		}
	case placed:
		c.placed(m.err)
	case checked:
		c.checked(ctx, m)
	case reconcileNow:
		c.reconcile(ctx)
		ctx.SendAfter(reconcileInterval, reconcileNow{})
	case actor.Down:
		c.down(m.Ref)
	}
	c.atBarrier()
	return nil
}

func answer(ctx *actor.Context, err error, reply any) {
	switch {
	case ctx.Request() == nil: // cast instead of called: nobody to tell
	case err != nil:
		ctx.Request().Fail(err)
	default:
		ctx.Reply(reply)
	}
}

// Pages keep a reply within one message.
const (
	layersPerPage  = 128
	shardsPerPage  = 1024
	serversPerPage = 96
)

func (c *Coordinator) describe(m describeRequest) describeReply {
	job := c.cfg.Job
	layers := job.Model.Layers
	first := min(max(m.First, 0), len(layers))
	job.Model.Layers = layers[first:min(first+layersPerPage, len(layers))]
	job.Optimizers, job.Tables = map[string]Optimizer{}, map[string]Table{}
	for _, l := range job.Model.Layers {
		if t, ok := c.cfg.Job.Tables[l.Name]; ok {
			job.Tables[l.Name] = t
		}
		if o, ok := c.cfg.Job.Optimizers[l.Name]; ok {
			job.Optimizers[l.Name] = o
		}
	}
	return describeReply{Job: job, Layers: len(layers)}
}

func (c *Coordinator) routes(m routesRequest) routesReply {
	r := routesReply{Shards: len(c.shards)}
	if !c.settling() {
		r.Clock = c.clocks.open()
	}
	page, version := c.places.page(m.First, shardsPerPage)
	r.Version, r.Needed = version, c.cfg.Job.MinServers
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if s.up {
			r.Joined++
		}
	}
	index := map[shard.ServerID]uint16{}
	for i, a := range page {
		n, known := index[a.Owner]
		if len(index) == serversPerPage && !known {
			break // the next page has the rest
		}
		if s := c.servers[a.Owner]; !known && s != nil {
			r.Servers = append(r.Servers, s.info)
			n = uint16(len(r.Servers))
			index[a.Owner] = n
		}
		r.Owners = append(r.Owners, n)
		r.Epochs = append(r.Epochs, uint64(a.Epoch))
		hope := c.cfg.Checkpoints.Storage != nil && !c.hopeless
		if s := c.servers[a.Owner]; s == nil || !s.lost[a.Shard] || hope {
			continue
		}
		// While a move is under way another server may have the shard, and since the page was
		// read one may have got it.
		if now := c.places.record(a.Shard); now.Assignment.SameOwner(a) && !now.Recoverable() {
			r.Lost = append(r.Lost, uint32(max(m.First, 0)+i))
		}
	}
	return r
}
