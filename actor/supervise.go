package actor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/ergo-services/ergo/etf"
	"github.com/ergo-services/ergo/gen"
)

// Strategy says which children are restarted when one ends.
type Strategy uint8

const (
	// OneForOne restarts the child that ended. It is the zero value.
	OneForOne Strategy = iota
	// OneForAll stops and restarts all children.
	OneForAll
	// RestForOne stops and restarts the child that ended and those after it.
	RestForOne
)

// Restart says when a child is restarted at all.
type Restart uint8

const (
	// RestartAlways restarts the child however it ended. It is the zero value.
	RestartAlways Restart = iota
	// RestartOnError restarts the child unless it ended normally.
	RestartOnError
	// RestartNever does not restart the child.
	RestartNever
)

// ChildSpec describes one child of a supervisor.
type ChildSpec struct {
	Name    string       // its process name
	New     func() Actor // makes the actor, again for each start; never nil
	Options Options
	Restart Restart
}

// SupervisorSpec describes a supervisor. The zero values are usable except that there
// must be a child.
type SupervisorSpec struct {
	Strategy Strategy
	// MaxRestarts is how many restarts may happen within Window. One more ends the
	// supervisor and all its children with ErrRestartLimit. Zero: 10. Negative: none.
	MaxRestarts int
	// Window is the time over which restarts are counted. Zero: 10 s.
	Window time.Duration
	// Children are started in order and stopped in reverse order.
	Children []ChildSpec
}

const (
	defaultMaxRestarts = 10
	defaultWindow      = 10 * time.Second
	maxChildren        = 4096
	// childStop bounds how long a supervisor waits for one child to stop before it kills it.
	childStop = 5 * time.Second
)

func (s SupervisorSpec) withDefaults() SupervisorSpec {
	if s.MaxRestarts == 0 {
		s.MaxRestarts = defaultMaxRestarts
	}
	s.MaxRestarts = max(s.MaxRestarts, 0)
	if s.Window == 0 {
		s.Window = defaultWindow
	}
	return s
}

func (s SupervisorSpec) validate() error {
	var errs []error
	addf := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("actor: "+format, args...))
		}
	}
	addf(s.Strategy > RestForOne, "Strategy is %d, want 0 to %d", s.Strategy, RestForOne)
	addf(s.Window < 0, "Window is %v, want at least 0", s.Window)
	addf(len(s.Children) == 0 || len(s.Children) > maxChildren, "%d children, want 1 to %d", len(s.Children), maxChildren)
	names := make(map[string]bool)
	for i, c := range s.Children {
		if err := validateName("process", c.Name, spawnNameBytes); err != nil {
			errs = append(errs, err)
		}
		addf(names[c.Name], "child %d has the name %q of another child", i, c.Name)
		names[c.Name] = true
		addf(c.New == nil, "child %q has no New", c.Name)
		addf(c.Restart > RestartNever, "child %q: Restart is %d, want 0 to %d", c.Name, c.Restart, RestartNever)
		if err := c.Options.validate(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Supervise starts a supervisor under the name, and its children. It returns when
// their Started have returned. When a child fails in its first Started the supervisor
// restarts it like any other. The supervisor ends when no child is left to run, with
// ErrRestartLimit when they failed too often, or by Stop. It handles no messages; it
// can be monitored.
func (n *Node) Supervise(ctx context.Context, name string, spec SupervisorSpec) (Ref, error) {
	spec = spec.withDefaults()
	if err := spec.validate(); err != nil {
		return Ref{}, opError("supervise", text(name), err)
	}
	p, err := n.newProcess(name, ActorFunc(nil), Options{})
	if err != nil {
		return Ref{}, opError("supervise", text(name), err)
	}
	s := &supervisor{
		p:        p,
		spec:     spec,
		exits:    make(chan gen.ProcessGracefulExitRequest),
		wake:     make(chan struct{}, 1),
		stopping: make(chan struct{}),
		last:     -1,
		children: make(map[etf.Pid]*child),
		current:  make([]*child, len(spec.Children)),
	}
	p.sup = s
	p.box.close() // it takes no messages
	if err := n.launch(ctx, p, s, exitQueue, n.system.proc.Context(), n.ergo); err != nil {
		return Ref{}, opError("supervise", p.ref, err)
	}
	select {
	case <-p.ready:
		return p.ref, nil
	case <-p.gone:
		return Ref{}, opError("supervise", p.ref, p.reason)
	case <-ctx.Done():
		p.cancel(ErrKilled)
		return Ref{}, opError("supervise", p.ref, deadlineError(ctx.Err()))
	}
}

// exitQueue is the length of a supervisor's ergo channels: how many children may end
// at once.
const exitQueue = maxChildren

// supervisor runs ergo's gen.Supervisor, which has the strategies, over a process and
// children of its own kind. Left alone, ergo's supervisor panics when a child cannot be
// started, counts its own start as a restart and in whole seconds, has one restart mode
// for all children and disables the wrong one when a group's child ends normally,
// forgets a child that fails while others are being stopped, and stops children without
// waiting. It does all that through the gen.Process that it is given, so it is given
// this one: it sees only ends that call for a restart, one at a time.
type supervisor struct {
	gen.Process // the real process
	loop        gen.Supervisor

	p        *process
	spec     SupervisorSpec
	exits    chan gen.ProcessGracefulExitRequest // to gen.Supervisor; unbuffered
	wake     chan struct{}                       // capacity 1: queue has something
	stopping chan struct{}
	stopOnce sync.Once
	stopWith error // set before stopping is closed

	mu       sync.Mutex
	children map[etf.Pid]*child // those whose end gen.Supervisor has not heard of
	current  []*child           // by index of the spec
	queue    []*child           // ended, to be told to gen.Supervisor
	awaited  int                // children that gen.Supervisor is waiting for
	voids    uint64             // children without a process so far

	// gen.Supervisor's goroutine only.
	started  int // children that have been started at least once
	last     int // index of the child started last
	restarts []time.Time
}

// ProcessInit implements gen.ProcessBehavior.
func (s *supervisor) ProcessInit(proc gen.Process, args ...etf.Term) (gen.ProcessState, error) {
	if _, err := s.p.ProcessInit(proc, args...); err != nil {
		return gen.ProcessState{}, err
	}
	s.Process = proc
	proc.SetTrapExit(true)
	spec := &gen.SupervisorSpec{
		Name: s.p.ref.Name,
		Strategy: gen.SupervisorStrategy{
			Type:      strategyName(s.spec.Strategy),
			Intensity: math.MaxUint16, // counted in Spawn
			Restart:   gen.SupervisorStrategyRestartPermanent,
		},
	}
	for i, c := range s.spec.Children {
		spec.Children = append(spec.Children, gen.SupervisorChildSpec{Name: c.Name, Args: []etf.Term{i}})
	}
	return gen.ProcessState{Process: s, State: spec}, nil
}

func strategyName(s Strategy) gen.SupervisorStrategyType {
	switch s {
	case OneForAll:
		return gen.SupervisorStrategyOneForAll
	case RestForOne:
		return gen.SupervisorStrategyRestForOne
	}
	return gen.SupervisorStrategyOneForOne
}

// ProcessLoop implements gen.ProcessBehavior.
func (s *supervisor) ProcessLoop(ps gen.ProcessState, started chan<- bool) string {
	started <- true
	up := make(chan bool, 1) // gen.Supervisor says that it has started its children
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-up:
			close(s.p.ready)
		case <-s.p.ctx.Done():
			return
		}
		s.forward()
	})
	s.loop.ProcessLoop(ps, up)
	err := s.stopWith
	if s.p.ctx.Err() != nil { // not by a stop
		if err = context.Cause(s.p.ctx); errors.Is(err, context.Canceled) {
			err = ErrKilled
		}
	}
	s.p.cancel(err)
	wg.Wait()
	s.stopChildren()
	s.p.reason = err
	s.p.finish(err)
	return s.p.n.reasonString(err)
}

