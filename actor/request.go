package actor

import (
	"sync/atomic"
	"time"
)

// result is the answer to a call.
type result struct {
	value any
	err   error
}

// Request is a call that waits for its answer. Its methods are safe from any
// goroutine; the first Reply or Fail counts, later ones do nothing. Reply and Fail of a
// nil Request, that of a cast, do nothing.
type Request struct {
	n        *Node
	from     Ref
	to       Ref
	deadline time.Time
	answered atomic.Bool
	owner    atomic.Pointer[process] // set while the process keeps it for later

	local chan result // of a caller on this node; capacity 1
	conn  *conn       // otherwise
	id    uint64
	memo  *memo // of a call that may be repeated
}

// From returns the caller's address, zero when it is not an actor.
func (r *Request) From() Ref { return r.from }

// Deadline returns when the caller stops waiting.
func (r *Request) Deadline() time.Time { return r.deadline }

// Reply answers the call with v, which may be nil. On the same node the caller gets
// v itself; to another node it is encoded before Reply returns, and when that is not
// possible the call fails with the reason. It blocks at most while the connection is
// busy with earlier messages.
func (r *Request) Reply(v any) { r.answer(result{value: v}) }

// Fail answers the call with an error. On another node its text arrives, and
// errors.Is holds for this package's sentinels and those given to RegisterError.
func (r *Request) Fail(err error) {
	if err == nil {
		err = ErrNoProcess
	}
	r.answer(result{err: err})
}

func (r *Request) answer(res result) {
	if r == nil || !r.answered.CompareAndSwap(false, true) {
		return
	}
	if p := r.owner.Load(); p != nil {
		p.forget(r)
	}
	if lost := res.value; r.n.cfg.Drop != nil {
		if res.err != nil {
			lost = res.err
		}
		if r.n.cfg.Drop(r.from, lost) {
			return
		}
	}
	if r.local != nil {
		r.local <- res
		return
	}
	r.n.answerRemote(r, res)
}

func (r *Request) expired(now time.Time) bool { return now.After(r.deadline) }
