package elastic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/elasticps/elasticps/shard"
)

// ProcessConfig says how to run servers as processes of the operating system on
// this host. Command is required.
type ProcessConfig struct {
	// Command returns the command of a server, not started. Its SysProcAttr is
	// replaced; its Stdout and Stderr, if set, get what Output gets.
	Command func(id shard.ServerID) *exec.Cmd
	// Ready is how a line of the server's output begins that says it is ready;
	// Start waits for it. Zero: Start does not wait.
	Ready string
	// Output gets every line of the servers' output behind the server's name.
	// Zero: it is dropped. Writes to it come one at a time.
	Output io.Writer
	// Grace is how long a server may take to end after SIGTERM, before SIGKILL.
	// Zero: 5 s.
	Grace time.Duration
	// MaxProcesses is the greatest number of processes at once. Zero: 256.
	MaxProcesses int
}

func (c ProcessConfig) withDefaults() ProcessConfig {
	if c.Output == nil {
		c.Output = io.Discard
	}
	c.Grace = cmp.Or(c.Grace, 5*time.Second)
	c.MaxProcesses = cmp.Or(c.MaxProcesses, 256)
	return c
}

func (c ProcessConfig) validate() error {
	var errs []error
	if c.Command == nil {
		errs = append(errs, errors.New("elastic: ProcessConfig has no Command"))
	}
	if c.Grace < 0 {
		errs = append(errs, fmt.Errorf("elastic: Grace %v: want > 0", c.Grace))
	}
	if c.MaxProcesses < 1 || c.MaxProcesses > shard.MaxServers {
		errs = append(errs, fmt.Errorf("elastic: MaxProcesses %d: want 1 to %d", c.MaxProcesses, shard.MaxServers))
	}
	return errors.Join(errs...)
}

// Processes is the provider whose servers are processes of the operating system on
// this host. Each is reaped when it ends. On Linux the kernel kills them when this
// process ends, however it ends; elsewhere Close does.
type Processes struct {
	config ProcessConfig
	output sync.Mutex // one line at a time

	mu      sync.Mutex
	closed  bool
	running map[shard.ServerID]*process
}

var _ Provider = (*Processes)(nil)

// NewProcesses returns a provider. The error names every fault of the configuration.
func NewProcesses(c ProcessConfig) (*Processes, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Processes{config: c, running: make(map[shard.ServerID]*process)}, nil
}

// process is one child.
type process struct {
	cmd      *exec.Cmd
	out      *lineWriter
	started  chan struct{} // closed when it runs, or could not be started
	startErr error         // read after started
	ended    chan struct{} // closed when it has been reaped, or could not be started
	err      error         // how it ended; read after ended
}

// Start starts the process and waits until it says that it is ready, if Ready is
// set. It fails with ErrServerExists while a process of that name runs, and with how
// the process ended and its last line if it ends before it is ready. When ctx ends
// first, the process is killed.
func (p *Processes) Start(ctx context.Context, id shard.ServerID) error {
	c, err := p.prepare(id)
	if err != nil {
		return err
	}
	go c.run()
	<-c.started
	if c.startErr != nil {
		p.forget(id, c)
		return fmt.Errorf("elastic: start server %q: %w", id, c.startErr)
	}
	if p.config.Ready == "" {
		return nil
	}
	select {
	case <-c.out.ready:
		return nil
	case <-c.ended:
		p.forget(id, c)
		return fmt.Errorf("elastic: server %q ended before it was ready: %w; its last line: %q", id, c.cause(), c.out.last())
	case <-ctx.Done():
		kill(c.cmd)
		<-c.ended
		p.forget(id, c)
		return fmt.Errorf("elastic: server %q was not ready in time: %w", id, ctx.Err())
	}
}

// prepare makes the child and takes its name.
func (p *Processes) prepare(id shard.ServerID) (*process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("%w: start server %q", ErrProviderClosed, id)
	}
	if old := p.running[id]; old != nil && !old.hasEnded() {
		return nil, fmt.Errorf("%w: %q", ErrServerExists, id)
	}
	for other, c := range p.running {
		if c.hasEnded() {
			delete(p.running, other)
		}
	}
	if len(p.running) >= p.config.MaxProcesses {
		return nil, fmt.Errorf("elastic: start server %q: %d processes run, at most %d", id, len(p.running), p.config.MaxProcesses)
	}
	cmd := p.config.Command(id)
	if cmd == nil {
		return nil, fmt.Errorf("elastic: start server %q: Command returned nil", id)
	}
	c := &process{cmd: cmd, started: make(chan struct{}), ended: make(chan struct{})}
	c.out = newLineWriter(&p.output, p.config.Output, string(id)+": ", p.config.Ready)
	cmd.Stdout, cmd.Stderr = also(cmd.Stdout, c.out), also(cmd.Stderr, c.out)
	cmd.WaitDelay = p.config.Grace // for output held open by the child's own children
	ownGroup(cmd)
	p.running[id] = c
	return c, nil
}

func also(w, out io.Writer) io.Writer {
	if w == nil {
		return out
	}
	return io.MultiWriter(w, out)
}

// run starts and reaps the child. It keeps its thread all that time: the kernel
// sends the death signal when the thread that started the child ends, not the process.
func (c *process) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c.startErr = c.cmd.Start()
	close(c.started)
	if c.startErr == nil {
		c.err = c.cmd.Wait()
		c.out.flush()
	}
	close(c.ended)
}

func (c *process) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func (c *process) cause() error {
	if c.err != nil {
		return c.err
	}
	return errors.New("exit status 0")
}

func (p *Processes) forget(id shard.ServerID, c *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[id] == c {
		delete(p.running, id)
	}
}

// Stop sends SIGTERM, after the grace SIGKILL, and waits until the process has been
// reaped; at the end of ctx it sends SIGKILL at once. A process that has ended by
// itself is forgotten without an error.
func (p *Processes) Stop(ctx context.Context, id shard.ServerID) error {
	p.mu.Lock()
	c := p.running[id]
	p.mu.Unlock()
	if c == nil {
		return fmt.Errorf("%w: %q", ErrUnknownServer, id)
	}
	c.stop(ctx, p.config.Grace)
	p.forget(id, c)
	return nil
}

func (c *process) stop(ctx context.Context, grace time.Duration) {
	<-c.started
	if c.hasEnded() {
		return
	}
	terminate(c.cmd)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.ended:
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	kill(c.cmd)
	<-c.ended
}

// Close stops all processes as Stop does, at the same time. A second Close does nothing.
func (p *Processes) Close() error {
	p.mu.Lock()
	p.closed = true
	running := p.running
	p.running = make(map[shard.ServerID]*process)
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, id := range slices.Sorted(maps.Keys(running)) {
		wg.Go(func() { running[id].stop(context.Background(), p.config.Grace) })
	}
	wg.Wait()
	return nil
}
