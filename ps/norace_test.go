//go:build !race

package ps_test

// underRace is whether the race detector slows this run down.
const underRace = false
