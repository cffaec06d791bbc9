package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/elasticps/elasticps/elastic/sched"
)

// kindOfNode is a share of a mixed cluster.
type kindOfNode struct {
	percent       int
	vendor, model string
	devices       int
	cores         sched.Milli
	gibibytes     int64
}

// kinds are those of Mixed: large cards of four vendors and small ones for inference.
func kinds() []kindOfNode {
	return []kindOfNode{
		{40, "nvidia", "H800", 8, 128 * sched.Whole, 1024},
		{15, "nvidia", "A100", 8, 96 * sched.Whole, 768},
		{5, "nvidia", "T4", 4, 96 * sched.Whole, 384},
		{25, "ascend", "910B", 8, 192 * sched.Whole, 1024},
		{10, "mthreads", "S4000", 8, 128 * sched.Whole, 768},
		{5, "amd", "MI300X", 8, 128 * sched.Whole, 1536},
	}
}

// Mixed returns a cluster with that many devices, a multiple of 8, of four vendors: blocks of
// eight racks of eight nodes, each rack of one kind.
func Mixed(devices int) []sched.Node {
	var nodes []sched.Node
	rack := 0
	for _, k := range kinds() {
		n := devices * k.percent / 100 / k.devices
		for i := range n {
			nodes = append(nodes, sched.Node{
				Name: fmt.Sprintf("%s-%04d", k.model, i), CPU: k.cores, MemoryBytes: k.gibibytes << 30,
				Devices: k.devices, Model: k.model, Vendor: k.vendor,
				Domains: []string{fmt.Sprintf("block-%02d", (rack+i/8)/8), fmt.Sprintf("rack-%d", (rack+i/8)%8)},
			})
		}
		rack += (n + 7) / 8
	}
	return nodes
}

// Levels returns the levels of the failure domains of Mixed.
func Levels() []string { return []string{"block", "rack"} }

// day makes the jobs of Day.
type day struct {
	rng  *rand.Rand
	jobs []Job
}

// Day returns a day of training and inference that asks for load (as 0.95) of the devices of
// Mixed, in the mean: those that run when it begins, and those that come. The same seed gives
// the same jobs.
//
// Three quarters of the devices are asked for by training: 1 to 64 workers of one device, most
// few, for two hours in the median (log-normal, as published traces have it), written for
// one vendor in seven of ten cases. A fifth of those with four workers or more use parameter
// servers, with a load that swings by 60 to 100 % over one to six hours. The rest is inference:
// services of 1 to 16 replicas with a quarter or half of a device, for eight hours in the
// median.
func Day(devices int, load float64, seed uint64) []Job {
	d := &day{rng: rand.New(rand.NewPCG(seed, 2))}
	horizon := 24 * time.Hour
	for _, x := range []struct {
		part float64
		make func(id string, at time.Duration, left float64) Job
	}{{0.75, d.training}, {0.25, d.inference}} {
		mean := 0.0 // device hours of a job
		for range 4000 {
			j := x.make("", 0, 1)
			mean += j.Work.Hours() * float64(j.Workers) * float64(j.Task.Devices) * float64(j.Task.Share) / float64(sched.Whole) / 4000
		}
		perHour := load * x.part * float64(devices) / mean
		inUse := 0.0
		for n := 0; inUse < load*x.part*float64(devices)*0.9; n++ { // what runs at the begin
			j := x.make(fmt.Sprintf("first-%.0f-%d", x.part*100, n), 0, d.rng.Float64())
			inUse += float64(j.Workers) * float64(j.Task.Share) / float64(sched.Whole)
			d.jobs = append(d.jobs, j)
		}
		for at, n := time.Duration(0), 0; ; n++ {
			at += time.Duration(d.rng.ExpFloat64() / perHour * float64(time.Hour))
			if at >= horizon {
				break
			}
			d.jobs = append(d.jobs, x.make(fmt.Sprintf("job-%.0f-%d", x.part*100, n), at, 1))
		}
	}
	return d.jobs
}

// span is log-normal.
func (d *day) span(median time.Duration, sigma float64, least, most time.Duration) time.Duration {
	v := time.Duration(float64(median) * math.Exp(sigma*d.rng.NormFloat64()))
	return max(least, min(most, v))
}

// training makes a job with a part of its work left.
func (d *day) training(id string, at time.Duration, left float64) Job {
	sizes := [...]int{1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8, 16, 32, 64}
	j := Job{ID: id, At: at, Workers: sizes[d.rng.IntN(len(sizes))]}
	j.Work = time.Duration(float64(d.span(2*time.Hour, 1.2, 5*time.Minute, 48*time.Hour)) * max(0.05, left))
	cores := [...]sched.Milli{4, 8, 12, 16}
	j.Task = sched.Task{Priority: 5, Request: sched.Request{
		CPU: cores[d.rng.IntN(len(cores))] * sched.Whole, MemoryBytes: 48 << 30, Devices: 1, Share: sched.Whole,
	}}
	switch v := d.rng.IntN(100); {
	case v < 42:
		j.Task.Vendors = []string{"nvidia"}
	case v < 60:
		j.Task.Vendors = []string{"ascend"}
	case v < 67:
		j.Task.Vendors = []string{"mthreads"}
	case v < 70:
		j.Task.Vendors = []string{"amd"}
	}
	if j.Workers >= 8 {
		j.Constraints = []sched.Constraint{{Within: "block", Prefer: "rack"}}
	}
	if j.Workers >= 4 && d.rng.IntN(5) == 0 {
		mean := float64(j.Workers) * (0.1 + 0.2*d.rng.Float64())
		j.ParameterBytes = int64(1+d.rng.IntN(64)) << 30
		j.Load = Load{
			Mean: mean, Swing: mean * (0.6 + 0.4*d.rng.Float64()),
			Period: time.Hour + time.Duration(d.rng.Int64N(int64(5*time.Hour))), Phase: time.Duration(d.rng.Int64N(int64(time.Hour))),
		}
	}
	return j
}

// inference makes a service with a part of its time left.
func (d *day) inference(id string, at time.Duration, left float64) Job {
	j := Job{ID: id, At: at, Workers: 1 + d.rng.IntN(16), Stateless: true}
	j.Work = time.Duration(float64(d.span(8*time.Hour, 1, 30*time.Minute, 72*time.Hour)) * max(0.05, left))
	j.Task = sched.Task{Priority: 3, Preemptible: true, Movable: true, Request: sched.Request{
		CPU: 2 * sched.Whole, MemoryBytes: 8 << 30, Devices: 1, Share: sched.Whole / sched.Milli(2+2*d.rng.IntN(2)),
	}}
	return j
}
