package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/elastic/sched"
	"github.com/elasticps/elasticps/shard"
)

// run is a simulation under way.
type run struct {
	clock
	config  Config
	cluster *sched.Cluster
	rng     *rand.Rand
	nodes   []string // that are there, in order of their names
	waiting []*job   // by priority, then by time
	running []*job
	byTask  map[string]*job
	freed   bool // something, since jobs were admitted last
	stats   stats
}

// job is one that waits or runs.
type job struct {
	Job
	begun   time.Duration
	done    time.Duration // work that is done
	speed   float64       // work per time
	since   time.Duration // when done was counted last
	resume  time.Duration // it stands still until then
	version int           // of the event that ends it
	runs    bool
	fleet   *fleet
}

// Run simulates. It returns what happened; the error says what is wrong with the
// configuration. It does not block, and the same configuration gives the same result.
func Run(c Config) (*Result, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	var tasks []sched.Task
	for _, j := range c.Jobs {
		for range j.Workers {
			tasks = append(tasks, j.Task)
		}
	}
	cluster, err := sched.New(sched.Config{
		Nodes: c.Nodes, Levels: c.Levels, Policy: c.Policy, Mix: sched.MixOf(tasks), Seed: c.Seed,
	})
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	r := &run{config: c, cluster: cluster, rng: rand.New(rand.NewPCG(c.Seed, 1)), byTask: make(map[string]*job)}
	for _, n := range c.Nodes {
		r.nodes = append(r.nodes, n.Name)
	}
	slices.Sort(r.nodes)
	for i := range c.Jobs {
		j := &job{Job: c.Jobs[i]}
		r.after(j.At, func() { r.enqueue(j); r.admit() })
	}
	r.every(c.Interval, r.look)
	r.every(c.Sample, r.sample)
	if c.Defragment > 0 {
		r.every(c.Defragment, r.defragment)
	}
	r.nextFailure()
	r.run(c.Horizon)
	return r.result(), nil
}

// enqueue lets a job wait.
func (r *run) enqueue(j *job) {
	i, _ := slices.BinarySearchFunc(r.waiting, j, func(a, b *job) int {
		return cmp.Or(cmp.Compare(b.Task.Priority, a.Task.Priority), cmp.Compare(a.At, b.At), cmp.Compare(a.ID, b.ID))
	})
	r.waiting = slices.Insert(r.waiting, i, j)
}

// maxTries bounds the jobs that are tried when there is room again.
const maxTries = 48

// admit starts the jobs that find room, in order; those behind one that finds none may go
// ahead. Of jobs that ask for the same, one that does not fit speaks for the others.
func (r *run) admit() {
	r.freed = false
	refused := make(map[string]bool)
	tries := 0
	r.waiting = slices.DeleteFunc(r.waiting, func(j *job) bool {
		kind := fmt.Sprint(j.Workers, j.Task.CPU, j.Task.Devices, j.Task.Share, j.Task.Models, j.Task.Vendors)
		if tries >= maxTries || refused[kind] {
			return false
		}
		tries++
		if r.start(j) {
			return true
		}
		refused[kind] = true
		return false
	})
}

// start places a job, workers and servers, or nothing.
func (r *run) start(j *job) bool {
	gang := sched.Gang{ID: j.ID, Constraints: j.Constraints}
	for i := range j.Workers {
		gang.Tasks = append(gang.Tasks, j.worker(i))
	}
	if _, err := r.cluster.PlaceGang(gang); err != nil && !r.makeRoom(gang) {
		return false
	}
	if j.ParameterBytes > 0 && !r.startServers(j) {
		for _, t := range gang.Tasks {
			r.release(t.ID)
		}
		return false
	}
	for _, t := range gang.Tasks {
		r.byTask[t.ID] = j
	}
	r.running = append(r.running, j)
	j.runs, j.begun, j.since, j.speed = true, r.now, r.now, 1
	r.stats.started(r.now - j.At)
	r.pause(j, r.config.World.StartWorker)
	return true
}

func (j *job) worker(i int) sched.Task {
	t := j.Task
	t.ID = fmt.Sprintf("%s/worker-%d", j.ID, i)
	return t
}

// server is the task of a parameter server, which is not evicted, and moves.
func (r *run) server(j *job, id shard.ServerID, servers int) sched.Task {
	return sched.Task{
		ID: fmt.Sprintf("%s/%s", j.ID, id), Priority: j.Task.Priority, Movable: true, Drain: true,
		Request: sched.Request{
			CPU:         r.config.World.ServerCores,
			MemoryBytes: r.config.World.ServerBytes + 3*j.ParameterBytes/int64(servers), // weights and two slots
		},
	}
}

func (r *run) startServers(j *job) bool {
	n := r.number(&j.Job)
	f, err := newFleet(&j.Job, n)
	if err != nil {
		return false
	}
	for i, s := range f.servers {
		t := r.server(j, s.ID, n)
		if _, err := r.cluster.Place(t); err != nil {
			for _, s := range f.servers[:i] {
				r.release(fmt.Sprintf("%s/%s", j.ID, s.ID))
			}
			return false
		}
		r.byTask[t.ID] = j
	}
	j.fleet = f
	return true
}

// release gives back what a task has, if it has it.
func (r *run) release(task string) {
	_ = r.cluster.Release(task) // a task that a node took with it is not there any more
	delete(r.byTask, task)
	r.freed = true
}

