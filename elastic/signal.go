package elastic

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Signal is one of the measurements that the policy compares with thresholds.
type Signal uint8

// Signals of the policy.
const (
	// GradientLatency is the highest of the servers' latencies: workers that
	// synchronise wait for the slowest. Its unit is a nanosecond.
	GradientLatency Signal = iota
	// Utilization is the mean of the servers' busy fractions, 0 to 1.
	Utilization
	// Bandwidth is the mean of the servers' traffic in bits per second.
	Bandwidth
	numSignals
)

// Bounds over which a measurement is a sentinel and not a measurement.
const (
	maxLatency        = 10 * time.Minute
	maxBytesPerSecond = 1e14
)

// String returns the name used in the log line.
func (s Signal) String() string {
	names := [...]string{"grad_latency", "gpu_util", "sync_bandwidth"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("signal(%d)", uint8(s))
}

// Format renders a value of the signal with its unit, to four digits.
func (s Signal) Format(v float64) string {
	switch s {
	case GradientLatency:
		return formatLatency(v)
	case Utilization:
		return digits(100*v) + "%"
	case Bandwidth:
		for _, u := range []struct {
			size float64
			name string
		}{{1e9, "Gbps"}, {1e6, "Mbps"}, {1e3, "Kbps"}} {
			if v >= u.size {
				return digits(v/u.size) + u.name
			}
		}
		return digits(v) + "bps"
	}
	return digits(v)
}

func digits(v float64) string {
	if math.Abs(v) >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// formatLatency renders nanoseconds; a prediction may be infinite.
func formatLatency(v float64) string {
	if v >= float64(maxLatency) {
		return ">" + maxLatency.String()
	}
	unit := time.Nanosecond
	for float64(unit)*10_000 <= v {
		unit *= 10
	}
	return time.Duration(v).Round(unit).String()
}

// Reading is the value of one signal over all servers.
type Reading struct {
	Value float64
	Known bool
}

// Readings holds one reading per Signal.
type Readings [numSignals]Reading

// measure combines the samples of the servers, sentinels dropped signal by signal.
func measure(servers []ServerSample) Readings {
	var r Readings
	var numUtil, numBandwidth int
	for _, s := range servers {
		if d, ok := latencyOf(s); ok {
			r[GradientLatency].Known = true
			r[GradientLatency].Value = max(r[GradientLatency].Value, float64(d))
		}
		if u := s.Utilization; u >= 0 && u <= 1 { // false for NaN
			numUtil++
			r[Utilization].Value += u
		}
		if b := s.BytesPerSecond; b >= 0 && b <= maxBytesPerSecond {
			numBandwidth++
			r[Bandwidth].Value += 8 * b
		}
	}
	r[Utilization] = mean(r[Utilization].Value, numUtil)
	r[Bandwidth] = mean(r[Bandwidth].Value, numBandwidth)
	return r
}

func mean(sum float64, n int) Reading {
	if n == 0 {
		return Reading{}
	}
	return Reading{Value: sum / float64(n), Known: true}
}

// latencyOf is the larger of push latency and probe, those that are known.
func latencyOf(s ServerSample) (time.Duration, bool) {
	var d time.Duration
	for _, x := range []time.Duration{s.GradientLatency, s.RTT} {
		if x > 0 && x <= maxLatency {
			d = max(d, x)
		}
	}
	return d, d > 0
}

// Thresholds says when a signal asks for more or fewer servers. A zero field is
// the default in brackets.
type Thresholds struct {
	LatencyUp   time.Duration // more servers above (50 ms)
	LatencyDown time.Duration // fewer below (10 ms)

	UtilizationUp   float64 // more above (0.85)
	UtilizationDown float64 // fewer below (0.40)

	BandwidthUp   float64 // bits per second and server, more above (80e9)
	BandwidthDown float64 // fewer below (20e9)
}

func (t Thresholds) withDefaults() Thresholds {
	t.LatencyUp = cmp.Or(t.LatencyUp, 50*time.Millisecond)
	t.LatencyDown = cmp.Or(t.LatencyDown, 10*time.Millisecond)
	t.UtilizationUp = cmp.Or(t.UtilizationUp, 0.85)
	t.UtilizationDown = cmp.Or(t.UtilizationDown, 0.40)
	t.BandwidthUp = cmp.Or(t.BandwidthUp, 80e9)
	t.BandwidthDown = cmp.Or(t.BandwidthDown, 20e9)
	return t
}

func (t Thresholds) up() [numSignals]float64 {
	return [numSignals]float64{float64(t.LatencyUp), t.UtilizationUp, t.BandwidthUp}
}

func (t Thresholds) down() [numSignals]float64 {
	return [numSignals]float64{float64(t.LatencyDown), t.UtilizationDown, t.BandwidthDown}
}

// faults lists what is wrong with thresholds that have their defaults.
func (t Thresholds) faults() []error {
	var errs []error
	up, down := t.up(), t.down()
	for s := range numSignals {
		if !(down[s] > 0 && down[s] < up[s]) || math.IsInf(up[s], 0) {
			errs = append(errs, fmt.Errorf("elastic: thresholds of %v: down %v, up %v: want 0 < down < up, finite", s, down[s], up[s]))
		}
	}
	if t.UtilizationUp > 1 {
		errs = append(errs, fmt.Errorf("elastic: UtilizationUp %v: want at most 1", t.UtilizationUp))
	}
	return errs
}

// above returns the triggers of the signals that ask for more servers.
func (t Thresholds) above(r Readings) []Trigger {
	var out []Trigger
	for s, bound := range t.up() {
		if r[s].Known && r[s].Value > bound {
			out = append(out, signalTrigger(Signal(s), r[s].Value, ">", bound))
		}
	}
	return out
}

// below returns one trigger for each known signal if all of them, and at least
// one, ask for fewer servers; otherwise none.
func (t Thresholds) below(r Readings) []Trigger {
	var out []Trigger
	for s, bound := range t.down() {
		if !r[s].Known {
			continue
		}
		if r[s].Value >= bound {
			return nil
		}
		out = append(out, signalTrigger(Signal(s), r[s].Value, "<", bound))
	}
	return out
}

// predict estimates the readings after the same load has moved from one number
// of servers to another. Utilization and bandwidth scale with the load of each
// server. Latency follows the waiting time of an M/M/1 queue, S/(1-ρ), where the
// utilization ρ is known (Kleinrock, Queueing Systems 1, 1975, section 3.2), and is
// proportional to the load where it is not.
func predict(r Readings, from, to int) Readings {
	ratio := float64(from) / float64(to)
	next := r
	next[Utilization].Value *= ratio
	next[Bandwidth].Value *= ratio
	if !r[Utilization].Known {
		next[GradientLatency].Value *= ratio
		return next
	}
	const most = 0.99 // a saturated queue has no finite waiting time
	before, after := min(r[Utilization].Value, most), next[Utilization].Value
	if after >= 1 {
		next[GradientLatency].Value = math.Inf(1)
		return next
	}
	next[GradientLatency].Value *= (1 - before) / (1 - min(after, most))
	return next
}
