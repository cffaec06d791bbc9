package ps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
)

// The messages of the control plane. Each is idempotent: it may arrive twice and a
// repeated one gets the same answer. All fit a frame of the actors' protocol; what
// could grow beyond it is asked for in pages.

// describeRequest asks for the job and its layers from First on.
type describeRequest struct{ First int }

type describeReply struct {
	Job    Job // Model.Layers and Optimizers hold one page
	Layers int // in total
}

// routesRequest asks where the shards from First on are.
type routesRequest struct{ First int }

type routesReply struct {
	Version uint64
	Clock   uint32 // open clock of the job: what a reader that is no member may see closed
	Servers []serverInfo
	Owners  []uint16 // index into Servers plus one per shard, 0 for none
	Epochs  []uint64
	Lost    []uint32 // shards of this page whose state is gone
	Shards  int      // in total
	Joined  int      // servers that are up
	Needed  int      // servers that must have joined before layers are placed
}

// serverInfo is how to reach a server.
type serverInfo struct {
	ID      shard.ServerID
	Node    string
	Process string
	Addr    string // of the node, for actors
	Data    string // TCP address of the data plane, empty for none
	Local   string // unix socket of the data plane, empty for none
	Host    string // which machine Local is on
	Domain  string // failure domain
	Token   []byte
	Run     uint64 // of all processes that were this server, the later one has the higher number
	Secure  bool   // Data takes TLS only
}

// runRequest asks for the number of a new run of a server. One that is not used is no loss.
type runRequest struct{}

type runReply struct {
	Run         uint64
	Checkpoints bool // the job has them
}

// registerRequest comes from a server at start and whenever it has lost the
// coordinator: pages with what it has, in order of the shards, of which the last one counts
// for all.
type registerRequest struct {
	Info   serverInfo
	Copies copies // at most copiesPerPage
	First  uint32 // of the copies
	Next   uint32 // where the next page begins, 0 in the last
	Clock  uint32 // BSP: the latest one that the server has seen
	Term   uint64 // of the latest coordinator that the server has heard of
}

type registerReply struct {
	Job         string
	Term        uint64
	Checkpoints bool // the job has them
}

// serverReport is cast by a server every report interval.
type serverReport struct {
	ID     shard.ServerID
	Run    uint64
	Load   ServerLoad
	Lost   []lostFollower // at most maxLostReported
	Counts []shardCount   // of shards that it owns, at most maxCounts
	Copies copies         // at most maxCopies
}

// registerAgain is cast to a server that reports and that the coordinator does not know: it
// was down, and was taken out of the job, or another run of it has taken its place. One that
// is out for good is told so when it asks.
type registerAgain struct{ Term uint64 }

// outRequest says that a run of a server that is out of the job has given up all it had.
type outRequest struct {
	ID  shard.ServerID
	Run uint64
}

// lostFollower says that the owner of a shard has no stream to a follower, and so
// acknowledges nothing.
type lostFollower struct {
	Shard    uint32
	Epoch    uint64 // of the owner that has lost it
	Follower shard.ServerID
}

// command tells a server to do one step of a move, or to host a new shard.
type command struct {
	Kind    commandKind
	Step    shard.EffectKind // of commandStep
	Shard   uint32
	Epoch   uint64
	Attempt uint64
	Peer    serverInfo
	Timeout time.Duration // longest time the step may take
	Term    uint64        // of the coordinator
	Run     uint64        // of the server that it is for: another one, at the same address, is not meant

	Join      bool         // the target is to be a follower
	Rate      int64        // bytes per second of a copy, 0 for no limit
	Sure      bool         // the former owner is dead
	Followers []serverInfo // of the shard, as of Set of its record
	Set       uint64

	From string // checkpoint that a hosted shard is filled from; empty for first values
}

type commandReply struct {
	Bytes  int64  // state of the shard
	Filled uint64 // pushes that were in the checkpoint that it was filled from
}

// saveRequest has a server write the shards that it owns to a checkpoint, or with Arm only
// take the cuts of them, all at the beginning of the same clock, to be written later.
type saveRequest struct {
	Nonce   string // of this attempt at a checkpoint
	Name    string // of the checkpoint
	Parent  string // it is an increment to, or empty
	Shards  []uint32
	Clock   uint32
	Arm     bool
	Armed   bool  // the cuts have been taken
	Rate    int64 // bytes per second that are written, 0 for no limit
	Timeout time.Duration
	Term    uint64 // of the coordinator
}

