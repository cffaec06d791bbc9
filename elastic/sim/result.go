package sim

import (
	"math"
	"slices"
	"time"

	"github.com/elasticps/elasticps/elastic/sched"
)

// Point is one point of the curves. Fractions are of all devices of the cluster.
type Point struct {
	At time.Duration
	// Allocated is the fraction in use, Fragmented the idle one that the expected tasks cannot
	// use.
	Allocated, Fragmented float64
	// Waiting and Running are jobs, Servers parameter servers.
	Waiting, Running, Servers int
}

// Span is what lengths of time came to.
type Span struct {
	Count         int
	P50, P99, Max time.Duration
}

func spanOf(list []time.Duration) Span {
	if len(list) == 0 {
		return Span{}
	}
	sorted := slices.Sorted(slices.Values(list))
	at := func(part float64) time.Duration { return sorted[int(part*float64(len(sorted)-1))] }
	return Span{len(sorted), at(0.5), at(0.99), sorted[len(sorted)-1]}
}

// Result is what happened in a run.
type Result struct {
	Points []Point
	// Nodes is what each node has in use at the end, by name.
	Nodes map[string]sched.Usage
	// Allocated is the mean fraction of the devices in use, Useful the one that did work which
	// was not lost, Fragmented the mean idle one that the expected tasks could not use.
	Allocated, Useful, Fragmented float64
	// Started and Finished are jobs. Wait is how long they waited, Stretch how many times as
	// long they took as they would have, undisturbed: the mean.
	Started, Finished int
	Wait              Span
	Stretch           float64
	// Overload is how long a parameter server was too busy, over 90 %, until there were enough.
	Overload Span
	// ServerHours were reserved for parameter servers, of which Waste is the fraction that
	// did nothing.
	ServerHours, Waste float64
	// Failures are those of nodes; Recovery is how long a job stood still after one, LostWork
	// what it had to do again, Requeued the jobs that had to wait for room.
	Failures int
	Recovery Span
	LostWork Span
	Requeued int
	// Grown and Shrunk are parameter servers added and removed, Moves tasks moved, Evictions
	// tasks evicted.
	Grown, Shrunk, Moves, Evictions int
}

// stats is what is counted on the way.
type stats struct {
	points                     []Point
	useful                     float64 // device seconds
	waits, overloads           []time.Duration
	recoveries, lost           []time.Duration
	stretch                    float64
	done                       int
	reserved, busy             float64 // server seconds
	failures, requeued         int
	grown, shrunk              int
	moves, evictions, startedN int
}

func (s *stats) started(wait time.Duration) {
	s.startedN++
	s.waits = append(s.waits, wait)
}

func (s *stats) finished(took, work time.Duration) {
	s.done++
	s.stretch += float64(took) / float64(work)
}

func (s *stats) recovered(down, again time.Duration) {
	s.recoveries = append(s.recoveries, down)
	if again > 0 {
		s.lost = append(s.lost, again)
	}
}

// servers counts what servers did in an interval.
func (s *stats) servers(n int, load float64, d time.Duration) {
	s.reserved += float64(n) * d.Seconds()
	s.busy += math.Min(load, float64(n)) * d.Seconds()
}

// tooBusy is the load of a server above which a push takes more than 50 ms, the threshold of
// the controller, with the default time of service.
const tooBusy = 0.9

// overload follows how long servers are too busy.
func (s *stats) overload(f *fleet, busiest float64, now time.Duration) {
	switch over := busiest > tooBusy; {
	case over && !f.isOver:
		f.isOver, f.overloaded = true, now
	case !over && f.isOver:
		f.isOver = false
		s.overloads = append(s.overloads, now-f.overloaded)
	}
}

// sample notes a point of the curves.
func (r *run) sample() {
	all := float64(r.cluster.ClusterResources().Accelerator())
	left := float64(r.cluster.AvailableResources().Accelerator())
	fragmented, _ := r.cluster.Fragmentation()
	p := Point{
		At: r.now, Allocated: 1 - left/max(all, 1), Fragmented: fragmented,
		Waiting: len(r.waiting), Running: len(r.running),
	}
	for _, j := range r.running {
		if j.fleet != nil {
			p.Servers += len(j.fleet.servers)
		}
	}
	r.stats.points = append(r.stats.points, p)
}

func (r *run) result() *Result {
	var devices float64
	for _, n := range r.config.Nodes {
		devices += float64(n.Devices)
	}
	for _, j := range r.running {
		r.count(j)
		if j.fleet != nil && j.fleet.isOver {
			r.stats.overloads = append(r.stats.overloads, r.now-j.fleet.overloaded)
		}
	}
	s := &r.stats
	result := &Result{
		Points: s.points, Nodes: r.cluster.Usage(),
		Started: s.startedN, Finished: s.done, Wait: spanOf(s.waits), Stretch: s.stretch / float64(max(1, s.done)),
		Useful:   s.useful / max(1, devices*r.config.Horizon.Seconds()),
		Overload: spanOf(s.overloads), ServerHours: s.reserved / 3600, Waste: 1 - s.busy/max(1, s.reserved),
		Failures: s.failures, Recovery: spanOf(s.recoveries), LostWork: spanOf(s.lost), Requeued: s.requeued,
		Grown: s.grown, Shrunk: s.shrunk, Moves: s.moves, Evictions: s.evictions,
	}
	for _, p := range s.points {
		result.Allocated += p.Allocated / float64(len(s.points))
		result.Fragmented += p.Fragmented / float64(len(s.points))
	}
	return result
}
