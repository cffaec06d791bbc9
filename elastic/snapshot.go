package elastic

import (
	"cmp"
	"slices"
	"time"

	"github.com/elasticps/elasticps/shard"
)

// Unknown is the value of a measurement that a server does not report.
const Unknown = -1

// Snapshot is the state of a job at one instant, as a value. The policy reads
// nothing else.
type Snapshot struct {
	// At is the time since the controller started; it never goes back.
	At time.Duration
	// Servers are the registered servers, in any order.
	Servers []ServerSample
	// Shards are the shards of the job, sorted by ID.
	Shards []shard.Shard
	// Map says who owns them.
	Map shard.Map
	// InFlight are the operators that have not ended.
	InFlight []Operator
	// Finished are the operators that ended since the last plan.
	Finished []Operator
	// Target is a number of servers that somebody asked for; 0 leaves the number to
	// the policy.
	Target int
}

// ServerSample is what was measured of one server. A measurement outside its
// bounds (negative, NaN, infinite, over 1 for a fraction) is dropped, that
// signal alone; zero is a measurement except where the field says otherwise.
type ServerSample struct {
	// ID is the name of the server.
	ID shard.ServerID
	// Up means that the server answers.
	Up bool
	// Draining means that the server is being emptied.
	Draining bool
	// CapacityBytes bounds the parameters on the server; 0 is no bound.
	CapacityBytes int64
	// GradientLatency is the 99th percentile of the time that workers waited
	// for an acknowledged push; 0 is unknown.
	GradientLatency time.Duration
	// RTT is the round trip of a probe, a lower bound of the latency and its
	// stand-in when no worker pushes; 0 is unknown.
	RTT time.Duration
	// Utilization is the fraction of time in which the device was busy, 0 to 1.
	Utilization float64
	// BytesPerSecond is the traffic of pushes and pulls.
	BytesPerSecond float64
}

// view is a snapshot with its servers sorted and its work in flight looked up.
type view struct {
	Snapshot
	servers []ServerSample // each ID once, sorted
	bytes   map[shard.ServerID]int64
	busy    map[subject]bool
	moving  int // moves in flight
	joining int // membership operators in flight
}

func newView(s Snapshot) view {
	v := view{Snapshot: s, bytes: make(map[shard.ServerID]int64), busy: make(map[subject]bool)}
	v.servers = slices.Clone(s.Servers)
	slices.SortStableFunc(v.servers, func(a, b ServerSample) int { return cmp.Compare(a.ID, b.ID) })
	v.servers = slices.CompactFunc(v.servers, func(a, b ServerSample) bool { return a.ID == b.ID })
	for _, a := range s.Map.Assignments {
		if int64(a.Shard) < int64(len(s.Shards)) {
			v.bytes[a.Owner] += s.Shards[a.Shard].Bytes()
		}
	}
	for _, o := range s.InFlight {
		v.busy[o.subject()] = true
		switch o.Kind {
		case MoveShard:
			v.moving++
		case AddServer, DrainServer, KeepServer:
			v.joining++
		}
	}
	for i := range v.servers { // work in flight counts as done
		s := &v.servers[i]
		s.Draining = s.Draining || v.busy[subject{kind: DrainServer, server: s.ID}]
	}
	return v
}

// active returns the servers that take shards: up and not draining.
func (v view) active() []ServerSample {
	var out []ServerSample
	for _, s := range v.servers {
		if s.Up && !s.Draining {
			out = append(out, s)
		}
	}
	return out
}

// ownerDown reports whether a server that owns shards is down.
func (v view) ownerDown() bool {
	for _, s := range v.servers {
		if !s.Up && !v.empty(s.ID) {
			return true
		}
	}
	return false
}

// usable returns the servers that answer as the placement sees them.
func (v view) usable() []shard.Server {
	servers := make([]shard.Server, 0, len(v.servers))
	for _, s := range v.servers {
		if s.Up {
			servers = append(servers, shard.Server{ID: s.ID, CapacityBytes: max(0, s.CapacityBytes), Draining: s.Draining})
		}
	}
	return servers
}

// empty reports whether the server owns no shard and none is on its way to it.
func (v view) empty(id shard.ServerID) bool {
	for _, a := range v.Map.Assignments {
		if a.Owner == id {
			return false
		}
	}
	for _, o := range v.InFlight {
		if o.Kind == MoveShard && (o.Move.To == id || o.Move.From == id) {
			return false
		}
	}
	return true
}

// engaged reports whether an operator adds, drains, keeps or removes the server.
func (v view) engaged(id shard.ServerID) bool {
	return slices.ContainsFunc(v.InFlight, func(o Operator) bool { return o.Server == id })
}

// starting reports whether an operator adds the server: it may be up before that has ended.
func (v view) starting(id shard.ServerID) bool {
	return slices.ContainsFunc(v.InFlight, func(o Operator) bool { return o.Kind == AddServer && o.Server == id })
}

// has reports whether a server of that name is registered or about to be.
func (v view) has(id shard.ServerID) bool {
	return v.engaged(id) || slices.ContainsFunc(v.servers, func(s ServerSample) bool { return s.ID == id })
}
