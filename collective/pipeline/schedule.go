package pipeline

import (
	"fmt"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/schedule"
)

// Limits of a pipeline.
const (
	MaxStages = schedule.MaxRanks
	MaxMicros = 1 << 16
)

// Step is what a stage does with one micro-batch.
type Step struct {
	Backward bool
	Micro    int
}

// String is F or B and the micro-batch.
func (s Step) String() string {
	if s.Backward {
		return fmt.Sprint("B", s.Micro)
	}
	return fmt.Sprint("F", s.Micro)
}

// Steps returns what a stage does for one batch, by one forward, one backward. Errors wrap
// collective.ErrArgument.
func Steps(stage, stages, micros int) ([]Step, error) {
	if err := checkShape(stage, stages, micros); err != nil {
		return nil, err
	}
	steps := make([]Step, 0, 2*micros)
	ahead := InFlight(stage, stages, micros) - 1
	for m := range ahead {
		steps = append(steps, Step{Micro: m})
	}
	for m := range micros {
		if m+ahead < micros {
			steps = append(steps, Step{Micro: m + ahead})
		}
		steps = append(steps, Step{Backward: true, Micro: m})
	}
	return steps, nil
}

// InFlight returns how many micro-batches are in flight in a stage at most.
func InFlight(stage, stages, micros int) int { return min(stages-stage, micros) }

func checkShape(stage, stages, micros int) error {
	switch {
	case stages < 1 || stages > MaxStages:
		return fmt.Errorf("%w: %d stages, must be 1 to %d", collective.ErrArgument, stages, MaxStages)
	case stage < 0 || stage >= stages:
		return fmt.Errorf("%w: stage %d, must be 0 to %d", collective.ErrArgument, stage, stages-1)
	case micros < 1 || micros > MaxMicros:
		return fmt.Errorf("%w: %d micro-batches, must be 1 to %d", collective.ErrArgument, micros, MaxMicros)
	}
	return nil
}
