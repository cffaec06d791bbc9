package ps

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// Device is what a server's traffic is accounted to: a simulated link, such as
// device.SimLink, or a real one.
type Device interface {
	// Use blocks as long as the transfer of that many bytes takes, or until ctx
	// ends.
	Use(ctx context.Context, bytes int64) error
	// Usage returns the load over the last window.
	Usage(window time.Duration) device.Usage
}

// ListenNone as ServerConfig.Listen gives a server that only its own node can use.
const ListenNone = "none"

// ServerConfig has what a parameter server needs to start.
type ServerConfig struct {
	// Node runs the server's actor. Required; the server does not close it.
	Node *actor.Node
	// ID is the server's name, unique in the job. Required.
	ID shard.ServerID
	// Coordinator is the job's coordinator. Required; its node must be known to Node.
	Coordinator actor.Ref
	// Standbys are the processes on other nodes that may become the coordinator, see
	// StandBy. Their nodes must be known to Node (actor.Config.Peers, Node.AddPeer).
	// At most MaxStandbys.
	Standbys []actor.Ref
	// Listen is the host:port of the data plane. Zero: a free port of 127.0.0.1.
	// ListenNone: no socket. An address that is not loopback needs TLS or
	// AllowInsecure.
	Listen        string
	AllowInsecure bool
	// Advertise is the host:port that workers and other servers dial instead of that of
	// Listen, for a server behind address translation or a proxy. If it is set, all dial it,
	// on the same machine too: there is no unix socket then. Empty: the address of Listen.
	Advertise string
	// TLS turns on mutual TLS for the data plane, over TCP on the same machine too, and needs
	// what actor.Config.TLS needs; the certificate names the host that others dial. All servers
	// and clients must have it. Zero: none.
	TLS *tls.Config
	// Domain is the failure domain, such as a rack or a zone: followers are placed in
	// another domain than their owner if there is one. Empty: the machine.
	Domain string
	// Device is told of the bytes moved, and may delay them. Nil: none.
	Device Device
	// Checkpoints is where checkpoints are written to and restored from: one storage for all
	// servers and the coordinator of a job. Required if the job has checkpoints
	// (CheckpointConfig.Storage): without it StartServer fails with ErrConflict.
	Checkpoints checkpoint.Storage
	// CheckpointMemory limits, in bytes, the copies of blocks that change while a
	// checkpoint is being written; pushes wait when it is used up. Zero: 1 GiB.
	CheckpointMemory int64
	// ReportInterval is the time between load reports. Zero: 200 ms.
	ReportInterval time.Duration
	// WriteTimeout is how long one write to a peer may take before its connection is
	// closed. Zero: 10 s.
	WriteTimeout time.Duration
	// Logger gets what an operator should know. Zero: nothing is logged.
	Logger *slog.Logger
}

// unknownUtilization is the ServerLoad.Utilization of a server that cannot tell.
const unknownUtilization = -1

// ServerLoad is the load of a server over its last report interval.
type ServerLoad struct {
	PushBytesPerSecond float64
	PullBytesPerSecond float64
	Utilization        float64 // of Device, in [0, 1]; -1 if unknown or without a device
	StateBytes         int64   // parameters and optimizer state held, as owner or follower
	Shards             int     // shards owned
	PushesApplied      uint64  // to the shards owned, on whichever server they were; repetitions count once
	Rows               int64   // rows of tables in the shards owned
	RowsSkipped        uint64  // gradients of rows left out on this server: Refused and NotFinite of Tables
	// Tables are those of this server, the first 32 of the model, in its order. Empty in
	// Status.Servers: Status.Tables has the sums.
	Tables []TableStatus
}

