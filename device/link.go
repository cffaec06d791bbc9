package device

import (
	"math"
	"time"
)

// maxTransfer bounds the time that one transfer may take, so that the arithmetic
// of finish times cannot overflow.
const maxTransfer = 24 * time.Hour

// link is the arithmetic of one FIFO link, without a clock: every method takes
// the time since the link was opened. The zero value is a link without a limit.
type link struct {
	bytesPerSecond float64
	burst          time.Duration // how much idle time a later transfer may use up
	lastFinish     time.Duration
	reserved       time.Duration // sum of the durations of all transfers
	totalBytes     int64
}

// slot is the turn of one transfer on the link.
type slot struct {
	start, finish time.Duration
	bytes         int64
}

// duration returns how long n bytes take on the idle link.
func (l *link) duration(n int64) time.Duration {
	if l.bytesPerSecond <= 0 {
		return 0
	}
	d := float64(n) / l.bytesPerSecond * float64(time.Second)
	return time.Duration(math.Min(d, float64(maxTransfer)))
}

// reserve gives a transfer of n bytes the next turn.
func (l *link) reserve(now time.Duration, n int64) slot {
	start := max(now-l.burst, l.lastFinish)
	d := l.duration(n)
	s := slot{start: start, finish: start + d, bytes: n}
	l.totalBytes += n
	if d > 0 {
		l.lastFinish = s.finish
		l.reserved += d
	}
	return s
}

// release gives back what a transfer that ends early has not used. Only the last
// in the queue can give back: those behind it know their finish times already,
// so for them the link stays occupied.
func (l *link) release(now time.Duration, s slot) {
	if s.finish != l.lastFinish || s.finish <= now || s.finish == s.start {
		return
	}
	used := max(now, s.start)
	rest := s.finish - used
	l.lastFinish = used
	l.reserved -= rest
	l.totalBytes -= int64(float64(s.bytes) * float64(rest) / float64(s.finish-s.start))
}

// busy returns how long the link has worked from the start until now, which is
// never before the last reservation.
func (l *link) busy(now time.Duration) time.Duration {
	return l.reserved - max(0, l.lastFinish-now)
}
