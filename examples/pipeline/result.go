package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/elasticps/elasticps/collective/pipeline"
)

// result is what a run came to, and the object that -json writes.
type result struct {
	Stages                int     `json:"stages"`
	Replicas              int     `json:"replicas"`
	Micros                int     `json:"micro_batches"`
	InFlight              []int   `json:"in_flight"`
	Bubble                float64 `json:"bubble"`
	Parameters            int     `json:"parameters"`
	Steps                 int     `json:"steps"`
	Loss                  float64 `json:"loss"`
	Accuracy              float64 `json:"test_accuracy"`
	Equal                 bool    `json:"equal"`
	ImagesPerSecond       float64 `json:"images_per_second"`
	SingleImagesPerSecond float64 `json:"single_images_per_second"`
	Seconds               float64 `json:"wall_seconds"`
}

// describe fills in what follows from the flags.
func (r *result) describe(o options, parameters int) {
	r.Stages, r.Replicas, r.Micros, r.Parameters = o.stages, o.replicas, o.micros, parameters
	for stage := range o.stages {
		r.InFlight = append(r.InFlight, pipeline.InFlight(stage, o.stages, o.micros))
	}
	r.Bubble = float64(o.stages-1) / float64(o.micros+o.stages-1)
}

// write shows the result as a table.
func (r result) write(w io.Writer) {
	equal := "to the bit"
	if !r.Equal {
		equal = "NO"
	}
	fmt.Fprintf(w, "\nResult\n")
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(columns, "test accuracy\t%.2f %%\t\n", 100*r.Accuracy)
	fmt.Fprintf(columns, "equal to one process\t%s\t\n", equal)
	fmt.Fprintf(columns, "parameters\t%d\t\n", r.Parameters)
	fmt.Fprintf(columns, "steps\t%d\t\n", r.Steps)
	fmt.Fprintf(columns, "in flight by stage\t%v\t\n", r.InFlight)
	fmt.Fprintf(columns, "bubble, in theory\t%.0f %%\t\n", 100*r.Bubble)
	fmt.Fprintf(columns, "images per second\t%.0f\t\n", r.ImagesPerSecond)
	fmt.Fprintf(columns, "of one process\t%.0f\t\n", r.SingleImagesPerSecond)
	fmt.Fprintf(columns, "wall time\t%.1f s\t\n", r.Seconds)
	columns.Flush() // whoever reads w sees what is missing
}

// verdict is the error of a run that came to the wrong result.
func (r result) verdict(o options) error {
	var errs []error
	if !r.Equal {
		errs = append(errs, errors.New("pipeline: the parameters differ from those of one process"))
	}
	if r.Accuracy < o.minAccuracy {
		errs = append(errs, fmt.Errorf("pipeline: test accuracy %.2f %%, want at least %.2f %%", 100*r.Accuracy, 100*o.minAccuracy))
	}
	return errors.Join(errs...)
}
