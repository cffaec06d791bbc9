package ps

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/shard"
)

// watchInterval is how late the end of a context may be noticed that the reader of a
// connection works for, and how late a request is sent again.
const watchInterval = 10 * time.Millisecond

// replacedGrace is how long a connection may take nothing whose server has lost a shard
// to another one.
const replacedGrace = 100 * time.Millisecond

// busy tells the watch of a client that requests are under way.
type busy struct {
	awake atomic.Bool
	wake  chan struct{} // capacity 1
}

func newBusy() *busy { return &busy{wake: make(chan struct{}, 1)} }

func (b *busy) notice() {
	if b.awake.Load() {
		return
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// watch looks at the connections while requests are under way: nobody else wakes a
// reader whose context has ended, repeats what was not answered, or ends a write that
// a hung server does not take. One goroutine with one timer does it for all, so that a
// request needs no timer of its own.
func (c *Client) watch() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var links []*link
	moved := c.hasMoved // made once
	for {
		tick.Stop()
		c.busy.awake.Store(false)
		if !c.anyBusy() {
			select {
			case <-c.busy.wake:
			case <-c.ctx.Done():
				return
			}
		}
		c.busy.awake.Store(true)
		tick.Reset(watchInterval)
		for c.anyBusy() {
			select {
			case now := <-tick.C:
				links = c.appendLinks(links[:0])
				for _, l := range links {
					l.inspect(now, moved)
				}
				clear(links)
			case <-c.ctx.Done():
				return
			}
		}
	}
}

func (c *Client) anyBusy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.links {
		if l.calls.Load() > 0 {
			return true
		}
	}
	return false
}

// appendLinks appends all connections to dst.
func (c *Client) appendLinks(dst []*link) []*link {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.links {
		dst = append(dst, l)
	}
	return dst
}

// hasMoved reports whether another server has the shard of a call by now.
func (c *Client) hasMoved(k *call) bool {
	return c.routes.epoch(shard.ID(k.header.Shard)) > shard.Epoch(k.header.Epoch)
}

// inspect reads what keeps a server from taking more, when nobody else does, takes back
// what was not answered in time or is another server's by now, so that it is sent again,
// wakes the reader if something has ended, and gives a connection up that takes nothing.
func (l *link) inspect(now time.Time, moved func(*call) bool) {
	o := l.overdue(now, moved)
	stalled := l.sending.Load() > 0 && l.written.Load() == l.lastWrite
	if (o.late || stalled) && l.drain() { // nobody was reading
		o = l.overdue(now, moved)
	}
	if o.late {
		l.resend(now, moved)
	}
	if o.ended || o.late {
		l.interrupt()
	}
	written := l.written.Load()
	switch idle := now.Sub(l.stuck); {
	case written != l.lastWrite || l.sending.Load() == 0 || !(o.ended || o.moved):
		l.stuck, l.lastWrite = now, written
	case idle > stuckGrace:
		l.fail(fmt.Errorf("%w: the connection has taken nothing for %v", ErrUnavailable, stuckGrace))
	case o.moved && idle > replacedGrace:
		l.fail(fmt.Errorf("%w: the server was replaced, and has taken nothing for %v", ErrUnavailable, replacedGrace))
	}
}

// overdue is what there is to be done about the calls of a link.
type overdue struct {
	late  bool // one should have been answered by now
	ended bool // the context of one has ended
	moved bool // another server has the shard of one that is being written
}

func (l *link) overdue(now time.Time, moved func(*call) bool) (o overdue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.slots {
		if s := &l.slots[i]; s.call != nil {
			o.late = o.late || l.late(s, now, moved)
			o.ended = o.ended || s.call.ctx.Err() != nil
			o.moved = o.moved || s.call.sent.Load() == 0 && moved(s.call)
		}
	}
	return o
}

// late reports whether the call in a slot has waited too long, or in vain. The caller
// holds mu.
func (l *link) late(s *slot, now time.Time, moved func(*call) bool) bool {
	sent := s.call.sent.Load()
	return !s.taken && sent != 0 && (int64(now.Sub(processStart))-sent > int64(l.resendAfter(s.call.silences)) || moved(s.call))
}

// resend gives the calls that are late back to their operations, which send them again.
func (l *link) resend(now time.Time, moved func(*call) bool) {
	var calls []*call
	l.mu.Lock()
	for i := range l.slots {
		if s := &l.slots[i]; s.call != nil && l.late(s, now, moved) {
			calls = append(calls, l.clear(uint32(i)))
		}
	}
	l.mu.Unlock()
	for _, c := range calls {
		if moved(c) {
			l.answer(c, fmt.Errorf("%w: server %q was replaced", ErrUnavailable, c.server.ID))
			continue
		}
		if c.silences++; c.silences > 2 && l.answered.Load() < c.sent.Load() {
			// Not lost each time, but slow: nothing that was sent later has been answered.
			l.rtt.Store(max(l.rtt.Load(), int64(now.Sub(c.began))))
		}
		l.answer(c, fmt.Errorf("%w: server %q did not answer within %v", ErrUnavailable, c.server.ID, now.Sub(c.began).Round(time.Millisecond)))
	}
}

// interrupt wakes whoever reads, to see whether it still has to; if nobody does, the
// next one.
func (l *link) interrupt() {
	_ = l.conn.NetConn().SetReadDeadline(time.Unix(1, 0)) // a broken connection shows in the read
}

// drain reads what is there. It reports false if somebody else is reading.
func (l *link) drain() bool {
	return l.peek(func() bool { return l.calls.Load() > 0 })
}

// probe ends an idle connection that the server has closed: nobody reads from it.
func (l *link) probe() {
	once := true
	l.peek(func() bool { once = !once; return !once })
}

// peek reads while more is true, for a millisecond at most, unless somebody else does.
func (l *link) peek(more func() bool) bool {
	select {
	case l.turn <- struct{}{}:
	default:
		return false
	}
	_ = l.conn.NetConn().SetReadDeadline(time.Now().Add(time.Millisecond)) // a broken connection shows in the read
	_ = l.readWhile(more)                                                  // and that in the calls
	<-l.turn
	return true
}