// Server is a parameter server: it holds shards and applies pushes to them. An actor on
// its node takes the coordinator's orders; workers have data connections to it.
type Server struct {
	cfg   ServerConfig
	log   *slog.Logger
	ctx   context.Context // ends when the server closes
	stop  context.CancelCauseFunc
	ref   actor.Ref
	info  serverInfo
	token []byte
	// coordinator is who orders, term the latest of its terms.
	coordinator *candidates
	term        atomic.Uint64
	// listening is the TCP address of the data plane.
	listening string
	free      buffers
	listener  []net.Listener
	running   sync.WaitGroup

	mu       sync.RWMutex
	job      Job
	shards   []shard.Shard
	replicas map[shard.ID]*replica
	conns    map[*stream.Conn]struct{}
	flights  map[flightKey]*flight

	cutRoom *cutRoom
	saves   []*saving // the last keptSavings
	open    *checkpoint.Checkpoint
	armMu   sync.Mutex

	peerMu sync.Mutex
	peers  map[peerKey]chan *peer // capacity 1: taken while somebody dials

	parked               atomic.Int64
	pushBytes, pullBytes atomic.Int64
	reporting, rejoining atomic.Bool
	out                  atomic.Bool // it was taken out of the job for good, or replaced
}

// StartServer starts a parameter server and returns when the coordinator knows it.
func StartServer(ctx context.Context, cfg ServerConfig) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Server{
		cfg: cfg, log: cfg.Logger, token: stream.NewNonce(), coordinator: coordinators(cfg.Coordinator, cfg.Standbys), free: make(buffers, keptBuffers),
		replicas: map[shard.ID]*replica{}, conns: map[*stream.Conn]struct{}{}, flights: map[flightKey]*flight{}, peers: map[peerKey]chan *peer{},
		cutRoom: newCutRoom(cfg.CheckpointMemory),
		info:    serverInfo{ID: cfg.ID, Node: cfg.Node.Name(), Addr: cfg.Node.Addr(), Host: stream.HostID(), Domain: cfg.Domain},
	}
	s.info.Token = s.token
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	if err := s.start(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("ps: start server %q: %w", cfg.ID, err)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	if err := register(s.cfg.Node); err != nil {
		return err
	}
	job, err := describe(ctx, s.cfg.Node, s.coordinator)
	if err != nil {
		return err
	}
	s.job = job
	if s.shards, err = job.partition(); err != nil {
		return err
	}
	if err := s.listen(ctx); err != nil {
		return err
	}
	number, err := ask[runReply](ctx, s.cfg.Node, s.coordinator, runRequest{})
	if err != nil {
		return err
	}
	if number.Checkpoints && s.cfg.Checkpoints == nil {
		return errNoCheckpoints
	}
	s.info.Process, s.info.Run = "ps/server/"+processName(string(s.cfg.ID)), number.Run
	if s.ref, err = s.cfg.Node.Spawn(ctx, s.info.Process, &serverActor{s: s}, actor.Options{}); err != nil {
		return err
	}
	_, err = s.register(ctx)
	return err
}

func (c ServerConfig) validate() error {
	var errs []error
	if c.Node == nil {
		errs = append(errs, errors.New("ps: ServerConfig.Node is nil"))
	}
	if len(c.Domain) > maxNameBytes {
		errs = append(errs, fmt.Errorf("ps: Domain of %d bytes, at most %d", len(c.Domain), maxNameBytes))
	}
	if n := len(c.ID); n == 0 || n > maxNameBytes {
		errs = append(errs, fmt.Errorf("ps: server ID of %d bytes, must have 1 to %d", n, maxNameBytes))
	}
	if c.Coordinator.IsZero() {
		errs = append(errs, errors.New("ps: ServerConfig.Coordinator is zero"))
	}
	if c.ReportInterval < 0 || c.WriteTimeout < 0 || c.CheckpointMemory < 0 {
		errs = append(errs, fmt.Errorf("ps: ReportInterval %v, WriteTimeout %v and CheckpointMemory %d, must be at least 0", c.ReportInterval, c.WriteTimeout, c.CheckpointMemory))
	}
	errs = append(errs, checkStandbys(c.Standbys), checkTLS(c.TLS), checkListen(c.Listen, c.AllowInsecure || c.TLS != nil), checkAdvertise(c.Advertise, c.Listen))
	return errors.Join(errs...)
}

