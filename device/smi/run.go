package smi

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// ErrOutput is the cause of a RunError for a program that printed more than the bound.
var ErrOutput = errors.New("output is longer than the bound")

// Output is what a program printed, and how it ended.
type Output struct {
	Stdout, Stderr string
	ExitCode       int
}

// Run runs a program to its end and returns what it printed. A program that ends with a
// code other than 0 is no error here. It must return soon after ctx ends, and must not
// return more than maxBytes.
type Run func(ctx context.Context, maxBytes int, program string, args ...string) (Output, error)

// RunError says which program failed and how. Unwrap gives the cause, which is nil when
// the program ended by itself.
type RunError struct {
	Program  string
	ExitCode int
	Text     string // first line that it printed, cut
	Err      error
}

// Error names the program and the cause, or its exit code and what it printed.
func (e *RunError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("smi: %s: %v", e.Program, e.Err)
	}
	return fmt.Sprintf("smi: %s ended with code %d: %q", e.Program, e.ExitCode, e.Text)
}

// Unwrap returns the cause.
func (e *RunError) Unwrap() error { return e.Err }

// maxText bounds what a RunError quotes, in bytes.
const maxText = 200

// failure returns the error for a program that ended with a code other than 0.
func (o Output) failure(program string) error {
	text := strings.TrimSpace(o.Stderr)
	if text == "" {
		text = strings.TrimSpace(o.Stdout)
	}
	text, _, _ = strings.Cut(text, "\n")
	return &RunError{Program: program, ExitCode: o.ExitCode, Text: text[:min(len(text), maxText)]}
}

// killGrace is how long a killed program's children may hold its output open.
const killGrace = 100 * time.Millisecond

// execute is the Run of this host: the program is looked up in PATH, killed when ctx ends
// or when it prints more than maxBytes, and prints in English.
func execute(ctx context.Context, maxBytes int, program string, args ...string) (Output, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	stdout := bounded{left: maxBytes, exceeded: func() { stop(ErrOutput) }}
	stderr := bounded{left: maxBytes, exceeded: func() { stop(ErrOutput) }}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(cmd.Environ(), "LC_ALL=C")
	cmd.WaitDelay = killGrace
	err := cmd.Run()
	out := Output{Stdout: stdout.text.String(), Stderr: stderr.text.String(), ExitCode: cmd.ProcessState.ExitCode()}
	var exit *exec.ExitError
	switch {
	case context.Cause(ctx) != nil:
		return out, &RunError{Program: program, Err: context.Cause(ctx)}
	case err == nil, errors.As(err, &exit):
		return out, nil
	}
	return out, &RunError{Program: program, Err: err}
}

// bounded keeps what is written to it, up to a number of bytes.
type bounded struct {
	text     strings.Builder
	left     int
	exceeded func()
}

// Write fails when the bound is exceeded, after telling so.
func (b *bounded) Write(p []byte) (int, error) {
	if len(p) > b.left {
		b.exceeded()
		return 0, ErrOutput
	}
	b.left -= len(p)
	return b.text.Write(p)
}
