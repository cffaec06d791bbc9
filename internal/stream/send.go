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
	size := 0
	for _, b := range bufs {
		size += len(b)
	}
	if size == 0 {
		return c.Err()
	}
	if size >= bigSend || size > c.cfg.MaxPendingBytes {
		return c.sendBig(bufs)
	}
	return c.sendSmall(bufs, size)
}

// Gather is Send for one of many callers at work: before it writes, it lets those that
// are ready add theirs.
func (c *Conn) Gather(bufs ...[]byte) error {
	size := 0
	for _, b := range bufs {
		size += len(b)
	}
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
	if len(c.pending) == 0 || c.writing || c.queued > 0 {
		defer c.mu.Unlock() // it was written, or will be
		return c.err
	}
	now := time.Now()
	c.lastSend = now
	return c.writePending(now)
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
	return !c.writing && c.queued == 0, nil
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
	err := c.writeBatch(batch, nil, now)
	c.release(batch)
	return err
}

func (c *Conn) sendBig(bufs [][]byte) error {
	c.mu.Lock()
	c.queued++
	c.mu.Unlock()
	c.write.Lock()
	c.mu.Lock()
	c.queued--
	return c.writeOut(bufs)
}

// writeOut writes what is pending, then bufs, and gives up the write side. The
// caller holds write and mu; neither is held at the end.
func (c *Conn) writeOut(bufs [][]byte) error {
	if c.err != nil || len(bufs) == 0 && len(c.pending) == 0 {
		defer c.mu.Unlock()
		c.write.Unlock()
		return c.err
	}
	for len(bufs) > 0 && len(bufs[0]) <= headBytes {
		c.pending = append(c.pending, bufs[0]...)
		bufs = bufs[1:]
	}
	batch := c.take()
	c.mu.Unlock()
	err := c.writeBatch(batch, bufs, time.Now())
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

// writeBatch writes batch and then tail. The caller holds write, not mu.
func (c *Conn) writeBatch(batch []byte, tail [][]byte, now time.Time) error {
	_ = c.nc.SetWriteDeadline(now.Add(c.cfg.WriteTimeout)) // a broken connection shows in the write
	var err error
	if len(tail) == 0 {
		_, err = c.nc.Write(batch)
	} else {
		n := 0
		for _, b := range append(append(c.iov[:0], batch), tail...) {
			if len(b) > 0 {
				c.iov[n] = b
				n++
			}
		}
		c.vec = c.iov[:n]
		_, err = c.vec.WriteTo(c.nc)
		clear(c.iov[:]) // the slices are the caller's again
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
	rest := len(c.pending) > 0 && c.queued == 0
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
