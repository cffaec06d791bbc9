//go:build !race

package mnist

// underRace is whether the race detector slows this run down.
const underRace = false
