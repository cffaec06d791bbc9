package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/examples/internal/training"
	"github.com/elasticps/elasticps/shard"
)

// fleet is the processes of a job. Each is started again when it has ended, unless it is
// to stay dead for a while.
type fleet struct {
	out       io.Writer
	logs      string // folder of the log files of processes
	processes *elastic.Processes
	ports     *ports
	links     map[string]wires // of servers
	store     *link            // before etcd, nil without

	roles map[string]role

	mu       sync.Mutex
	commands map[string]*exec.Cmd
	running  map[string]*os.Process // that have said that they are ready
	dead     map[string]bool        // that are to stay so

	life    context.Context // ends with close
	end     context.CancelFunc
	keeping sync.WaitGroup
}

// wires are all ways to and from a server but those that it opens to its followers.
type wires struct {
	data, node *link // from others
	home       *link // to the controller
}

// cut cuts the ways that a kind means, or heals them.
func (w wires) cut(k kind, heal bool) {
	set := (*link).cut
	if heal {
		set = (*link).heal
	}
	for _, in := range []struct {
		of   *link
		way  direction
		kind kind
	}{
		{w.data, toTarget, cutIn},
		{w.node, toTarget, cutIn},
		{w.home, fromTarget, cutIn},
		{w.data, fromTarget, cutOut},
		{w.node, fromTarget, cutOut},
		{w.home, toTarget, cutOut},
	} {
		if in.of != nil && (k == cut || k == in.kind) {
			set(in.of, in.way)
		}
	}
}

// newFleet plans the processes of a job in a folder for its files; director is where the
// feed is.
func newFleet(s settings, plan training.Plan, folder, secret, director string, out io.Writer) (*fleet, error) {
	f := &fleet{
		out: out, logs: s.Logs, links: map[string]wires{}, roles: map[string]role{},
		commands: map[string]*exec.Cmd{}, running: map[string]*os.Process{}, dead: map[string]bool{},
	}
	f.life, f.end = context.WithCancel(context.Background())
	var err error
	if f.processes, err = elastic.NewProcesses(elastic.ProcessConfig{Ready: readyLine, Output: out, Command: f.command}); err != nil {
		return nil, err
	}
	if f.ports, err = newPorts(); err != nil {
		return nil, err
	}
	addr, err := f.ports.free()
	if err != nil {
		return nil, err
	}
	home := role{
		Kind: roleController, Name: controllerNode, Secret: secret, Listen: addr, Plan: plan, MinServers: s.NumServers,
		Bolt: filepath.Join(folder, "store.elasticps.db"), EtcdRoot: etcdRoot(folder),
	}
	if s.Etcd != "" {
		if f.store, err = newLink(f.ports, s.Etcd); err != nil {
			return nil, err
		}
		home.Etcd = f.store.addr
	}
	f.roles[controller] = home
	for i := range s.NumServers {
		if err := f.addServer(serverName(i), secret, addr); err != nil {
			return nil, err
		}
	}
	for i := range s.NumWorkers {
		f.roles[workerName(i)] = role{
			Kind: roleWorker, Name: workerName(i), Secret: secret, Plan: plan, Data: s.Data,
			Peers: map[string]string{controllerNode: addr, directorNode: director},
		}
	}
	return f, nil
}

// etcdRoot is what the etcd keys of a job begin with: the name of its folder is its own.
func etcdRoot(folder string) string { return "elasticps-" + filepath.Base(folder) + "/" }

func (f *fleet) addServer(name, secret, home string) error {
	r := role{Kind: roleServer, Name: name, Secret: secret}
	var w wires
	for _, end := range []struct {
		link   **link
		target *string
		name   *string
	}{{&w.data, &r.DataListen, &r.DataAdvertise}, {&w.node, &r.Listen, &r.Advertise}} {
		var err error
		if *end.target, err = f.ports.free(); err != nil {
			return err
		}
		if *end.link, err = newLink(f.ports, *end.target); err != nil {
			return err
		}
		*end.name = (*end.link).addr
	}
	var err error
	if w.home, err = newLink(f.ports, home); err != nil {
		return err
	}
	r.Peers = map[string]string{controllerNode: w.home.addr}
	f.roles[name], f.links[name] = r, w
	return nil
}

