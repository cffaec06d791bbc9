package ps

import (
	"errors"
	"fmt"
	"math"

	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/internal/table"
)

// OptimizerKind names an update rule.
type OptimizerKind uint8

// The optimizers that servers apply.
const (
	KindSGD OptimizerKind = iota + 1
	KindMomentum
	KindNesterov
	KindAdagrad
	KindAdam
	KindAdamW
	KindAMSGrad
	KindFTRL
	KindAdagradRow // sparse layers only
	kindEnd
)

// stepFunc applies gradient g to weights w with learning rate lr.
type stepFunc func(o *Optimizer, w, g []float32, slots [][]float32, lr float32)

// slotRule is one array of state of a rule.
type slotRule struct {
	name        string // in checkpoints; must not be changed
	accumulates bool   // starts at InitialAccumulator, else at zero
	perRow      bool   // one value for a row, not for each parameter
}

// rules has one row per optimizer: this table and kernel are where to add one.
var rules = [kindEnd]struct {
	name  string
	slots []slotRule
	step  stepFunc
	// adam is the step of rules that depend on the step count, which rows count for
	// themselves.
	adam func(w, g []float32, slots [][]float32, p kernel.AdamParams)
}{
	KindSGD: {name: "sgd", step: func(o *Optimizer, w, g []float32, _ [][]float32, lr float32) {
		kernel.SGD(w, g, lr, float32(o.WeightDecay))
	}},
	KindMomentum: {name: "momentum", slots: []slotRule{{name: "momentum"}}, step: func(o *Optimizer, w, g []float32, s [][]float32, lr float32) {
		kernel.Momentum(w, g, s[0], lr, float32(o.Momentum), float32(o.WeightDecay))
	}},
	KindNesterov: {name: "nesterov", slots: []slotRule{{name: "momentum"}}, step: func(o *Optimizer, w, g []float32, s [][]float32, lr float32) {
		kernel.Nesterov(w, g, s[0], lr, float32(o.Momentum), float32(o.WeightDecay))
	}},
	KindAdagrad: {name: "adagrad", slots: []slotRule{{name: "sum", accumulates: true}}, step: func(o *Optimizer, w, g []float32, s [][]float32, lr float32) {
		kernel.Adagrad(w, g, s[0], lr, float32(o.Epsilon), float32(o.WeightDecay))
	}},
	KindAdam: {name: "adam", slots: []slotRule{{name: "m"}, {name: "v"}}, adam: func(w, g []float32, s [][]float32, p kernel.AdamParams) {
		kernel.Adam(w, g, s[0], s[1], p)
	}},
	KindAdamW: {name: "adamw", slots: []slotRule{{name: "m"}, {name: "v"}}, adam: func(w, g []float32, s [][]float32, p kernel.AdamParams) {
		kernel.AdamW(w, g, s[0], s[1], p)
	}},
	KindAMSGrad: {name: "amsgrad", slots: []slotRule{{name: "m"}, {name: "v"}, {name: "vmax"}}, adam: func(w, g []float32, s [][]float32, p kernel.AdamParams) {
		kernel.AMSGrad(w, g, s[0], s[1], s[2], p)
	}},
	KindFTRL: {name: "ftrl", slots: []slotRule{{name: "z"}, {name: "n", accumulates: true}}, step: func(o *Optimizer, w, g []float32, s [][]float32, lr float32) {
		kernel.FTRL(w, g, s[0], s[1], lr, float32(o.Epsilon), float32(o.L1), float32(o.WeightDecay))
	}},
	KindAdagradRow: {name: "adagrad by row", slots: []slotRule{{name: "sum", accumulates: true, perRow: true}}, step: func(o *Optimizer, w, g []float32, s [][]float32, lr float32) {
		kernel.AdagradRow(w, g, s[0], lr, float32(o.Epsilon), float32(o.WeightDecay))
	}},
}

// String returns the rule's name in lower case.
func (k OptimizerKind) String() string {
	if k > 0 && k < kindEnd {
		return rules[k].name
	}
	return fmt.Sprintf("optimizer %d", k)
}

