package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/elasticps/elasticps/elastic/sched"
	"github.com/elasticps/elasticps/shard"
)

// nextFailure makes the event at which some node fails: as many nodes with independent
// exponential lives fail as one process of that many times the rate.
func (r *run) nextFailure() {
	mean := float64(r.config.World.NodeLife) / float64(max(1, len(r.config.Nodes)))
	r.after(time.Duration(r.rng.ExpFloat64()*mean), func() {
		if len(r.nodes) > 0 {
			r.fail(r.nodes[r.rng.IntN(len(r.nodes))])
		}
		r.nextFailure()
	})
}

// fail takes a node away for the time of its repair.
func (r *run) fail(name string) {
	lost, err := r.cluster.RemoveNode(name)
	if err != nil {
		panic("sim: a node that is there cannot fail: " + err.Error())
	}
	r.stats.failures++
	r.nodes = slices.DeleteFunc(r.nodes, func(n string) bool { return n == name })
	i := slices.IndexFunc(r.config.Nodes, func(n sched.Node) bool { return n.Name == name })
	r.after(r.config.World.Repair, func() {
		if err := r.cluster.AddNodes(r.config.Nodes[i]); err != nil {
			panic("sim: a node that is gone cannot come back: " + err.Error())
		}
		at, _ := slices.BinarySearch(r.nodes, name)
		r.nodes = slices.Insert(r.nodes, at, name)
		r.admit()
	})
	var hit []*job
	tasks := make(map[*job][]sched.Task)
	for _, t := range lost {
		j := r.byTask[t.ID]
		if j == nil {
			continue
		}
		if tasks[j] == nil {
			hit = append(hit, j)
		}
		tasks[j] = append(tasks[j], t)
		delete(r.byTask, t.ID)
	}
	for _, j := range hit {
		r.recover(j, tasks[j])
	}
}

// recover brings a job back that has lost tasks. Lost workers and servers are started
// elsewhere, but for servers with replicas: followers are promoted, and the policy sees to the
// rest. What has to go back to the last checkpoint does. A job that finds no room waits.
func (r *run) recover(j *job, lost []sched.Task) {
	w := r.config.World
	r.count(j)
	down, again := w.Detect, time.Duration(0)
	room := true
	for _, t := range lost {
		server, isServer := strings.CutPrefix(t.ID, j.ID+"/"+serverPrefix)
		if isServer && r.config.Servers == Elastic && j.fleet.lose(shard.ServerID(serverPrefix+server)) {
			down = max(down, w.Detect+w.Promote)
			continue
		}
		switch {
		case isServer:
			load := time.Duration(float64(j.ParameterBytes) / w.LinkBytesPerSecond * float64(time.Second))
			down = max(down, w.Detect+w.StartServer+load)
			again = r.unsaved(j)
		case j.fleet == nil && !j.Stateless: // the workers have the parameters
			down = max(down, w.Detect+w.StartWorker)
			again = r.unsaved(j)
		default:
			down = max(down, w.Detect+w.StartWorker)
		}
		if _, err := r.cluster.Place(t); err != nil {
			room = false
			continue
		}
		r.byTask[t.ID] = j
	}
	j.done -= again
	r.stats.useful -= again.Seconds() * float64(j.Workers) * devices(j)
	if !room {
		r.stop(j)
		r.enqueue(j)
		r.stats.requeued++
		return
	}
	r.stats.recovered(down, again)
	r.pause(j, down)
}
