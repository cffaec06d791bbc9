package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/examples/internal/ranks"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// roleServer as the first argument makes the program one of its servers.
const roleServer = "server"

const (
	// secretVariable is the environment variable with the secret of the nodes.
	secretVariable = "ELASTICPS_SECRET"
	// readyLine begins the line with which a server says that it takes part.
	readyLine = "ready"
	// attendantProcess answers questions about the process of a server.
	attendantProcess = "bench/attendant"
	// suspicion is long: probes load the machine fully.
	suspicion = 5 * time.Second
)

// Messages of the attendant.
type (
	askLimits struct{}
	// rawLimits has the addresses of the raw server.
	rawLimits struct{ TCP, Unix string }
	askUsage  struct{}
	// usage is what a process has used so far.
	usage struct {
		Mallocs, Bytes uint64 // allocations, and their bytes
		Resident       int64  // bytes of memory now, 0 where the system does not say
		Processors     time.Duration
	}
	// askStream makes a server measure a raw stream to another for a time.
	askStream struct {
		Address string
		For     time.Duration
	}
	streamed struct{ BytesPerSecond float64 }
	// killYourself ends the process at once, as if somebody else had killed it.
	killYourself struct{}
)

func register(n *actor.Node) error {
	return errors.Join(
		n.Register("bench.ask_limits", askLimits{}), n.Register("bench.limits", rawLimits{}),
		n.Register("bench.ask_usage", askUsage{}), n.Register("bench.usage", usage{}),
		n.Register("bench.ask_stream", askStream{}), n.Register("bench.streamed", streamed{}),
		n.Register("bench.kill_yourself", killYourself{}),
	)
}

// newServers returns the provider of the server processes: it reaps them, and none
// outlives this process.
func newServers(secret string, latest func() present, stderr io.Writer) (*elastic.Processes, error) {
	return elastic.NewProcesses(elastic.ProcessConfig{
		Ready: readyLine, Output: exceptReady{stderr},
		Command: func(id shard.ServerID) *exec.Cmd {
			transport, _, _ := strings.Cut(string(id), "-")
			now := latest()
			cmd := exec.Command(executable(), roleServer, "-id", string(id), "-transport", transport, "-coordinator", now.address, "-checkpoints", now.checkpoints)
			cmd.Env = append(os.Environ(), secretVariable+"="+secret)
			return cmd
		},
	})
}

// exceptReady passes on what servers say when something is wrong.
type exceptReady struct{ io.Writer }

func (w exceptReady) Write(line []byte) (int, error) {
	if strings.Contains(string(line), ": "+readyLine) {
		return len(line), nil
	}
	return w.Writer.Write(line)
}

// runServer is a parameter server until ctx ends or the coordinator is gone.
func runServer(ctx context.Context, args []string, stdout io.Writer) error {
	fs := flag.NewFlagSet("bench server", flag.ContinueOnError)
	id := fs.String("id", "", "name of the server")
	transport := fs.String("transport", transportTCP, "tcp or unix")
	address := fs.String("coordinator", "", "host:port of the coordinator's node")
	folder := fs.String("checkpoints", "", "folder of the checkpoints, empty for none")
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	node, err := startNode(ctx, *id, os.Getenv(secretVariable))
	if err != nil {
		return err
	}
	defer node.Close()
	peer, err := node.Connect(ctx, *address)
	if err != nil {
		return err
	}
	coordinator := actor.Ref{Node: peer, Name: ps.CoordinatorProcess}
	cfg := ps.ServerConfig{Node: node, ID: shard.ServerID(*id), Coordinator: coordinator}
	if *folder != "" {
		cfg.Checkpoints = checkpoint.Folder(*folder)
	}
	server, err := startServer(ctx, cfg, *transport)
	if err != nil {
		return err
	}
	defer server.Close()
	raw, err := startRawServer(ctx)
	if err != nil {
		return err
	}
	defer raw.close()
	a := &attendant{raw: raw, coordinator: coordinator, gone: cancel}
	if _, err := node.Spawn(ctx, attendantProcess, a, actor.Options{}); err != nil {
		return err
	}
	fmt.Fprintln(stdout, readyLine)
	<-ctx.Done()
	return nil
}

func startNode(ctx context.Context, name, secret string) (*actor.Node, error) {
	node, err := actor.Start(ctx, actor.Config{Name: name, Secret: secret, Suspicion: suspicion})
	if err != nil {
		return nil, err
	}
	if err := register(node); err != nil {
		_ = node.Close() // the first error is the one to report
		return nil, err
	}
	return node, nil
}

// startServer starts a server that is reached by the given transport only: a server
// with an address of its own to advertise has no unix socket.
func startServer(ctx context.Context, cfg ps.ServerConfig, transport string) (*ps.Server, error) {
	if transport != transportTCP {
		return ps.StartServer(ctx, cfg)
	}
	const attempts = 5 // somebody else may take the port before the server does
	for i := 1; ; i++ {
		free, err := ranks.FreeAddresses(ctx, 1)
		if err != nil {
			return nil, err
		}
		cfg.Listen, cfg.Advertise = free[0], free[0]
		s, err := ps.StartServer(ctx, cfg)
		if err == nil || i == attempts || !errors.Is(err, ps.ErrConflict) {
			return s, err
		}
	}
}

// attendant answers questions about its process, and ends it with the coordinator.
type attendant struct {
	raw         *rawServer
	coordinator actor.Ref
	gone        func()
}

// Started begins to watch the coordinator.
func (a *attendant) Started(c *actor.Context) error { return c.Monitor(a.coordinator) }

// Receive answers.
func (a *attendant) Receive(c *actor.Context, msg any) error {
	switch m := msg.(type) {
	case askLimits:
		c.Reply(rawLimits{TCP: a.raw.tcp, Unix: a.raw.unix})
	case askUsage:
		c.Reply(currentUsage())
	case askStream:
		request, ctx := c.Request(), c.Context()
		go func() {
			figure, err := streamTo(ctx, m)
			if err != nil {
				request.Fail(err)
				return
			}
			request.Reply(streamed{BytesPerSecond: figure})
		}()
	case killYourself:
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		if err != nil {
			c.Request().Fail(err)
		}
	case actor.Down:
		a.gone()
	}
	return nil
}

// streamTo measures a raw stream to another raw server.
func streamTo(ctx context.Context, m askStream) (float64, error) {
	c, err := dialRaw(ctx, "tcp", m.Address, uploading())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	figures, err := c.stream(ctx, m.For)
	if err != nil {
		return 0, err
	}
	return figures[0], nil
}

// currentUsage is that of this process.
func currentUsage() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{Mallocs: m.Mallocs, Bytes: m.TotalAlloc, Resident: residentBytes(), Processors: processorTime()}
}

// residentBytes is the resident set of this process, 0 if the system does not tell.
func residentBytes() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return n * kib
		}
	}
	return 0
}
