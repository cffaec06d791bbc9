package smi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/device"
)

// Config says how a tool is run. The zero value runs the vendor's program from PATH.
type Config struct {
	// Program is the name or path of the program. Zero: the vendor's name for it.
	Program string
	// Timeout is how long one run may take. Zero: 5 s.
	Timeout time.Duration
	// MaxOutputBytes bounds what is taken from the program. Zero: 1 MiB.
	MaxOutputBytes int
	// Run runs the program. Zero: as a process of this host.
	Run Run
}

// validate reports every fault of the configuration at once.
func (c Config) validate() error {
	var errs []error
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("smi: Timeout %v: want >= 0", c.Timeout))
	}
	if c.MaxOutputBytes < 0 {
		errs = append(errs, fmt.Errorf("smi: MaxOutputBytes %d: want >= 0", c.MaxOutputBytes))
	}
	return errors.Join(errs...)
}

// Tool is a provider that runs a vendor's program.
type Tool struct {
	cfg    Config
	source string
	args   []string
	links  []string // arguments for the matrix of links
	parse  func(Output) ([]device.Device, error)
	turn   chan struct{} // one process at a time, and the right to matrix
	matrix matrix
}

var _ device.Provider = (*Tool)(nil)

// NVIDIA returns a provider that runs nvidia-smi. The error names every field of the
// configuration that is out of bounds.
func NVIDIA(c Config) (*Tool, error) {
	return newTool(c, "nvidia-smi", parseNVIDIA, []string{"topo", "-m"}, "--query-gpu="+nvidiaQuery, "--format=csv,nounits")
}

// Ascend returns a provider that runs "npu-smi info". The error names every field of the
// configuration that is out of bounds.
func Ascend(c Config) (*Tool, error) {
	return newTool(c, "npu-smi", onSuccess("npu-smi", ParseAscend), []string{"info", "-t", "topo"}, "info")
}

// MooreThreads returns a provider that runs mthreads-gmi. The error names every field of
// the configuration that is out of bounds.
func MooreThreads(c Config) (*Tool, error) {
	return newTool(c, "mthreads-gmi", onSuccess("mthreads-gmi", ParseMooreThreads), []string{"topo", "-m"})
}

func newTool(c Config, source string, parse func(Output) ([]device.Device, error), links []string, args ...string) (*Tool, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.Program = cmp.Or(c.Program, source)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.MaxOutputBytes = cmp.Or(c.MaxOutputBytes, 1<<20)
	if c.Run == nil {
		c.Run = execute
	}
	return &Tool{cfg: c, source: source, args: args, links: links, parse: parse, turn: make(chan struct{}, 1)}, nil
}

// onSuccess parses the output of a program that reports trouble by its exit code only.
func onSuccess(source string, parse func(string) ([]device.Device, error)) func(Output) ([]device.Device, error) {
	return func(o Output) ([]device.Device, error) {
		if o.ExitCode != 0 {
			return nil, o.failure(source)
		}
		return parse(o.Stdout)
	}
}

// Source returns the vendor's name of the program.
func (t *Tool) Source() string { return t.source }

// Devices runs the program and returns the devices that it lists, with their links, for which
// it runs once more when other devices are there than before. It blocks until the program
// ends, ctx ends or Timeout has passed; a call waits for the one before it.
func (t *Tool) Devices(ctx context.Context) ([]device.Device, error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return nil, &RunError{Program: t.cfg.Program, Err: ctx.Err()}
	}
	out, err := t.cfg.Run(ctx, t.cfg.MaxOutputBytes, t.cfg.Program, t.args...)
	if err != nil {
		return nil, err
	}
	list, err := t.parse(out)
	if err == nil {
		t.link(ctx, list)
	}
	return list, err
}