func (c ServerConfig) withDefaults() ServerConfig {
	c.Domain = cmp.Or(c.Domain, stream.HostID())
	c.TLS = mutual(c.TLS)
	c.CheckpointMemory = cmp.Or(c.CheckpointMemory, defaultCheckpointMemory)
	c.ReportInterval = cmp.Or(c.ReportInterval, defaultReportInterval)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// ID returns the server's name.
func (s *Server) ID() shard.ServerID { return s.cfg.ID }

// DataAddr returns the TCP address that the data plane listens on, empty with
// ListenNone. Others dial ServerConfig.Advertise instead if that is set.
func (s *Server) DataAddr() string { return s.listening }

func (s *Server) spawn(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() == nil {
		s.running.Go(f)
	}
}

func (s *Server) all() []*replica {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*replica, 0, len(s.replicas))
	for _, r := range s.replicas {
		all = append(all, r)
	}
	return all
}

// inOrder lists what this server has of the shards from first on, in their order.
func (s *Server) inOrder(first shard.ID) []*replica {
	all := slices.DeleteFunc(s.all(), func(r *replica) bool { return r.spec.ID < first })
	slices.SortFunc(all, func(a, b *replica) int { return cmp.Compare(a.spec.ID, b.spec.ID) })
	return all
}

func (s *Server) replica(id shard.ID) *replica {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.replicas[id]
}

// perform answers one data request. values is read for a push or assign, filled for
// a pull, and not kept, nor are the ids of rows.
func (s *Server) perform(ctx context.Context, h *wire.Header, ids []int64, values []float32) outcome {
	r := s.replica(shard.ID(h.Shard))
	if r == nil {
		return outcome{code: codeUnknownShard}
	}
	if err := s.use(ctx, 4*int64(len(values))); err != nil {
		return outcome{code: codeRetry}
	}
	if reads(h.Kind) {
		s.pullBytes.Add(4 * int64(len(values)))
		return s.named(r.pull(ctx, h, ids, values))
	}
	s.pushBytes.Add(4 * int64(len(values)))
	return s.named(r.update(ctx, h, ids, values))
}

// standing is the answer to a request whose shard has just changed its role.
func (s *Server) standing(h *wire.Header) outcome {
	r := s.replica(shard.ID(h.Shard))
	if r == nil {
		return outcome{code: codeUnknownShard}
	}
	r.mu.Lock()
	o := r.check(h, nil, int(h.Count))
	r.mu.Unlock()
	if o.code == codeOK || o.wait != nil || (r.sparse && o.code == codeLength) { // the ids were not kept either
		o = outcome{code: codeRetry} // the payload was not kept
	}
	return s.named(o)
}

// named fills in this server where a copy says "here".
func (s *Server) named(o outcome) outcome {
	if o.code == codeMoved && o.to.server == "" {
		o.to.server = s.cfg.ID
	}
	return o
}

func (s *Server) use(ctx context.Context, bytes int64) error {
	if s.cfg.Device == nil {
		return nil
	}
	return s.cfg.Device.Use(ctx, bytes)
}

// Shutdown stops the server and returns when nothing of it is left. Shards that it still
// owns fail over to their followers: move them away first (Admin.Drain, Admin.Move).
func (s *Server) Shutdown(ctx context.Context) error {
	s.closeData() // first: a server whose actor is gone acknowledges nothing
	var err error
	if !s.ref.IsZero() {
		err = s.cfg.Node.Stop(ctx, s.ref)
	}
	s.running.Wait() // everything under way ends with s.ctx
	if err != nil && !errors.Is(err, actor.ErrNoProcess) && !errors.Is(err, actor.ErrClosed) {
		return fmt.Errorf("ps: stop server %q: %w", s.cfg.ID, err)
	}
	return nil
}

// Close is Shutdown with a timeout of 2 s. It is safe to call it twice.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return s.Shutdown(ctx)
}

func (s *Server) closeData() {
	s.mu.Lock()
	s.stop(ErrClosed)
	for _, l := range s.listener {
		_ = l.Close() // nothing to do about it
	}
	for c := range s.conns {
		_ = c.Close() // its reader ends
	}
	s.mu.Unlock()
	s.drop()
}

// drop gives up everything that this server holds: it ends, or nobody will ask it again.
func (s *Server) drop() {
	s.mu.Lock()
	saves := s.saves
	s.mu.Unlock()
	for _, v := range saves {
		v.abandon()
	}
	for _, r := range s.all() {
		r.mu.Lock()
		r.free()
		ended, answers := r.assume(shard.Copy{})
		r.mu.Unlock()
		endAll(ended, ErrClosed)
		refuseDeferred(answers.dropped)
	}
}
