package stream

import (
	"fmt"
	"runtime"
	"time"
)

// MaxSlices bounds the number of slices of one send.
const MaxSlices = 64

const (
	// bigSend is the size from which a send is written from the caller's slices
	// instead of being copied into the pending batch: below it, the copy (a
	// microsecond at most) costs less than a system call of its own.
	bigSend = 16 << 10
	// busyGap separates a stream of sends from lone ones: the time from the end of
	// one send to the next. A system call costs more than this, and no answer from
	// another thread arrives within it.
	busyGap = 2 * time.Microsecond
	// gatherBytes is a batch so large that a system call of its own no longer counts.
	// A caller that finds as much writes it: the flusher lacks a processor, it seems.
	gatherBytes = 64 << 10
	// groupBytes bounds the large sends that leave in one write, unless a single one is
	// larger, and so how long the others wait.
	groupBytes = 1 << 20
	// headBytes is the size up to which the leading slices of a large send are copied
	// behind the pending batch. It saves a system call where the connection cannot
	// gather, such as TLS.
	headBytes = 1 << 10
	// keepBytes is the batch buffer that a connection may keep for ever. A larger one
	// is dropped after roomyBatches batches that used an eighth of such a buffer or less,
	// with none in between that used more.
	keepBytes    = 64 << 10
	roomyBatches = 64
)

// Send writes bufs one after the other as one unit. When it returns nil the
// slices are the caller's again; the bytes are in the kernel or will be, in order,
// unless the connection breaks first. It blocks while MaxPendingBytes are waiting,
// at most until the connection's write timeout closes it. At most MaxSlices slices.
func (c *Conn) Send(bufs ...[]byte) error {
	if len(bufs) > MaxSlices {
		return fmt.Errorf("stream: send of %d slices, at most %d", len(bufs), MaxSlices)
	}
	size := sizeOf(bufs)
	if size == 0 {
		return c.Err()
	}
	if size >= bigSend || size > c.cfg.MaxPendingBytes {
		return c.sendBig(bufs, size)
	}
	return c.sendSmall(bufs, size)
}

func sizeOf(bufs [][]byte) (n int) {
	for _, b := range bufs {
		n += len(b)
	}
	return n
}

