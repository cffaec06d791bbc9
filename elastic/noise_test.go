package elastic

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// noisy sets what each server reports by itself, up to a fifth off the middle of the bands or,
// for the latency, off what is given.
func (w *world) noisy(rng *rand.Rand, latency time.Duration) {
	off := func() float64 { return 0.8 + 0.4*rng.Float64() }
	for i := range w.servers {
		s := &w.servers[i]
		s.GradientLatency = time.Duration(float64(latency) * off())
		s.Utilization, s.BytesPerSecond = 0.625*off(), 50e9/8*off()
	}
}

// TestNoiseMovesNothing: an hour of noise inside the bands, and of noise that crosses one
// threshold again and again, scales nothing; then one step of the load scales once, as soon as it
// has dwelt.
func TestNoiseMovesNothing(t *testing.T) {
	const tick = 500 * ms
	for name, latency := range map[string]time.Duration{"inside": 30 * ms, "across": 42 * ms} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 14))
			w := newWorld(t, Policy{}, 24, 4)
			at, above := time.Duration(0), 0
			for ; at < time.Hour; at += tick {
				w.noisy(rng, latency)
				plan := w.tick(t, at)
				require.False(t, plan.Decision.Scaled(), "%v: %v", at, plan.Decision)
				require.Empty(t, plan.Operators)
				if plan.Decision.Readings[GradientLatency].Value > float64(50*ms) {
					above++
				}
			}
			require.Equal(t, name == "across", above > 100, "%d ticks above the threshold", above)

			var scaled []time.Duration
			for begin := at; at < begin+10*time.Minute; at += tick {
				if len(scaled) == 0 {
					w.noisy(rng, 100*ms)
				} else {
					w.noisy(rng, 30*ms)
				}
				if w.tick(t, at).Decision.Scaled() {
					scaled = append(scaled, at-begin)
				}
			}
			require.Len(t, scaled, 1)
			require.LessOrEqual(t, scaled[0], 5*time.Second+tick, "the dwell time and a tick")
		})
	}
}

// TestSentinelsMoveNothing: values that exporters send for "not known" scale nothing, whichever
// server sends them, in whichever signal, and for how long.
func TestSentinelsMoveNothing(t *testing.T) {
	const blank = 9223372036854775794 // of DCGM
	latencies := []time.Duration{blank, math.MaxInt64, math.MinInt64, -1}
	others := []float64{blank, math.NaN(), math.Inf(1), math.Inf(-1), -1}
	rng := rand.New(rand.NewPCG(2, 14))
	w := newWorld(t, Policy{}, 24, 4)
	for second := range 3600 {
		w.noisy(rng, 30*ms)
		minute := second / 60
		s := &w.servers[minute%len(w.servers)]
		s.GradientLatency = latencies[minute/4%len(latencies)]
		s.Utilization, s.BytesPerSecond = others[minute%len(others)], others[minute/2%len(others)]
		plan := w.tick(t, time.Duration(second)*time.Second)
		require.False(t, plan.Decision.Scaled(), "second %d: %v", second, plan.Decision)
		require.Empty(t, plan.Operators)
	}
}
