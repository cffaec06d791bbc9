package main

// withAndWithoutDecay emits the loop twice: for a coefficient of zero the twins leave the
// decay out. NaN is not equal to zero.
func (r *routine) withAndWithoutDecay(body func(decay *value)) {
	decay := r.scalar("decay")
	r.emit("FCMPS $(0.0), F%d", decay[0])
	r.emit("BNE decayed")
	r.loop(func() { body(nil) })
	r.emit("RET")
	r.label("decayed")
	r.loop(func() { body(&decay) })
}

// gradient reads weights and gradient and adds the weights times decay, if there is one.
func (r *routine) gradient(decay *value) (w, g value) {
	w, g = r.value(), r.value()
	r.load(w, "w")
	r.next(g, "g")
	if decay != nil {
		t := r.value()
		r.mul(t, *decay, w)
		r.add(g, g, t)
	}
	return w, g
}

func gradientSteps() []*routine {
	return []*routine{
		sgd(),
		momentum("momentum", "is momentumGeneric.", false),
		momentum("nesterov", "is nesterovGeneric.", true),
		adagrad(),
		ftrl(),
	}
}

func sgd() *routine {
	r := define("sgd", "is sgdGeneric or, with decay, sgdDecayGeneric.", lanes, parametersOf("w g", "lr decay")...)
	lr := r.scalar("lr")
	r.withAndWithoutDecay(func(decay *value) {
		w, g := r.gradient(decay)
		r.mul(g, lr, g)
		r.sub(w, w, g)
		r.store(w, "w")
	})
	return r
}

func momentum(name, doc string, nesterov bool) *routine {
	r := define(name, doc, lanes, parametersOf("w g v", "lr mu decay")...)
	lr, mu := r.scalar("lr"), r.scalar("mu")
	r.withAndWithoutDecay(func(decay *value) {
		w, g := r.gradient(decay)
		velocity := r.value()
		r.load(velocity, "v")
		r.mul(velocity, mu, velocity)
		r.add(velocity, velocity, g)
		r.store(velocity, "v")
		if nesterov {
			r.mul(velocity, mu, velocity)
			r.add(velocity, g, velocity)
		}
		r.mul(velocity, lr, velocity)
		r.sub(w, w, velocity)
		r.store(w, "w")
	})
	return r
}

func adagrad() *routine {
	r := define("adagrad", "is adagradGeneric.", lanes, parametersOf("w g h", "lr eps decay")...)
	lr, eps := r.scalar("lr"), r.scalar("eps")
	r.withAndWithoutDecay(func(decay *value) {
		w, g := r.gradient(decay)
		sum, t := r.value(), r.value()
		r.load(sum, "h")
		r.mul(t, g, g)
		r.add(sum, sum, t)
		r.store(sum, "h")
		r.sqrt(sum, sum)
		r.add(sum, sum, eps)
		r.mul(g, lr, g)
		r.div(g, g, sum)
		r.sub(w, w, g)
		r.store(w, "w")
	})
	return r
}

// ftrl computes the weight in all lanes and clears those where nothing is over l1.
func ftrl() *routine {
	r := define("ftrl", "is ftrlGeneric.", lanes, parametersOf("w g z n", "alpha beta l1 l2")...)
	alpha, beta, l1, l2 := r.scalar("alpha"), r.scalar("beta"), r.scalar("l1"), r.scalar("l2")
	sign, zero := r.constant(1<<31), r.constant(0)
	r.loop(func() {
		g, sum, root, w, z := r.value(), r.value(), r.value(), r.value(), r.value()
		r.next(g, "g")
		r.load(sum, "n")
		r.sqrt(root, sum)
		r.mul(z, g, g)
		r.add(sum, sum, z)
		r.store(sum, "n")
		r.sqrt(sum, sum)
		r.sub(root, sum, root) // the growth of the root
		r.div(root, root, alpha)
		r.load(w, "w")
		r.mul(w, root, w)
		r.load(z, "z")
		r.add(z, z, g)
		r.sub(z, z, w)
		r.store(z, "z")
		over, mask := r.value(), w
		r.native("VEOR", "B16", sign, z, g) // its sign bit is that of the weight
		r.native("VORR", "B16", sign, z, over)
		r.native("VEOR", "B16", sign, over, over) // the absolute value
		r.sub(over, over, l1)
		r.three("FMAX", opFMAX, over, over, zero)
		r.equal(mask, over, zero)
		r.add(sum, beta, sum)
		r.div(sum, sum, alpha)
		r.add(sum, sum, l2)
		r.native("VAND", "B16", sign, g, g)
		r.native("VORR", "B16", over, g, g)
		r.div(g, g, sum)
		for i := range g { // zero where the mask is set
			r.emit("VBIT V%d.B16, V%d.B16, V%d.B16", mask[i], zero[0], g[i])
		}
		r.store(g, "w")
	})
	return r
}

// rule is a variant of Adam.
type rule int

const (
	plain     rule = iota // the decay is added to the gradient
	decoupled             // or taken from the weight
	greatest              // the largest v so far takes the place of v
)

func adamSteps() []*routine {
	return []*routine{
		adam("adam", "w g m v", "is adamGeneric; decay is WeightDecay.", plain),
		adam("adamW", "w g m v", "is adamWGeneric; decay is Shrink.", decoupled),
		adam("amsGrad", "w g m v h", "is amsGradGeneric; decay is WeightDecay.", greatest),
	}
}

func adam(name, slices, doc string, of rule) *routine {
	r := define(name, doc, lanes,
		parametersOf(slices, "beta1 blend1 beta2 blend2 eps stepSize rootScale decay")...)
	beta1, blend1 := r.scalar("beta1"), r.scalar("blend1")
	beta2, blend2 := r.scalar("beta2"), r.scalar("blend2")
	eps, stepSize, rootScale := r.scalar("eps"), r.scalar("stepSize"), r.scalar("rootScale")
	r.withAndWithoutDecay(func(decay *value) {
		ofGradient := decay
		if of == decoupled {
			ofGradient = nil
		}
		w, g := r.gradient(ofGradient)
		m, v, t := r.value(), r.value(), r.value()
		r.load(m, "m")
		r.mul(m, beta1, m)
		r.mul(t, blend1, g)
		r.add(m, m, t)
		r.store(m, "m")
		r.load(v, "v")
		r.mul(v, beta2, v)
		r.mul(t, g, g)
		r.mul(t, blend2, t)
		r.add(v, v, t)
		r.store(v, "v")
		if of == greatest {
			r.load(t, "h")
			mask := g
			r.three("FCMGT", opFCMGT, mask, v, t)
			r.native("VBIT", "B16", mask, v, t)
			r.store(t, "h")
			v = t
		}
		r.sqrt(v, v)
		r.mul(v, v, rootScale)
		r.add(v, v, eps)
		r.mul(m, stepSize, m)
		r.div(m, m, v)
		if of == decoupled && decay != nil {
			r.mul(t, *decay, w)
			r.sub(w, w, t)
		}
		r.sub(w, w, m)
		r.store(w, "w")
	})
	return r
}
