package elastic

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/shard"
)

// TestNoisySquareWaveDoesNotFlap drives a plant whose load jumps up and down around
// a point at which a decision falls, with noise, for ten minutes. The number of
// servers may change its direction once.
func TestNoisySquareWaveDoesNotFlap(t *testing.T) {
	for _, around := range []struct {
		name    string
		servers int
		load    float64 // in servers kept fully busy
	}{
		{"upper threshold of 1", 1, 0.85},
		{"upper threshold of 4", 4, 4 * 0.85},
		{"lower threshold of 2", 2, 2 * 0.40},
		{"lower threshold of 3", 3, 3 * 0.40},
		{"lower threshold of 12", 12, 12 * 0.40},
	} {
		for _, period := range []time.Duration{3 * time.Second, 20 * time.Second, 100 * time.Second} {
			for _, amplitude := range []float64{0.02, 0.05, 0.10} {
				t.Run(fmt.Sprintf("%s/%v/%v", around.name, period, amplitude), func(t *testing.T) {
					for seed := range uint64(5) {
						w := newWorld(t, Policy{}, 48, around.servers)
						reversals, log := squareWave(t, w, seed, around.load, period, amplitude)
						require.LessOrEqual(t, reversals, 1, "seed %d: %v", seed, log)
					}
				})
			}
		}
	}
}

// TestSwingingLoadIsDamped gives the policy so short a dwell that it follows a swing
// that is larger than its hysteresis, and checks that it gives up following.
func TestSwingingLoadIsDamped(t *testing.T) {
	w := newWorld(t, Policy{Dwell: time.Second, DwellDown: 5 * time.Second, Cooldown: time.Second}, 48, 2)
	reversals, log := squareWave(t, w, 1, 0.7, 100*time.Second, 0.5)
	require.GreaterOrEqual(t, reversals, 3, "%v", log)
	require.LessOrEqual(t, reversals, 9, "%v: undamped it follows each of the 6 swings both ways", log)
	require.Equal(t, 2, w.count(), "it ends with what the peak needs")
}

// squareWave runs w for ten minutes and returns how often its number of servers
// changed direction.
func squareWave(t *testing.T, w *world, seed uint64, load float64, period time.Duration, amplitude float64) (int, []string) {
	r := rand.New(rand.NewPCG(seed, 1))
	w.delay = func(Operator) time.Duration { return time.Duration(r.IntN(3)) * time.Second }
	last, reversals := 0, 0
	var log []string
	for at := time.Duration(0); at < 10*time.Minute; at += time.Second {
		level := 1 + amplitude
		if at%period >= period/2 {
			level = 1 - amplitude
		}
		w.load(load*level*(1+0.02*r.NormFloat64()), time.Millisecond)
		d := w.tick(t, at).Decision
		if direction := d.To - d.From; direction != 0 {
			if last*direction < 0 {
				reversals++
			}
			last = direction
			log = append(log, fmt.Sprintf("%v %v", at, d))
		}
	}
	return reversals, log
}

// randomWorld changes loads, requests and failures at random and checks every plan.
func randomWorld(t testing.TB, seed uint64, ticks int) {
	r := rand.New(rand.NewPCG(seed, 2))
	p := Policy{
		Min: 1 + r.IntN(3), MaxMoves: 1 + r.IntN(6), Dwell: time.Second, DwellDown: 2 * time.Second,
		Cooldown: 3 * time.Second, Backoff: 2 * time.Second,
	}
	p.Max = p.Min + r.IntN(8)
	w := newWorld(t, p, 12+r.IntN(20), p.Min+r.IntN(p.Max-p.Min+1))
	w.delay = func(Operator) time.Duration { return time.Duration(r.IntN(4)) * time.Second }
	w.fail = func(Operator) bool { return r.IntN(6) == 0 }
	for i := range ticks {
		if r.IntN(8) == 0 {
			w.load(r.Float64()*float64(2*p.Max), time.Duration(r.IntN(40))*time.Millisecond)
		}
		if r.IntN(20) == 0 {
			w.target = r.IntN(p.Max + 3)
		}
		if r.IntN(30) == 0 {
			i := r.IntN(len(w.servers))
			w.servers[i].Up = !w.servers[i].Up
		}
		before := w.inFlight
		plan := w.tick(t, time.Duration(i)*time.Second)
		checkPlan(t, w, before, plan)
	}
}

func checkPlan(t testing.TB, w *world, before []Operator, plan Plan) {
	t.Helper()
	p := w.policy.withDefaults()
	d := plan.Decision
	if d.Scaled() {
		least, most := p.Min, max(p.Min, min(p.Max, len(w.shards)))
		require.GreaterOrEqual(t, d.To, least, "%v", d)
		require.LessOrEqual(t, d.To, most, "%v", d)
		require.NotEmpty(t, d.Triggers)
	}
	draining := make(map[shard.ServerID]bool)
	for _, s := range w.servers {
		draining[s.ID] = s.Draining || !s.Up
	}
	for _, o := range w.inFlight {
		if o.Kind == DrainServer {
			draining[o.Server] = true
		}
	}
	moving, delta, subjects := 0, 0, make(map[subject]bool)
	ids := make(map[uint64]bool)
	for _, o := range w.inFlight { // those of the plan are among them
		require.False(t, ids[o.ID], "%v has a used ID", o)
		ids[o.ID] = true
		if o.Kind == MoveShard {
			moving++
		}
		if o.Kind != AddServer {
			require.False(t, subjects[o.subject()], "%v is under way already", o)
			subjects[o.subject()] = true
		}
	}
	for _, o := range plan.Operators {
		require.Positive(t, o.Timeout)
		require.NotEmpty(t, o.Reason)
		delta += o.Influence.Servers
		if o.Kind == MoveShard {
			a, ok := w.owners.Owner(o.Move.Shard)
			require.True(t, ok)
			require.Equal(t, a.Owner, o.Move.From)
			require.NotEqual(t, o.Move.From, o.Move.To)
			gone, known := draining[o.Move.To]
			require.True(t, known && !gone, "%v goes to a server that leaves", o)
		}
		if o.Kind == RemoveServer {
			require.Empty(t, w.owners.Of(o.Server))
		}
	}
	require.Equal(t, d.To-d.From, delta)
	require.LessOrEqual(t, moving, max(p.MaxMoves, len(before)))
}

func TestRandomWorldsKeepTheRules(t *testing.T) {
	for seed := range uint64(200) {
		randomWorld(t, seed, 200)
	}
}

func FuzzPlan(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, uint8(40))
	}
	f.Fuzz(func(t *testing.T, seed uint64, ticks uint8) { randomWorld(t, seed, int(ticks)) })
}

// TestWorldSettles lets a random world go quiet and checks that it ends balanced,
// without work, within the bounds.
func TestWorldSettles(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(t, Policy{}, 32, 1+r.IntN(6))
		w.fail = func(Operator) bool { return w.at < time.Minute && r.IntN(3) == 0 }
		w.target = 1 + r.IntN(8)
		for s := range 180 {
			w.tick(t, time.Duration(s)*time.Second)
		}
		require.Empty(t, w.inFlight, "seed %d", seed)
		require.Equal(t, w.target, w.count(), "seed %d", seed)
		require.Len(t, w.servers, w.target, "seed %d", seed)
		for _, s := range w.servers {
			require.InDelta(t, 32/w.target, len(w.owners.Of(s.ID)), 1, "seed %d", seed)
		}
	}
}
