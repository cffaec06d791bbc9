package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// processors is what all programs have used of the processors so far, where the system
// tells: on Linux.
type processors struct {
	at           time.Time
	busy, stolen time.Duration // of all processors together; stolen by the host's other guests
}

// statTick is the unit of /proc/stat, the same on every Linux that Go runs on.
const statTick = 10 * time.Millisecond

func readProcessors() (processors, bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return processors{}, false
	}
	first, _, _ := strings.Cut(string(text), "\n")
	p, ok := parseStat(first)
	p.at = time.Now()
	return p, ok
}

// parseStat reads the line of all processors: user, nice, system, idle, iowait, irq,
// softirq and stolen time (proc(5)).
func parseStat(line string) (processors, bool) {
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return processors{}, false
	}
	var ticks [8]int64
	for i := range ticks {
		var err error
		if ticks[i], err = strconv.ParseInt(fields[i+1], 10, 64); err != nil {
			return processors{}, false
		}
	}
	busy := ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]
	return processors{busy: time.Duration(busy) * statTick, stolen: time.Duration(ticks[7]) * statTick}, true
}

// others says which part of the processors was used by other programs, and by the
// host for others, between two readings, own being the time that this program and its
// processes have used between them.
func others(before, after processors, own time.Duration, n int) string {
	total := after.at.Sub(before.at) * time.Duration(n)
	share := func(d time.Duration) float64 { return 100 * max(0, d.Seconds()) / total.Seconds() }
	return fmt.Sprintf("other programs used %.0f %% of the processors, other guests of the host %.0f %%",
		share(after.busy-before.busy-own), share(after.stolen-before.stolen))
}
