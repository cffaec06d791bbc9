package actor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ergo-services/ergo/etf"
	"github.com/ergo-services/ergo/gen"
	"github.com/ergo-services/ergo/lib"
	"github.com/ergo-services/ergo/node"
)

// closeWait bounds what Close waits for actors that do not return.
const closeWait = 5 * time.Second

// Node runs actors and talks to other nodes. All methods are safe from any
// goroutine.
type Node struct {
	cfg         Config
	name        string
	incarnation uint64 // random; tells a node from its predecessor of the same name
	log         *slog.Logger

	ctx    context.Context // ends when the node closes
	cancel context.CancelFunc
	ergo   node.Node
	system *system
	net    *network

	typesMu sync.Mutex
	types   atomic.Pointer[typeTable]
	encs    encoderPool

	procs     sync.Map // process name to *process
	anonymous atomic.Uint64
	signals   sync.Mutex // serialises ergo's monitor and link calls; see process.finish

	calls callTable
	memos memoTable

	wg        sync.WaitGroup // goroutines of the node itself
	wgMu      sync.RWMutex   // held to add to wg, so that none is added once wg is waited for
	wgClosed  bool
	closing   atomic.Bool
	closeOnce sync.Once
	closed    chan struct{}
	closeErr  error
}

// Start starts a node that listens on Config.Listen. ctx bounds the start only. The
// error reports all that is wrong with the configuration at once, or wraps
// ErrAddressInUse.
func Start(ctx context.Context, c Config) (*Node, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("actor: start node %s: %w", c.Name, err)
	}
	n := &Node{
		cfg:         c,
		name:        c.Name,
		incarnation: randomUint64(),
		log:         c.Logger.With("node", c.Name),
		closed:      make(chan struct{}),
	}
	n.types.Store(newTypeTable())
	n.calls.init()
	n.memos.init()
	n.ctx, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	n.system = newSystem(n)
	n.net = newNetwork(n)
	if err := n.net.start(ctx); err != nil {
		n.cancel()
		return nil, fmt.Errorf("actor: start node %s: %w", c.Name, err)
	}
	opts := gen.ProcessOptions{MailboxSize: systemMailbox}
	if _, err := n.ergo.Spawn(reservedPrefix+"system", opts, n.system); err != nil {
		n.ergo.Stop()
		n.cancel()
		return nil, fmt.Errorf("actor: start node %s: %w", c.Name, err)
	}
	n.log.Info("actor: node started", "addr", n.Addr())
	return n, nil
}

// Name returns the node's name.
func (n *Node) Name() string { return n.name }

// Suspicion returns how long a peer of this node may be silent before it counts as down.
func (n *Node) Suspicion() time.Duration { return n.cfg.Suspicion }

// Ref returns the address of the process of that name on this node, whether it
// runs or not.
func (n *Node) Ref(process string) Ref { return Ref{Node: n.name, Name: process} }

// Spawn starts an actor under a name that is unique on this node, 1 to 128 letters,
// digits and "-_.:/#+"; "" makes one up. It returns when Started has returned, with
// its error if it failed; when ctx ends first the actor is killed. It fails with
// ErrNameTaken while another process has the name.
func (n *Node) Spawn(ctx context.Context, name string, a Actor, o Options) (Ref, error) {
	p, err := n.newProcess(name, a, o)
	if err != nil {
		return Ref{}, opError("spawn", text(name), err)
	}
	if err := n.launch(ctx, p, p, ergoMailbox, n.system.proc.Context(), n.ergo); err != nil {
		return Ref{}, opError("spawn", p.ref, err)
	}
	if err := p.awaitStart(ctx); err != nil {
		return Ref{}, opError("spawn", p.ref, err)
	}
	return p.ref, nil
}

// awaitStart waits for Started.
func (p *process) awaitStart(ctx context.Context) error {
	select {
	case <-p.ready:
	case <-ctx.Done():
		p.cancel(ErrKilled)
		return deadlineError(ctx.Err())
	case <-p.ctx.Done():
		select {
		case <-p.ready: // it ended because Started failed
		default:
			return ErrKilled
		}
	}
	return p.startErr
}