// command returns the command of a process, which is about to be started.
func (f *fleet) command(id shard.ServerID) *exec.Cmd {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := string(id)
	r := f.roles[name]
	r.Logs = f.logs
	text, err := json.Marshal(r)
	if err != nil {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"="+string(text))
	f.commands[name], f.running[name] = cmd, nil
	return cmd
}

// keep starts processes and keeps them running until close. It returns when all are
// ready for the first time.
func (f *fleet) keep(ctx context.Context, names ...string) error {
	for _, name := range names {
		f.keeping.Go(func() {
			_ = training.Poll(f.life, func() bool { f.revive(name); return false }) // it ends with the fleet
		})
	}
	return training.Poll(ctx, func() bool { return f.allReady(names...) })
}

// revive starts a process that does not run, if it is to.
func (f *fleet) revive(name string) {
	if f.isDead(name) {
		return
	}
	err := f.processes.Start(f.life, shard.ServerID(name))
	switch {
	case err == nil:
		f.mu.Lock()
		f.running[name] = f.commands[name].Process
		f.mu.Unlock()
	case !errors.Is(err, elastic.ErrServerExists) && !f.isDead(name) && f.life.Err() == nil:
		fmt.Fprintf(f.out, "%s: %v\n", name, err)
	}
}

func (f *fleet) isDead(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead[name]
}

func (f *fleet) allReady(names ...string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		if f.running[name] == nil {
			return false
		}
	}
	return true
}

// inflict does a fault and returns what ends it.
func (f *fleet) inflict(ctx context.Context, x fault) (undo func() error, err error) {
	w := f.links[x.target]
	switch {
	case x.target == etcd:
		w = wires{data: f.store}
		fallthrough
	case x.kind == cut, x.kind == cutIn, x.kind == cutOut:
		w.cut(x.kind, false)
		return func() error { w.cut(x.kind, true); return nil }, nil
	}
	if err := training.Poll(ctx, func() bool { return f.allReady(x.target) }); err != nil {
		return nil, fmt.Errorf("chaos: %s %s: it does not start: %w", x.kind, x.target, err)
	}
	f.mu.Lock()
	process := f.running[x.target]
	f.mu.Unlock()
	if x.kind == stop {
		if err := suspend(process); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return nil, fmt.Errorf("chaos: stop %s: %w", x.target, err)
		}
		return func() error {
			if err := continues(process); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return fmt.Errorf("chaos: continue %s: %w", x.target, err)
			}
			return nil
		}, nil
	}
	return f.kill(ctx, x.target, process, w)
}

// kill ends a process with SIGKILL. Its addresses refuse connections from then on.
func (f *fleet) kill(ctx context.Context, name string, process *os.Process, w wires) (undo func() error, err error) {
	f.mu.Lock()
	f.dead[name], f.running[name] = true, nil
	f.mu.Unlock()
	_ = process.Kill() // it may have ended by itself
	err = training.Poll(ctx, func() bool { return errors.Is(process.Kill(), os.ErrProcessDone) })
	if err != nil {
		return nil, fmt.Errorf("chaos: kill %s: %w", name, err)
	}
	for _, k := range []*link{w.data, w.node} {
		if k != nil {
			k.down()
		}
	}
	return func() error {
		for _, k := range []*link{w.data, w.node} {
			if k == nil {
				continue
			}
			if err := k.up(); err != nil {
				return err
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.dead[name] = false
		return nil
	}, nil
}

// close ends all processes and proxies.
func (f *fleet) close() error {
	f.end()
	err := f.processes.Close()
	f.keeping.Wait()
	for _, w := range f.links {
		for _, k := range []*link{w.data, w.node, w.home} {
			k.down()
		}
	}
	if f.store != nil {
		f.store.down()
	}
	return errors.Join(err, f.ports.Close())
}