// makeRoom evicts others for a gang of high priority.
func (r *run) makeRoom(g sched.Gang) bool {
	if r.config.PreemptFrom == 0 || g.Tasks[0].Priority < r.config.PreemptFrom {
		return false
	}
	p, err := r.cluster.PreemptGang(g)
	if err != nil {
		return false
	}
	gone, err := r.cluster.Evict(p, nil)
	if err != nil {
		return false
	}
	r.stats.evictions += len(gone)
	for _, t := range gone {
		if j := r.byTask[t.ID]; j != nil {
			r.stop(j) // it is told, and saves
			r.after(0, func() { r.enqueue(j) })
		}
	}
	return true
}

// stop takes a running job off the cluster.
func (r *run) stop(j *job) {
	r.count(j)
	for i := range j.Workers {
		r.release(j.worker(i).ID)
	}
	if j.fleet != nil {
		for _, s := range j.fleet.servers {
			r.release(fmt.Sprintf("%s/%s", j.ID, s.ID))
		}
		for _, o := range j.fleet.inFlight {
			if o.Kind == elastic.AddServer {
				r.release(fmt.Sprintf("%s/%s", j.ID, o.Server))
			}
		}
		j.fleet = nil
	}
	j.runs = false
	j.version++
	r.running = slices.DeleteFunc(r.running, func(other *job) bool { return other == j })
}

// count adds the work since the last time.
func (r *run) count(j *job) {
	if from := max(j.since, j.resume); j.runs && r.now > from {
		work := time.Duration(float64(r.now-from) * j.speed)
		j.done += work
		r.stats.useful += work.Seconds() * float64(j.Workers) * devices(j)
	}
	j.since = r.now
}

// unsaved is the work since the last checkpoint.
func (r *run) unsaved(j *job) time.Duration {
	since := (r.now - j.begun) % r.config.World.Checkpoint
	return min(j.done, time.Duration(float64(since)*j.speed))
}

// devices is what one worker has of them.
func devices(j *job) float64 {
	return float64(j.Task.Devices) * float64(cmp.Or(j.Task.Share, sched.Whole)) / float64(sched.Whole)
}

// pause lets a job stand still for a while.
func (r *run) pause(j *job, d time.Duration) {
	r.count(j)
	j.resume = max(j.resume, r.now+d)
	r.schedule(j)
}

// schedule makes the event at which a job ends.
func (r *run) schedule(j *job) {
	j.version++
	version := j.version
	if j.speed <= 0 {
		return
	}
	left := time.Duration(float64(max(0, j.Work-j.done))/j.speed) + time.Millisecond
	r.after(max(j.resume, r.now)-r.now+left, func() {
		if j.version != version {
			return
		}
		r.stop(j)
		r.stats.finished(r.now-j.At, j.Work)
		r.admit()
	})
}

// look measures the load of all jobs with servers, and lets the policy decide.
func (r *run) look() {
	for _, j := range slices.Clone(r.running) {
		if j.fleet != nil {
			r.stats.servers(len(j.fleet.servers), j.Load.at(r.now-j.begun), r.config.Interval)
			r.consider(j)
		}
	}
	if r.freed {
		r.admit()
	}
}

// consider measures a job and asks the policy, as the controller does at every interval and
// whenever an operator has ended.
func (r *run) consider(j *job) {
	f := j.fleet
	busiest := f.measure(j.Load.at(r.now-j.begun), r.config.World)
	r.stats.overload(f, busiest, r.now)
	if speed := pace(busiest); speed != j.speed {
		r.count(j)
		j.speed = speed
		r.schedule(j)
	}
	if r.config.Servers == Elastic {
		for _, o := range f.plan(r.config.Scaling, r.now) {
			r.begin(j, o)
		}
	}
}

// begin starts an operator. A new server needs a place first.
func (r *run) begin(j *job, o elastic.Operator) {
	f, to := j.fleet, elastic.Succeeded
	if o.Kind == elastic.AddServer {
		t := r.server(j, o.Server, len(f.servers)+1)
		if _, err := r.cluster.Place(t); err != nil {
			to = elastic.Failed
		} else {
			r.byTask[t.ID] = j
			r.stats.grown++
		}
	}
	r.after(r.config.World.takes(o), func() {
		if j.fleet != f {
			return
		}
		if o, ok := f.end(o.ID, to); ok && to == elastic.Succeeded {
			f.apply(o)
			if o.Kind == elastic.RemoveServer {
				r.release(fmt.Sprintf("%s/%s", j.ID, o.Server))
				r.stats.shrunk++
			}
		}
		if !f.soon { // those that end together are looked at together
			f.soon = true
			r.after(settle, func() {
				if f.soon = false; j.fleet == f {
					r.consider(j)
				}
			})
		}
	})
}

// settle is how long the controller waits for other operators when one has ended.
const settle = 200 * time.Millisecond

// defragment moves what may be moved, as production does; the moves are free of charge
// here but for their number.
func (r *run) defragment() {
	moves, err := r.cluster.Defragment(sched.Budget{Moves: r.config.MaxMoves})
	if err != nil {
		panic("sim: a valid budget is refused: " + err.Error())
	}
	for _, m := range moves {
		if r.cluster.Move(m) == nil {
			r.stats.moves++
		}
	}
	r.admit()
}
