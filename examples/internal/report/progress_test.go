package report

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clock is a time that moves only when the test says so.
type clock struct{ now time.Time }

func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }

func newProgress(t *testing.T, out io.Writer, steps int, terminal bool) (*Progress, *clock) {
	t.Helper()
	c := &clock{now: time.Unix(1_000_000, 0)}
	p, err := NewProgress(ProgressConfig{Out: out, TotalSteps: steps, Now: func() time.Time { return c.now }})
	require.NoError(t, err)
	p.terminal = terminal
	return p, c
}

func status(step int) Status {
	return Status{Step: step, Epoch: 1, Epochs: 2, Loss: 0.25, Samples: int64(step) * 100, NumServers: 2}
}

func TestPlainLinesEveryIntervalAndEveryFivePercent(t *testing.T) {
	var out bytes.Buffer
	p, c := newProgress(t, &out, 1000, false)
	for step := 1; step <= 49; step++ { // 4.9 s, below 5 %
		c.advance(100 * time.Millisecond)
		p.Update(status(step))
	}
	require.Equal(t, ""+
		"   2.0 s    2 %  epoch 1/2  loss 0.2500  1000 samples/s  2 servers\n"+
		"   4.0 s    4 %  epoch 1/2  loss 0.2500  1000 samples/s  2 servers\n", out.String())
	out.Reset()
	p.Update(status(50)) // 5 % at once
	p.Update(status(51))
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	require.Contains(t, out.String(), "  5 %")
	out.Reset()
	p.Update(status(1000))
	p.Close()
	require.Equal(t, 1, strings.Count(out.String(), "\n"), "the end is shown once")
	require.Contains(t, out.String(), "100 %")
	require.NotContains(t, out.String(), "\x1b")
}

func TestShortRunHasAtMostTwentyOneLines(t *testing.T) {
	var out bytes.Buffer
	p, c := newProgress(t, &out, 10_000, false)
	for step := range 10_001 {
		c.advance(10 * time.Microsecond)
		p.Update(status(step))
	}
	p.Close()
	require.Equal(t, 20, strings.Count(out.String(), "\n"))
}

func TestCloseShowsTheLastStatus(t *testing.T) {
	var out bytes.Buffer
	p, c := newProgress(t, &out, 100, false)
	c.advance(time.Second)
	p.Update(status(3))
	require.Empty(t, out.String())
	p.Close()
	p.Close()
	p.Update(status(50))
	require.Equal(t, "   1.0 s    3 %  epoch 1/2  loss 0.2500  300 samples/s  2 servers\n", out.String())
}

func TestWaitingForWorkers(t *testing.T) {
	var out bytes.Buffer
	p, c := newProgress(t, &out, 100, false)
	c.advance(DefaultInterval)
	p.Update(Status{Epoch: 1, Epochs: 2, NumServers: 1, Waiting: true})
	require.Equal(t, "   2.0 s    0 %  epoch 1/2  waiting for workers  1 server\n", out.String())
}

func TestBarIsRedrawnOnOneLine(t *testing.T) {
	var out bytes.Buffer
	p, c := newProgress(t, &out, 100, true)
	for step := 1; step <= 50; step++ {
		c.advance(50 * time.Millisecond)
		p.Update(status(step))
	}
	draws := strings.Split(out.String(), eraseLine)
	require.Len(t, draws, 1+25, "one redraw each 100 ms")
	require.Equal(t, " 50 % [##########..........] epoch 1/2  loss 0.2500  2000 samples/s  2 servers", draws[25])
	require.NotContains(t, out.String(), "\n")
	p.Close()
	require.True(t, strings.HasSuffix(out.String(), "\n"))
}

func TestBarFitsTheTerminal(t *testing.T) {
	var out bytes.Buffer
	p, c := newProgress(t, &out, 1, true)
	c.advance(time.Second)
	p.Update(Status{Step: 7, Epoch: 1 << 30, Epochs: 1 << 30, Loss: 1e30, Samples: 1 << 50, NumServers: 1 << 30})
	require.Len(t, strings.TrimPrefix(out.String(), eraseLine), maxColumns)
}

func TestLogLinesGoAboveTheBar(t *testing.T) {
	var out bytes.Buffer
	p, c := newProgress(t, &out, 100, true)
	log := slog.New(slog.NewTextHandler(p, nil))
	log.Info("before")
	require.NotContains(t, out.String(), eraseLine, "no bar before the first step")
	c.advance(time.Second)
	p.Update(status(10))
	out.Reset()
	log.Info("scaled")
	require.True(t, strings.HasPrefix(out.String(), eraseLine+"time="))
	before, after, found := strings.Cut(out.String(), "\n")
	require.True(t, found)
	require.Contains(t, before, "msg=scaled")
	require.True(t, strings.HasPrefix(after, eraseLine+" 10 %"))
}

func TestStatusNeverGoesBack(t *testing.T) {
	var out bytes.Buffer
	p, c := newProgress(t, &out, 100, false)
	c.advance(3 * time.Second)
	p.Update(status(40))
	c.advance(3 * time.Second)
	p.Update(status(30))
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
}

func TestProgressFromSeveralGoroutines(t *testing.T) {
	var out bytes.Buffer
	p, err := NewProgress(ProgressConfig{Out: &out, TotalSteps: 1000})
	require.NoError(t, err)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for step := range 1001 {
				p.Update(status(step))
			}
			_, err := p.Write([]byte("log line\n"))
			if err != nil {
				t.Error(err)
			}
		})
	}
	workers.Wait()
	p.Close()
	for line := range strings.Lines(out.String()) {
		require.True(t, line == "log line\n" || strings.HasSuffix(line, " servers\n"), "mixed line %q", line)
	}
	require.Equal(t, 4, strings.Count(out.String(), "log line\n"))
}

func TestProgressConfigFaults(t *testing.T) {
	_, err := NewProgress(ProgressConfig{Interval: -time.Second})
	require.ErrorContains(t, err, "total steps is 0, want 1 or more")
	require.ErrorContains(t, err, "interval is -1s, want 0 or more")
}

func TestIsTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	require.False(t, isTerminal(&bytes.Buffer{}))
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer file.Close()
	require.False(t, isTerminal(file))
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer device.Close()
	require.True(t, isTerminal(device), "a character device counts")
	t.Setenv("TERM", "dumb")
	require.False(t, isTerminal(device))
}
