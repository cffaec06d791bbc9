package federation_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/federation"
	"github.com/elasticps/elasticps/elastic/sched"
)

var firstSeed = flag.Uint64("seed", 1, "first seed of the simulated federations")

// The simulated federation: real clusters, clocks that run differently, messages that are lost,
// late, repeated and overtaken, sites that are cut off in one direction or both, sites and Homes
// that end and come back, jobs that end, are evicted, cancelled and submitted again.

const (
	tick    = 20 * time.Millisecond
	numJobs = 14
)

var config = federation.Config{
	Lease: 10 * time.Second, Grace: 2 * time.Second, Drift: 20, Interval: 1500 * time.Millisecond, Retry: 3 * time.Second,
}

// clock runs by its own rate from its own beginning.
type clock struct {
	begin  time.Duration
	offset time.Duration
	rate   float64
}

func (c clock) at(now time.Duration) time.Duration {
	return c.offset + time.Duration(float64(now-c.begin)*c.rate)
}

// process is a copy that really runs on a site.
type process struct {
	federation.Copy
	gang  sched.Gang
	ends  time.Duration // by itself
	stops time.Duration // because it was told to, 0 if it was not
}

// cluster is a site with all that runs on it.
type cluster struct {
	name        string
	clock       clock
	site        *federation.Site // nil while it is down
	incarnation uint64
	nodes       *sched.Cluster
	running     map[string]*process
	report      time.Duration // when the next one is due, true time
	back        time.Duration // when it comes back
	deaf, dumb  time.Duration // until when nothing reaches it, or leaves it
}

type message struct {
	at time.Duration
	do func()
}

type world struct {
	t        testing.TB
	rng      *rand.Rand
	now      time.Duration
	calm     bool // nothing is broken any more
	home     *federation.Home
	homeAt   clock
	term     uint64
	homeBack time.Duration
	records  map[string]federation.Record
	sites    []*cluster
	inFlight []message
	counts   map[string]int
}

func (w *world) newClock() clock {
	return clock{w.now, time.Duration(w.rng.Int64N(int64(time.Hour))), 0.991 + 0.018*w.rng.Float64()}
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 38)), records: make(map[string]federation.Record), counts: make(map[string]int)}
	w.startHome()
	for i := range 4 {
		s := &cluster{name: fmt.Sprint("site", i)}
		w.startSite(s)
		w.sites = append(w.sites, s)
	}
	return w
}

func (w *world) startHome() {
	w.term++
	w.homeAt = w.newClock()
	var saved []federation.Record
	for _, r := range w.records {
		saved = append(saved, r)
	}
	var err error
	w.home, err = federation.NewHome(config, w.term, w.homeAt.at(w.now), saved)
	require.NoError(w.t, err)
}

func (w *world) startSite(s *cluster) {
	s.incarnation++
	s.clock, s.running, s.report = w.newClock(), make(map[string]*process), w.now
	var err error
	s.site, err = federation.NewSite(config, s.name, s.incarnation)
	require.NoError(w.t, err)
	s.nodes, err = sched.New(sched.Config{Nodes: []sched.Node{
		{Name: "a", CPU: 100_000, Devices: 8, Model: "G"}, {Name: "b", CPU: 100_000, Devices: 8, Model: "G"},
	}})
	require.NoError(w.t, err)
}

func (w *world) chance(perMille int) bool { return !w.calm && w.rng.IntN(1000) < perMille }

// send lets something happen later, never, or twice.
func (w *world) send(do func()) {
	if w.chance(100) {
		return
	}
	times := 1
	if w.chance(100) {
		times = 2
	}
	for range times {
		delay := time.Duration(w.rng.Int64N(int64(200 * time.Millisecond)))
		if w.chance(150) {
			delay = time.Duration(w.rng.Int64N(int64(30 * time.Second)))
		}
		w.inFlight = append(w.inFlight, message{w.now + delay, do})
	}
}

func (w *world) save(r federation.Record) {
	if r.Over {
		delete(w.records, r.Job.ID)
		return
	}
	w.records[r.Job.ID] = r
}

// step lets a tick pass.
func (w *world) step() {
	w.now += tick
	slices.SortStableFunc(w.inFlight, func(a, b message) int { return cmp.Compare(a.at, b.at) })
	for len(w.inFlight) > 0 && w.inFlight[0].at <= w.now {
		m := w.inFlight[0]
		w.inFlight = w.inFlight[1:]
		m.do()
		w.check()
	}
	w.stepHome()
	for _, s := range w.sites {
		w.stepSite(s)
		w.check()
	}
}

func (w *world) stepHome() {
	switch {
	case w.home == nil && w.now >= w.homeBack:
		w.startHome()
	case w.home != nil && w.chance(1):
		w.home, w.homeBack = nil, w.now+time.Duration(w.rng.Int64N(int64(20*time.Second)))
		w.counts["homes that ended"]++
	case w.home != nil && w.chance(10):
		r, err := w.home.Cancel(fmt.Sprint("job", w.rng.IntN(numJobs)))
		if err == nil {
			w.save(r)
			w.counts["cancelled"]++
		}
	case w.home != nil && w.chance(50):
		r, err := w.home.Submit(w.job())
		if err == nil {
			w.save(r)
			w.counts["submitted"]++
		} else {
			require.ErrorIs(w.t, err, federation.ErrExists)
		}
	}
}

