//go:build !race

package main

// underRace is whether the race detector slows this run down.
const underRace = false