// Post copies bufs, together at most MaxPendingBytes, behind what is pending and leaves
// the writing to the flusher: for a caller that must not wait for the peer to read. The
// slices are the caller's again when it returns. It blocks while there is no room, at
// most until the write timeout closes the connection.
func (c *Conn) Post(bufs ...[]byte) error {
	size := sizeOf(bufs)
	if size > c.cfg.MaxPendingBytes {
		return fmt.Errorf("stream: post of %d bytes, at most %d", size, c.cfg.MaxPendingBytes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	alone, err := c.enqueue(bufs, size)
	if alone && err == nil {
		c.wakeFlusher()
	}
	return err
}

// Gather is Send for one of many callers at work: before it writes, it lets those that
// are ready add theirs. Blocking, bounds and slices are as in Send.
func (c *Conn) Gather(bufs ...[]byte) error {
	size := sizeOf(bufs)
	if size >= bigSend || size > c.cfg.MaxPendingBytes || !c.direct || len(bufs) > MaxSlices {
		return c.Send(bufs...)
	}
	c.mu.Lock()
	alone, err := c.enqueue(bufs, size)
	if err != nil || !alone || c.gathering {
		defer c.mu.Unlock()
		return err
	}
	c.gathering = true
	c.mu.Unlock()
	runtime.Gosched()
	c.mu.Lock()
	c.gathering = false
	if len(c.pending) == 0 || c.writing || c.leading {
		defer c.mu.Unlock() // it was written, or will be
		return c.err
	}
	now := time.Now()
	c.lastSend = now
	return c.writePending(now)
}

// SendNow writes head and then body, or as much of both as the kernel has room for, and
// reports how much that was: nothing where other sends are under way. The caller sends the
// rest before anybody sends anything else. It reports false where the connection has no such
// call.
func (c *Conn) SendNow(head, body []byte) (int, bool) {
	if c.socket == nil {
		return 0, false
	}
	if !c.write.TryLock() {
		return 0, true
	}
	c.mu.Lock()
	if c.err != nil || c.leading || len(c.big) > 0 || len(c.pending) > 0 {
		defer c.mu.Unlock()
		c.write.Unlock()
		return 0, true
	}
	batch := c.take() // empty
	c.mu.Unlock()
	n := c.socket.write(head, body)
	c.release(batch)
	return n, true
}

// enqueue copies bufs behind what is pending and reports whether no write is on its way
// that would take them along. The caller holds mu.
func (c *Conn) enqueue(bufs [][]byte, size int) (alone bool, err error) {
	for c.err == nil && len(c.pending)+size > c.cfg.MaxPendingBytes {
		c.space.Wait()
	}
	if c.err != nil {
		return false, c.err
	}
	for _, b := range bufs {
		c.pending = append(c.pending, b...)
	}
	return !c.writing && !c.leading, nil
}

func (c *Conn) sendSmall(bufs [][]byte, size int) error {
	c.mu.Lock()
	alone, err := c.enqueue(bufs, size)
	if err != nil || !alone {
		defer c.mu.Unlock() // whoever writes takes it along or wakes the flusher
		return err
	}
	now := time.Now()
	busy := now.Sub(c.lastSend) < busyGap && len(c.pending) < gatherBytes
	c.lastSend = now
	if busy || !c.direct {
		c.mu.Unlock()
		c.wakeFlusher()
		return nil
	}
	return c.writePending(now)
}

// writePending writes what is pending, or leaves it to the flusher. The caller holds mu,
// which is free at the end.
func (c *Conn) writePending(now time.Time) error {
	if !c.write.TryLock() {
		c.mu.Unlock()
		c.wakeFlusher()
		return nil
	}
	batch := c.take()
	c.mu.Unlock()
	err := c.writeBatch(batch, 1, now)
	c.release(batch)
	return err
}

// large is a large send that waits for its write.
type large struct {
	bufs [][]byte
	size int
	done bool // written, or failed
	err  error
	wake chan struct{} // capacity 1: has a value when the state may have changed
}

// sendBig queues a large send. Whoever finds nobody else at it leads: it writes what is
// at the head of the queue, as much as one write may carry, until its own is written.
func (c *Conn) sendBig(bufs [][]byte, size int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.newBig(bufs, size)
	c.big = append(c.big, s)
	for !s.done {
		if !c.leading {
			c.leading = true
			c.lead()
			continue
		}
		c.mu.Unlock()
		<-s.wake
		c.mu.Lock()
	}
	err := s.err
	select { // it was looked at before it was woken
	case <-s.wake:
	default:
	}
	clear(s.bufs)
	c.idle = append(c.idle, s)
	return err
}

// newBig returns a send from those that were used before. The caller holds mu.
func (c *Conn) newBig(bufs [][]byte, size int) *large {
	if n := len(c.idle); n > 0 {
		s := c.idle[n-1]
		c.idle = c.idle[:n-1]
		s.bufs, s.size, s.done, s.err = append(s.bufs[:0], bufs...), size, false, nil
		return s
	}
	return &large{bufs: append(make([][]byte, 0, len(bufs)), bufs...), size: size, wake: make(chan struct{}, 1)}
}

// notify wakes whoever waits for a send.
func (s *large) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// lead writes the large sends at the head of the queue and wakes their callers, and the
// first of those that are left: it leads the next write if nobody does before. The caller
// holds mu, and has set leading.
func (c *Conn) lead() {
	c.mu.Unlock()
	c.write.Lock()
	c.mu.Lock()
	n, slices, size := 0, 0, 0
	for _, s := range c.big {
		if n > 0 && (slices+len(s.bufs) > MaxSlices || size+s.size > groupBytes) {
			break
		}
		n, slices, size = n+1, slices+len(s.bufs), size+s.size
	}
	c.group = append(c.group[:0], c.big[:n]...)
	c.big = append(c.big[:0], c.big[n:]...)
	err := c.writeOut(c.group)
	c.mu.Lock()
	for i, s := range c.group {
		s.done, s.err = true, err
		s.notify()
		c.group[i] = nil
	}
	c.leading = false
	switch {
	case len(c.big) > 0:
		c.big[0].notify()
	case len(c.pending) > 0:
		c.wakeFlusher()
	}
}

// writeOut writes what is pending, then a group of large sends, and gives up the write
// side. The caller holds write and mu; neither is held at the end.
func (c *Conn) writeOut(group []*large) error {
	if c.err != nil || len(group) == 0 && len(c.pending) == 0 {
		defer c.mu.Unlock()
		c.write.Unlock()
		return c.err
	}
	n := 1 // the batch comes first
	for i, s := range group {
		for j, b := range s.bufs {
			if i == 0 && n == 1 && j < len(s.bufs)-1 && len(b) <= headBytes {
				c.pending = append(c.pending, b...)
			} else if len(b) > 0 {
				c.iov[n] = b
				n++
			}
		}
	}
	batch := c.take()
	c.mu.Unlock()
	err := c.writeBatch(batch, n, time.Now())
	c.release(batch)
	return err
}

// take begins a write: it returns what is pending and leaves the other buffer in
// its place. The caller holds write and mu.
func (c *Conn) take() []byte {
	batch := c.pending
	c.pending, c.spare = c.spare, nil
	c.writing = true
	c.space.Broadcast()
	return batch
}

// writeBatch writes batch and then iov[1:n]. The caller holds write, not mu.
func (c *Conn) writeBatch(batch []byte, n int, now time.Time) error {
	_ = c.nc.SetWriteDeadline(now.Add(c.cfg.WriteTimeout)) // a broken connection shows in the write
	var err error
	if n == 1 {
		_, err = c.nc.Write(batch)
	} else {
		c.iov[0] = batch
		c.vec = c.iov[:n]
		if len(batch) == 0 {
			c.vec = c.iov[1:n]
		}
		_, err = c.vec.WriteTo(c.nc)
		clear(c.iov[:n]) // the slices are the callers' again
	}
	if err != nil {
		return c.CloseWithError(fmt.Errorf("stream: write to %v: %w", c.nc.RemoteAddr(), err))
	}
	if c.layer != nil {
		_ = c.nc.SetWriteDeadline(time.Time{}) // TLS may answer a key update from the reader, much later
	}
	return nil
}

// release ends a write and gives up the write side. Nothing that was appended since
// take is left without somebody who will write it.
func (c *Conn) release(batch []byte) {
	end := time.Now()
	c.mu.Lock()
	c.recycle(batch)
	c.writing = false
	c.lastSend = end
	rest := len(c.pending) > 0 && !c.leading
	c.write.Unlock()
	c.mu.Unlock()
	if rest {
		c.wakeFlusher()
	}
}

// recycle keeps the buffer of a written batch, unless it has long been much too
// large. The caller holds mu.
func (c *Conn) recycle(batch []byte) {
	switch {
	case cap(batch) <= keepBytes:
	case len(batch) > cap(batch)/8:
		c.roomy = 0
	default:
		if c.roomy++; c.roomy > roomyBatches {
			c.roomy = 0
			return
		}
	}
	c.spare = batch[:0]
}

func (c *Conn) wakeFlusher() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// flusher writes what gathers while the connection is busy.
func (c *Conn) flusher() {
	for {
		select {
		case <-c.wake:
			_ = c.Flush() // the error is kept in c.err
		case <-c.done:
			if c.layer != nil {
				_ = c.nc.Close() // the first cause matters, not this
			}
			return
		}
	}
}

// Flush blocks until all sends made before it are in the kernel, at most for the
// write timeout of the write in progress and of its own.
func (c *Conn) Flush() error {
	c.write.Lock()
	c.mu.Lock()
	return c.writeOut(nil)
}
