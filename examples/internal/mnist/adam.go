package mnist

import "math"

// Adam is the optimizer of Kingma and Ba, 2015, algorithm 1.
type Adam struct {
	rate          float64
	steps         int
	first, second Params
}

// NewAdam returns an optimizer of the parameters of m with the given learning rate.
func NewAdam(m *MLP, rate float64) *Adam {
	return &Adam{rate: rate, first: m.NewParams(), second: m.NewParams()}
}

// Step applies the gradients to the parameters.
func (a *Adam) Step(p, grads Params) {
	const beta1, beta2, epsilon = 0.9, 0.999, 1e-8
	a.steps++
	correction := math.Sqrt(1-math.Pow(beta2, float64(a.steps))) / (1 - math.Pow(beta1, float64(a.steps)))
	rate := float32(a.rate * correction)
	for l := range p {
		param, first, second := p[l], a.first[l], a.second[l]
		for i, g := range grads[l] {
			first[i] = beta1*first[i] + (1-beta1)*g
			second[i] = beta2*second[i] + (1-beta2)*g*g
			param[i] -= rate * first[i] / (float32(math.Sqrt(float64(second[i]))) + epsilon)
		}
	}
}
