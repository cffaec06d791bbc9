package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/elasticps/elasticps/examples/internal/fleet"
)

// result is what a run came to, and the object that -json writes.
type result struct {
	AUC       float64            `json:"auc"`
	BestAUC   *float64           `json:"best_auc"`
	Windows   []window           `json:"windows"`
	Samples   int64              `json:"samples"`
	Skipped   int64              `json:"skipped"`
	PerSecond float64            `json:"samples_per_second"`
	Rows      []fleet.ServerRows `json:"rows"`
	Seconds   float64            `json:"wall_seconds"`
}

// write shows the result as a table.
func (r result) write(w io.Writer) {
	fmt.Fprintf(w, "\nResult\n")
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(columns, "AUC\t%.4f\t\n", r.AUC)
	if r.BestAUC != nil {
		fmt.Fprintf(columns, "AUC of the planted model\t%.4f\t\n", *r.BestAUC)
	}
	fmt.Fprintf(columns, "samples\t%d\t\n", r.Samples)
	fmt.Fprintf(columns, "malformed lines\t%d\t\n", r.Skipped)
	fmt.Fprintf(columns, "samples per second\t%.0f\t\n", r.PerSecond)
	for _, s := range r.Rows {
		fmt.Fprintf(columns, "rows on %s\t%d\t\n", s.Server, s.Rows)
	}
	fmt.Fprintf(columns, "wall time\t%.1f s\t\n", r.Seconds)
	columns.Flush() // whoever reads w sees what is missing
}
