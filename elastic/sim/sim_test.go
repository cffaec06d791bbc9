package sim_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/elastic/sched"
	"github.com/elasticps/elasticps/elastic/sim"
)

// small is a cluster of 320 devices and what comes to it in a day.
func small(servers sim.Servers) sim.Config {
	return sim.Config{
		Nodes: sim.Mixed(320), Levels: sim.Levels(), Jobs: sim.Day(320, 0.9, 3), Servers: servers, Horizon: 12 * time.Hour,
	}
}

func run(t testing.TB, c sim.Config) *sim.Result {
	t.Helper()
	r, err := sim.Run(c)
	require.NoError(t, err)
	for _, p := range r.Points {
		require.True(t, 0 <= p.Fragmented && p.Fragmented <= 1-p.Allocated+1e-9 && p.Allocated <= 1, "%+v", p)
	}
	require.LessOrEqual(t, r.Useful, r.Allocated+0.02)
	return r
}

func TestElasticServersWasteLess(t *testing.T) {
	elasticRun, peak, mean := run(t, small(sim.Elastic)), run(t, small(sim.FixedForPeak)), run(t, small(sim.FixedForMean))
	require.Less(t, elasticRun.Waste, peak.Waste)
	require.Less(t, elasticRun.Overload.P50, mean.Overload.P50)
	require.Positive(t, elasticRun.Grown)
	require.Positive(t, elasticRun.Shrunk)
	require.Zero(t, peak.Grown+peak.Shrunk+mean.Grown)
	require.Zero(t, peak.Overload.Count, "as many as the peak needs")
	require.Greater(t, peak.Finished, 50)
}

func TestSameSeedSameResult(t *testing.T) {
	c := small(sim.Elastic)
	c.Defragment, c.PreemptFrom, c.Horizon = 30*time.Minute, 5, time.Hour
	require.Equal(t, run(t, c), run(t, c))
}

// oneJob is a job of four workers with two servers' worth of load on a cluster of two nodes.
func oneJob() sim.Config {
	nodes := sim.Mixed(320)[:3]
	return sim.Config{
		Nodes: nodes, Levels: sim.Levels(), Horizon: 3 * time.Hour, World: sim.World{NodeLife: 1e6 * time.Hour},
		Jobs: []sim.Job{{
			ID: "job", At: time.Minute, Work: time.Hour, Workers: 4, ParameterBytes: 1 << 30,
			Task: sched.Task{Request: sched.Request{Devices: 1, Share: sched.Whole}},
			Load: sim.Load{Mean: 1.5, Swing: 0, Period: time.Hour},
		}},
	}
}

func TestWorkTakesItsTime(t *testing.T) {
	r := run(t, oneJob())
	require.Equal(t, 1, r.Finished)
	require.InDelta(t, 61.0/60, r.Stretch, 1e-3, "an hour, and a minute to start")
	require.InDelta(t, 4.0/24/3, r.Useful, 1e-3)
	require.Zero(t, r.Wait.Max)
	require.Equal(t, 36, len(r.Points))

	c := oneJob() // one server has to do the work of two: half as fast
	c.Servers, c.Jobs[0].Load = sim.FixedForMean, sim.Load{Mean: 0.5, Swing: 0.5, Period: 1e6 * time.Hour, Phase: 25e4 * time.Hour}
	c.Jobs[0].Load.Mean, c.Jobs[0].Load.Swing = 0.79, 0.79
	r = run(t, c)
	require.InDelta(t, 1+0.6/0.98, r.Stretch+0.02, 0.07)
}

func TestFailuresAreOvercome(t *testing.T) {
	c := small(sim.Elastic)
	c.World.NodeLife = 15 * time.Hour
	replicas := run(t, c)
	require.Greater(t, replicas.Failures, 2)
	require.Positive(t, replicas.Recovery.Count)
	c.Servers = sim.FixedForPeak
	fixed := run(t, c)
	require.Equal(t, replicas.Failures, fixed.Failures, "the same world")
	require.LessOrEqual(t, replicas.LostWork.Max, 30*time.Minute)
}

func TestPriorityGoesFirst(t *testing.T) {
	c := oneJob()
	low := c.Jobs[0]
	low.ID, low.Workers, low.At = "low", 24, 0
	low.Task.Preemptible, low.ParameterBytes = true, 0
	c.Jobs[0].Task.Priority = 9
	c.Jobs = append(c.Jobs, low)
	require.GreaterOrEqual(t, run(t, c).Wait.Max, 30*time.Minute)
	c.PreemptFrom = 9
	r := run(t, c)
	require.Equal(t, 24, r.Evictions)
	require.Equal(t, 2, r.Finished, "the evicted one comes again")
	require.Equal(t, 3, r.Started)
}

func TestFaultyConfigurations(t *testing.T) {
	for want, change := range map[string]func(*sim.Config){
		"Horizon -1":      func(c *sim.Config) { c.Horizon = -1 },
		"Servers 9":       func(c *sim.Config) { c.Servers = 9 },
		"Work 0s":         func(c *sim.Config) { c.Jobs[0].Work = 0 },
		"a name of its":   func(c *sim.Config) { c.Jobs = append(c.Jobs, c.Jobs[0]) },
		"Mean over 0":     func(c *sim.Config) { c.Jobs[0].Load.Mean = math.NaN() },
		"Share 1001":      func(c *sim.Config) { c.Jobs[0].Task.Share = 1001 },
		"exists already":  func(c *sim.Config) { c.Nodes = append(c.Nodes, c.Nodes[0]) },
		"PreemptFrom 10":  func(c *sim.Config) { c.PreemptFrom = 10 },
		"Min -1":          func(c *sim.Config) { c.Scaling = elastic.Policy{Min: -1} },
		"LinkBytesPerSec": func(c *sim.Config) { c.World.LinkBytesPerSecond = math.NaN() },
	} {
		c := oneJob()
		change(&c)
		_, err := sim.Run(c)
		require.ErrorContains(t, err, want)
	}
}

func TestMixedHasTheDevices(t *testing.T) {
	sum, vendors := 0, make(map[string]int)
	for _, n := range sim.Mixed(10240) {
		sum += n.Devices
		vendors[n.Vendor] += n.Devices
	}
	require.Equal(t, 10240, sum)
	require.Equal(t, map[string]int{"nvidia": 6144, "ascend": 2560, "mthreads": 1024, "amd": 512}, vendors)
}

// BenchmarkDay is a day of 10,240 devices.
func BenchmarkDay(b *testing.B) {
	devices := 10_240
	if testing.Short() {
		devices = 1024
	}
	nodes, jobs := sim.Mixed(devices), sim.Day(devices, 0.95, 1)
	for _, servers := range []sim.Servers{sim.FixedForPeak, sim.Elastic} {
		b.Run(fmt.Sprint(servers), func(b *testing.B) {
			for b.Loop() {
				r := run(b, sim.Config{Nodes: nodes, Levels: sim.Levels(), Jobs: jobs, Servers: servers})
				b.ReportMetric(float64(r.Finished), "jobs")
			}
		})
	}
}
