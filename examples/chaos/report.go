package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/elasticps/elasticps/examples/internal/report"
)

// result is the outcome of the run with faults beside that without.
type result struct {
	with, without outcome
}

// recoveries returns the sorted recovery times of the faults of some targets.
func recoveries(events []event, of func(event) bool) (all []time.Duration) {
	for _, e := range events {
		if of(e) {
			all = append(all, e.recovery)
		}
	}
	slices.Sort(all)
	return all
}

func anyFault(event) bool { return true }

// milliseconds is d rounded to three digits behind the point.
func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Millisecond)*1000) / 1000
}

type jsonFault struct {
	AtMS       float64 `json:"at_ms"`
	Kind       kind    `json:"kind"`
	Target     string  `json:"target"`
	HoldMS     float64 `json:"hold_ms"`
	RecoveryMS float64 `json:"recovery_ms"`
	HealthyMS  float64 `json:"healthy_ms"`
}

type jsonQuantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func quantiles(sorted []time.Duration) jsonQuantiles {
	return jsonQuantiles{
		P50: milliseconds(quantile(sorted, 0.5)), P99: milliseconds(quantile(sorted, 0.99)), Max: milliseconds(quantile(sorted, 1)),
	}
}

type jsonResult struct {
	Seed             uint64        `json:"seed"`
	Seconds          float64       `json:"seconds"`
	Faults           []jsonFault   `json:"faults"`
	Recovery         jsonQuantiles `json:"recovery_ms"`
	Steps            int           `json:"steps"`
	Acknowledged     int64         `json:"pushes_acknowledged"`
	Lost             int64         `json:"lost"`
	Doubled          int64         `json:"doubled"`
	Accuracy         float64       `json:"test_accuracy"`
	BaselineAccuracy float64       `json:"baseline_accuracy"`
	BaselineRound    jsonQuantiles `json:"baseline_round_ms"`
}

// writeJSON writes the result as one JSON object.
func (r result) writeJSON(s settings) error {
	o := r.with
	out := jsonResult{
		Seed: s.Seed, Seconds: o.wall.Seconds(), Faults: []jsonFault{}, Recovery: quantiles(recoveries(o.events, anyFault)), Steps: o.steps,
		Acknowledged: o.acknowledged, Lost: o.lost, Doubled: o.doubled, Accuracy: o.accuracy,
		BaselineAccuracy: r.without.accuracy, BaselineRound: quantiles(r.without.rounds),
	}
	for _, e := range o.events {
		out.Faults = append(out.Faults, jsonFault{
			AtMS: milliseconds(e.at), Kind: e.kind, Target: e.target, HoldMS: milliseconds(e.hold),
			RecoveryMS: milliseconds(e.recovery), HealthyMS: milliseconds(e.healthy),
		})
	}
	return report.WriteObject(s.JSON, out)
}

// write shows the result as a table.
func (r result) write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\nfault\ttimes\tp50 ms\tp99 ms\tmax ms\t\n")
	row := func(name string, all []time.Duration) {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t\n", name, len(all), quantile(all, 0.5).Milliseconds(),
			quantile(all, 0.99).Milliseconds(), quantile(all, 1).Milliseconds())
	}
	for _, target := range []string{"server", "worker", controller, etcd} {
		for _, k := range []kind{kill, stop, cutIn, cutOut, cut} {
			all := recoveries(r.with.events, func(e event) bool { return e.kind == k && e.on() == target })
			if len(all) > 0 {
				row(string(k)+" "+target, all)
			}
		}
	}
	row("all", recoveries(r.with.events, anyFault))
	row("none (probe rounds)", r.without.rounds)
	if err := t.Flush(); err != nil {
		return fmt.Errorf("chaos: write table: %w", err)
	}
	fmt.Fprintf(t, "\n\twith faults\twithout\t\n")
	a, b := r.with, r.without
	for _, line := range []struct {
		name string
		a, b any
	}{
		{"steps", a.steps, b.steps},
		{"seconds", fmt.Sprintf("%.1f", a.wall.Seconds()), fmt.Sprintf("%.1f", b.wall.Seconds())},
		{"workers that joined", a.joined, b.joined},
		{"pushes acknowledged", a.acknowledged, b.acknowledged},
		{"lost", a.lost, b.lost},
		{"doubled", a.doubled, b.doubled},
		{"test accuracy", fmt.Sprintf("%.2f %%", 100*a.accuracy), fmt.Sprintf("%.2f %%", 100*b.accuracy)},
	} {
		fmt.Fprintf(t, "%s\t%v\t%v\t\n", line.name, line.a, line.b)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("chaos: write table: %w", err)
	}
	return nil
}
