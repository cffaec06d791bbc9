package sim

import (
	"math/rand/v2"
	"time"
)

// load returns the fraction of time, low to high, in which a device is busy at a time. It
// passes through a random level at each multiple of step, in straight lines.
func load(seed, number uint64, at, step time.Duration, low, high float64) float64 {
	n := uint64(at / step)
	share := float64(at%step) / float64(step)
	a, b := level(seed, number, n), level(seed, number, n+1)
	return low + (high-low)*(a+(b-a)*share)
}

// level returns the random number, 0 to 1, that belongs to a device and a step.
func level(seed, number, step uint64) float64 {
	return rand.New(rand.NewPCG(seed, number<<40|step)).Float64()
}
