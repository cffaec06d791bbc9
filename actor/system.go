package actor

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/ergo-services/ergo/etf"
	"github.com/ergo-services/ergo/gen"
	"github.com/ergo-services/ergo/lib"
)

// systemMailbox is the length of the system process's ergo mailbox: how many Down
// messages may arrive before it handles the first.
const systemMailbox = 16_384

// system is the one process that holds all ergo monitors of a node and passes their
// messages on. ergo drops a Down that finds a full mailbox; here one large mailbox
// with a loop that never waits stands for all actors, whose own mailboxes take
// signals beyond their bound.
type system struct {
	n      *Node
	proc   gen.Process
	router coreRouter
	serial atomic.Uint64

	mu      sync.Mutex
	watches map[etf.Ref]func(reason string)
}

// coreRouter is what ergo's processes have beyond gen.Process: monitors under a
// reference of our own. ergo's MakeRef repeats itself after 262,144 references.
type coreRouter interface {
	RouteMonitor(by etf.Pid, process etf.Pid, ref etf.Ref) error
	RouteMonitorReg(by etf.Pid, process gen.ProcessID, ref etf.Ref) error
	RouteMonitorExitReg(terminated gen.ProcessID, reason string, ref etf.Ref) error
	RouteDemonitor(by etf.Pid, ref etf.Ref) error
}

func newSystem(n *Node) *system {
	return &system{n: n, watches: make(map[etf.Ref]func(string))}
}

// ProcessInit implements gen.ProcessBehavior.
func (s *system) ProcessInit(proc gen.Process, _ ...etf.Term) (gen.ProcessState, error) {
	router, ok := proc.(coreRouter)
	if !ok {
		return gen.ProcessState{}, lib.ErrUnsupported
	}
	s.proc, s.router = proc, router
	return gen.ProcessState{Process: proc}, nil
}

// ProcessLoop implements gen.ProcessBehavior.
func (s *system) ProcessLoop(_ gen.ProcessState, started chan<- bool) string {
	started <- true
	chs := s.proc.ProcessChannels()
	for {
		select {
		case m := <-chs.Mailbox:
			if down, ok := m.Message.(gen.MessageDown); ok {
				s.fire(down.Ref, down.Reason)
			}
		case d := <-chs.Direct:
			_ = s.proc.PutSyncReply(d.Ref, nil, lib.ErrUnsupportedRequest) // fails if nobody waits
		case <-chs.GracefulExit:
		case <-s.proc.Context().Done():
			return reasonNormal
		}
	}
}

func (s *system) fire(ref etf.Ref, reason string) {
	s.mu.Lock()
	f := s.watches[ref]
	delete(s.watches, ref)
	s.mu.Unlock()
	if f != nil {
		f(reason)
	}
}

func (s *system) add(f func(reason string)) etf.Ref {
	serial := s.serial.Add(1)
	ref := etf.Ref{Node: s.proc.Self().Node, Creation: s.proc.Self().Creation}
	ref.ID = [5]uint32{uint32(serial), uint32(serial >> 32), 1}
	s.mu.Lock()
	s.watches[ref] = f
	s.mu.Unlock()
	return ref
}

// watch calls f once, on the system process, when the process at target is gone.
func (s *system) watch(target Ref, f func(reason string)) etf.Ref {
	ref := s.add(f)
	s.n.signals.Lock()
	defer s.n.signals.Unlock()
	// An error comes with a Down of its own.
	_ = s.router.RouteMonitorReg(s.proc.Self(), gen.ProcessID{Name: target.Name, Node: ergoName(target.Node)}, ref)
	return ref
}

func (s *system) watchPid(pid etf.Pid, f func(reason string)) {
	ref := s.add(f)
	s.n.signals.Lock()
	defer s.n.signals.Unlock()
	_ = s.router.RouteMonitor(s.proc.Self(), pid, ref) // as in watch
}

func (s *system) unwatch(ref etf.Ref) {
	s.mu.Lock()
	_, ok := s.watches[ref]
	delete(s.watches, ref)
	s.mu.Unlock()
	if !ok {
		return // it fired
	}
	s.n.signals.Lock()
	defer s.n.signals.Unlock()
	_ = s.router.RouteDemonitor(s.proc.Self(), ref) // it may have fired just now
}

// watchGone closes p.gone once ergo has told p's watchers and freed its name.
func (n *Node) watchGone(p *process) {
	n.system.watchPid(p.pid, func(string) {
		n.procs.CompareAndDelete(p.ref.Name, p)
		close(p.gone)
	})
}

// watchKind tells a monitor from a link; both are ergo monitors underneath.
type watchKind uint8

const (
	watchMonitor watchKind = iota
	watchLink
)

type watchKey struct {
	ref  Ref
	kind watchKind
}

// watch starts a monitor or one half of a link from p to target.
func (p *process) watch(target Ref, kind watchKind) {
	key := watchKey{target, kind}
	p.mu.Lock()
	_, exists := p.watches[key]
	ended := p.ended
	p.mu.Unlock()
	if exists || ended {
		return
	}
	p.n.reach(p.ctx, target.Node)
	// The message may overtake the entry, so the entry is made under the lock that
	// the message's handler takes.
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, exists := p.watches[key]; exists || p.ended {
		return
	}
	if p.watches == nil {
		p.watches = make(map[watchKey]etf.Ref)
	}
	p.watches[key] = p.n.system.watch(target, func(reason string) { p.watchFired(key, reason) })
}

func (p *process) watchFired(key watchKey, reason string) {
	p.mu.Lock()
	delete(p.watches, key)
	p.mu.Unlock()
	err := p.n.reasonError(reason)
	if key.kind == watchMonitor {
		p.signal(envelope{msg: Down{Ref: key.ref, Err: err}, from: key.ref})
		return
	}
	p.signal(envelope{msg: &signal{from: key.ref, reason: err}})
}

// signal delivers e beyond the mailbox's bound. A process that has ended needs none.
func (p *process) signal(e envelope) { _ = p.box.put(e, true) }

func (p *process) unwatch(target Ref, kind watchKind) {
	key := watchKey{target, kind}
	p.mu.Lock()
	ref, ok := p.watches[key]
	delete(p.watches, key)
	p.mu.Unlock()
	if ok {
		p.n.system.unwatch(ref)
	}
}

func (p *process) dropWatches() {
	p.mu.Lock()
	watches := p.watches
	p.watches = nil
	p.mu.Unlock()
	for _, ref := range watches {
		p.n.system.unwatch(ref)
	}
}

// reach connects to a node whose address is known, so that a monitor of a process
// there does not fail only because nothing was sent there yet.
func (n *Node) reach(ctx context.Context, name string) {
	if name == n.name {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Suspicion)
	defer cancel()
	_, _ = n.peer(ctx, name) // a failure shows as a Down
}
