package ps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
)

// Status is the state of a job as its coordinator knows it.
type Status struct {
	Uptime     time.Duration // of the coordinator
	Clock      uint32        // the lowest clock that a worker has not finished
	Map        shard.Map     // who owns which shard
	Shards     int           // number of shards of the job
	Servers    []ServerStatus
	Workers    []WorkerStatus // workers and observers, the first 128 by incarnation
	Members    int            // number of workers, observers not counted
	NumServers int            // number of servers
	// Returning is the number of servers that were known to an earlier coordinator, have
	// not registered with this one yet, and are not known to be dead. After its first 10 s a
	// coordinator no longer waits for them, and it is 0.
	Returning int
	Moves     []MoveReport // the last 32 that ended
	Failovers []Failover   // the last 32 that ended
	// Exposed is the number of shards that have fewer followers than the job asks for and
	// the servers allow. They get them in the background.
	Exposed int
	// Held means that a checkpoint under BSP is being taken: workers that finish their clock
	// wait until the servers have captured their state.
	Held bool
	// Datasets are in the order of Job.Datasets.
	Datasets []DatasetStatus
	// Tables are the first 32 tables of the model, in its order: sums over all servers, as of
	// their last reports. Admin.Load returns those of one server.
	Tables []TableStatus
}

// ServerStatus is one server.
type ServerStatus struct {
	ID       shard.ServerID
	Node     string
	Process  string
	Addr     string
	Up       bool
	Draining bool
	Domain   string
	Owned    int   // number of shards that it owns
	Follows  int   // number of shards that it follows
	Bytes    int64 // parameters of the shards that it owns, without optimizer state
	Load     ServerLoad
	Latency  LatencySummary // of pushes, the worst of all workers; unknown if Count is 0
	RTT      time.Duration  // round trip between the nodes; 0 on the same node or if unknown
}

// WorkerStatus is one member.
type WorkerStatus struct {
	Name               string
	Incarnation        uint64
	Observer           bool
	Clock              uint32
	PushesSent         uint64
	PushesAcknowledged uint64
}

const (
	statusWorkers = 128
	statusMoves   = 32
	statusShards  = 256
)

