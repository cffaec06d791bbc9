package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// kind is what is done to a process.
type kind string

const (
	kill   kind = "kill"    // SIGKILL; it is started again after a while
	stop   kind = "stop"    // SIGSTOP, and SIGCONT after a while
	cutIn  kind = "cut-in"  // nothing reaches it any more
	cutOut kind = "cut-out" // nothing of it reaches anybody any more
	cut    kind = "cut"     // both
)

// Targets besides servers and workers.
const (
	controller = "controller"
	etcd       = "etcd"
)

func serverName(i int) string { return fmt.Sprintf("ps-%d", i) }
func workerName(i int) string { return fmt.Sprintf("worker-%d", i) }

// fault is something that happens to a target.
type fault struct {
	kind   kind
	target string
	hold   time.Duration // how long it lasts, or how long a dead process stays dead
	pause  time.Duration // before it
}

// on says what sort of process is met.
func (f fault) on() string {
	name, _, _ := strings.Cut(f.target, "-")
	switch name {
	case "ps":
		return "server"
	default:
		return name
	}
}

const (
	leastHold, mostHold   = 100 * time.Millisecond, 3 * time.Second
	leastPause, mostPause = 100 * time.Millisecond, 1500 * time.Millisecond
)

// schedule is an endless row of faults that depends on its seed only.
type schedule struct {
	rng     *rand.Rand
	kinds   []kind // that this system can do to a process
	servers int
	workers int
	etcd    bool
}

// next returns the next fault. Half of them meet servers: that is where the state is.
func (s *schedule) next() fault {
	f := fault{
		hold:  leastHold + time.Duration(s.rng.Int64N(int64(mostHold-leastHold))),
		pause: leastPause + time.Duration(s.rng.Int64N(int64(mostPause-leastPause))),
	}
	pick := func(kinds ...kind) kind { return kinds[s.rng.IntN(len(kinds))] }
	others := 5
	if s.etcd {
		others++
	}
	switch n := s.rng.IntN(2 * others); {
	case n < others:
		f.target, f.kind = serverName(s.rng.IntN(s.servers)), pick(append(s.kinds, cutIn, cutOut, cut)...)
	case n < others+2:
		f.target, f.kind = workerName(s.rng.IntN(s.workers)), pick(s.kinds...)
	case n < others+5:
		f.target, f.kind = controller, pick(s.kinds...)
	default:
		f.target, f.kind = etcd, pick(cutIn, cutOut, cut)
	}
	return f
}

// newSchedule returns the schedule of a seed.
func (s settings) newSchedule() *schedule {
	return &schedule{
		rng: rand.New(rand.NewPCG(s.Seed, 0)), kinds: processKinds, servers: s.NumServers, workers: s.NumWorkers, etcd: s.Etcd != "",
	}
}

// slots is how many workers may join a job: each one that is killed, or stopped for so
// long that it counts as dead, is another one afterwards.
func (s settings) slots() int {
	n := 2 * s.NumWorkers
	sched := s.newSchedule()
	for at := time.Duration(0); at < s.Duration; {
		f := sched.next()
		at += f.pause
		if !s.Overlap {
			at += f.hold
		}
		if f.on() == "worker" {
			n++
		}
	}
	return n
}
