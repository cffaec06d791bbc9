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

// Status is what the coordinator knows. A remote one comes in pages; Admin.Status
// puts them together.
type Status struct {
	Uptime  time.Duration // of the coordinator
	Clock   uint32        // open clock
	Map     shard.Map
	Shards  int // in total
	Servers []ServerStatus
	Workers []WorkerStatus // at most 128 of them
	Members int            // workers in total
	// NumServers is how many servers there are in total.
	NumServers int
	// Returning is how many servers were known to an earlier coordinator and have not come
	// back to this one. It is 0 some time after a coordinator has taken over.
	Returning int
	Moves     []MoveReport // the last ones that ended
	Failovers []Failover   // the last ones that ended
	// Exposed is how many shards have fewer followers than the job wants and the
	// servers allow: a repair is under way.
	Exposed int
	// Held means that, under BSP, workers are held at the end of their clock until the
	// servers have taken the cuts of a checkpoint.
	Held bool
	// Datasets are in the order of Job.Datasets.
	Datasets []DatasetStatus
	// Tables are the first 32 of the model, in its order: sums over all servers, as old as
	// their last reports. Admin.Load has those of one server.
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
	Owned    int   // shards
	Follows  int   // shards of others that it has a copy of
	Bytes    int64 // parameters of the shards owned, without optimizer state
	Load     ServerLoad
	Latency  LatencySummary // of pushes, the worst of all workers; zero Count: unknown
	RTT      time.Duration  // of probes between the nodes; 0: same node or unknown
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
	st.Exposed = shard.Exposed(c.places.all(), c.candidates(), c.cfg.Job.Replicas)
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
		return Status{}, fmt.Errorf("ps: status: %w", err)
	}
	return st, nil
}

// Load asks a server itself for its load and counters of this moment.
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
	if err != nil {
		err = fmt.Errorf("ps: ask server %q: %w", s.ID, err)
	}
	return r, err
}

// Move moves a shard to another server while pushes and pulls go on, and returns
// when the move has ended, one way or the other: MoveReport.Err tells. It waits for a
// failover or a repair of the shard. An error of Move itself means that nothing was begun
// (shard.ErrMoveRefused, ErrConflict beside another move), or that ctx ended first; then
// the move goes on. An elastic controller that runs for the job balances the servers again
// at its next sample, and may undo it.
func (a *Admin) Move(ctx context.Context, id shard.ID, to shard.ServerID) (MoveReport, error) {
	return ask[MoveReport](ctx, a.node, a.coordinator, moveRequest{Nonce: randomID(), Shard: uint32(id), To: to})
}

// Drain marks a server as one that gets no shards any more, or takes the mark away.
// It does not move the shards that the server has. One that is not known is ErrConflict.
func (a *Admin) Drain(ctx context.Context, id shard.ServerID, drain bool) error {
	_, err := ask[done](ctx, a.node, a.coordinator, drainRequest{Server: id, Drain: drain})
	return err
}

// Remove makes the coordinator forget a server that owns no shard and is down, or marked
// as draining. Others stay (ErrConflict): whoever has found one down may have looked too
// early. One that is not known is fine. One that was draining stays out until it is started
// again; one that was only down takes part again when it is back. Remove returns when that is
// in the coordination store, so that it holds for coordinators to come.
func (a *Admin) Remove(ctx context.Context, id shard.ServerID) error {
	_, err := ask[done](ctx, a.node, a.coordinator, removeRequest{Server: id})
	return err
}
