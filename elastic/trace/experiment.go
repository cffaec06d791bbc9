package trace

import (
	"cmp"
	"fmt"
	"math"
	"math/rand"
	"slices"

	"github.com/elasticps/elasticps/elastic/sched"
)

// MaxLoad is the greatest load of an experiment, in percent of the devices.
const MaxLoad = 200

// watches is how often the program of the published runs draws between the arrivals and the
// order of the nodes, for what it watches of its cluster. The number was found by trial: with
// it the curves of all seeds come out as published, with its neighbours none does.
const watches = 10

// Arrivals returns the order in which the tasks of a trace come in the experiment of Weng et al.
// (Beware of Fragmentation, USENIX ATC 2023): all of them, shuffled, and then tasks
// drawn from them until what came would be more than load percent of the devices, or without as
// many of them, drawn, as are more than that. It returns places in tasks, which are taken in the
// order of their names.
func Arrivals(tasks []sched.Task, devices sched.Milli, load int, seed int64) []int {
	order, _ := arrivals(tasks, devices, load, seed)
	return order
}

// arrivals returns the source of what is drawn next as well.
func arrivals(tasks []sched.Task, devices sched.Milli, load int, seed int64) ([]int, *rand.Rand) {
	rng := rand.New(rand.NewSource(seed))
	rng.Int() // the published runs draw once before they shuffle
	order := make([]int, len(tasks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(tasks[a].ID, tasks[b].ID) })
	byName := slices.Clone(order)
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	var sum sched.Milli
	for _, t := range tasks {
		sum += demand(t)
	}
	limit := devices * sched.Milli(load) / 100
	if sum > limit {
		return fewer(tasks, order, sum-limit, rng), rng
	}
	for sum > 0 {
		i := byName[rng.Intn(len(byName))]
		// As in the published runs, the share of one device decides whether there is
		// room for one more.
		if sum+share(tasks[i]) > limit {
			break
		}
		sum += demand(tasks[i])
		order = append(order, i)
	}
	return order, rng
}

// fewer takes tasks out of an order, drawn, until they ask for as much less.
func fewer(tasks []sched.Task, order []int, excess sched.Milli, rng *rand.Rand) []int {
	for excess > 0 && len(order) > 0 {
		at := rng.Intn(len(order))
		excess -= demand(tasks[order[at]])
		order = slices.Delete(order, at, at+1)
	}
	return order
}

// shuffled returns the nodes with a domain for each, so that equals are taken in an order
// that is drawn.
func shuffled(nodes []sched.Node, rng *rand.Rand) []sched.Node {
	for range watches {
		rng.Int63()
	}
	nodes = slices.Clone(nodes)
	slices.SortStableFunc(nodes, func(a, b sched.Node) int { return cmp.Compare(a.Name, b.Name) })
	for i, place := range rng.Perm(len(nodes)) {
		nodes[i].Domains = []string{fmt.Sprintf("%07d", place)}
	}
	return nodes
}

func share(t sched.Task) sched.Milli {
	if t.Devices > 0 && t.Share == 0 {
		return sched.Whole
	}
	return t.Share
}

func demand(t sched.Task) sched.Milli { return sched.Milli(t.Devices) * share(t) }

// Curve is how an experiment went, by arrived load in percent of the devices: means over
// the arrivals that brought the load to it.
type Curve struct {
	// Allocated is the part of the devices in use, in percent.
	Allocated [MaxLoad + 1]float64
	// Fragmented is the part that is idle and of no use for what is expected, in
	// percent; zero unless it was asked for.
	Fragmented [MaxLoad + 1]float64
	// FirstRejection is the load in percent at which a task was first turned away, 0 if
	// none was.
	FirstRejection float64
	Placed         int
	Rejected       int
}

// Experiment is arrivals without departures: what comes and finds no room is turned away.
type Experiment struct {
	// Nodes are taken, among equals, in an order that Seed gives, as in the published
	// runs: what a site calls its nodes shall not decide. Their Domains are passed over.
	Nodes  []sched.Node
	Tasks  []sched.Task
	Policy sched.Policy
	Seed   int64
	// Load is what arrives before it ends, in percent of the devices (130).
	Load int
	// Fragmentation asks for Curve.Fragmented, which takes time.
	Fragmentation bool
	// Unknown keeps from the policy what tasks to expect: it learns it from those that come.
	Unknown bool
}

// Run runs the experiment and returns its curve, and the cluster as it is then.
func (e Experiment) Run() (*Curve, *sched.Cluster, error) {
	load := cmp.Or(e.Load, 130)
	if load < 1 || load > MaxLoad {
		return nil, nil, fmt.Errorf("trace: Load %d: want 1 to %d", load, MaxLoad)
	}
	var devices sched.Milli
	for _, n := range e.Nodes { // New refuses what is out of bounds
		devices += sched.Milli(min(max(n.Devices, 0), sched.MaxDevices)) * sched.Whole
	}
	order, rng := arrivals(e.Tasks, devices, load, e.Seed)
	config := sched.Config{Nodes: shuffled(e.Nodes, rng), Levels: []string{"order"}, Policy: e.Policy, Seed: uint64(e.Seed)}
	if !e.Unknown {
		config.Mix = sched.MixOf(e.Tasks)
	}
	cluster, err := sched.New(config)
	if err != nil {
		return nil, nil, err
	}
	if devices == 0 {
		return nil, nil, fmt.Errorf("trace: %d nodes without devices: want at least one device", len(e.Nodes))
	}
	var (
		curve         Curve
		counts        [MaxLoad + 1]float64
		arrived, used sched.Milli
	)
	percent := func(v sched.Milli) float64 { return float64(v) / float64(devices) * 100 }
	for n, i := range order {
		t := e.Tasks[i]
		if n >= len(e.Tasks) {
			t.ID = fmt.Sprintf("%s+%d", t.ID, n)
		}
		if arrived += demand(t); percent(arrived) > float64(load) {
			break
		}
		if _, err := cluster.Place(t); err == nil {
			used += demand(t)
			curve.Placed++
		} else {
			curve.Rejected++
			if curve.FirstRejection == 0 {
				curve.FirstRejection = percent(arrived)
			}
		}
		x := min(int(math.RoundToEven(percent(arrived))), MaxLoad)
		counts[x]++
		curve.Allocated[x] += percent(used)
		if e.Fragmentation {
			ofAll, _ := cluster.Fragmentation()
			curve.Fragmented[x] += ofAll * 100
		}
	}
	curve.divide(counts)
	return &curve, cluster, nil
}

// divide makes means of sums, of as many figures as there are for each percent.
func (c *Curve) divide(counts [MaxLoad + 1]float64) {
	for x, n := range counts {
		c.Allocated[x] /= max(n, 1)
		c.Fragmented[x] /= max(n, 1)
	}
}
