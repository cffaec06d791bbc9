package ps

import (
	"fmt"
	"math"
)

// ScheduleKind names how the learning rate decays.
type ScheduleKind uint8

// The schedules, by the factor of the learning rate s clocks after the warm-up. N is
// Schedule.Clocks.
const (
	ScheduleConstant    ScheduleKind = iota // 1
	ScheduleLinear                          // from 1 to Floor in N clocks, then Floor
	ScheduleCosine                          // the same along half a cosine (Loshchilov and Hutter, 2017)
	ScheduleStep                            // Gamma^floor(s/N)
	ScheduleExponential                     // Gamma^s
	ScheduleInverseSqrt                     // 1/sqrt(1+s/N)
	scheduleEnd
)

// schedules has one row per schedule: factor is asked with s, and the flags say which fields it
// needs.
var schedules = [scheduleEnd]struct {
	name                 string
	clocks, gamma, floor bool
	factor               func(c Schedule, s float64) float64
}{
	ScheduleConstant: {name: "constant", factor: func(Schedule, float64) float64 { return 1 }},
	ScheduleLinear: {name: "linear", clocks: true, floor: true, factor: func(c Schedule, s float64) float64 {
		return c.between(1 - min(s/float64(c.Clocks), 1))
	}},
	ScheduleCosine: {name: "cosine", clocks: true, floor: true, factor: func(c Schedule, s float64) float64 {
		return c.between((1 + math.Cos(math.Pi*min(s/float64(c.Clocks), 1))) / 2)
	}},
	ScheduleStep: {name: "step", clocks: true, gamma: true, factor: func(c Schedule, s float64) float64 {
		return math.Pow(c.Gamma, math.Floor(s/float64(c.Clocks)))
	}},
	ScheduleExponential: {name: "exponential", gamma: true, factor: func(c Schedule, s float64) float64 {
		return math.Pow(c.Gamma, s)
	}},
	ScheduleInverseSqrt: {name: "inverse sqrt", clocks: true, factor: func(c Schedule, s float64) float64 {
		return 1 / math.Sqrt(1+s/float64(c.Clocks))
	}},
}

// String returns the schedule's name in lower case.
func (k ScheduleKind) String() string {
	if k < scheduleEnd {
		return schedules[k].name
	}
	return fmt.Sprintf("schedule %d", k)
}

// Schedule is the learning rate as a function of the clock that a gradient belongs to: under BSP
// that of the sum, under SSP and ASP that of the worker when it pushed. It does not depend on when
// and where the gradient is applied, and a restored job goes on at its clock. Clocks advance with
// Worker.Tick, under ASP too: workers that do not tick stay at the rate of clock 0. Rows of sparse
// layers go by the clock as well, not by their own steps. What an observer pushes belongs to the open
// clock of the job that it last heard of.
//
// Under SSP and ASP the clock is with the workers and in checkpoints alone: who joins a coordinator
// that has started again, and to which no earlier worker has come back, begins at clock 0.
//
// The formulas are those of torch.optim.lr_scheduler: LinearLR (start_factor 1/(Warmup+1) for the
// warm-up, 1 for ScheduleLinear, whose end_factor is Floor), CosineAnnealingLR up to its minimum
// Floor*LearningRate, StepLR and ExponentialLR, the clock being the epoch. ScheduleInverseSqrt with
// Clocks and Warmup the same is that of the Transformer (Vaswani et al., 2017).
type Schedule struct {
	Kind   ScheduleKind
	Warmup uint32  // clocks in which the rate grows to all of it: (clock+1)/(Warmup+1)
	Clocks uint32  // at least 1; not of ScheduleConstant and ScheduleExponential
	Gamma  float64 // ScheduleStep, ScheduleExponential: in (0, 1]
	Floor  float64 // ScheduleLinear, ScheduleCosine: in [0, 1]
}

// Factor is what the learning rate is multiplied by at a clock. The schedule must be one that a job
// takes.
func (c Schedule) Factor(clock uint32) float64 {
	if clock < c.Warmup {
		return (float64(clock) + 1) / (float64(c.Warmup) + 1)
	}
	return schedules[c.Kind].factor(c, float64(clock-c.Warmup))
}

// between is the factor of which a share of the way from Floor to 1 is left. The conversion keeps
// the product from being fused with the sum, which only some processors do.
func (c Schedule) between(share float64) float64 {
	return c.Floor + float64((1-c.Floor)*share)
}

// faults are what is wrong with the schedule of an optimizer.
func (c Schedule) faults(of OptimizerKind) (errs []error) {
	if c.Kind >= scheduleEnd {
		return []error{fmt.Errorf("ps: %v: unknown %v, have constant, linear, cosine, step, exponential and inverse sqrt", of, c.Kind)}
	}
	if of == KindFTRL && c != (Schedule{}) {
		errs = append(errs, fmt.Errorf("ps: %v: Schedule %+v, must be zero: its z has been summed up with one alpha", of, c))
	}
	check := func(name string, v float64, used, ok bool, bound string) {
		if !used {
			ok, bound = v == 0, "0, it is not used"
		}
		if !ok {
			errs = append(errs, fmt.Errorf("ps: %v: Schedule %v: %s %v, must be %s", of, c.Kind, name, v, bound))
		}
	}
	uses := schedules[c.Kind]
	check("Clocks", float64(c.Clocks), uses.clocks, c.Clocks > 0, "at least 1")
	check("Gamma", c.Gamma, uses.gamma, c.Gamma > 0 && c.Gamma <= 1, "in (0, 1]")
	check("Floor", c.Floor, uses.floor, c.Floor >= 0 && c.Floor <= 1, "in [0, 1]")
	return errs
}
