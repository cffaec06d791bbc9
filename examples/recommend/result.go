package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/elasticps/elasticps/examples/internal/fleet"
)

// result is what a run came to, and the object that -json writes.
type result struct {
	RMSE         float64            `json:"rmse"`
	NoiseFloor   *float64           `json:"noise_floor"`
	MeanRMSE     float64            `json:"mean_rmse"`
	ItemMeanRMSE float64            `json:"item_mean_rmse"`
	TrainRMSE    float64            `json:"train_rmse"` // of the last epoch, before each step
	Ratings      int                `json:"ratings"`
	HeldOut      int                `json:"held_out"`
	PerSecond    float64            `json:"ratings_per_second"`
	Rows         []fleet.ServerRows `json:"rows"`
	Seconds      float64            `json:"wall_seconds"`
}

// write shows the result as a table.
func (r result) write(w io.Writer) {
	fmt.Fprintf(w, "\nResult\n")
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(columns, "root-mean-square error, held out\t%.4f\t\n", r.RMSE)
	if r.NoiseFloor != nil {
		fmt.Fprintf(columns, "of the planted factors\t%.4f\t\n", *r.NoiseFloor)
	}
	fmt.Fprintf(columns, "of the mean of each item\t%.4f\t\n", r.ItemMeanRMSE)
	fmt.Fprintf(columns, "of the mean of all\t%.4f\t\n", r.MeanRMSE)
	fmt.Fprintf(columns, "ratings per second\t%.0f\t\n", r.PerSecond)
	for _, s := range r.Rows {
		fmt.Fprintf(columns, "rows on %s\t%d\t\n", s.Server, s.Rows)
	}
	fmt.Fprintf(columns, "wall time\t%.1f s\t\n", r.Seconds)
	columns.Flush() // whoever reads w sees what is missing
}
