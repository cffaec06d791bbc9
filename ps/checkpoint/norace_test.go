//go:build !race

package checkpoint_test

// underRace is whether the race detector slows this run down.
const underRace = false
