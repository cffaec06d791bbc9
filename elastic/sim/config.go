package sim

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/elastic/sched"
)

// Servers says how many parameter servers a job has.
type Servers uint8

// The ways to choose the number.
const (
	// Elastic follows the load by elastic.Policy. Every shard has a replica.
	Elastic Servers = iota
	// FixedForPeak is as many as the highest load of the job needs, from begin to end, and
	// no replicas.
	FixedForPeak
	// FixedForMean is as many as its mean load needs.
	FixedForMean
)

// String returns the name of the way.
func (s Servers) String() string {
	names := [...]string{"elastic", "fixed for peak", "fixed for mean"}
	if int(s) >= len(names) {
		return fmt.Sprintf("servers %d", uint8(s))
	}
	return names[s]
}

// Job is what comes to the cluster: workers that run together, and for some of them
// parameter servers.
type Job struct {
	ID string
	// At is when it comes.
	At time.Duration
	// Work is how long it runs when nothing hinders it.
	Work time.Duration
	// Workers is their number; each is one task.
	Workers int
	// Task is the task of one worker, its ID aside.
	Task sched.Task
	// Constraints are those of the gang.
	Constraints []sched.Constraint
	// Stateless jobs lose nothing with a worker: they answer requests.
	Stateless bool
	// ParameterBytes is the size of the model on its parameter servers, 0 if it has none.
	ParameterBytes int64
	// Load is the work for the servers.
	Load Load
}

// Load is the work of a job for its parameter servers over time, in servers kept fully busy: a
// mean with a swing around it.
type Load struct {
	Mean, Swing   float64
	Period, Phase time.Duration
}

// Peak returns the highest load.
func (l Load) Peak() float64 { return l.Mean + l.Swing }

// World is what is taken for granted of machines. A zero field is the default in brackets.
type World struct {
	// Service is how long an idle server takes for a push; it waits as in an M/M/1 queue
	// when the server is busy (5 ms).
	Service time.Duration
	// LinkBytesPerSecond is that of a server (3.125e9, 25 Gbit/s).
	LinkBytesPerSecond float64
	// StartServer is how long it takes until a new server answers (3 s).
	StartServer time.Duration
	// StartWorker is how long it takes until a worker computes (60 s).
	StartWorker time.Duration
	// Detect is how long it takes until a death is noticed (1 s), and Promote until a replica
	// serves (100 ms).
	Detect, Promote time.Duration
	// Checkpoint is the time between two checkpoints (30 min).
	Checkpoint time.Duration
	// NodeLife is the mean time between failures of a node (60 days), Repair how long it
	// is away (2 h).
	NodeLife, Repair time.Duration
	// ServerCores are those of a server (4), ServerBytes the memory beside its shards (4 GiB).
	ServerCores sched.Milli
	ServerBytes int64
}

func (w World) withDefaults() World {
	w.Service = cmp.Or(w.Service, 5*time.Millisecond)
	w.LinkBytesPerSecond = cmp.Or(w.LinkBytesPerSecond, 3.125e9)
	w.StartServer = cmp.Or(w.StartServer, 3*time.Second)
	w.StartWorker = cmp.Or(w.StartWorker, time.Minute)
	w.Detect = cmp.Or(w.Detect, time.Second)
	w.Promote = cmp.Or(w.Promote, 100*time.Millisecond)
	w.Checkpoint = cmp.Or(w.Checkpoint, 30*time.Minute)
	w.NodeLife = cmp.Or(w.NodeLife, 60*24*time.Hour)
	w.Repair = cmp.Or(w.Repair, 2*time.Hour)
	w.ServerCores = cmp.Or(w.ServerCores, 4*sched.Whole)
	w.ServerBytes = cmp.Or(w.ServerBytes, 4<<30)
	return w
}

