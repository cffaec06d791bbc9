package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
)

// result is what a run came to, and the object that -json writes.
type result struct {
	Workers    int      `json:"workers"`
	Parameters int      `json:"parameters"`
	Steps      int      `json:"steps"`
	Scheme     string   `json:"scheme"`
	Reason     string   `json:"reason"`
	Runs       []oneRun `json:"runs"`
	Seconds    float64  `json:"wall_seconds"`
}

// oneRun is the training with one format.
type oneRun struct {
	Format          string  `json:"format"`
	Accuracy        float64 `json:"test_accuracy"`
	Loss            float64 `json:"loss"`
	SentBytes       int64   `json:"sent_bytes"`
	BytesPerStep    int64   `json:"bytes_per_step"`
	Equal           bool    `json:"equal"`
	ImagesPerSecond float64 `json:"images_per_second"`
	Seconds         float64 `json:"seconds"`
}

// write shows the result as a table.
func (r result) write(w io.Writer) {
	fmt.Fprintf(w, "\nResult: %d steps, %d parameters\n", r.Steps, r.Parameters)
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(columns, "format\ttest accuracy\tloss\tsent by a worker\tof the first\tworkers equal\timages/s\t\n")
	for _, one := range r.Runs {
		share := 1.0
		if first := r.Runs[0].SentBytes; first > 0 {
			share = float64(one.SentBytes) / float64(first)
		}
		fmt.Fprintf(columns, "%s\t%.2f %%\t%.4f\t%.1f MB\t%.3f\t%v\t%.0f\t\n",
			one.Format, 100*one.Accuracy, one.Loss, float64(one.SentBytes)/1e6, share, one.Equal, one.ImagesPerSecond)
	}
	columns.Flush() // whoever reads w sees what is missing
	fmt.Fprintf(w, "wall time %.1f s\n", r.Seconds)
}

// verdict is the error of a run that came to the wrong result.
func (r result) verdict(o options) error {
	var errs []error
	for _, one := range r.Runs {
		if !one.Equal {
			errs = append(errs, fmt.Errorf("allreduce: %s: the parameters of the workers differ", one.Format))
		}
		if one.Accuracy < o.minAccuracy {
			errs = append(errs, fmt.Errorf("allreduce: %s: test accuracy %.2f %%, want at least %.2f %%", one.Format, 100*one.Accuracy, 100*o.minAccuracy))
		}
		if first := r.Runs[0]; one.Accuracy < first.Accuracy-o.within {
			errs = append(errs, fmt.Errorf("allreduce: %s: test accuracy %.2f %%, want at most %.2f points less than the %.2f %% of %s",
				one.Format, 100*one.Accuracy, 100*o.within, 100*first.Accuracy, first.Format))
		}
	}
	return errors.Join(errs...)
}
