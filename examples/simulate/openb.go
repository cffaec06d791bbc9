package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/elasticps/elasticps/elastic/sched"
	"github.com/elasticps/elasticps/elastic/trace"
)

// openb runs every workload of a folder with every policy.
func openb(o options, out io.Writer) error {
	nodes, err := read(filepath.Join(o.openb, "openb_node_list_gpu_node.csv"), trace.ReadOpenbNodes)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(o.openb, "openb_pod_list_*.csv"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("simulate: %s has no openb_pod_list_*.csv: %w", o.openb, errors.Join(err, fs.ErrNotExist))
	}
	slices.Sort(files)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "devices in use at 100 and 130 %% arrived load, mean of %d seeds\nworkload", o.seeds)
	for _, p := range sched.Policies() {
		fmt.Fprintf(w, "\t%v", p)
	}
	fmt.Fprintln(w)
	for _, file := range files {
		jobs, err := read(file, trace.ReadOpenbPods)
		if err != nil {
			return err
		}
		fmt.Fprint(w, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "openb_pod_list_"), ".csv"))
		for _, p := range sched.Policies() {
			at100, at130 := 0.0, 0.0
			for seed := range o.seeds {
				curve, _, err := trace.Experiment{Nodes: nodes, Tasks: trace.Tasks(jobs), Policy: p, Seed: int64(42 + seed)}.Run()
				if err != nil {
					return err
				}
				at100 += curve.Allocated[100] / float64(o.seeds)
				at130 += curve.Allocated[130] / float64(o.seeds)
			}
			fmt.Fprintf(w, "\t%.2f %.2f", at100, at130)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func read[T any](name string, parse func(string, io.Reader) (T, error)) (T, error) {
	file, err := os.Open(name)
	if err != nil {
		var zero T
		return zero, fmt.Errorf("simulate: %w", err)
	}
	defer file.Close()
	return parse(name, file)
}
