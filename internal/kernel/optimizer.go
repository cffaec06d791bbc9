package kernel

import "math"

// SGD applies one step of stochastic gradient descent: w -= lr*g. With a
// weightDecay other than zero the gradient is g + weightDecay*w first (L2). With
// weightDecay zero the result is exactly w - lr*g, both operations rounded to
// float32: integers whose sums stay below 2^24 are added without error.
func SGD(w, g []float32, lr, weightDecay float32) {
	for n := wide(min(len(w), len(g))); n > 0; n = wide(min(len(w), len(g))) {
		sgdWide(w[:n], g[:n], lr, weightDecay)
		w, g = w[n:], g[n:]
	}
	if weightDecay == 0 {
		sgdGeneric(w, g, lr)
		return
	}
	sgdDecayGeneric(w, g, lr, weightDecay)
}

// Momentum applies one step of SGD with heavy-ball momentum as torch.optim.SGD
// does: v = mu*v + g, then w -= lr*v. Decay is as in [SGD].
func Momentum(w, g, v []float32, lr, mu, weightDecay float32) {
	for n := wide(min(len(w), len(g), len(v))); n > 0; n = wide(min(len(w), len(g), len(v))) {
		momentumWide(w[:n], g[:n], v[:n], lr, mu, weightDecay)
		w, g, v = w[n:], g[n:], v[n:]
	}
	momentumGeneric(w, g, v, lr, mu, weightDecay)
}

// Nesterov applies one step of SGD with Nesterov momentum as torch.optim.SGD does:
// v = mu*v + g, then w -= lr*(g + mu*v). Decay is as in [SGD].
func Nesterov(w, g, v []float32, lr, mu, weightDecay float32) {
	for n := wide(min(len(w), len(g), len(v))); n > 0; n = wide(min(len(w), len(g), len(v))) {
		nesterovWide(w[:n], g[:n], v[:n], lr, mu, weightDecay)
		w, g, v = w[n:], g[n:], v[n:]
	}
	nesterovGeneric(w, g, v, lr, mu, weightDecay)
}

// Adagrad applies one step of diagonal Adagrad: h += g*g, then
// w -= lr*g/(sqrt(h)+eps). Decay is as in [SGD]. With eps zero, an element whose
// gradients were all zero becomes NaN.
func Adagrad(w, g, h []float32, lr, eps, weightDecay float32) {
	for n := wide(min(len(w), len(g), len(h))); n > 0; n = wide(min(len(w), len(g), len(h))) {
		adagradWide(w[:n], g[:n], h[:n], lr, eps, weightDecay)
		w, g, h = w[n:], g[n:], h[n:]
	}
	adagradGeneric(w, g, h, lr, eps, weightDecay)
}

// AdagradRow applies one step of Adagrad with one accumulator for a whole row: sum[0] grows
// by the mean of g*g, then w -= lr*g/(sqrt(sum[0])+eps). Decay is as in [SGD]. Without decay
// the squares are added in the order of [Dot], so that pieces of a row are not the row.
func AdagradRow(w, g, sum []float32, lr, eps, weightDecay float32) {
	n := min(len(w), len(g))
	if n == 0 || len(sum) == 0 {
		return
	}
	w, g = w[:n], g[:n]
	if weightDecay != 0 {
		adagradRowDecay(w, g, sum, lr, eps, weightDecay)
		return
	}
	sum[0] += Dot(g, g) / float32(n)
	Axpy(w, -lr/(sqrt(sum[0])+eps), g)
}

// FTRL applies one step of FTRL-proximal (McMahan and others, "Ad click prediction: a view
// from the trenches", KDD 2013, algorithm 1) with learning rate alpha above zero and
// regularization l1 and l2: with s = (sqrt(n+g*g)-sqrt(n))/alpha it sets z += g - s*w,
// n += g*g, and w to -(z-sign(z)*l1)/((beta+sqrt(n))/alpha+l2), or to zero where the absolute
// value of z is at most l1.
func FTRL(w, g, z, n []float32, alpha, beta, l1, l2 float32) {
	for k := wide(min(len(w), len(g), len(z), len(n))); k > 0; k = wide(min(len(w), len(g), len(z), len(n))) {
		ftrlWide(w[:k], g[:k], z[:k], n[:k], alpha, beta, l1, l2)
		w, g, z, n = w[k:], g[k:], z[k:], n[k:]
	}
	ftrlGeneric(w, g, z, n, alpha, beta, l1, l2)
}

// AdamParams holds what one step of [Adam] or [AdamW] needs, ready for use in the
// inner loop. It is made by [NewAdam] for one step count; its zero value leaves the
// weights NaN and is of no use.
type AdamParams struct {
	// Beta1 and Beta2 are the decay rates of the first and second moment.
	Beta1, Beta2 float32
	// Blend1 and Blend2 are 1-Beta1 and 1-Beta2, subtracted in float64.
	Blend1, Blend2 float32
	// Eps is added to the root of the second moment.
	Eps float32
	// StepSize is lr/(1-Beta1^t).
	StepSize float32
	// RootScale is 1/sqrt(1-Beta2^t).
	RootScale float32
	// WeightDecay is the L2 coefficient that Adam adds to the gradient.
	WeightDecay float32
	// Shrink is lr*weightDecay, the part of each weight that AdamW takes away.
	Shrink float32
}