func (w *world) job() federation.Job {
	j := federation.Job{Gang: sched.Gang{ID: fmt.Sprint("job", w.rng.IntN(numJobs))}}
	if w.rng.IntN(2) == 0 {
		j.Prefer = []string{fmt.Sprint("site", w.rng.IntN(4))}
	}
	for i := range 1 + w.rng.IntN(2) {
		j.Tasks = append(j.Tasks, sched.Task{
			ID: fmt.Sprint(j.ID, "/", i), Priority: w.rng.IntN(10), Request: sched.Request{Devices: 1 + w.rng.IntN(4)},
		})
	}
	return j
}

func (w *world) stepSite(s *cluster) {
	if s.site == nil {
		if w.now >= s.back {
			w.startSite(s)
		}
		return
	}
	switch {
	case w.chance(1) && w.rng.IntN(4) == 0: // the whole cluster is gone, with all that runs there
		s.site, s.running, s.back = nil, nil, w.now+time.Duration(w.rng.Int64N(int64(40*time.Second)))
		w.counts["sites that ended"]++
		return
	case w.chance(1):
		s.deaf = w.now + time.Duration(w.rng.Int64N(int64(40*time.Second)))
		if w.rng.IntN(2) == 0 {
			s.dumb = s.deaf
		}
		w.counts["cut off"]++
	case w.chance(1):
		s.dumb = w.now + time.Duration(w.rng.Int64N(int64(40*time.Second)))
	}
	w.act(s, s.site.Expire(s.clock.at(w.now)))
	for _, id := range slices.Sorted(keys(s.running)) {
		w.stepProcess(s, s.running[id])
	}
	if w.now >= s.report {
		w.reportOf(s)
	}
}

func (w *world) stepProcess(s *cluster, p *process) {
	end := func(count string) {
		w.counts[count]++
		delete(s.running, p.Job)
		for _, task := range p.gang.Tasks {
			require.NoError(w.t, s.nodes.Release(task.ID))
		}
	}
	switch {
	case p.stops > 0 && w.now >= p.stops:
		end("stopped")
		s.site.Stopped(p.Copy)
	case w.now >= p.ends:
		end("ended")
		s.site.Ended(p.Copy)
		s.site.Stopped(p.Copy) // it may have been told to stop
	case w.chance(1):
		end("evicted")
		s.site.Refused(p.Copy)
		s.site.Stopped(p.Copy)
	}
}

// act does what a site has to do.
func (w *world) act(s *cluster, actions []federation.Action) {
	for _, a := range actions {
		if !a.Starts() {
			p := s.running[a.Job]
			require.NotNil(w.t, p, "a copy that does not run cannot be stopped")
			require.Equal(w.t, p.Copy, a.Copy)
			p.stops = w.now + config.Grace - 2*tick // as long as it may take, by any clock
			continue
		}
		if _, err := s.nodes.PlaceGang(a.Gang); err != nil {
			s.site.Refused(a.Copy)
			w.counts["refused"]++
			continue
		}
		w.counts["started"]++
		s.running[a.Job] = &process{Copy: a.Copy, gang: a.Gang, ends: w.now + time.Duration(w.rng.Int64N(int64(3*time.Minute)))}
	}
}

func (w *world) reportOf(s *cluster) {
	s.report = w.now + config.Interval
	r := s.site.Report(s.clock.at(w.now), s.nodes.AvailableResources().Accelerator())
	if w.now < s.dumb {
		return
	}
	w.send(func() {
		if w.home == nil {
			return
		}
		order, records, ok := w.home.Answer(w.homeAt.at(w.now), r)
		if !ok {
			return
		}
		for _, r := range records {
			w.save(r)
		}
		w.send(func() {
			if s.site == nil || w.now < s.deaf {
				return
			}
			w.act(s, s.site.Obey(s.clock.at(w.now), order))
		})
	})
}

// check: of no job more than one copy runs.
func (w *world) check() {
	where := make(map[string]string)
	for _, s := range w.sites {
		for id := range s.running {
			if other, ok := where[id]; ok {
				w.t.Fatalf("%v: %s runs on %s and on %s", w.now, id, other, s.name)
			}
			where[id] = s.name
		}
	}
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// TestCase38OneCopyUnderPartition: at most one copy of a job runs, whatever breaks, and when
// nothing is broken any more every job runs or has ended.
func TestCase38OneCopyUnderPartition(t *testing.T) {
	total := make(map[string]int)
	for seed := *firstSeed; seed < *firstSeed+24; seed++ {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			w := newWorld(t, seed)
			for w.now < 10*time.Minute {
				w.step()
			}
			w.calm = true
			for _, s := range w.sites {
				s.deaf, s.dumb, s.back = 0, 0, 0
			}
			w.homeBack = 0
			for w.now < 15*time.Minute {
				w.step()
				if _, err := w.home.Where(w.homeAt.at(w.now), "job0"); err != nil {
					require.ErrorIs(t, err, federation.ErrUnknown)
				}
			}
			require.Empty(t, w.records, "every job came to its end")
			for what, n := range w.counts {
				total[what] += n
			}
		})
	}
	for _, what := range []string{"submitted", "cancelled", "started", "refused", "stopped", "ended", "evicted", "cut off", "sites that ended", "homes that ended"} {
		require.Greater(t, total[what], 40, what)
	}
	t.Log(total)
}
