package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/elasticps/elasticps/examples/internal/fleet"
)

// result is what a run came to, and the object that -json writes.
type result struct {
	Words          int64               `json:"words"` // of one epoch
	Vocabulary     int                 `json:"vocabulary"`
	Pairs          int64               `json:"pairs"` // of an input and a target, of all epochs
	PairsPerSecond float64             `json:"pairs_per_second"`
	HeldOutPairs   int                 `json:"held_out_pairs"`
	Merit          float64             `json:"merit"`
	BaselineMerit  float64             `json:"baseline_merit"`
	Servers        []fleet.ServerCount `json:"servers"`
	Migrations     int                 `json:"migrations"`
	Rows           []fleet.ServerRows  `json:"rows"`
	Lost           int64               `json:"lost"`
	Doubled        int64               `json:"doubled"`
	Seconds        float64             `json:"wall_seconds"`
}

// write shows the result as a table.
func (r result) write(w io.Writer) {
	fmt.Fprintf(w, "\nResult\n")
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(columns, "merit on %d held-out pairs\t%.3f\t\n", r.HeldOutPairs, r.Merit)
	fmt.Fprintf(columns, "of the frequency alone\t%.3f\t\n", r.BaselineMerit)
	fmt.Fprintf(columns, "pairs trained\t%d\t\n", r.Pairs)
	fmt.Fprintf(columns, "pairs per second\t%.0f\t\n", r.PairsPerSecond)
	fmt.Fprintf(columns, "shards moved\t%d\t\n", r.Migrations)
	for _, s := range r.Rows {
		fmt.Fprintf(columns, "rows on %s\t%d\t\n", s.Server, s.Rows)
	}
	fmt.Fprintf(columns, "updates lost\t%d\t\n", r.Lost)
	fmt.Fprintf(columns, "updates doubled\t%d\t\n", r.Doubled)
	fmt.Fprintf(columns, "wall time\t%.1f s\t\n", r.Seconds)
	columns.Flush() // whoever reads w sees what is missing
}
