package pipeline_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/pipeline"
)

func TestSteps(t *testing.T) {
	for _, c := range []struct {
		stage, stages, micros int
		want                  string
	}{
		{0, 1, 3, "F0 B0 F1 B1 F2 B2"},
		{0, 2, 4, "F0 F1 B0 F2 B1 F3 B2 B3"},
		{1, 2, 4, "F0 B0 F1 B1 F2 B2 F3 B3"},
		{0, 4, 8, "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"},
		{1, 4, 8, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7"},
		{2, 4, 8, "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7"},
		{3, 4, 8, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"},
		{0, 4, 2, "F0 F1 B0 B1"}, // fewer micro-batches than stages
		{2, 4, 1, "F0 B0"},
	} {
		steps, err := pipeline.Steps(c.stage, c.stages, c.micros)
		require.NoError(t, err)
		require.Equal(t, c.want, strings.Trim(fmt.Sprint(steps), "[]"), "stage %d of %d", c.stage, c.stages)
	}
}

// Every micro-batch goes forward once before it goes backward once, both in order, and no
// more than the stages from this one on are in flight.
func TestStepsOfAnyShape(t *testing.T) {
	for stages := 1; stages <= 7; stages++ {
		for micros := 1; micros <= 12; micros++ {
			for stage := range stages {
				steps, err := pipeline.Steps(stage, stages, micros)
				require.NoError(t, err)
				forward, backward, most := 0, 0, 0
				for _, s := range steps {
					if s.Backward {
						require.Equal(t, backward, s.Micro)
						backward++
					} else {
						require.Equal(t, forward, s.Micro)
						forward++
					}
					require.LessOrEqual(t, backward, forward)
					most = max(most, forward-backward)
				}
				require.Equal(t, []int{micros, micros, pipeline.InFlight(stage, stages, micros)}, []int{forward, backward, most})
				require.LessOrEqual(t, most, stages-stage)
			}
		}
	}
}

// Stages that wait for each other's queues, which hold no more than what is in flight and
// keep the input of a micro-batch until it has gone backward, come to the end.
func TestStepsDoNotDeadlock(t *testing.T) {
	for stages := 1; stages <= 6; stages++ {
		for micros := 1; micros <= 12; micros++ {
			left := make([][]pipeline.Step, stages)
			var queued, held [2][6]int // by direction and receiving stage
			for i := range left {
				var err error
				left[i], err = pipeline.Steps(i, stages, micros)
				require.NoError(t, err)
			}
			room := func(way, to int) bool {
				return to < 0 || to >= stages || queued[way][to]+held[way][to] < pipeline.InFlight(to, stages, micros)
			}
			took := make([]bool, stages) // its input; it waits for room for its output
			for moved := true; moved; {
				moved = false
				for i := range stages {
					if len(left[i]) == 0 {
						continue
					}
					way, from, to := 0, i-1, i+1
					if left[i][0].Backward {
						way, from, to = 1, i+1, i-1
					}
					if !took[i] && (from < 0 || from >= stages || queued[way][i] > 0) {
						if from >= 0 && from < stages {
							queued[way][i]--
							held[way][i]++
						}
						if way == 1 {
							held[1][i] = 0
							held[0][i] = max(held[0][i]-1, 0)
						}
						took[i], moved = true, true
					}
					if took[i] && room(way, to) {
						if to >= 0 && to < stages {
							queued[way][to]++
						}
						left[i], took[i], moved = left[i][1:], false, true
					}
				}
			}
			for i := range stages {
				require.Empty(t, left[i], "stage %d of %d, %d micro-batches", i, stages, micros)
			}
		}
	}
}

func TestStepsRefuse(t *testing.T) {
	for want, c := range map[string][3]int{
		"0 stages, must be 1 to":                    {0, 0, 1},
		"stage -1, must be 0 to 1":                  {-1, 2, 1},
		"stage 2, must be 0 to 1":                   {2, 2, 1},
		"0 micro-batches, must be 1 to 65536":       {0, 2, 0},
		"70000 micro-batches, must be 1 to 65536":   {0, 2, 70000},
		fmt.Sprint(1<<20, " stages, must be 1 to "): {0, 1 << 20, 1},
	} {
		_, err := pipeline.Steps(c[0], c[1], c[2])
		require.ErrorIs(t, err, collective.ErrArgument)
		require.ErrorContains(t, err, want)
	}
}
