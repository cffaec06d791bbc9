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

func adamSteps() []*routine {
	return []*routine{
		adam("adam", "is adamGeneric; decay is WeightDecay.", false),
		adam("adamW", "is adamWGeneric; decay is Shrink.", true),
	}
}

// adam adds the decay to the gradient or, if decoupled, takes it from the weight.
func adam(name, doc string, decoupled bool) *routine {
	r := define(name, doc, lanes,
		parametersOf("w g m v", "beta1 blend1 beta2 blend2 eps stepSize rootScale decay")...)
	beta1, blend1 := r.scalar("beta1"), r.scalar("blend1")
	beta2, blend2 := r.scalar("beta2"), r.scalar("blend2")
	eps, stepSize, rootScale := r.scalar("eps"), r.scalar("stepSize"), r.scalar("rootScale")
	r.withAndWithoutDecay(func(decay *value) {
		ofGradient := decay
		if decoupled {
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
		r.sqrt(v, v)
		r.mul(v, v, rootScale)
		r.add(v, v, eps)
		r.mul(m, stepSize, m)
		r.div(m, m, v)
		if decoupled && decay != nil {
			r.mul(t, *decay, w)
			r.sub(w, w, t)
		}
		r.sub(w, w, m)
		r.store(w, "w")
	})
	return r
}
