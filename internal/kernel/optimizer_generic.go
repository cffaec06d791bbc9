package kernel

import "math"

// The conversions float32(a*b) are not noise: the Go specification lets a compiler
// fuse a*b+c unless the product is converted, and arm64, ppc64 and s390x do so.

func sgdGeneric(w, g []float32, lr float32) {
	for len(w) >= 4 && len(g) >= 4 {
		w[0] -= float32(lr * g[0])
		w[1] -= float32(lr * g[1])
		w[2] -= float32(lr * g[2])
		w[3] -= float32(lr * g[3])
		w, g = w[4:], g[4:]
	}
	for i := range min(len(w), len(g)) {
		w[i] -= float32(lr * g[i])
	}
}

func sgdDecayGeneric(w, g []float32, lr, decay float32) {
	n := min(len(w), len(g))
	w, g = w[:n], g[:n]
	for i, grad := range g {
		grad += float32(decay * w[i])
		w[i] -= float32(lr * grad)
	}
}

func momentumGeneric(w, g, v []float32, lr, mu, decay float32) {
	n := min(len(w), len(g), len(v))
	w, g, v = w[:n], g[:n], v[:n]
	for i, grad := range g {
		if decay != 0 {
			grad += float32(decay * w[i])
		}
		velocity := float32(mu*v[i]) + grad
		v[i] = velocity
		w[i] -= float32(lr * velocity)
	}
}

func nesterovGeneric(w, g, v []float32, lr, mu, decay float32) {
	n := min(len(w), len(g), len(v))
	w, g, v = w[:n], g[:n], v[:n]
	for i, grad := range g {
		if decay != 0 {
			grad += float32(decay * w[i])
		}
		velocity := float32(mu*v[i]) + grad
		v[i] = velocity
		ahead := grad + float32(mu*velocity)
		w[i] -= float32(lr * ahead)
	}
}

func adagradGeneric(w, g, h []float32, lr, eps, decay float32) {
	n := min(len(w), len(g), len(h))
	w, g, h = w[:n], g[:n], h[:n]
	for i, grad := range g {
		if decay != 0 {
			grad += float32(decay * w[i])
		}
		sum := h[i] + float32(grad*grad)
		h[i] = sum
		w[i] -= float32(lr*grad) / (sqrt(sum) + eps)
	}
}

// adagradRowDecay goes over the row twice: the gradient is not kept.
func adagradRowDecay(w, g, sum []float32, lr, eps, decay float32) {
	squares := float32(0)
	for i := range w {
		grad := g[i] + float32(decay*w[i])
		squares += float32(grad * grad)
	}
	sum[0] += squares / float32(len(w))
	rate := lr / (sqrt(sum[0]) + eps)
	for i := range w {
		grad := g[i] + float32(decay*w[i])
		w[i] -= float32(rate * grad)
	}
}

func ftrlGeneric(w, g, z, n []float32, alpha, beta, l1, l2 float32) {
	size := min(len(w), len(g), len(z), len(n))
	w, g, z, n = w[:size], g[:size], z[:size], n[:size]
	for i, grad := range g {
		sum := n[i] + float32(grad*grad)
		root := sqrt(sum)
		sigma := (root - sqrt(n[i])) / alpha
		n[i] = sum
		linear := z[i] + grad - float32(sigma*w[i])
		z[i] = linear
		weight := float32(0) // also where the divisor is zero
		if over := max(abs(linear)-l1, 0); over != 0 {
			weight = copysign(over, -linear) / ((beta+root)/alpha + l2)
		}
		w[i] = weight
	}
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ signBit) }

func copysign(x, sign float32) float32 {
	return math.Float32frombits(math.Float32bits(x)&^signBit | math.Float32bits(sign)&signBit)
}

const signBit = 1 << 31

func amsGradGeneric(w, g, m, v, h []float32, p AdamParams) {
	n := min(len(w), len(g), len(m), len(v), len(h))
	w, g, m, v, h = w[:n], g[:n], m[:n], v[:n], h[:n]
	for i, grad := range g {
		if p.WeightDecay != 0 {
			grad += float32(p.WeightDecay * w[i])
		}
		m[i] = float32(p.Beta1*m[i]) + float32(p.Blend1*grad)
		v[i] = float32(p.Beta2*v[i]) + float32(p.Blend2*float32(grad*grad))
		if v[i] > h[i] {
			h[i] = v[i]
		}
		root := float32(sqrt(h[i])*p.RootScale) + p.Eps
		w[i] -= float32(p.StepSize*m[i]) / root
	}
}

func adamGeneric(w, g, m, v []float32, p AdamParams) {
	n := min(len(w), len(g), len(m), len(v))
	w, g, m, v = w[:n], g[:n], m[:n], v[:n]
	for i, grad := range g {
		if p.WeightDecay != 0 {
			grad += float32(p.WeightDecay * w[i])
		}
		m[i] = float32(p.Beta1*m[i]) + float32(p.Blend1*grad)
		v[i] = float32(p.Beta2*v[i]) + float32(p.Blend2*float32(grad*grad))
		root := float32(sqrt(v[i])*p.RootScale) + p.Eps
		w[i] -= float32(p.StepSize*m[i]) / root
	}
}

func adamWGeneric(w, g, m, v []float32, p AdamParams) {
	n := min(len(w), len(g), len(m), len(v))
	w, g, m, v = w[:n], g[:n], m[:n], v[:n]
	for i, grad := range g {
		weight := w[i]
		if p.Shrink != 0 {
			weight -= float32(p.Shrink * weight)
		}
		m[i] = float32(p.Beta1*m[i]) + float32(p.Blend1*grad)
		v[i] = float32(p.Beta2*v[i]) + float32(p.Blend2*float32(grad*grad))
		root := float32(sqrt(v[i])*p.RootScale) + p.Eps
		w[i] = weight - float32(p.StepSize*m[i])/root
	}
}

// sqrt rounds correctly: the root in float64 of a float32, rounded again, is the
// float32 root, and compilers turn this form into the single instruction.
func sqrt(x float32) float32 {
	return float32(math.Sqrt(float64(x)))
}