// forward tells gen.Supervisor of children that have ended, and carries out a stop.
func (s *supervisor) forward() {
	chs := s.Process.ProcessChannels()
	for {
		if c, reason := s.next(); c != nil {
			s.tell(gen.ProcessGracefulExitRequest{From: c.self, Reason: reason})
			// gen.Supervisor takes this, from nobody, when it is through with the other.
			s.tell(gen.ProcessGracefulExitRequest{})
			continue
		}
		select {
		case exit := <-chs.GracefulExit:
			s.childEnded(exit)
		case <-s.wake:
		case <-s.stopping:
			s.stopChildren()
			s.tell(gen.ProcessGracefulExitRequest{From: s.Self(), Reason: reasonNormal}) // the order to end
			return
		case <-s.p.ctx.Done():
			return
		}
	}
}

func (s *supervisor) tell(exit gen.ProcessGracefulExitRequest) {
	select {
	case s.exits <- exit:
	case <-s.p.ctx.Done():
	}
}

// next picks what gen.Supervisor hears next: while it waits for children that it told
// to end, only of those.
func (s *supervisor) next() (c *child, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.queue {
		if s.awaited > 0 && !c.awaited {
			continue
		}
		reason = "ended"
		if c.awaited {
			s.awaited--
			reason = "restart" // how gen.Supervisor knows those that it told to end
		}
		s.queue = append(s.queue[:i], s.queue[i+1:]...)
		delete(s.children, c.self)
		return c, reason
	}
	return nil, ""
}

func (s *supervisor) childEnded(exit gen.ProcessGracefulExitRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.children[exit.From]
	if c == nil {
		return
	}
	c.ended = true
	restart := s.spec.Children[c.index].Restart
	done := restart == RestartNever || restart == RestartOnError && exit.Reason == reasonNormal
	if !done || c.awaited {
		s.queue = append(s.queue, c)
		return
	}
	c.done = true
	for _, other := range s.current {
		if other == nil || !other.done {
			return
		}
	}
	s.requestStop(nil) // nobody is left
}

// ProcessChannels gives gen.Supervisor our channel of exits.
func (s *supervisor) ProcessChannels() gen.ProcessChannels {
	chs := s.Process.ProcessChannels()
	chs.GracefulExit = s.exits
	return chs
}

// Exit ends the supervisor.
func (s *supervisor) Exit(string) error {
	s.requestStop(nil)
	return nil
}

// requestStop ends the supervisor after its children.
func (s *supervisor) requestStop(reason error) {
	s.stopOnce.Do(func() {
		s.stopWith = reason
		close(s.stopping)
	})
}

// stopChildren stops the children in reverse order and waits for each.
func (s *supervisor) stopChildren() {
	s.mu.Lock()
	current := append([]*child(nil), s.current...)
	s.mu.Unlock()
	for i := len(current) - 1; i >= 0; i-- {
		if c := current[i]; c != nil && c.p != nil {
			c.stopAndWait()
		}
	}
}
