package main

import (
	"strings"

	. "github.com/mmcloughlin/avo/build"
)

// withAndWithoutDecay emits the loop twice: for a coefficient of zero the twins leave
// the decay out, which is not the same as adding zero times an infinite weight.
func (f *function) withAndWithoutDecay(coefficient string, unroll int, body func(index int, decay *vec)) {
	unlessZero(coefficient, "decay")
	f.loop("plain", unroll, func(i int) { body(i, nil) })
	end()
	Label("decay")
	decay := f.scalar(coefficient)
	f.loop("decay", unroll, func(i int) { body(i, &decay) })
	end()
}

// gradient loads the gradient and adds the weights times decay, if there is one.
func (f *function) gradient(i int, decay *vec) vec {
	g := f.load("g", i)
	if decay == nil {
		return g
	}
	return add(g, mul(*decay, f.at("w", i)))
}

func gradientSteps() {
	sgd()
	momentum("momentum", "is momentumGeneric.", false)
	momentum("nesterov", "is nesterovGeneric.", true)
	adagrad()
}

func sgd() {
	f := avx2.begin("sgd", "func(w, g []float32, lr, decay float32)",
		"is sgdGeneric or, with decay, sgdDecayGeneric.", float32s("w", "g")...)
	lr := f.scalar("lr")
	f.withAndWithoutDecay("decay", 4, func(i int, decay *vec) {
		change := mul(lr, f.gradient(i, decay))
		f.store(sub(f.load("w", i), change), "w", i)
	})
}

func momentum(name, doc string, nesterov bool) {
	f := avx2.begin(name, "func(w, g, v []float32, lr, mu, decay float32)", doc, float32s("w", "g", "v")...)
	lr, mu := f.scalar("lr"), f.scalar("mu")
	f.withAndWithoutDecay("decay", 2, func(i int, decay *vec) {
		g := f.gradient(i, decay)
		velocity := add(mul(mu, f.at("v", i)), g)
		f.store(velocity, "v", i)
		if nesterov {
			velocity = add(g, mul(mu, velocity))
		}
		f.store(sub(f.load("w", i), mul(lr, velocity)), "w", i)
	})
}

func adagrad() {
	f := avx2.begin("adagrad", "func(w, g, h []float32, lr, eps, decay float32)",
		"is adagradGeneric.", float32s("w", "g", "h")...)
	lr, eps := f.scalar("lr"), f.scalar("eps")
	f.withAndWithoutDecay("decay", 2, func(i int, decay *vec) {
		g := f.gradient(i, decay)
		sum := add(f.load("h", i), mul(g, g))
		f.store(sum, "h", i)
		change := div(mul(lr, g), add(sqrt(sum), eps))
		f.store(sub(f.load("w", i), change), "w", i)
	})
}

// rule is a variant of Adam.
type rule int

const (
	plain     rule = iota // the decay is added to the gradient
	decoupled             // or taken from the weight
	greatest              // the largest v so far takes the place of v
)

func adamSteps() {
	adam("adam", "w, g, m, v", "is adamGeneric; decay is WeightDecay.", plain)
	adam("adamW", "w, g, m, v", "is adamWGeneric; decay is Shrink.", decoupled)
	adam("amsGrad", "w, g, m, v, h", "is amsGradGeneric; decay is WeightDecay.", greatest)
}

func adam(name, slices, doc string, of rule) {
	signature := "func(" + slices + " []float32, beta1, blend1, beta2, blend2, eps, stepSize, rootScale, decay float32)"
	f := avx2.begin(name, signature, doc, float32s(strings.Split(slices, ", ")...)...)
	beta1, blend1 := f.scalar("beta1"), f.scalar("blend1")
	beta2, blend2 := f.scalar("beta2"), f.scalar("blend2")
	eps, stepSize, rootScale := f.scalar("eps"), f.scalar("stepSize"), f.scalar("rootScale")
	f.withAndWithoutDecay("decay", 2, func(i int, decay *vec) {
		ofGradient := decay
		if of == decoupled {
			ofGradient = nil
		}
		g := f.gradient(i, ofGradient)
		m := add(mul(beta1, f.at("m", i)), mul(blend1, g))
		v := add(mul(beta2, f.at("v", i)), mul(blend2, mul(g, g)))
		f.store(m, "m", i)
		f.store(v, "v", i)
		if of == greatest {
			VMAXPS(f.at("h", i), v, v) // h where v is NaN
			f.store(v, "h", i)
		}
		change := div(mul(stepSize, m), add(mul(sqrt(v), rootScale), eps))
		w := f.load("w", i)
		if of == decoupled && decay != nil {
			w = sub(w, mul(*decay, w))
		}
		f.store(sub(w, change), "w", i)
	})
}