// Config describes one run. Nodes are required; a zero field is the default in brackets.
type Config struct {
	Nodes  []sched.Node
	Levels []string
	Jobs   []Job
	// Horizon is how long it runs (24 h).
	Horizon time.Duration
	// Policy places tasks (sched.Default).
	Policy sched.Policy
	// Servers says how many parameter servers jobs have (Elastic).
	Servers Servers
	// Scaling is the policy of elastic servers, the one of the controller.
	Scaling elastic.Policy
	// Interval is the time between two looks at the load (10 s).
	Interval time.Duration
	// Sample is the time between two points of the curves (5 min).
	Sample time.Duration
	// Defragment is the time between two plans of moves, 0 is never (0), and MaxMoves their
	// number (32).
	Defragment time.Duration
	MaxMoves   int
	// PreemptFrom is the priority from which waiting jobs take the place of others, 0 is
	// never (0).
	PreemptFrom int
	// Seed is that of failures.
	Seed  uint64
	World World
}

func (c Config) withDefaults() Config {
	c.Horizon = cmp.Or(c.Horizon, 24*time.Hour)
	c.Interval = cmp.Or(c.Interval, 10*time.Second)
	c.Sample = cmp.Or(c.Sample, 5*time.Minute)
	c.MaxMoves = cmp.Or(c.MaxMoves, 32)
	c.World = c.World.withDefaults()
	return c
}

// validate reports every fault at once.
func (c Config) validate() error {
	errs := []error{c.Scaling.Validate()}
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("sim: "+format, args...)) }
	for _, d := range []struct {
		name string
		v    time.Duration
	}{
		{"Horizon", c.Horizon},
		{"Interval", c.Interval},
		{"Sample", c.Sample},
		{"World.Service", c.World.Service},
		{"World.Checkpoint", c.World.Checkpoint},
		{"World.NodeLife", c.World.NodeLife},
		{"World.Repair", c.World.Repair},
	} {
		if d.v < time.Millisecond {
			fault("%s %v: want at least 1ms", d.name, d.v)
		}
	}
	if c.Servers > FixedForMean {
		fault("Servers %d: want at most %d", c.Servers, FixedForMean)
	}
	if c.Defragment < 0 || c.MaxMoves < 1 {
		fault("Defragment %v, MaxMoves %d: want at least 0 and 1", c.Defragment, c.MaxMoves)
	}
	if !(c.World.LinkBytesPerSecond > 0) {
		fault("World.LinkBytesPerSecond %v: want over 0", c.World.LinkBytesPerSecond)
	}
	if c.PreemptFrom < 0 || c.PreemptFrom > sched.MaxPriority {
		fault("PreemptFrom %d: want 0 to %d", c.PreemptFrom, sched.MaxPriority)
	}
	seen := make(map[string]bool, len(c.Jobs))
	for i, j := range c.Jobs {
		errs = append(errs, j.validate(i))
		if seen[j.ID] {
			fault("Jobs[%d] %q: want a name of its own", i, j.ID)
		}
		seen[j.ID] = true
	}
	return errors.Join(errs...)
}

func (j Job) validate(i int) error {
	task := j.Task
	task.ID = j.ID
	if err := task.Validate(); err != nil {
		return fmt.Errorf("sim: Jobs[%d]: %w", i, err)
	}
	l := j.Load
	switch {
	case j.At < 0 || j.Work <= 0 || j.Workers < 1 || j.Workers > sched.MaxGang:
		return fmt.Errorf("sim: Jobs[%d] %q: At %v, Work %v, Workers %d: want at least 0, over 0, 1 to %d",
			i, j.ID, j.At, j.Work, j.Workers, sched.MaxGang)
	case j.ParameterBytes < 0 || j.ParameterBytes > sched.MaxAmount:
		return fmt.Errorf("sim: Jobs[%d] %q: ParameterBytes %d: want 0 to %d", i, j.ID, j.ParameterBytes, int64(sched.MaxAmount))
	case j.ParameterBytes > 0 && !(l.Mean > 0 && l.Swing >= 0 && l.Swing <= l.Mean && l.Mean < 1e4 && l.Period > 0):
		return fmt.Errorf("sim: Jobs[%d] %q: Load %+v: want Mean over 0 and below 10,000, Swing of 0 to Mean, Period over 0", i, j.ID, l)
	}
	return nil
}