// Optimizer is an update rule with its hyper-parameters. Make one with SGD,
// Momentum, Nesterov, Adagrad, AdagradRow, Adam, AdamW, AMSGrad or FTRL and change fields
// as needed. The formulas are those of PyTorch's torch.optim, FTRL's that of its paper; see
// package internal/kernel.
//
// The step count of Adam, AdamW and AMSGrad is kept per block of BlockElems parameters: it
// grows by one with each step applied to any part of the block. In a sparse layer each row
// counts its own steps, and nothing of a row changes until a push names it: momentum and
// decay included ("lazy").
type Optimizer struct {
	Kind         OptimizerKind
	LearningRate float64 // at least 0, finite; FTRL: alpha, above 0
	Momentum     float64 // Momentum, Nesterov: in [0, 1)
	Beta1, Beta2 float64 // Adam, AdamW, AMSGrad: in [0, 1)
	Epsilon      float64 // Adagrad, Adam and their variants: above 0; FTRL: beta, at least 0
	WeightDecay  float64 // at least 0; L2, or decoupled in AdamW; FTRL: lambda2
	// InitialAccumulator is where the sums of squared gradients of Adagrad and FTRL
	// start. At least 0.
	InitialAccumulator float64
	// L1 is lambda1 of FTRL: weights whose gradients do not add up to more stay zero. At
	// least 0.
	L1 float64
	// Schedule changes the learning rate with the clock; the zero value does not. FTRL has none:
	// what its z has summed up is of one alpha.
	Schedule Schedule `json:",omitzero"`
}

// SGD returns plain stochastic gradient descent: w -= lr*g.
func SGD(lr float64) Optimizer { return Optimizer{Kind: KindSGD, LearningRate: lr} }

// Momentum returns SGD with heavy-ball momentum mu.
func Momentum(lr, mu float64) Optimizer {
	return Optimizer{Kind: KindMomentum, LearningRate: lr, Momentum: mu}
}

// Nesterov returns SGD with Nesterov momentum mu.
func Nesterov(lr, mu float64) Optimizer {
	return Optimizer{Kind: KindNesterov, LearningRate: lr, Momentum: mu}
}

// Adagrad returns Adagrad with epsilon 1e-10 (Duchi et al., JMLR 2011).
func Adagrad(lr float64) Optimizer {
	return Optimizer{Kind: KindAdagrad, LearningRate: lr, Epsilon: 1e-10}
}

