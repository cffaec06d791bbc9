package ps_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store/boltstore"
)

// Some cases need parties that can be killed or stopped by the operating system:
// this file runs the test binary again as one of them.

const roleVariable = "ELASTICPS_TEST_ROLE"

// role is what another process is to be.
type role struct {
	Kind   string // server, worker, coordinator or candidate
	Name   string // of the node, and of the server or worker
	Secret string
	Home   string // node of the coordinator
	Addr   string // its address; that to listen on for the coordinator itself

	Checkpoints string // folder, of a server

	// coordinator
	Job    ps.Job
	Bolt   string // file of the store
	HaltAt shard.EffectKind

	// With standbys.
	Peers     map[string]string // what the node knows, besides Home
	Standbys  []actor.Ref
	Suspicion time.Duration // of the node; 0: the default
	// candidate: Name is its node, Addr that to listen on
	Served   actor.Ref // the store
	LeaseTTL time.Duration
	Hang     bool // at HaltAt it stops itself, as if by SIGSTOP, instead of waiting to be killed
}

// process is a role that runs.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	read io.Closer
	out  *bufio.Reader
	gone chan struct{} // closed when it has ended
}

// start runs a role until the test ends and returns when it is ready.
func (r role) start(t testing.TB) *process {
	t.Helper()
	p := r.launch(t)
	t.Cleanup(p.end)
	p.expect("ready")
	return p
}

// command is the command of a process that is to be the role.
func (r role) command(t testing.TB) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(r)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestRole$", "-test.timeout=120s")
	cmd.Env = append(os.Environ(), roleVariable+"="+string(text))
	return cmd
}

// launch runs a role until end is called.
func (r role) launch(t testing.TB) *process {
	t.Helper()
	return launchCommand(t, r.command(t))
}

// launchCommand starts a process that runs until end is called.
func launchCommand(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = writer, writer
	require.NoError(t, cmd.Start())
	_ = writer.Close()
	p := &process{t: t, cmd: cmd, in: in, read: reader, out: bufio.NewReader(reader), gone: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended does not matter
		close(p.gone)
	}()
	return p
}

// end kills the process and frees what belongs to it.
func (p *process) end() {
	p.kill()
	_ = p.in.Close() // broken, probably
	_ = p.read.Close()
}

// expect reads one line of the process's output.
func (p *process) expect(want string) {
	p.t.Helper()
	require.Equal(p.t, want, p.line())
}

func (p *process) line() string {
	p.t.Helper()
	text, err := p.out.ReadString('\n')
	require.NoError(p.t, err, "process: %q", text)
	return strings.TrimSpace(text)
}

// tell sends a command and returns the answer.
func (p *process) tell(command string) string {
	p.t.Helper()
	p.send(command)
	return p.line()
}

func (p *process) send(command string) {
	p.t.Helper()
	_, err := fmt.Fprintln(p.in, command)
	require.NoError(p.t, err)
}

// kill ends the process by SIGKILL and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // may have ended already
	<-p.gone
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
	for deadline := time.Now().Add(patience); s == syscall.SIGSTOP && !p.stopped() && time.Now().Before(deadline); {
		runtime.Gosched() // the signal takes effect a little after it was sent
	}
}

// stopped reports whether every thread of the process stands still. Where that
// cannot be told, it does.
func (p *process) stopped() bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	for _, name := range stats {
		text, err := os.ReadFile(name)
		_, state, found := strings.Cut(string(text), ") ")
		if err == nil && found && !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

// TestRole is not a test: it is the other processes of the tests.
func TestRole(t *testing.T) {
	text := os.Getenv(roleVariable)
	if text == "" {
		return
	}
	var r role
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		err = r.run()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run ends when the parent closes the standard input.
func (r role) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cfg := actor.Config{Name: r.Name, Secret: r.Secret, Suspicion: r.Suspicion, Peers: map[string]string{r.Home: r.Addr}}
	maps.Copy(cfg.Peers, r.Peers)
	switch r.Kind {
	case "coordinator":
		cfg.Name, cfg.Listen, cfg.Peers = r.Home, r.Addr, nil
	case "candidate":
		cfg.Listen, cfg.Peers = r.Addr, r.Peers
	}
	n, err := actor.Start(ctx, cfg)
	if err != nil {
		return err
	}
	coordinator := actor.Ref{Node: r.Home, Name: ps.CoordinatorProcess}
	switch r.Kind {
	case "server":
		cfg := ps.ServerConfig{Node: n, ID: shard.ServerID(r.Name), Coordinator: coordinator, Standbys: r.Standbys}
		if r.Checkpoints != "" {
			cfg.Checkpoints = checkpoint.Folder(r.Checkpoints)
		}
		if _, err := ps.StartServer(ctx, cfg); err != nil {
			return err
		}
	case "worker":
		w, err := ps.StartWorker(ctx, ps.ClientConfig{Node: n, Name: r.Name, Coordinator: coordinator, Standbys: r.Standbys})
		if err != nil {
			return err
		}
		fmt.Println("ready")
		return r.obey(w)
	case "candidate":
		return r.stand(n)
	case "coordinator":
		if err := r.coordinate(ctx, n); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func (r role) coordinate(ctx context.Context, n *actor.Node) error {
	s, err := boltstore.Open(boltstore.Config{Path: r.Bolt, LockTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	cfg := ps.CoordinatorConfig{Node: n, Job: r.Job, Store: s, StepTimeout: 2 * time.Second}
	cfg.BeforeStep(func(e shard.Effect) {
		if e.Kind == r.HaltAt {
			fmt.Println("halt")
			select {} // until it is killed
		}
	})
	_, err = ps.StartCoordinator(ctx, cfg)
	return err
}

// obey carries out the parent's commands, one a line: "push LAYER N", "tick", "take
// DATASET", "finish" and "leave".
func (r role) obey(w *ps.Worker) error {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	in := bufio.NewScanner(os.Stdin)
	var taken ps.RecordRange
	for in.Scan() {
		words := strings.Fields(in.Text())
		var err error
		switch words[0] {
		case "push": // answered when it was acknowledged
			n, _ := strconv.Atoi(words[2])
			err = w.Push(ctx, words[1], vector(n, -1))
		case "tick":
			err = w.Tick(ctx)
		case "take": // answered with the range
			if taken, err = w.NextRange(ctx, words[1]); err == nil {
				fmt.Println(taken.Epoch, taken.Begin, taken.End)
				continue
			}
		case "finish":
			err = w.FinishRange(ctx, taken)
		case "leave":
			err = w.Leave(ctx)
		}
		switch {
		case err == nil:
			fmt.Println("ok")
		case errors.Is(err, ps.ErrNotMember):
			fmt.Println("not a member")
		default:
			fmt.Println("error:", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	return in.Err()
}

// process starts a server or worker in a process of its own.
func (c *cluster) process(kind, name string) *process {
	c.t.Helper()
	folder, _ := c.checkpoints.(checkpoint.Folder)
	r := role{Kind: kind, Name: name, Secret: c.secret, Peers: c.peers, Standbys: c.standbys, Suspicion: c.suspicion, Home: c.ref().Node, Addr: c.peers[c.ref().Node], Checkpoints: string(folder)}
	if c.home != nil {
		r.Addr = c.home.Addr()
	}
	return r.start(c.t)
}
