package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// roleTwin as the first argument makes the program the process that measures the
// pure-Go twin of a kernel.
const roleTwin = "twin"

// runTwin measures a step of Adam in cache for each line of the input, which says for
// how long, and answers with the figure. It ends with the input.
func runTwin(ctx context.Context, in io.Reader, out io.Writer) error {
	measure := adamInCache()
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		d, err := time.ParseDuration(lines.Text())
		if err != nil {
			return fmt.Errorf("bench: twin: %w", err)
		}
		figures, err := measure(ctx, d)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, figures[0])
	}
	return lines.Err()
}

// twin is that process. It ends with this one, whose end of its input closes.
type twin struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startTwin(ctx context.Context) (*twin, error) {
	cmd := exec.CommandContext(ctx, executable(), roleTwin)
	cmd.Env = append(os.Environ(), "ELASTICPS_KERNEL=generic")
	cmd.WaitDelay = rawGrace
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("bench: twin: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("bench: twin: %w", errors.Join(err, in.Close()))
	}
	return &twin{cmd: cmd, in: in, out: bufio.NewReader(out)}, nil
}

// probe has the process measure, in bytes per second.
func (t *twin) probe(_ context.Context, d time.Duration) ([]float64, error) {
	if _, err := fmt.Fprintln(t.in, d); err != nil {
		return nil, fmt.Errorf("bench: twin: %w", err)
	}
	line, err := t.out.ReadString('\n') // the process ends with the context that it was started with
	if err != nil {
		return nil, fmt.Errorf("bench: twin: %w", err)
	}
	figure, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	return []float64{figure}, err
}

func (t *twin) close() error {
	return errors.Join(t.in.Close(), t.cmd.Wait())
}

// executable is this program.
func executable() string {
	if self, err := os.Executable(); err == nil {
		return self
	}
	return os.Args[0]
}
