package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/shard"
)

const (
	// shardsPer server at the highest load, so that what each has differs by little.
	shardsPer    = 8
	maxServers   = 128
	serverPrefix = "ps-" // as elastic.Policy names them
	// full is the load of a server above which its queue no longer holds the workers up
	// only, but sets their pace.
	full = 0.98
	// sizing is the load that fixed numbers of servers are chosen for.
	sizing = 0.8
)

// fleet is the parameter servers of a job.
type fleet struct {
	servers  []elastic.ServerSample
	shards   []shard.Shard
	owners   shard.Map
	state    elastic.State
	inFlight []elastic.Operator
	finished []elastic.Operator
	// overloaded is since when a server has been above the threshold, if it is.
	overloaded time.Duration
	isOver     bool
	soon       bool // the policy is asked again
}

// number is how many servers a job begins with.
func (r *run) number(j *Job) int {
	load := j.Load.Mean
	if r.config.Servers == FixedForPeak {
		load = j.Load.Peak()
	}
	return min(max(1, int(math.Ceil(load/sizing))), maxServers)
}

// at is the load at a time since the begin of the job.
func (l Load) at(t time.Duration) float64 {
	return l.Mean + l.Swing*math.Sin(2*math.Pi*float64(t+l.Phase)/float64(l.Period))
}

// newFleet places the shards of a job on n servers.
func newFleet(j *Job, n int) (*fleet, error) {
	f := &fleet{}
	shards := shardsPer * min(max(n, int(math.Ceil(j.Load.Peak()/sizing))), maxServers)
	elems := max(1, j.ParameterBytes/4/int64(shards))
	for i := range shards {
		f.shards = append(f.shards, shard.Shard{ID: shard.ID(i), Range: shard.Range{Begin: int64(i) * elems, End: int64(i+1) * elems}})
	}
	var servers []shard.Server
	for i := range n {
		id := shard.ServerID(fmt.Sprintf("%sfirst-%d", serverPrefix, i))
		servers = append(servers, shard.Server{ID: id})
		f.servers = append(f.servers, elastic.ServerSample{ID: id, Up: true})
	}
	var err error
	f.owners, err = shard.Place(f.shards, servers)
	return f, err
}

// measure sets what each server reports of a load that falls on the servers as their shards
// do, and returns the load of the busiest.
func (f *fleet) measure(load float64, w World) (busiest float64) {
	owned := make(map[shard.ServerID]int, len(f.servers))
	for _, a := range f.owners.Assignments {
		owned[a.Owner]++
	}
	for i := range f.servers {
		s := &f.servers[i]
		rho := load * float64(owned[s.ID]) / float64(len(f.shards))
		busiest = max(busiest, rho)
		rho = min(rho, full)
		s.GradientLatency = time.Duration(float64(w.Service) / (1 - rho))
		s.Utilization, s.BytesPerSecond = rho, rho*w.LinkBytesPerSecond
	}
	return busiest
}

// pace is how fast workers go when the busiest server has that load.
func pace(busiest float64) float64 {
	if busiest <= full {
		return 1
	}
	return full / busiest
}

// plan asks the policy of the controller what to do now.
func (f *fleet) plan(p elastic.Policy, now time.Duration) []elastic.Operator {
	plan, next := p.Plan(elastic.Snapshot{
		At: now, Servers: f.servers, Shards: f.shards, Map: f.owners, InFlight: f.inFlight, Finished: f.finished,
	}, f.state)
	f.state, f.finished = next, nil
	started := make([]elastic.Operator, 0, len(plan.Operators))
	for _, o := range plan.Operators {
		o, err := o.Advance(elastic.Started)
		if err != nil {
			panic("sim: a new operator cannot start: " + err.Error())
		}
		started = append(started, o)
	}
	f.inFlight = append(f.inFlight, started...)
	return started
}

// takes is how long an operator runs.
func (w World) takes(o elastic.Operator) time.Duration {
	switch o.Kind {
	case elastic.AddServer:
		return w.StartServer
	case elastic.MoveShard:
		return 50*time.Millisecond + time.Duration(float64(o.Influence.Bytes)/w.LinkBytesPerSecond*float64(time.Second))
	}
	return 50 * time.Millisecond
}

// end takes an operator off the list of those in flight; ok is false if it is there no more.
func (f *fleet) end(id uint64, to elastic.Status) (o elastic.Operator, ok bool) {
	i := slices.IndexFunc(f.inFlight, func(o elastic.Operator) bool { return o.ID == id })
	if i < 0 {
		return o, false
	}
	o, err := f.inFlight[i].Advance(to)
	if err != nil {
		panic("sim: an operator in flight cannot end: " + err.Error())
	}
	f.inFlight = slices.Delete(f.inFlight, i, i+1)
	f.finished = append(f.finished, o)
	return o, true
}

// apply does what an operator does.
func (f *fleet) apply(o elastic.Operator) {
	i := slices.IndexFunc(f.servers, func(s elastic.ServerSample) bool { return s.ID == o.Server })
	switch o.Kind {
	case elastic.AddServer:
		f.servers = append(f.servers, elastic.ServerSample{ID: o.Server, Up: true})
	case elastic.DrainServer, elastic.KeepServer:
		if i >= 0 {
			f.servers[i].Draining = o.Kind == elastic.DrainServer
		}
	case elastic.RemoveServer:
		if i >= 0 {
			f.servers = slices.Delete(f.servers, i, i+1)
		}
	case elastic.MoveShard:
		if m, err := f.owners.WithOwner(o.Move.Shard, o.Move.To); err == nil && f.has(o.Move.To) {
			f.owners = m
		}
	}
}

func (f *fleet) has(id shard.ServerID) bool {
	return slices.ContainsFunc(f.servers, func(s elastic.ServerSample) bool { return s.ID == id })
}

// lose takes a server away that has died, or that was to come. The followers of its shards,
// which lie on the others, are promoted. It returns false if it was the only one.
func (f *fleet) lose(id shard.ServerID) bool {
	for _, o := range f.inFlight {
		if o.Kind == elastic.AddServer && o.Server == id {
			f.end(o.ID, elastic.Failed)
			return true
		}
	}
	f.servers = slices.DeleteFunc(f.servers, func(s elastic.ServerSample) bool { return s.ID == id })
	if len(f.servers) == 0 {
		f.servers = append(f.servers, elastic.ServerSample{ID: id, Up: true}) // it is started again
		return false
	}
	next := 0
	for _, a := range f.owners.Assignments {
		if a.Owner != id {
			continue
		}
		if m, err := f.owners.WithOwner(a.Shard, f.servers[next%len(f.servers)].ID); err == nil {
			f.owners = m
		}
		next++
	}
	return true
}
