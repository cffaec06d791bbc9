package actor

import (
	"fmt"
	"time"
)

// rttWeight is the share of a new sample in the smoothed round-trip time, 1/8 as in
// TCP (RFC 6298, section 2).
const rttWeight = 8

// heartbeat probes the peer until the connection ends, and ends it when nothing has
// come for the suspicion time. Any frame counts as a sign of life.
func (c *conn) heartbeat() {
	cfg := c.n.cfg
	ticker := time.NewTicker(cfg.Heartbeat)
	defer ticker.Stop()
	seen := c.frames.Load()
	heard := time.Now()
	tick := heard
	c.ping()
	for {
		select {
		case <-ticker.C:
		case <-c.done:
			return
		}
		now := time.Now()
		frames := c.frames.Load()
		if frames != seen {
			seen, heard = frames, now
		}
		// Time in which this process itself did not run does not count: what the peer
		// sent then lies unread.
		if late := now.Sub(tick) - cfg.Heartbeat; late > cfg.Heartbeat {
			heard = heard.Add(late)
		}
		tick = now
		if silent := now.Sub(heard); silent >= cfg.Suspicion {
			c.fail(fmt.Errorf("nothing heard for %v, suspicion time is %v", silent.Round(time.Millisecond), cfg.Suspicion))
			return
		}
		c.ping()
	}
}

func (c *conn) ping() {
	c.outbox.build(c, kindPing, func(e *encoder) { e.uint(uint64(time.Since(c.clockStart))) })
}

func (c *conn) onProbe(k kind, body []byte) error {
	t, err := parseProbe(body)
	if err != nil {
		return err
	}
	if k == kindPing {
		c.outbox.build(c, kindPong, func(e *encoder) { e.uint(t) })
		return nil
	}
	sample := int64(time.Since(c.clockStart)) - int64(t)
	if sample < 0 {
		return fmt.Errorf("pong of a ping sent at %v, the clock is at %v", time.Duration(t), time.Since(c.clockStart))
	}
	smooth := c.rtt.Load()
	if smooth == 0 {
		smooth = sample
	}
	c.rtt.Store(smooth + (sample-smooth)/rttWeight)
	return nil
}
