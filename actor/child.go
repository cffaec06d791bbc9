package actor

import (
	"context"
	"fmt"
	"time"

	"github.com/ergo-services/ergo/etf"
	"github.com/ergo-services/ergo/gen"
)

// child is one life of a child of a supervisor: what gen.Supervisor sees as its
// process. A child that could not be started, or is not to be, has no real process.
type child struct {
	gen.Process
	s     *supervisor
	p     *process
	index int
	self  etf.Pid

	// Under the supervisor's lock.
	ended   bool // its process has, or it never had one
	done    bool // and is not to be restarted for its own sake
	awaited bool // gen.Supervisor told it to end and waits for that
}

// Self returns the process's id.
func (c *child) Self() etf.Pid { return c.self }

// IsAlive reports whether the process has not ended.
func (c *child) IsAlive() bool { return c.p != nil && c.p.ctx.Err() == nil }

// Exit asks the child to end, after its mailbox, so that it can be started again.
func (c *child) Exit(string) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.awaited {
		return nil
	}
	c.awaited = true
	c.s.awaited++
	switch {
	case !c.ended:
		c.p.requestStop(nil)
		time.AfterFunc(childStop, func() { c.p.cancel(ErrKilled) })
	case c.done:
		c.s.enqueue(c) // it was kept from gen.Supervisor
	}
	return nil
}

// enqueue puts c, under the lock, before forward.
func (s *supervisor) enqueue(c *child) {
	s.queue = append(s.queue, c)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (c *child) stopAndWait() {
	c.p.requestStop(nil)
	timer := time.NewTimer(childStop)
	defer timer.Stop()
	select {
	case <-c.p.gone:
		return
	case <-timer.C:
	case <-c.p.n.ctx.Done():
	}
	c.p.cancel(ErrKilled)
}

// Spawn starts a child for gen.Supervisor. It always returns one: a child that cannot
// be started is one that has failed at once.
func (s *supervisor) Spawn(name string, _ gen.ProcessOptions, _ gen.ProcessBehavior, args ...etf.Term) (gen.Process, error) {
	index, ok := args[0].(int)
	if !ok {
		return nil, fmt.Errorf("actor: child %q has no index", name)
	}
	c := &child{s: s, index: index}
	again := s.started == len(s.spec.Children)
	if !again {
		s.started++
	}
	if again && s.spec.Children[index].Restart == RestartNever {
		s.enterVoid(c, true) // as part of a group that is restarted
		return c, nil
	}
	err := s.countRestart(index, again)
	if err != nil {
		s.p.cancel(err)
		s.enterVoid(c, true)
		return c, nil
	}
	if err := s.startChild(c); err != nil {
		s.p.n.log.Error("actor: child not started", "supervisor", s.p.ref.String(), "child", name, "error", err.Error())
		s.enterVoid(c, false)
	}
	return c, nil
}

// countRestart counts a restart, of one child or of several together, and refuses one
// over the limit. A group begins with a child that is not after the one started last.
func (s *supervisor) countRestart(index int, again bool) error {
	begins := s.spec.Strategy == OneForOne || index <= s.last
	s.last = index
	if !again || !begins {
		return nil
	}
	now := time.Now()
	recent := s.restarts[:0]
	for _, t := range s.restarts {
		if now.Sub(t) < s.spec.Window {
			recent = append(recent, t)
		}
	}
	s.restarts = append(recent, now)
	if len(s.restarts) <= s.spec.MaxRestarts {
		return nil
	}
	return fmt.Errorf("%w: %d restarts within %v, at most %d", ErrRestartLimit, len(s.restarts), s.spec.Window, s.spec.MaxRestarts)
}

func (s *supervisor) startChild(c *child) error {
	spec := s.spec.Children[c.index]
	a, err := newActor(spec)
	if err != nil {
		return err
	}
	p, err := s.p.n.newProcess(spec.Name, a, spec.Options)
	if err != nil {
		return err
	}
	p.linked = make(chan struct{})
	ctx, cancel := context.WithTimeout(s.p.ctx, childStop)
	defer cancel()
	if err := s.p.n.launch(ctx, p, p, ergoMailbox, s.p.ctx, s.Process); err != nil {
		return err
	}
	c.p, c.Process, c.self = p, p.proc, p.pid
	s.mu.Lock()
	defer s.mu.Unlock()
	s.children[c.self] = c
	s.current[c.index] = c
	return nil
}

func newActor(spec ChildSpec) (a Actor, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: New of child %q: %v", ErrPanic, spec.Name, r)
		}
	}()
	if a = spec.New(); a == nil {
		return nil, fmt.Errorf("actor: New of child %q returned nil", spec.Name)
	}
	return a, nil
}

// enterVoid enters a child without a process, which has ended: for good if done is
// set, otherwise to be tried again.
func (s *supervisor) enterVoid(c *child, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.voids++
	c.self = etf.Pid{Node: s.p.pid.Node, ID: 1<<63 | s.voids}
	c.ended, c.done = true, done
	s.children[c.self] = c
	s.current[c.index] = c
	if !done {
		s.enqueue(c)
	}
}

// Link links gen.Supervisor to the child that it has just spawned, lets the child go,
// and waits until it has started.
func (s *supervisor) Link(pid etf.Pid) error {
	s.mu.Lock()
	c := s.children[pid]
	s.mu.Unlock()
	if c == nil || c.p == nil {
		return nil
	}
	s.p.n.signals.Lock()
	err := s.Process.Link(pid)
	s.p.n.signals.Unlock()
	close(c.p.linked)
	select {
	case <-c.p.ready:
	case <-c.p.ctx.Done():
	}
	return err
}