type saveReply struct {
	Files []string
	Left  []uint32 // shards that are not owned there
}

// checkpointRequest asks the coordinator for a checkpoint. It is answered when that is
// written.
type checkpointRequest struct {
	Nonce string
	Full  bool
}

// retain tells a server which worker incarnations still exist.
type retain struct {
	Term    uint64 // of the coordinator
	Horizon uint64
	Live    []uint64
}

// localRequest is answered with the *Server itself, within one node only.
type localRequest struct{}

// joinRequest makes a worker a member. Nonce distinguishes two workers of one name;
// a repeated request has the same. Incarnation and Clock are set when a member
// comes back to a restarted coordinator.
type joinRequest struct {
	Worker      actor.Ref
	Name        string
	Nonce       string
	Observer    bool // reads and writes, but takes no part in the clocks
	Incarnation uint64
	Clock       uint32
	Has         [][]int64 // by dataset: positions that it has not finished
}

type joinReply struct {
	Incarnation uint64
	Clock       uint32
}

// tickRequest says that all pushes of Clock are acknowledged. It is answered when
// the worker may begin the next clock.
type tickRequest struct {
	Incarnation uint64
	Clock       uint32
}

type tickReply struct{ Clock uint32 }

// staleRequest asks to be told when all members have finished so many clocks.
type staleRequest struct {
	Incarnation uint64
	Finished    uint32
}

type staleReply struct{ Finished uint32 }

// takeRequest asks for ranges of a dataset, so that there are Want besides those that the
// worker has. A repeated one has the same Has, and gets the same answer.
type takeRequest struct {
	Incarnation uint64
	Dataset     int
	Has         []int64 // positions that it does not know to be finished
	Want        int
}

type takeReply struct{ Positions []int64 }

// finishRequest says that everything of a range is acknowledged. It is answered when that
// is in the store.
type finishRequest struct {
	Incarnation uint64
	Dataset     int
	Position    int64
}

type leaveRequest struct{ Incarnation uint64 }

// workerReport is cast by a worker every report interval.
type workerReport struct {
	Incarnation uint64
	Load        WorkerLoad
	Unreached   []shard.ServerID // at most maxUnreached
}

type (
	statusRequest struct {
		Shards bool // a page of shards instead of servers
		First  int
	}
	drainRequest struct {
		Server shard.ServerID
		Drain  bool
	}
	removeRequest struct{ Server shard.ServerID }
	moveRequest   struct {
		Nonce string // the same when the request is repeated
		Shard uint32
		To    shard.ServerID
	}
	loadRequest struct{}
	// aliveRequest is answered by whoever lives.
	aliveRequest struct{}
	// routesChanged is cast to workers after a move; losing it costs one redirect.
	routesChanged struct {
		Shard uint32
		Epoch uint64
		To    serverInfo
	}
	done struct{}
)

// register makes the messages and errors of this package known to a node.
func register(n *actor.Node) error {
	var errs []error
	types := map[string]any{
		"ps.describe": describeRequest{}, "ps.described": describeReply{},
		"ps.run": runRequest{}, "ps.run_reply": runReply{}, "ps.out": outRequest{}, "ps.routes": routesRequest{}, "ps.routed": routesReply{}, "ps.routes_changed": routesChanged{},
		"ps.register": registerRequest{}, "ps.registered": registerReply{}, "ps.server_report": serverReport{}, "ps.register_again": registerAgain{},
		"ps.command": command{}, "ps.commanded": commandReply{}, "ps.retain": retain{},
		"ps.join": joinRequest{}, "ps.joined": joinReply{}, "ps.tick": tickRequest{}, "ps.ticked": tickReply{},
		"ps.stale": staleRequest{}, "ps.stale_reply": staleReply{},
		"ps.take": takeRequest{}, "ps.taken": takeReply{}, "ps.finish": finishRequest{},
		"ps.leave": leaveRequest{}, "ps.worker_report": workerReport{},
		"ps.status": statusRequest{}, "ps.status_reply": Status{}, "ps.drain": drainRequest{}, "ps.remove": removeRequest{},
		"ps.move": moveRequest{}, "ps.moved": MoveReport{}, "ps.done": done{}, "ps.load": loadRequest{}, "ps.copies": copiesRequest{}, "ps.copies_reply": copiesReply{}, "ps.alive": aliveRequest{},
		"ps.save": saveRequest{}, "ps.saved": saveReply{}, "ps.checkpoint": checkpointRequest{}, "ps.checkpointed": CheckpointReport{}, "ps.loaded": ServerLoad{},
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		errs = append(errs, n.Register(name, types[name]))
	}
	for _, s := range sentinels {
		errs = append(errs, n.RegisterError(s.code, s.err))
	}
	return errors.Join(errs...)
}

