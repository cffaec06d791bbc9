package starved

import (
	"sync/atomic"
	"testing"
	"time"
)

// nap is how long the watch sleeps, and tolerance how late it may be each time.
const (
	nap       = time.Millisecond
	tolerance = time.Millisecond
)

// Meter adds up how long a goroutine waited for a processor.
type Meter struct {
	tb     testing.TB
	waited atomic.Int64
	since  atomic.Int64 // when the present nap began, in nanoseconds after began
	began  time.Time
	stop   chan struct{}
	ended  chan struct{}
}

// Watch watches until the test ends.
func Watch(tb testing.TB) *Meter {
	m := &Meter{tb: tb, began: time.Now(), stop: make(chan struct{}), ended: make(chan struct{})}
	go m.watch()
	tb.Cleanup(func() {
		close(m.stop)
		<-m.ended
	})
	return m
}

func (m *Meter) watch() {
	defer close(m.ended)
	for timer := time.NewTimer(nap); ; timer.Reset(nap) {
		select {
		case <-timer.C:
		case <-m.stop:
			timer.Stop()
			return
		}
		now := time.Since(m.began)
		m.waited.Add(int64(late(now - time.Duration(m.since.Load()))))
		m.since.Store(int64(now))
	}
}

// late is how long a nap that took so long has waited for a processor.
func late(took time.Duration) time.Duration {
	if took -= nap; took <= tolerance {
		return 0
	}
	return took
}

// Waited returns how long a goroutine has waited for a processor since Watch, the present nap
// included: it may be the watch that is starved.
func (m *Meter) Waited() time.Duration {
	return time.Duration(m.waited.Load()) + late(time.Since(m.began)-time.Duration(m.since.Load()))
}

// Took returns the time since Watch.
func (m *Meter) Took() time.Duration { return time.Since(m.began) }

// Less requires that what took so long would have taken less than the bound with a processor.
func (m *Meter) Less(took, bound time.Duration) {
	m.tb.Helper()
	switch waited := m.Waited(); {
	case took < bound:
	case took < bound+waited:
		m.tb.Logf("took %v instead of less than %v, while a goroutine waited %v for a processor", took, bound, waited)
	default:
		m.tb.Fatalf("took %v, must be less than %v; a goroutine has waited %v for a processor meanwhile", took, bound, waited)
	}
}