// NewAdam returns the parameters of step t, the first step being 1, for learning
// rate lr, decay rates beta1 and beta2 in [0, 1), eps above zero, and weightDecay
// wd. The bias corrections of Kingma and Ba are computed in float64. A t of zero is
// taken as 1.
func NewAdam(lr, beta1, beta2, eps, wd float64, t uint64) AdamParams {
	step := float64(max(t, 1))
	return AdamParams{
		Beta1:       float32(beta1),
		Beta2:       float32(beta2),
		Blend1:      float32(1 - beta1),
		Blend2:      float32(1 - beta2),
		Eps:         float32(eps),
		StepSize:    float32(lr / (1 - math.Pow(beta1, step))),
		RootScale:   float32(1 / math.Sqrt(1-math.Pow(beta2, step))),
		WeightDecay: float32(wd),
		Shrink:      float32(lr * wd),
	}
}

// AdamSchedule makes the parameters of [Adam], [AdamW] and [AMSGrad] for rows that each count their own
// steps, without a power for each row. Make one with [NewAdamSchedule]. It is never changed,
// so that any number of goroutines may use it.
type AdamSchedule struct {
	wd     float64
	first  AdamParams // of step 1 at rate 0
	powers [2][numDigits][digitBase]float64
}

// A step count is written in digits: beta^t is the product of a power for each of them.
const (
	digitBits = 7
	digitBase = 1 << digitBits
	numDigits = 5 // 2^35 steps, and no power is left of any beta
)

// NewAdamSchedule returns the schedule of the arguments of [NewAdam].
func NewAdamSchedule(beta1, beta2, eps, wd float64) *AdamSchedule {
	s := &AdamSchedule{wd: wd, first: NewAdam(0, beta1, beta2, eps, wd, 1)}
	for i, beta := range []float64{beta1, beta2} {
		for k := range numDigits {
			for digit := range digitBase {
				s.powers[i][k][digit] = math.Pow(beta, float64(uint64(digit)<<(k*digitBits)))
			}
		}
	}
	return s
}

// At returns the parameters of step t, the first step being 1, with learning rate lr: those of
// [NewAdam], but for the last bit of StepSize and RootScale.
func (s *AdamSchedule) At(lr float64, t uint64) AdamParams {
	p := s.first
	rest1, rest2 := 1-s.power(0, t), 1-s.power(1, t)
	p.StepSize = float32(lr / rest1)
	p.Shrink = float32(lr * s.wd)
	p.RootScale = float32(1 / math.Sqrt(rest2))
	return p
}

// power is the power of beta1 or beta2 after t steps.
func (s *AdamSchedule) power(beta int, t uint64) float64 {
	t = min(max(t, 1), 1<<(numDigits*digitBits)-1)
	digits := &s.powers[beta]
	product := digits[0][t%digitBase]
	for k := 1; t >= digitBase; k++ {
		t /= digitBase
		product *= digits[k%numDigits][t%digitBase]
	}
	return product
}

// Adam applies one step of Adam with L2 decay: g += WeightDecay*w, then
// m = Beta1*m + Blend1*g, v = Beta2*v + Blend2*g*g and
// w -= StepSize*m/(sqrt(v)*RootScale+Eps). The slice g itself is not changed.
func Adam(w, g, m, v []float32, p AdamParams) {
	for n := wide(min(len(w), len(g), len(m), len(v))); n > 0; n = wide(min(len(w), len(g), len(m), len(v))) {
		adamWide(w[:n], g[:n], m[:n], v[:n], p.Beta1, p.Blend1, p.Beta2, p.Blend2, p.Eps, p.StepSize, p.RootScale, p.WeightDecay)
		w, g, m, v = w[n:], g[n:], m[n:], v[n:]
	}
	adamGeneric(w, g, m, v, p)
}

// AMSGrad applies one step of [Adam] in which the largest v so far, h, takes the place of v
// under the root (Reddi, Kale and Kumar, ICLR 2018), with bias corrections as in
// torch.optim.Adam.
func AMSGrad(w, g, m, v, h []float32, p AdamParams) {
	for n := wide(min(len(w), len(g), len(m), len(v), len(h))); n > 0; n = wide(min(len(w), len(g), len(m), len(v), len(h))) {
		amsGradWide(w[:n], g[:n], m[:n], v[:n], h[:n], p.Beta1, p.Blend1, p.Beta2, p.Blend2, p.Eps, p.StepSize, p.RootScale, p.WeightDecay)
		w, g, m, v, h = w[n:], g[n:], m[n:], v[n:], h[n:]
	}
	amsGradGeneric(w, g, m, v, h, p)
}

// AdamW applies one step of Adam with decoupled decay: w -= Shrink*w, then the step
// of [Adam] with the gradient as it is. Field WeightDecay of p is not used.
func AdamW(w, g, m, v []float32, p AdamParams) {
	for n := wide(min(len(w), len(g), len(m), len(v))); n > 0; n = wide(min(len(w), len(g), len(m), len(v))) {
		adamWWide(w[:n], g[:n], m[:n], v[:n], p.Beta1, p.Blend1, p.Beta2, p.Blend2, p.Eps, p.StepSize, p.RootScale, p.Shrink)
		w, g, m, v = w[n:], g[n:], m[n:], v[n:]
	}
	adamWGeneric(w, g, m, v, p)
}
