package actor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/ergo-services/ergo/etf"
	"github.com/ergo-services/ergo/gen"
)

// signal is a message of the package itself to a process's loop.
type signal struct {
	reason error // why to end
	from   Ref   // the linked process that ended; zero for a plain request to stop
}

// process is one actor: an ergo process whose loop is run here, over a mailbox of
// our own. ergo's mailbox drops what does not fit and costs a channel operation per
// message; nothing is sent there. Its exits and kills are served.
type process struct {
	n     *Node
	ref   Ref
	actor Actor
	opts  Options
	box   *mailbox

	ctx    context.Context // ergo's context of the process
	cancel context.CancelCauseFunc
	proc   gen.Process
	pid    etf.Pid
	linked chan struct{} // closed when the supervisor has linked itself; nil without one
	sup    *supervisor   // of a supervisor, which has no actor and no open mailbox

	ready    chan struct{} // closed when Started has returned
	startErr error         // set before ready is closed
	gone     chan struct{} // closed when ergo has forgotten the process
	reason   error         // set before gone is closed

	c Context

	mu      sync.Mutex
	ended   bool
	kept    map[*Request]struct{} // requests that Receive left unanswered
	watches map[watchKey]etf.Ref
}

// ProcessInit implements gen.ProcessBehavior. It must not fail: ergo then forgets
// to free the name.
func (p *process) ProcessInit(proc gen.Process, _ ...etf.Term) (gen.ProcessState, error) {
	p.proc, p.pid = proc, proc.Self()
	p.ctx = proc.Context() // derived from the one that launch gave; ergo cancels only this
	p.n.watchGone(p)
	return gen.ProcessState{Process: proc}, nil
}

// ProcessLoop implements gen.ProcessBehavior: it runs until the process ends and
// returns the reason as a string. started must get a value or ergo's spawn hangs.
func (p *process) ProcessLoop(_ gen.ProcessState, started chan<- bool) string {
	started <- true
	p.awaitLink()
	reason := p.run()
	p.reason = reason
	p.finish(reason)
	return p.n.reasonString(reason)
}

// awaitLink holds a supervised child back until its supervisor is linked to it: ergo
// loses the exit of a process that ends while it is being linked.
func (p *process) awaitLink() {
	if p.linked == nil {
		return
	}
	select {
	case <-p.linked:
	case <-p.ctx.Done():
	}
}

func (p *process) run() error {
	stop := context.AfterFunc(p.ctx, p.box.interrupt)
	defer stop()
	if s, ok := p.actor.(Starter); ok {
		if err := p.guard(func() error { return s.Started(&p.c) }); err != nil {
			p.startErr = err
			close(p.ready)
			return normalIfStop(err)
		}
	}
	close(p.ready)
	batch := make([]envelope, mailboxBatch)
	for {
		if ended, err := p.drain(batch); ended {
			return err
		}
		// A kill, and an exit of the supervisor, cancel ctx, which interrupts the
		// mailbox, so there is one channel to wait for: a select costs a call in
		// flight more than the rest of its way through here.
		<-p.box.wake
	}
}

// killReason prefers the reason of a linked process that ended over the bare
// cancellation that ergo sends along with it.
func (p *process) killReason() error {
	select {
	case exit := <-p.proc.ProcessChannels().GracefulExit:
		return p.n.reasonError(exit.Reason)
	default:
	}
	if cause := context.Cause(p.ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return normalIfStop(cause)
	}
	return ErrKilled
}

// drain handles messages until there are none. What is taken but not handled when
// the process ends fails like the rest of the mailbox.
func (p *process) drain(batch []envelope) (ended bool, reason error) {
	for {
		n := p.box.take(batch)
		if n == 0 {
			if p.box.interrupted.Load() {
				return true, p.killReason()
			}
			return false, nil
		}
		for i := range n {
			if p.box.interrupted.Load() {
				p.discard(batch[i:n])
				return true, p.killReason()
			}
			e := batch[i]
			batch[i] = envelope{}
			if ended, reason := p.handle(e); ended {
				p.discard(batch[i+1 : n])
				return true, reason
			}
		}
	}
}

func (p *process) handle(e envelope) (ended bool, reason error) {
	if e.flow != nil {
		e.flow.consume()
	}
	if s, ok := e.msg.(*signal); ok {
		return p.handleSignal(s)
	}
	if e.req != nil && e.req.expired(time.Now()) {
		e.req.Fail(ErrTimeout) // nobody waits for it any more
		return false, nil
	}
	p.c.from, p.c.req = e.from, e.req
	err := p.guard(func() error { return p.actor.Receive(&p.c, e.msg) })
	p.c.from, p.c.req = Ref{}, nil
	if e.req != nil && !e.req.answered.Load() {
		p.keep(e.req)
	}
	if err == nil {
		return false, nil
	}
	return true, normalIfStop(err)
}

func (p *process) handleSignal(s *signal) (ended bool, reason error) {
	if s.from.IsZero() {
		return true, s.reason
	}
	if p.opts.TrapExit {
		return p.handle(envelope{msg: Exit{Ref: s.from, Err: s.reason}, from: s.from})
	}
	if s.reason == nil {
		return false, nil
	}
	return true, fmt.Errorf("linked process %s ended: %w", s.from, s.reason)
}

func normalIfStop(err error) error {
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}

// guard runs the actor's code and turns a panic into an error.
func (p *process) guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrPanic, r)
			p.n.log.Error("actor: panic", "actor", p.ref.String(), "panic", r, "stack", string(debug.Stack()))
		}
	}()
	return f()
}

// keep remembers a request that Receive left for later.
func (p *process) keep(r *Request) {
	p.mu.Lock()
	if p.kept == nil {
		p.kept = make(map[*Request]struct{})
	}
	p.kept[r] = struct{}{}
	p.mu.Unlock()
	r.owner.Store(p)
	if r.answered.Load() { // meanwhile, by another goroutine
		p.forget(r)
	}
}

func (p *process) forget(r *Request) {
	p.mu.Lock()
	delete(p.kept, r)
	p.mu.Unlock()
}

// discard fails what will not be handled any more.
func (p *process) discard(rest []envelope) {
	for _, e := range rest {
		if e.req != nil {
			e.req.Fail(p.endedError())
		}
	}
}

func (p *process) endedError() error {
	if p.reason != nil {
		return fmt.Errorf("%w: it ended: %w", ErrNoProcess, p.reason)
	}
	return fmt.Errorf("%w: it ended", ErrNoProcess)
}

// finish tells everybody that the process ends. After it, ergo frees the name and
// tells monitors and links.
func (p *process) finish(reason error) {
	if s, ok := p.actor.(Stopper); ok {
		_ = p.guard(func() error { s.Stopped(&p.c, reason); return nil }) // logged there
	}
	p.discard(p.box.close())
	p.mu.Lock()
	p.ended = true
	kept := p.kept
	p.kept = nil
	p.mu.Unlock()
	for r := range kept {
		r.Fail(p.endedError())
	}
	p.dropWatches()
	p.n.flowsGone(p)
	// From here on ergo's monitor and link calls, which we make under signals, see
	// the process as dead, so none registers after ergo told those it knew. Links
	// takes the lock under which ergo delivers exits, so none is under way when
	// ergo, without a lock, clears the channel that it would use.
	p.n.signals.Lock()
	p.cancel(ErrKilled)
	p.n.signals.Unlock()
	p.proc.Links()
	if reason != nil {
		p.n.log.Warn("actor: ended", "actor", p.ref.String(), "reason", reason.Error())
	}
}

func (p *process) isEnding() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}
