package actor

import (
	"context"
	"sync"
)

// pendingCall is a call to another node that waits for its answer.
type pendingCall struct {
	ch   chan result // capacity 1; gets exactly one result once the entry is taken
	conn *conn
}

// callTable has the calls of this node that are under way, by number.
type callTable struct {
	mu      sync.Mutex
	next    uint64
	pending map[uint64]*pendingCall
	free    sync.Pool
}

func (t *callTable) init() { t.pending = make(map[uint64]*pendingCall) }

// add enters a call over c, which may be nil at first.
func (t *callTable) add(c *conn) (uint64, *pendingCall) {
	pc, ok := t.free.Get().(*pendingCall)
	if !ok {
		pc = &pendingCall{ch: make(chan result, 1)}
	}
	pc.conn = c
	t.mu.Lock()
	t.next++
	id := t.next
	t.pending[id] = pc
	t.mu.Unlock()
	return id, pc
}

// rebind enters the call again, for a repetition over c.
func (t *callTable) rebind(id uint64, pc *pendingCall, c *conn) {
	t.mu.Lock()
	pc.conn = c
	t.pending[id] = pc
	t.mu.Unlock()
}

// drop forgets a call whose caller has gone, or has its answer. A late answer finds
// nothing.
func (t *callTable) drop(id uint64, pc *pendingCall) {
	t.reset(id, pc)
	pc.conn = nil
	t.free.Put(pc)
}

// deliver hands the answer to the caller, if there still is one. The result is put
// under the lock, so that after drop nothing can come.
func (t *callTable) deliver(id uint64, res result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if pc, ok := t.pending[id]; ok {
		delete(t.pending, id)
		pc.ch <- res
	}
}

// waiting reports whether a call still waits, before work is done for its answer.
func (t *callTable) waiting(id uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.pending[id]
	return ok
}

// failConn fails the calls over c.
func (t *callTable) failConn(c *conn, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, pc := range t.pending {
		if pc.conn == c {
			delete(t.pending, id)
			pc.ch <- result{err: err}
		}
	}
}

func (t *callTable) failAll(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, pc := range t.pending {
		delete(t.pending, id)
		pc.ch <- result{err: err}
	}
}

func (pc *pendingCall) wait(ctx context.Context) (any, error) {
	select {
	case res := <-pc.ch:
		return res.value, res.err
	case <-ctx.Done():
		return nil, deadlineError(ctx.Err())
	}
}

// reset takes the entry out and empties it, before the call is entered again.
func (t *callTable) reset(id uint64, pc *pendingCall) {
	t.mu.Lock()
	delete(t.pending, id)
	t.mu.Unlock()
	select {
	case <-pc.ch: // the answer came in the same moment
	default:
	}
}
