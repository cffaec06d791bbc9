package actor

import (
	"context"
	"sync"
	"sync/atomic"
)

// envelope is one message in a mailbox.
type envelope struct {
	msg  any
	from Ref
	req  *Request // for a call
	flow *inflow  // for a cast from another node: gets its credit back when the message is taken
}

// mailboxBatch is how many envelopes the receiver takes at once, to pay for the
// lock once.
const mailboxBatch = 128

// mailbox is the bounded queue in front of one actor. Order per sender is kept. A
// ring that grows as needed up to limit; forced entries (signals, and casts that
// have credit already) may go beyond it.
type mailbox struct {
	limit int
	wake  chan struct{} // capacity 1; tells a parked receiver to look again

	interrupted atomic.Bool // the receiver is to stop between two messages

	mu     sync.Mutex
	ring   []envelope // power-of-two length
	head   int
	count  int
	parked bool
	closed bool
	space  chan struct{} // closed when there is room again; nil while nobody waits
}

func newMailbox(limit int) *mailbox {
	return &mailbox{limit: limit, wake: make(chan struct{}, 1)}
}

// put appends e. It fails with ErrMailboxFull at the limit unless force is set, and
// with ErrNoProcess when the mailbox is closed.
func (m *mailbox) put(e envelope, force bool) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return ErrNoProcess
	}
	if m.count >= m.limit && !force {
		m.mu.Unlock()
		return ErrMailboxFull
	}
	if m.count == len(m.ring) {
		m.grow()
	}
	m.ring[(m.head+m.count)&(len(m.ring)-1)] = e
	m.count++
	parked := m.parked
	m.parked = false
	m.mu.Unlock()
	if parked {
		m.signal()
	}
	return nil
}

// putWait is put that waits for room until ctx ends or the mailbox is closed.
func (m *mailbox) putWait(ctx context.Context, e envelope) error {
	for {
		err := m.put(e, false)
		if err != ErrMailboxFull {
			return err
		}
		m.mu.Lock()
		if m.closed || m.count < m.limit {
			m.mu.Unlock()
			continue
		}
		if m.space == nil {
			m.space = make(chan struct{})
		}
		space := m.space
		m.mu.Unlock()
		select {
		case <-space:
		case <-ctx.Done():
			return deadlineError(ctx.Err())
		}
	}
}

func (m *mailbox) grow() {
	ring := make([]envelope, max(16, 2*len(m.ring)))
	n := copy(ring, m.ring[m.head:])
	copy(ring[n:], m.ring[:m.head])
	m.ring, m.head = ring, 0
}

func (m *mailbox) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// interrupt makes the receiver look at its other channels before the next message.
func (m *mailbox) interrupt() {
	m.interrupted.Store(true)
	m.signal()
}

// take moves up to len(dst) envelopes to dst. When there are none it marks the
// receiver as parked: the next put signals wake.
func (m *mailbox) take(dst []envelope) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(m.count, len(dst))
	if n == 0 {
		m.parked = true
		return 0
	}
	mask := len(m.ring) - 1
	for i := range n {
		dst[i] = m.ring[(m.head+i)&mask]
		m.ring[(m.head+i)&mask] = envelope{}
	}
	m.head = (m.head + n) & mask
	m.count -= n
	// Senders that wait go on when half is free, so that they do not come and go
	// for every message.
	if m.space != nil && m.count <= m.limit/2 {
		close(m.space)
		m.space = nil
	}
	return n
}

// close refuses further messages and returns those that were left.
func (m *mailbox) close() []envelope {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	rest := make([]envelope, 0, m.count)
	for i := range m.count {
		rest = append(rest, m.ring[(m.head+i)&(len(m.ring)-1)])
	}
	m.ring, m.head, m.count = nil, 0, 0
	if m.space != nil {
		close(m.space)
		m.space = nil
	}
	return rest
}

func (m *mailbox) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}
