// Command cluster trains the job of the quickstart in separate processes over real
// sockets. Without a role it does everything on this host:
//
//	go run ./examples/cluster
//
// This process is the controller. It starts the parameter servers, as many as the
// load asks for, and the workers, each as a process of its own. One worker joins
// late, one leaves early, and one is killed in the middle with SIGKILL; the others
// take over what it was doing.
//
// On several hosts the roles are started by hand, the controller first:
//
//	cluster -role controller -listen 10.0.0.1:7000 -insecure -secret SECRET
//	cluster -role worker -name worker-0 -controller 10.0.0.1:7000 -listen 10.0.0.2:0 -insecure -secret SECRET
//	cluster -role server -id spare -controller 10.0.0.1:7000 -listen 10.0.0.3:0 -insecure -secret SECRET
//
// The controller starts the servers that it needs on its own host; those that are
// started by hand get their share of the shards, too. To take one of them away, send it
// one SIGINT or SIGTERM: it ends when its shards have moved. -insecure stands for the
// lack of TLS: the processes authenticate each other, but the traffic is in the clear.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/elasticps/elasticps/examples/internal/training"
)

// secretVariable is the environment variable that -secret is taken from, so that it
// does not have to appear in a list of processes.
const secretVariable = "ELASTICPS_SECRET"

// usage comes before the list of flags.
const usage = `cluster trains a perceptron on MNIST on parameter servers that grow and shrink, in
separate processes. Without -role it starts them all on this host; with it, the flags
of each role are, besides -role, -listen, -secret and -insecure:

  server      -controller, -id, -bandwidth
  worker      -controller, -name, -max-steps, -data, -images
  controller  all others; it starts the servers that it needs

A server that is started by hand hands its shards over at the first Ctrl-C or SIGTERM
and then ends; at the second it ends at once.

Flags:
`

func main() {
	training.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

// settings are the flags.
type settings struct {
	training.Options
	role       string
	listen     string
	controller string
	secret     string
	insecure   bool
	id         string
	name       string
	maxSteps   int
}

func (s *settings) AddFlags(fs *flag.FlagSet) {
	s.Options.AddFlags(fs)
	fs.StringVar(&s.role, "role", "", "controller, server or worker; default: controller that starts the workers, too")
	fs.StringVar(&s.listen, "listen", "127.0.0.1:0", "host:port on which other processes reach this one")
	fs.StringVar(&s.controller, "controller", "", "host:port of the controller, for servers and workers")
	fs.StringVar(&s.secret, "secret", os.Getenv(secretVariable), "what all processes of the job know, at least 8 bytes; default: $"+secretVariable)
	fs.BoolVar(&s.insecure, "insecure", false, "listen on addresses that are not loopback, without TLS")
	fs.StringVar(&s.id, "id", "", "name of the server, unique in the job")
	fs.StringVar(&s.name, "name", "", "name of the worker, unique in the job")
	fs.IntVar(&s.maxSteps, "max-steps", 0, "worker: leave after so many steps; 0: stay to the end")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), usage)
		fs.PrintDefaults()
	}
}

// Validate reports every fault at once.
func (s *settings) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("cluster: "+format, args...))
		}
	}
	joins := s.role == roleServer || s.role == roleWorker
	fault(!joins && s.role != "" && s.role != roleController, "-role is %q, want controller, server or worker", s.role)
	fault(joins && s.controller == "", "-role %s needs -controller HOST:PORT", s.role)
	fault(s.role != "" && s.secret == "", "-role %s needs -secret or $%s", s.role, secretVariable)
	fault(s.role == roleServer && s.id == "", "-role server needs -id")
	fault(s.role == roleWorker && s.name == "", "-role worker needs -name")
	fault(s.maxSteps < 0, "-max-steps is %d, want 0 or more", s.maxSteps)
	host, _, err := net.SplitHostPort(s.listen)
	fault(err != nil, "-listen %q: %w", s.listen, err)
	ip := net.ParseIP(host) // a name is left to those who listen
	fault(!s.insecure && (ip != nil && !ip.IsLoopback()), "-listen %s is not loopback, want -insecure with it", s.listen)
	return errors.Join(append(faults, s.Options.Validate())...)
}

// run is the program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	began := time.Now()
	var s settings
	if err := training.Parse("cluster", args, stderr, &s); err != nil {
		return err
	}
	switch s.role {
	case roleServer:
		return runServer(ctx, s, stdout)
	case roleWorker:
		return runWorker(ctx, s, stdout)
	}
	if s.secret == "" {
		s.secret = rand.Text()
	}
	return runController(ctx, s, stdout, began)
}

// anyPort is the host of the listen address with a port of the system's choice.
func (s *settings) anyPort() string {
	host, _, _ := net.SplitHostPort(s.listen) // it has been validated
	return net.JoinHostPort(host, "0")
}
