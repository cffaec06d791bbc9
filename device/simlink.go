package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// ErrNegativeBytes is the cause of a UseError for a transfer of less than nothing.
var ErrNegativeBytes = errors.New("number of bytes is negative")

// UseError says which transfer on which device did not finish. Unwrap gives the
// cause: the context's error or ErrNegativeBytes.
type UseError struct {
	Device string        // name of the device
	Bytes  int64         // size of the transfer
	Waited time.Duration // how long it had waited
	Err    error
}

// Error names the device, the transfer and the cause.
func (e *UseError) Error() string {
	return fmt.Sprintf("device: %s: transfer of %d bytes ended after %v: %v", e.Device, e.Bytes, e.Waited, e.Err)
}

// Unwrap returns the cause.
func (e *UseError) Unwrap() error { return e.Err }

// SimLinkConfig describes a simulated device. The zero value is a device named "sim"
// whose link has no limit.
type SimLinkConfig struct {
	// Name is the name of the device; zero: "sim".
	Name string
	// BytesPerSecond is the bandwidth of the link; zero: no limit, Use never blocks.
	BytesPerSecond float64
	// BurstBytes is how much an idle link lets through at once before the
	// bandwidth counts. It also makes up for timers that fire late: a single
	// caller reaches the full bandwidth only with a burst of a few
	// milliseconds' worth. Zero: none. It is at most HistoryWindow's worth.
	BurstBytes int64
	// MemoryBytes is the memory that the device claims to have; zero: unknown.
	MemoryBytes int64
}

// validate reports every fault of the configuration at once.
func (c SimLinkConfig) validate() error {
	var errs []error
	if c.BytesPerSecond < 0 || math.IsNaN(c.BytesPerSecond) || math.IsInf(c.BytesPerSecond, 0) {
		errs = append(errs, fmt.Errorf("device: BytesPerSecond %v: want a finite number >= 0", c.BytesPerSecond))
	}
	if c.BurstBytes < 0 {
		errs = append(errs, fmt.Errorf("device: BurstBytes %d: want >= 0", c.BurstBytes))
	}
	if c.BytesPerSecond > 0 && float64(c.BurstBytes) > c.BytesPerSecond*HistoryWindow.Seconds() {
		errs = append(errs, fmt.Errorf("device: BurstBytes %d: want at most %v's worth, %.0f",
			c.BurstBytes, HistoryWindow, c.BytesPerSecond*HistoryWindow.Seconds()))
	}
	if c.MemoryBytes < 0 {
		errs = append(errs, fmt.Errorf("device: MemoryBytes %d: want >= 0", c.MemoryBytes))
	}
	return errors.Join(errs...)
}

// SimLink is a simulated accelerator behind a link of a stated bandwidth, which all
// callers share first come, first served. It starts no goroutine and needs no Close.
type SimLink struct {
	device Device
	opened time.Time

	mu      sync.Mutex
	link    link
	history history
}

// NewSimLink returns a simulated device. The error names every field that is out of
// bounds.
func NewSimLink(c SimLinkConfig) (*SimLink, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &SimLink{
		device: Device{
			ID: cmp.Or(c.Name, "sim"), Vendor: Simulated, Model: "link", Health: Healthy,
			LinkBytesPerSecond: Known(c.BytesPerSecond),
		},
		opened: time.Now(),
		link:   link{bytesPerSecond: c.BytesPerSecond},
	}
	s.link.burst = s.link.duration(c.BurstBytes)
	if c.MemoryBytes > 0 {
		s.device.MemoryBytes = Known(c.MemoryBytes)
	}
	return s, nil
}

// Device returns what is known about the device, its utilization over the last second
// included.
func (s *SimLink) Device() Device {
	d := s.device
	d.Utilization = s.Usage(time.Second).Busy
	return d
}

// Use blocks as long as a transfer of n bytes takes on the shared link, behind
// all transfers that came before. It returns a *UseError when ctx ends first; the
// link is then free again from that moment unless other transfers queue behind.
// A negative n is refused, zero returns at once.
func (s *SimLink) Use(ctx context.Context, n int64) error {
	if n < 0 {
		return &UseError{Device: s.device.ID, Bytes: n, Err: ErrNegativeBytes}
	}
	if err := ctx.Err(); err != nil {
		return &UseError{Device: s.device.ID, Bytes: n, Err: err}
	}
	if n == 0 {
		return nil
	}
	now, turn := s.reserve(n)
	wait := turn.finish - now
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		waited := s.release(turn) - now
		return &UseError{Device: s.device.ID, Bytes: n, Waited: waited, Err: ctx.Err()}
	}
}

// reserve takes the next turn and returns the time at which it did.
func (s *SimLink) reserve(n int64) (time.Duration, slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(s.opened)
	s.history.record(s.checkpoint(now))
	return now, s.link.reserve(now, n)
}

// release gives up a turn and returns the time at which it did.
func (s *SimLink) release(turn slot) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(s.opened)
	s.link.release(now, turn)
	return now
}

// checkpoint returns the running sums at now. Bytes count when they are
// accepted, busy time when it has passed.
func (s *SimLink) checkpoint(now time.Duration) checkpoint {
	return checkpoint{at: now, busy: s.link.busy(now), bytes: s.link.totalBytes}
}

// Usage returns the load over the last window. A window that is not positive means one
// second; one that is longer than the device's life or than HistoryWindow is cut to that.
// A link without a limit is never busy. Of a device that was opened just now only the bytes
// are known.
func (s *SimLink) Usage(window time.Duration) Usage {
	if window <= 0 {
		window = time.Second
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.checkpoint(time.Since(s.opened))
	s.history.record(now)
	window = min(window, HistoryWindow, now.at)
	u := Usage{Window: window, TotalBytes: Known(now.bytes)}
	if window <= 0 {
		return u
	}
	then := s.history.value(now.at-window, now)
	u.Busy = Known(min(1, max(0, float64(now.busy-then.busy)/float64(window))))
	u.BytesPerSecond = Known(max(0, float64(now.bytes-then.bytes)/window.Seconds()))
	return u
}
