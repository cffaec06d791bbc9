package ps

import (
	"errors"
	"fmt"
	"math"

	"github.com/elasticps/elasticps/internal/kernel"
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
	kindEnd
)

// rules has one row per optimizer: this table and kernel are where to add one.
var rules = [kindEnd]struct {
	name  string
	slots []string // names of the float32 values of state per parameter, all starting at zero
	step  func(o Optimizer, w, g []float32, slots [][]float32, t uint64)
}{
	KindSGD: {"sgd", nil, func(o Optimizer, w, g []float32, _ [][]float32, _ uint64) {
		kernel.SGD(w, g, float32(o.LearningRate), float32(o.WeightDecay))
	}},
	KindMomentum: {"momentum", []string{"momentum"}, func(o Optimizer, w, g []float32, s [][]float32, _ uint64) {
		kernel.Momentum(w, g, s[0], float32(o.LearningRate), float32(o.Momentum), float32(o.WeightDecay))
	}},
	KindNesterov: {"nesterov", []string{"momentum"}, func(o Optimizer, w, g []float32, s [][]float32, _ uint64) {
		kernel.Nesterov(w, g, s[0], float32(o.LearningRate), float32(o.Momentum), float32(o.WeightDecay))
	}},
	KindAdagrad: {"adagrad", []string{"sum"}, func(o Optimizer, w, g []float32, s [][]float32, _ uint64) {
		kernel.Adagrad(w, g, s[0], float32(o.LearningRate), float32(o.Epsilon), float32(o.WeightDecay))
	}},
	KindAdam: {"adam", []string{"m", "v"}, func(o Optimizer, w, g []float32, s [][]float32, t uint64) {
		kernel.Adam(w, g, s[0], s[1], kernel.NewAdam(o.LearningRate, o.Beta1, o.Beta2, o.Epsilon, o.WeightDecay, t))
	}},
	KindAdamW: {"adamw", []string{"m", "v"}, func(o Optimizer, w, g []float32, s [][]float32, t uint64) {
		kernel.AdamW(w, g, s[0], s[1], kernel.NewAdam(o.LearningRate, o.Beta1, o.Beta2, o.Epsilon, o.WeightDecay, t))
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
// Momentum, Nesterov, Adagrad, Adam or AdamW and change fields as needed. The
// formulas are those of PyTorch's torch.optim; see package internal/kernel.
//
// The step count of Adam and AdamW is kept per block of BlockElems parameters: it
// grows by one with each step applied to any part of the block.
type Optimizer struct {
	Kind         OptimizerKind
	LearningRate float64 // at least 0, finite
	Momentum     float64 // Momentum, Nesterov: in [0, 1)
	Beta1, Beta2 float64 // Adam, AdamW: in [0, 1)
	Epsilon      float64 // Adagrad, Adam, AdamW: above 0
	WeightDecay  float64 // at least 0; L2, or decoupled in AdamW
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

func (o Optimizer) slots() int { return len(rules[o.Kind].slots) }

// slotNames are the names of the slots in checkpoints; they must not be changed.
func (o Optimizer) slotNames() []string { return rules[o.Kind].slots }

// step applies gradient g to weights w as step number t of their block.
func (o Optimizer) step(w, g []float32, slots [][]float32, t uint64) {
	rules[o.Kind].step(o, w, g, slots, t)
}

func (o Optimizer) validate() error {
	if o.Kind == 0 || o.Kind >= kindEnd {
		return fmt.Errorf("ps: unknown %v, have sgd, momentum, nesterov, adagrad, adam and adamw", o.Kind)
	}
	var errs []error
	check := func(name string, v float64, ok bool, bound string) {
		if !ok || math.IsNaN(v) || math.IsInf(v, 0) || math.Abs(v) > math.MaxFloat32 {
			errs = append(errs, fmt.Errorf("ps: %v: %s %v, must be %s and finite", o.Kind, name, v, bound))
		}
	}
	check("LearningRate", o.LearningRate, o.LearningRate >= 0, "at least 0")
	check("WeightDecay", o.WeightDecay, o.WeightDecay >= 0, "at least 0")
	switch o.Kind {
	case KindMomentum, KindNesterov:
		check("Momentum", o.Momentum, o.Momentum >= 0 && o.Momentum < 1, "in [0, 1)")
	case KindAdagrad:
		check("Epsilon", o.Epsilon, o.Epsilon > 0, "above 0")
	case KindAdam, KindAdamW:
		check("Beta1", o.Beta1, o.Beta1 >= 0 && o.Beta1 < 1, "in [0, 1)")
		check("Beta2", o.Beta2, o.Beta2 >= 0 && o.Beta2 < 1, "in [0, 1)")
		check("Epsilon", o.Epsilon, o.Epsilon > 0, "above 0")
	}
	return errors.Join(errs...)
}
