package actor

import (
	"sync"
	"time"
)

// Bounds of what a receiver remembers of calls that may be repeated, per caller.
const (
	maxMemos     = 4096
	maxMemoBytes = 16 << 20
	maxCallers   = 1024
)

// callerKey is a caller's node in one of its lives.
type callerKey struct {
	node        string
	incarnation uint64
}

// memo is one remembered call.
type memo struct {
	id       uint64
	deadline time.Time
	conn     *conn  // where the answer is to go, the latest connection
	frame    []byte // the answer, once there is one
	caller   *callerMemos
}

type callerMemos struct {
	calls map[uint64]*memo
	bytes int
}

// memoTable is the receiver's memory of calls made WithRetry. An entry lives until
// the call's deadline: the caller does not repeat it after that.
type memoTable struct {
	mu      sync.Mutex
	callers map[callerKey]*callerMemos
}

func (t *memoTable) init() { t.callers = make(map[callerKey]*callerMemos) }

// begin finds or enters a call. For a repetition it returns known, with the answer
// if there is one. A nil memo means that there is no room.
func (t *memoTable) begin(c *conn, id uint64, deadline, now time.Time) (m *memo, known bool, answer []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := callerKey{c.peer, c.incarnation}
	caller := t.callers[key]
	if caller == nil {
		if len(t.callers) >= maxCallers && !t.forgetCallers(now) {
			return nil, false, nil
		}
		caller = &callerMemos{calls: make(map[uint64]*memo)}
		t.callers[key] = caller
	}
	if m := caller.calls[id]; m != nil {
		m.conn = c
		return m, true, m.frame
	}
	if caller.full() {
		caller.expire(now)
		if caller.full() {
			return nil, false, nil
		}
	}
	m = &memo{id: id, deadline: deadline, conn: c, caller: caller}
	caller.calls[id] = m
	return m, false, nil
}

func (c *callerMemos) full() bool { return len(c.calls) >= maxMemos || c.bytes >= maxMemoBytes }

func (c *callerMemos) expire(now time.Time) {
	for id, m := range c.calls {
		if now.After(m.deadline) {
			delete(c.calls, id)
			c.bytes -= len(m.frame)
		}
	}
}

// forgetCallers drops callers all of whose calls have expired.
func (t *memoTable) forgetCallers(now time.Time) bool {
	for key, c := range t.callers {
		c.expire(now)
		if len(c.calls) == 0 {
			delete(t.callers, key)
		}
	}
	return len(t.callers) < maxCallers
}

// answer keeps the encoded answer and returns where to send it.
func (t *memoTable) answer(m *memo, frame []byte) *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.caller.calls[m.id] == m { // else it has expired
		m.frame = append([]byte(nil), frame...)
		m.caller.bytes += len(m.frame)
	}
	return m.conn
}

// undo forgets a call that was not handled, so that a repetition may be.
func (t *memoTable) undo(m *memo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.caller.calls[m.id] == m {
		delete(m.caller.calls, m.id)
	}
}