// attemptTimeout is how long one attempt of a control request waits before it is
// sent again: a lost message costs this long, not the caller's deadline.
const attemptTimeout = time.Second

// The pause before a control request is sent again doubles from minAskPause to maxAskPause.
const (
	minAskPause = 5 * time.Millisecond
	maxAskPause = 200 * time.Millisecond
)

// defaultTimeout bounds requests whose context has no deadline.
const defaultTimeout = 30 * time.Second

// defaultReportInterval is the time between two reports of a server or client.
const defaultReportInterval = 200 * time.Millisecond

// closeTimeout bounds Close, which has no context.
const closeTimeout = 2 * time.Second

// joinTimeout bounds one attempt of a party to make itself known to the coordinator.
const joinTimeout = 5 * time.Second

// ask calls whichever of some candidates answers, until there is an answer or ctx ends: lost
// messages, a restarted receiver and a broken connection are all cured by asking again, because
// every request is idempotent. The error at the deadline names the last cause.
func ask[R any](ctx context.Context, n *actor.Node, to *candidates, msg any) (R, error) {
	r, _, err := askFrom[R](ctx, n, to, msg, nil)
	return r, err
}

// bounded returns ctx if it has a deadline, else ctx with one.
func bounded(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}

// askFrom is ask that says who has answered, and gives up with ErrUnavailable when
// alive says that the receiver is gone. It begins with the candidate that has answered
// last, and goes on to the next when there is nobody, or nothing but silence.
func askFrom[R any](ctx context.Context, n *actor.Node, to *candidates, msg any, alive func() bool) (R, actor.Ref, error) {
	var zero R
	var last error
	at, refusals := int(to.last.Load()), 0
	ctx, cancel := bounded(ctx, defaultTimeout)
	defer cancel()
	for pause := minAskPause; ; pause = min(2*pause, maxAskPause) {
		if alive != nil && !alive() {
			return zero, actor.Ref{}, errors.Join(fmt.Errorf("%w: %v is gone", ErrUnavailable, to), last)
		}
		attempt, end := context.WithTimeout(ctx, attemptTimeout)
		r, err := actor.Call[R](attempt, n, to.refs[at], msg)
		end()
		if err == nil || fromLeader(err) {
			to.last.Store(int32(at))
		}
		if err == nil {
			return r, to.refs[at], nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if refusals++; !errors.Is(err, actor.ErrClosed) && !errors.Is(err, ErrDeposed) {
			refusals = 0
		}
		// One that closes is not asked again, but another may answer. If the nodes of all
		// are closed it is this one that is.
		if !askAgain(err) && (refusals == 0 || refusals >= len(to.refs)) {
			return zero, actor.Ref{}, err
		}
		if !fromLeader(err) {
			at = (at + 1) % len(to.refs)
		}
		select {
		case <-ctx.Done():
			if fromLeader(last) {
				return zero, actor.Ref{}, fmt.Errorf("%w: %w", ctx.Err(), last)
			}
			return zero, actor.Ref{}, fmt.Errorf("%w: no answer from %v: %w", ctx.Err(), to, last)
		case <-time.After(pause):
		}
	}
}

// rejoinPause is the time between two attempts to come back to the coordinator when
// it refuses at once.
const rejoinPause = 100 * time.Millisecond

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func askAgain(err error) bool {
	return actor.Retryable(err) || fromLeader(err) || errors.Is(err, context.DeadlineExceeded)
}

// describe fetches the job from the coordinator.
func describe(ctx context.Context, n *actor.Node, coordinator *candidates) (Job, error) {
	var layers []shard.Layer
	optimizers, tables := map[string]Optimizer{}, map[string]Table{}
	for {
		r, err := ask[describeReply](ctx, n, coordinator, describeRequest{First: len(layers)})
		if err != nil {
			return Job{}, fmt.Errorf("ps: ask %v for the job: %w", coordinator, err)
		}
		layers = append(layers, r.Job.Model.Layers...)
		maps.Copy(optimizers, r.Job.Optimizers)
		maps.Copy(tables, r.Job.Tables)
		if len(layers) >= r.Layers || len(r.Job.Model.Layers) == 0 {
			job := r.Job
			job.Model.Layers, job.Optimizers, job.Tables = layers, optimizers, tables
			return job, job.validate()
		}
	}
}
