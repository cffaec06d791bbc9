// Command simulate runs a day of training and inference on a simulated cluster of 10,240
// devices of four vendors, once for each way to have parameter servers, and prints what became
// of the devices:
//
//	go run ./examples/simulate
//	go run ./examples/simulate -html report.html
//
// Placement, preemption, moves and the number of servers are decided by the code that
// decides in production; what is taken for granted of machines is printed under the table.
// With -openb it runs the experiment of Weng et al. (USENIX ATC 2023) on the openb trace:
//
//	go run ./examples/simulate -openb DIR -seeds 10
//
// With -host it goes the whole way from what the vendors' tools say of the devices of this host, over
// the links between them, to a scheduler that places tasks on them:
//
//	go run ./examples/simulate -host
//
// -help lists the flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/elasticps/elasticps/elastic/sched"
	"github.com/elasticps/elasticps/elastic/sim"
	"github.com/elasticps/elasticps/examples/internal/report"
	"github.com/elasticps/elasticps/examples/internal/training"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	devices, seeds int
	load           float64
	seed           uint64
	hours          time.Duration
	html, openb    string
	host           bool
}

func (o *options) AddFlags(fs *flag.FlagSet) {
	fs.IntVar(&o.devices, "devices", 10240, "devices of the cluster, a multiple of 320")
	fs.Float64Var(&o.load, "load", 0.95, "devices that are asked for, as a part of those there are")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of jobs and failures")
	fs.DurationVar(&o.hours, "time", 24*time.Hour, "how long it runs")
	fs.StringVar(&o.html, "html", "", "file for a report with curves and a map of the devices")
	fs.StringVar(&o.openb, "openb", "", "folder of the openb trace: run that experiment instead")
	fs.BoolVar(&o.host, "host", false, "place tasks on the devices of this host, by their links, instead")
	fs.IntVar(&o.seeds, "seeds", 2, "seeds of that experiment, from 42 on")
}

// Validate reports every fault at once.
func (o *options) Validate() error {
	f := training.Faults{Program: "simulate"}
	f.Check(o.devices >= 320 && o.devices%320 == 0 && o.devices <= 1<<17, "devices is %d, want a multiple of 320 up to %d", o.devices, 1<<17)
	f.Check(o.load > 0 && o.load <= 3, "load is %v, want over 0 and at most 3", o.load)
	f.Check(o.hours > 0, "time is %v, want over 0", o.hours)
	f.Within("seeds", o.seeds, 1, 100)
	err := report.CheckFile(o.html)
	f.Check(err == nil, "html: %v", err)
	return f.Err()
}

// run is the program.
func run(args []string, stdout, stderr io.Writer) error {
	var o options
	if err := training.Parse("simulate", args, stderr, &o); err != nil {
		return err
	}
	switch {
	case o.openb != "":
		return openb(o, stdout)
	case o.host:
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return thisHost(ctx, stdout)
	}
	return day(o, stdout)
}

// way is one column of the table.
type way struct {
	name   string
	config sim.Config
	result *sim.Result
}

// day simulates the same day in several ways.
func day(o options, out io.Writer) error {
	base := sim.Config{
		Nodes: sim.Mixed(o.devices), Levels: sim.Levels(), Jobs: sim.Day(o.devices, o.load, o.seed), Seed: o.seed, Horizon: o.hours,
	}
	ways := []way{
		{name: "random, for peak", config: base},
		{name: "fixed for peak", config: base},
		{name: "fixed for mean", config: base},
		{name: "elastic", config: base},
	}
	ways[0].config.Servers, ways[0].config.Policy = sim.FixedForPeak, sched.Random
	ways[1].config.Servers = sim.FixedForPeak
	ways[2].config.Servers = sim.FixedForMean
	ways[3].config.Defragment = 10 * time.Minute
	fmt.Fprintf(out, "%d devices, %d nodes, %d jobs, %v\n", o.devices, len(base.Nodes), len(base.Jobs), o.hours)
	for i := range ways {
		var err error
		if ways[i].result, err = sim.Run(ways[i].config); err != nil {
			return err
		}
	}
	if err := table(out, ways); err != nil {
		return err
	}
	fmt.Fprint(out, assumptions)
	if o.html == "" {
		return nil
	}
	file, err := os.Create(o.html)
	if err != nil {
		return fmt.Errorf("simulate: report: %w", err)
	}
	if err := errors.Join(writeReport(file, ways), file.Close()); err != nil {
		return fmt.Errorf("simulate: report: %w", err)
	}
	return nil
}

// rows are those of the table.
func rows(r *sim.Result) [][2]string {
	percent := func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
	span := func(s sim.Span) string {
		if s.Count == 0 {
			return "none"
		}
		return fmt.Sprintf("%v, %v (%d)", s.P50.Round(time.Second), s.P99.Round(time.Second), s.Count)
	}
	return [][2]string{
		{"devices in use", percent(r.Allocated)},
		{"devices that did useful work", percent(r.Useful)},
		{"fragmentation", percent(r.Fragmented)},
		{"overloaded servers until relief, p50, p99 (n)", span(r.Overload)},
		{"server hours reserved", fmt.Sprintf("%.0f", r.ServerHours)},
		{"of which wasted", percent(r.Waste)},
		{"standstill after a failure, p50, p99 (n)", span(r.Recovery)},
		{"work done again, p50, p99 (n)", span(r.LostWork)},
		{"jobs finished", fmt.Sprint(r.Finished)},
		{"wait for room, p50, p99 (n)", span(r.Wait)},
		{"time a job took, undisturbed = 1", fmt.Sprintf("%.3f", r.Stretch)},
		{"servers added, removed", fmt.Sprintf("%d, %d", r.Grown, r.Shrunk)},
		{"tasks moved", fmt.Sprint(r.Moves)},
	}
}

func table(out io.Writer, ways []way) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, x := range ways {
		fmt.Fprintf(w, "\t%s", x.name)
	}
	fmt.Fprintln(w)
	for i, first := range rows(ways[0].result) {
		fmt.Fprint(w, first[0])
		for _, x := range ways {
			fmt.Fprintf(w, "\t%s", rows(x.result)[i][1])
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// assumptions is what the simulated world takes for granted.
const assumptions = `
"random" places each task anywhere; the others by the default policy. "fixed" servers are as many as the
peak or the mean of a job's load needs at 80 %, without replicas; "elastic" ones follow the controller's policy and have replicas, and
inference and servers move every 10 minutes to merge what is free.
The world: a server is a queue (M/M/1, 5 ms a push), starts in 3 s, has 25 Gbit/s; workers start in 60 s; a death is noticed
after 1 s; checkpoints every 30 min; a node lives 60 days and is repaired in 2 h. A fifth of the jobs with four workers or more use servers, with a load
that swings by 60 to 100 % over one to six hours. Moves are free; the network has no other traffic.
`