func (n *Node) newProcess(name string, a Actor, o Options) (*process, error) {
	if n.closing.Load() {
		return nil, ErrClosed
	}
	if name == "" {
		name = fmt.Sprintf("actor-%d", n.anonymous.Add(1))
	}
	if err := validateName("process", name, spawnNameBytes); err != nil {
		return nil, err
	}
	if a == nil {
		return nil, errors.New("actor: the Actor is nil")
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.MailboxSize == 0 {
		o.MailboxSize = n.cfg.MailboxSize
	}
	p := &process{
		n:     n,
		ref:   n.Ref(name),
		actor: a,
		opts:  o,
		box:   newMailbox(o.MailboxSize),
		ready: make(chan struct{}),
		gone:  make(chan struct{}),
	}
	p.c.p = p
	return p, nil
}

// spawner is where an ergo process is started: the node, or a supervisor.
type spawner interface {
	Spawn(name string, opts gen.ProcessOptions, b gen.ProcessBehavior, args ...etf.Term) (gen.Process, error)
}

// ergoMailbox is the size of ergo's own channels of an actor. Nothing but exits goes
// there, and the first ends the actor.
const ergoMailbox = 8

// launch reserves the name and starts the ergo process. It waits, until ctx ends,
// while a predecessor that has ended is being cleaned up.
func (n *Node) launch(ctx context.Context, p *process, b gen.ProcessBehavior, mailbox uint16, parent context.Context, in spawner) error {
	for {
		other, taken := n.procs.LoadOrStore(p.ref.Name, p)
		if !taken {
			break
		}
		old := other.(*process)
		if !old.isEnding() {
			return ErrNameTaken
		}
		select {
		case <-old.gone:
		case <-ctx.Done():
			return deadlineError(ctx.Err())
		case <-n.ctx.Done():
			return ErrClosed
		}
	}
	p.ctx, p.cancel = context.WithCancelCause(parent)
	opts := gen.ProcessOptions{MailboxSize: mailbox, DirectboxSize: 1, Context: p.ctx}
	if _, err := in.Spawn(p.ref.Name, opts, b); err != nil {
		p.cancel(err)
		n.procs.CompareAndDelete(p.ref.Name, p)
		if errors.Is(err, lib.ErrTaken) {
			return ErrNameTaken
		}
		return err
	}
	return nil
}

// process finds a running process of this node.
func (n *Node) process(name string) *process {
	if p, ok := n.procs.Load(name); ok {
		return p.(*process)
	}
	return nil
}

// Stop ends the actor, or the supervisor with its children, after it has handled
// what is in its mailbox, and waits until it is gone. When ctx ends first, an actor
// of this node is killed: it ends as soon as its current message is done. A process
// that is not there is ErrNoProcess. An actor must not Stop itself: it returns ErrStop.
func (n *Node) Stop(ctx context.Context, ref Ref) error {
	if ref.Node != n.name {
		_, err := n.call(ctx, Ref{}, ref, stopRequest{}, nil)
		return err
	}
	p := n.process(ref.Name)
	if p == nil {
		return opError("stop", ref, ErrNoProcess)
	}
	return opError("stop", ref, n.stopProcess(ctx, p))
}

func (n *Node) stopProcess(ctx context.Context, p *process) error {
	p.requestStop(nil)
	select {
	case <-p.gone:
		return nil
	case <-ctx.Done():
		p.cancel(ErrKilled)
		return deadlineError(ctx.Err())
	case <-n.closed:
		return nil
	}
}

// requestStop asks the process to end after what it has been sent so far.
func (p *process) requestStop(reason error) {
	if p.sup != nil {
		p.sup.requestStop(reason)
		return
	}
	p.signal(envelope{msg: &signal{reason: reason}})
}

// Close stops all actors as Shutdown does, waits at most 5 s for them, and closes
// all connections. Calling it again returns the same.
func (n *Node) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	return n.Shutdown(ctx)
}

// Shutdown stops all actors, supervisors first, lets each handle what is in its
// mailbox, then closes all connections. When ctx ends first it kills the rest and
// returns an error that names those which did not end. No goroutine or socket of the
// node is left, except an actor that does not return from its own code.
func (n *Node) Shutdown(ctx context.Context) error {
	n.closeOnce.Do(func() {
		n.closing.Store(true)
		err := n.stopAll(ctx)
		n.net.close()
		n.calls.failAll(ErrClosed)
		n.ergo.Stop()
		n.cancel()
		n.wgMu.Lock()
		n.wgClosed = true
		n.wgMu.Unlock()
		n.wg.Wait()
		n.closeErr = err
		close(n.closed)
	})
	<-n.closed
	return n.closeErr
}

// background runs f on a goroutine that Shutdown waits for. It reports false, and
// does not run f, when the node is closed.
func (n *Node) background(f func()) bool {
	n.wgMu.RLock()
	defer n.wgMu.RUnlock()
	if n.wgClosed {
		return false
	}
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		f()
	}()
	return true
}

func (n *Node) stopAll(ctx context.Context) error {
	var all []*process
	n.procs.Range(func(_, v any) bool {
		if p := v.(*process); p.sup != nil {
			p.requestStop(nil)
		}
		all = append(all, v.(*process))
		return true
	})
	for _, p := range all {
		if p.sup == nil && p.linked == nil {
			p.requestStop(nil)
		}
	}
	var stuck []error
	for _, p := range all {
		if err := waitGone(ctx, p); err != nil {
			stuck = append(stuck, err)
		}
	}
	return errors.Join(stuck...)
}

// killGrace is how long a killed actor has to return from its current message.
const killGrace = 100 * time.Millisecond

func waitGone(ctx context.Context, p *process) error {
	select {
	case <-p.gone:
		return nil
	case <-ctx.Done():
	}
	p.cancel(ErrKilled)
	outcome := "killed"
	select {
	case <-p.gone:
	case <-time.After(killGrace):
		outcome = "still running"
	}
	return opError("stop", p.ref, fmt.Errorf("%s: %w", outcome, deadlineError(ctx.Err())))
}