// Adam returns Adam with betas 0.9 and 0.999 and epsilon 1e-8 (Kingma and Ba, 2015).
func Adam(lr float64) Optimizer {
	return Optimizer{Kind: KindAdam, LearningRate: lr, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
}

// AdamW returns Adam with decoupled weight decay wd (Loshchilov and Hutter, 2019).
func AdamW(lr, wd float64) Optimizer {
	o := Adam(lr)
	o.Kind, o.WeightDecay = KindAdamW, wd
	return o
}

// AMSGrad returns Adam which divides by the largest second moment so far (Reddi, Kale and
// Kumar, 2018).
func AMSGrad(lr float64) Optimizer {
	o := Adam(lr)
	o.Kind = KindAMSGrad
	return o
}

// FTRL returns FTRL-proximal with beta 1 and regularization l1 and l2 (McMahan et al., KDD
// 2013). Its weights are a function of its slots: the first step gives up their first values.
func FTRL(lr, l1, l2 float64) Optimizer {
	return Optimizer{Kind: KindFTRL, LearningRate: lr, Epsilon: 1, L1: l1, WeightDecay: l2}
}

// AdagradRow returns Adagrad with epsilon 1e-10 and one sum for each row, of the means of its
// squared gradients. It is for sparse layers.
func AdagradRow(lr float64) Optimizer {
	o := Adagrad(lr)
	o.Kind = KindAdagradRow
	return o
}

func (o Optimizer) slots() int { return len(rules[o.Kind].slots) }

// slotNames are the names of the slots in checkpoints.
func (o Optimizer) slotNames() []string {
	names := make([]string, o.slots())
	for i, s := range rules[o.Kind].slots {
		names[i] = s.name
	}
	return names
}

// slotStart is the value that slot i has before the first step.
func (o Optimizer) slotStart(i int) float32 {
	if rules[o.Kind].slots[i].accumulates {
		return float32(o.InitialAccumulator)
	}
	return 0
}

// ofRows reports whether the rule is for sparse layers only.
func (o Optimizer) ofRows() bool { return o.Kind == KindAdagradRow }

// step applies gradient g to weights w as step number t of their block, with factor times
// the learning rate.
func (o *Optimizer) step(w, g []float32, slots [][]float32, t uint64, factor float64) {
	lr := o.LearningRate * factor
	if adam := rules[o.Kind].adam; adam != nil {
		adam(w, g, slots, kernel.NewAdam(lr, o.Beta1, o.Beta2, o.Epsilon, o.WeightDecay, t))
		return
	}
	rules[o.Kind].step(o, w, g, slots, float32(lr))
}

// rowRule is the optimizer as the rows of a sparse layer apply it, each of dim weights.
func (o Optimizer) rowRule(dim int) table.Rule {
	var rule table.Rule
	for i, s := range rules[o.Kind].slots {
		elems := dim
		if s.perRow {
			elems = 1
		}
		rule.Slots = append(rule.Slots, table.Slot{Elems: elems, Start: o.slotStart(i)})
	}
	if adam := rules[o.Kind].adam; adam != nil {
		schedule := kernel.NewAdamSchedule(o.Beta1, o.Beta2, o.Epsilon, o.WeightDecay)
		rule.Steps = true
		rule.Step = func(w, g []float32, slots [][]float32, t uint64, factor float64) {
			adam(w, g, slots, schedule.At(o.LearningRate*factor, t))
		}
		return rule
	}
	step := rules[o.Kind].step
	rule.Step = func(w, g []float32, slots [][]float32, _ uint64, factor float64) {
		step(&o, w, g, slots, float32(o.LearningRate*factor))
	}
	return rule
}

func (o Optimizer) validate() error {
	if o.Kind == 0 {
		return errors.New("ps: no optimizer is set, as SGD(0.1) or Adam(1e-3)")
	}
	if o.Kind >= kindEnd {
		return fmt.Errorf("ps: unknown %v, have sgd, momentum, nesterov, adagrad, adam, adamw, amsgrad, ftrl and adagrad by row", o.Kind)
	}
	var errs []error
	check := func(name string, v float64, ok bool, bound string) {
		if !ok || math.IsNaN(v) || math.IsInf(v, 0) || math.Abs(v) > math.MaxFloat32 {
			errs = append(errs, fmt.Errorf("ps: %v: %s %v, must be %s and finite", o.Kind, name, v, bound))
		}
	}
	check("LearningRate", o.LearningRate, o.LearningRate >= 0, "at least 0")
	check("WeightDecay", o.WeightDecay, o.WeightDecay >= 0, "at least 0")
	check("InitialAccumulator", o.InitialAccumulator, o.InitialAccumulator >= 0, "at least 0")
	switch o.Kind {
	case KindMomentum, KindNesterov:
		check("Momentum", o.Momentum, o.Momentum >= 0 && o.Momentum < 1, "in [0, 1)")
	case KindAdagrad, KindAdagradRow:
		check("Epsilon", o.Epsilon, o.Epsilon > 0, "above 0")
	case KindFTRL:
		check("LearningRate", o.LearningRate, o.LearningRate > 0, "above 0")
		check("Epsilon", o.Epsilon, o.Epsilon >= 0, "at least 0")
		check("L1", o.L1, o.L1 >= 0, "at least 0")
	case KindAdam, KindAdamW, KindAMSGrad:
		check("Beta1", o.Beta1, o.Beta1 >= 0 && o.Beta1 < 1, "in [0, 1)")
		check("Beta2", o.Beta2, o.Beta2 >= 0 && o.Beta2 < 1, "in [0, 1)")
		check("Epsilon", o.Epsilon, o.Epsilon > 0, "above 0")
	}
	return errors.Join(append(errs, o.Schedule.faults(o.Kind)...)...)
}
