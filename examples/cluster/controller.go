package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/examples/internal/training"
	"github.com/elasticps/elasticps/shard"
)

// numWorkers is how many workers train at the same time.
const numWorkers = 4

// runController trains with servers and, unless they are started by hand, workers
// that are processes of this host.
func runController(ctx context.Context, s settings, stdout io.Writer, began time.Time) error {
	train, test, err := training.LoadData(s.Data, s.NumImages, s.NumTest)
	if err != nil {
		return err
	}
	node, err := actor.Start(ctx, actor.Config{Name: "controller", Listen: s.listen, AllowInsecure: s.insecure, Secret: s.secret})
	if err != nil {
		return err
	}
	defer node.Close()
	s.controller = node.Addr()
	fmt.Fprintf(stdout, "MNIST, %d images; controller on %s, process %d; %s\n", train.Len(), s.controller, os.Getpid(), s.Device(numWorkers))
	c := children{settings: s, out: stdout}
	cfg := training.RunConfig{
		Node: node, Options: s.Options, Train: train, Test: test, Out: stdout, Began: began,
		Attach:  func(w io.Writer) { c.out = w },
		Servers: func(actor.Ref) (training.Provider, error) { return c.servers() },
		Workers: func(ctx context.Context, _ training.Refs, progress func() training.Progress) error {
			return c.workers(ctx, progress)
		},
	}
	if s.role == roleController {
		cfg.Workers = awaitWorkers
	}
	result, err := training.Run(ctx, cfg)
	return training.Finish(stdout, s.Options, result, err)
}

// awaitWorkers returns when workers that somebody else starts have done everything.
func awaitWorkers(ctx context.Context, _ training.Refs, progress func() training.Progress) error {
	return training.Poll(ctx, func() bool { return progress().Done })
}

// children are the processes that the controller starts.
type children struct {
	settings
	out io.Writer
}

// command returns the command of a process of this program in another role.
func (c *children) command(args ...string) *exec.Cmd {
	args = append(args,
		"-controller", c.controller, "-listen", c.anyPort(), "-insecure="+strconv.FormatBool(c.insecure),
		"-data", c.Data, "-images", strconv.Itoa(c.NumImages), "-bandwidth", strconv.FormatFloat(c.MegabytesPerSecond, 'g', -1, 64))
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), secretVariable+"="+c.secret)
	return cmd
}

// servers returns the provider of the job's servers.
func (c *children) servers() (*elastic.Processes, error) {
	return elastic.NewProcesses(elastic.ProcessConfig{
		Ready: readyLine, Output: c.out,
		Command: func(id shard.ServerID) *exec.Cmd { return c.command("-role", roleServer, "-id", string(id)) },
	})
}

// scene is something that happens when a share of the steps is done.
type scene struct {
	at     float64
	happen func()
}

// workers starts the workers and lets happen to them what happens in a cluster: one
// joins late, one leaves early, one is killed. It returns when all have ended.
func (c *children) workers(ctx context.Context, progress func() training.Progress) error {
	crew, err := newCrew(c, progress().Steps/20)
	if err != nil {
		return err
	}
	defer crew.provider.Close()
	if err := crew.start(ctx, "worker-0", "worker-1", "worker-2", earlyLeaver); err != nil {
		return err
	}
	late := make(chan error, 1)
	script := []scene{
		// A process takes its time to start; the training goes on meanwhile.
		{0.25, func() { go func() { late <- crew.start(ctx, "late-joiner") }() }},
		{0.5, func() { err = crew.kill("worker-2") }},
	}
	pollErr := training.Poll(ctx, func() bool {
		p := progress()
		for len(script) > 0 && !p.Done && float64(p.Step) >= script[0].at*float64(p.Steps) {
			script[0].happen()
			script = script[1:]
		}
		return err != nil || p.Done || p.Workers == 0
	})
	if len(script) < 2 {
		err = errors.Join(err, <-late)
	}
	if err := errors.Join(pollErr, err); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	_ = training.Poll(ctx, func() bool { return progress().Workers == 0 }) // who has not left by then is stopped
	return nil
}

const leaveTimeout = 5 * time.Second

const earlyLeaver = "early-leaver"

// crew is the workers that run as processes. What starts and reaps servers does as
// well for workers.
type crew struct {
	provider *elastic.Processes
	out      io.Writer

	mu       sync.Mutex
	commands map[string]*exec.Cmd
}

// newCrew returns a crew whose early leaver does so many steps.
func newCrew(c *children, steps int) (*crew, error) {
	w := &crew{out: c.out, commands: map[string]*exec.Cmd{}}
	var err error
	w.provider, err = elastic.NewProcesses(elastic.ProcessConfig{
		Ready: readyLine, Output: c.out,
		Command: func(id shard.ServerID) *exec.Cmd {
			name, maxSteps := string(id), 0
			if name == earlyLeaver {
				maxSteps = max(1, steps)
			}
			cmd := c.command("-role", roleWorker, "-name", name, "-max-steps", strconv.Itoa(maxSteps))
			w.mu.Lock()
			defer w.mu.Unlock()
			w.commands[name] = cmd
			return cmd
		},
	})
	return w, err
}

// start starts workers at the same time and returns when they have joined.
func (w *crew) start(ctx context.Context, names ...string) error {
	errs := make(chan error, len(names))
	for _, name := range names {
		go func() { errs <- w.provider.Start(ctx, shard.ServerID(name)) }()
	}
	var first error
	for range names {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

// kill ends a worker with SIGKILL, without any warning.
func (w *crew) kill(name string) error {
	w.mu.Lock()
	cmd := w.commands[name]
	w.mu.Unlock()
	if cmd == nil || cmd.Process == nil {
		return fmt.Errorf("cluster: no worker %q to kill", name)
	}
	fmt.Fprintf(w.out, "%s: SIGKILL to process %d\n", name, cmd.Process.Pid)
	return cmd.Process.Kill()
}
