package ps

import (
	"fmt"
	"sync/atomic"
	"time"
)

// watchInterval is how late the end of a context may be noticed that the reader of a
// connection works for, and how late a request is sent again.
const watchInterval = 10 * time.Millisecond

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
					l.inspect(now)
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

// inspect takes back what was not answered in time, so that it is sent again, wakes
// the reader if something has ended, and gives a connection up that takes nothing.
func (l *link) inspect(now time.Time) {
	var late []*call
	ended := false
	l.mu.Lock()
	for i := range l.slots {
		c := l.slots[i].call
		if c == nil {
			continue
		}
		ended = ended || c.ctx.Err() != nil
		if sent := c.sent.Load(); !l.slots[i].taken && sent != 0 && now.UnixNano()-sent > int64(l.resendAfter(c.silences)) {
			late = append(late, l.clear(uint32(i)))
		}
	}
	l.mu.Unlock()
	for _, c := range late {
		c.silences++
		l.answer(c, fmt.Errorf("%w: server %q did not answer within %v", ErrUnavailable, c.server.ID, now.Sub(c.began).Round(time.Millisecond)))
	}
	if ended || len(late) > 0 {
		l.interrupt()
	}
	if written := l.written.Load(); written != l.lastWrite || l.sending.Load() == 0 || !ended {
		l.stuck, l.lastWrite = now, written
	} else if now.Sub(l.stuck) > stuckGrace {
		l.fail(fmt.Errorf("%w: it takes nothing", ErrUnavailable))
	}
}

// interrupt wakes whoever reads, to see whether it still has to.
func (l *link) interrupt() {
	if len(l.turn) > 0 {
		_ = l.conn.NetConn().SetReadDeadline(time.Unix(1, 0)) // a broken connection shows in the read
	}
}

// probe ends an idle connection that the server has closed: nobody reads from it.
func (l *link) probe() {
	select {
	case l.turn <- struct{}{}:
	default:
		return
	}
	_ = l.conn.NetConn().SetReadDeadline(time.Now().Add(time.Millisecond))
	once := true
	_ = l.readWhile(func() bool { once = !once; return !once }) // the connection keeps its error
	<-l.turn
}
