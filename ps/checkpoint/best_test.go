package checkpoint_test

import (
	"math"
	"time"
)

// best is the shortest time of several.
type best struct{ duration time.Duration }

func newBest() *best { return &best{math.MaxInt64} }

func (b *best) time(work func()) {
	begin := time.Now()
	work()
	b.duration = min(b.duration, time.Since(begin))
}

func (b *best) seconds() float64 { return b.duration.Seconds() }