func (c *Coordinator) status(m statusRequest) Status {
	_, version := c.places.page(0, 0)
	st := Status{
		Uptime: time.Since(c.started), Clock: c.clocks.open(), Shards: len(c.shards), Members: len(c.clocks.members),
		Map: shard.Map{Version: version},
	}
	switch {
	case m.Shards:
		st.Map.Assignments, st.Map.Version = c.places.page(m.First, statusShards)
		return st
	case m.First > 0:
		st.Servers = c.serverStatus(m.First)
		return st
	}
	for _, inc := range slices.Sorted(maps.Keys(c.members)) {
		p := c.members[inc]
		if len(st.Workers) < statusWorkers {
			st.Workers = append(st.Workers, WorkerStatus{
				Name: p.name, Incarnation: inc, Observer: p.observer, Clock: c.clockOf(inc),
				PushesSent: p.load.PushesSent, PushesAcknowledged: p.load.PushesAcknowledged,
			})
		}
	}
	st.Servers = c.serverStatus(0)
	for _, d := range c.datasets {
		st.Datasets = append(st.Datasets, d.status())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	st.NumServers, st.Returning = len(c.servers), c.returning()
	for _, k := range c.moves[max(0, len(c.moves)-statusMoves):] {
		st.Moves = append(st.Moves, k.report)
	}
	st.Failovers = slices.Clone(c.failovers)
	st.Exposed = shard.Exposed(c.places.all(), c.eligible(), c.cfg.Job.Replicas)
	st.Held = c.clocks.cut
	st.Tables = c.tables()
	return st
}

// serverStatus is one page of servers, in order of their IDs.
func (c *Coordinator) serverStatus(first int) []ServerStatus {
	worst := c.latencies()
	records := c.places.all()
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := slices.Sorted(maps.Keys(c.servers))
	ids = ids[min(first, len(ids)):min(first+serversPerPage, len(ids))]
	rows, index := make([]ServerStatus, 0, len(ids)), make(map[shard.ServerID]int, len(ids))
	for i, id := range ids {
		s := c.servers[id]
		row := ServerStatus{
			ID: id, Node: s.info.Node, Process: s.info.Process, Addr: s.info.Addr, Up: s.up, Draining: s.draining,
			Load: s.load, Latency: worst[id], Domain: s.info.Domain,
		}
		row.Load.Tables = nil // of many servers they would not fit a message
		row.RTT, _ = c.cfg.Node.RTT(s.info.Node)
		rows = append(rows, row)
		index[id] = i
	}
	for _, r := range records {
		if i, ok := index[r.Assignment.Owner]; ok {
			rows[i].Owned++
			rows[i].Bytes += c.shards[r.Assignment.Shard].Bytes()
		}
		for _, id := range r.Followers[:r.Followers.Len()] {
			if i, ok := index[id]; ok {
				rows[i].Follows++
			}
		}
	}
	return rows
}

// latencies is the worst push latency per server over all workers.
func (c *Coordinator) latencies() map[shard.ServerID]LatencySummary {
	worst := map[shard.ServerID]LatencySummary{}
	for _, p := range c.members {
		for _, l := range p.load.Servers {
			w := worst[l.Server]
			worst[l.Server] = LatencySummary{
				Server: l.Server, P50: max(w.P50, l.P50), P99: max(w.P99, l.P99), Count: w.Count + l.Count,
			}
		}
	}
	return worst
}

// Admin asks a coordinator for its state and for changes. It is safe from any
// goroutine; every call blocks until ctx ends at the latest.
type Admin struct {
	node        *actor.Node
	coordinator *candidates
}

// NewAdmin returns an Admin that asks the given coordinator from the given node, or
// whichever of the standbys has taken its place, see StandBy.
func NewAdmin(n *actor.Node, coordinator actor.Ref, standbys ...actor.Ref) (*Admin, error) {
	if err := errors.Join(checkStandbys(standbys), register(n)); err != nil {
		return nil, err
	}
	return &Admin{node: n, coordinator: coordinators(coordinator, standbys)}, nil
}

// Job returns what is trained.
func (a *Admin) Job(ctx context.Context) (Job, error) { return describe(ctx, a.node, a.coordinator) }

// Shards returns the shards of the job, in order of their IDs.
func (a *Admin) Shards(ctx context.Context) ([]shard.Shard, error) {
	job, err := a.Job(ctx)
	if err != nil {
		return nil, err
	}
	return job.partition()
}

// Status returns the state of the job. Loads and latencies are those of the last
// reports.
func (a *Admin) Status(ctx context.Context) (Status, error) {
	st, err := ask[Status](ctx, a.node, a.coordinator, statusRequest{})
	for err == nil && len(st.Servers) < st.NumServers {
		var next Status
		next, err = ask[Status](ctx, a.node, a.coordinator, statusRequest{First: len(st.Servers)})
		if len(next.Servers) == 0 {
			break
		}
		st.Servers = append(st.Servers, next.Servers...)
	}
	for err == nil && len(st.Map.Assignments) < st.Shards {
		var next Status
		next, err = ask[Status](ctx, a.node, a.coordinator, statusRequest{Shards: true, First: len(st.Map.Assignments)})
		if len(next.Map.Assignments) == 0 {
			break
		}
		st.Map.Assignments = append(st.Map.Assignments, next.Map.Assignments...)
		st.Map.Version = max(st.Map.Version, next.Map.Version)
	}
	if err != nil {
		return Status{}, failed(err, "status")
	}
	return st, nil
}

// Load asks a server itself, as it is in Status.Servers, for its present load and counters.
func (a *Admin) Load(ctx context.Context, s ServerStatus) (ServerLoad, error) {
	return askDirectly[ServerLoad](ctx, a.node, s, loadRequest{})
}

// askDirectly asks a server itself, not the coordinator about it.
func askDirectly[R any](ctx context.Context, n *actor.Node, s ServerStatus, msg any) (r R, err error) {
	if s.Node != n.Name() {
		err = n.AddPeer(s.Node, s.Addr)
	}
	if err == nil {
		r, err = ask[R](ctx, n, only(actor.Ref{Node: s.Node, Name: s.Process}), msg)
	}
	return r, failed(err, "ask server %q", s.ID)
}

// requestError is what became of a request of an Admin. Unwrap gives the cause.
type requestError struct {
	what string
	err  error
}

// failed makes a requestError of an error, and nil of nil.
func failed(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &requestError{fmt.Sprintf(format, args...), err}
}

// Error says what was asked for and the cause, without the call that carried it.
func (e *requestError) Error() string {
	text := e.err.Error()
	if call := (*actor.Error)(nil); errors.As(e.err, &call) {
		text = strings.Replace(text, call.Error(), call.Err.Error(), 1)
	}
	return fmt.Sprintf("ps: %s: %s", e.what, strings.TrimPrefix(text, "ps: "))
}

func (e *requestError) Unwrap() error { return e.err }

// Move moves a shard to another server while pushes and pulls go on. It returns when the
// move has ended; MoveReport.Err says whether it succeeded. A failover or a repair of the
// shard is waited for first. An error of Move itself means that no move was begun
// (shard.ErrMoveRefused; ErrConflict if another move of the shard is under way), or that ctx
// ended first: the move goes on then. If an elastic controller runs for the job, it balances
// the servers at its next sample, and may move the shard back.
func (a *Admin) Move(ctx context.Context, id shard.ID, to shard.ServerID) (MoveReport, error) {
	r, err := ask[MoveReport](ctx, a.node, a.coordinator, moveRequest{Nonce: randomID(), Shard: uint32(id), To: to})
	return r, failed(err, "move of shard %d to %.64q", id, to)
}

// Drain marks a server as draining: it gets no further shards. With drain false it removes
// the mark. The shards that the server owns stay there until they are moved (Move); its
// followers are made anew on other servers. An unknown server is ErrConflict.
func (a *Admin) Drain(ctx context.Context, id shard.ServerID, drain bool) error {
	_, err := ask[done](ctx, a.node, a.coordinator, drainRequest{Server: id, Drain: drain})
	return failed(err, "drain of server %.64q", id)
}

// Remove takes a server out of the job. The server must own no shard, and be down or
// draining; else the error is ErrConflict. A server that is not known is fine. One that was
// draining takes part again only when its process is started anew; one that was down does so as
// soon as it is back. Remove returns when the coordination store has this, so that it holds for
// later coordinators too.
func (a *Admin) Remove(ctx context.Context, id shard.ServerID) error {
	_, err := ask[done](ctx, a.node, a.coordinator, removeRequest{Server: id})
	return failed(err, "removal of server %.64q", id)
}
