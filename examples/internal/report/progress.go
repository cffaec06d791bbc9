package report

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// DefaultInterval is the time between plain lines of a zero ProgressConfig.
	DefaultInterval = 2 * time.Second

	redrawInterval = 100 * time.Millisecond
	rateWindow     = time.Second
	percentStep    = 5 // a plain line at each multiple, whatever the interval
	barCells       = 20
	maxColumns     = 79
	eraseLine      = "\r\x1b[K"
)

// ProgressConfig describes a Progress. The zero value but for TotalSteps writes
// to standard output.
type ProgressConfig struct {
	// Out receives the lines; nil means os.Stdout. A bar is drawn if it is a
	// terminal (a character device, and TERM is not "dumb").
	Out io.Writer
	// TotalSteps is the number of steps of the whole run, at least 1.
	TotalSteps int
	// Interval is the time between plain lines; 0 means DefaultInterval.
	Interval time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// validate reports every fault at once.
func (c ProgressConfig) validate() error {
	var faults []error
	if c.TotalSteps < 1 {
		faults = append(faults, fmt.Errorf("report: total steps is %d, want 1 or more", c.TotalSteps))
	}
	if c.Interval < 0 {
		faults = append(faults, fmt.Errorf("report: interval is %v, want 0 or more", c.Interval))
	}
	return errors.Join(faults...)
}

// Status is one moment of a training run.
type Status struct {
	// Step counts the steps done by all workers together.
	Step int
	// Epoch is the epoch that the step belongs to, from 1, and Epochs their number.
	Epoch, Epochs int
	// Loss is the training loss, smoothed as the caller likes.
	Loss float64
	// Samples counts the samples trained on since the start; the throughput
	// shown is its growth over about the last second.
	Samples int64
	// NumServers is the number of parameter servers.
	NumServers int
	// Waiting says that no worker is there; it is shown instead of the loss.
	Waiting bool
}

// Progress shows how far a run is: on a terminal as one line that is redrawn,
// elsewhere as plain lines, one each Interval and one each 5 % of the steps.
// It may be used by several goroutines.
type Progress struct {
	cfg      ProgressConfig
	terminal bool
	start    time.Time

	mu       sync.Mutex
	closed   bool
	shown    bool // a bar is on the terminal's current line
	last     Status
	lastDraw time.Time
	percent  int // of the last plain line
	mark     rateMark
	rate     float64 // samples per second
}

// rateMark is where the window of the throughput begins.
type rateMark struct {
	at      time.Time
	samples int64
}

// NewProgress returns a Progress whose time starts now. The error names each
// value of the configuration that is out of bounds.
func NewProgress(cfg ProgressConfig) (*Progress, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Out == nil {
		cfg.Out = os.Stdout
	}
	if cfg.Interval == 0 {
		cfg.Interval = DefaultInterval
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	now := cfg.Now()
	return &Progress{
		cfg:      cfg,
		terminal: isTerminal(cfg.Out),
		start:    now,
		lastDraw: now,
		mark:     rateMark{at: now},
	}, nil
}

// isTerminal reports whether w is a character device on which a line can be
// redrawn.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Update shows s if it is time to. It is cheap enough to be called after every
// step. A status whose step is behind that of an earlier call is ignored, and
// so is everything after Close. Faults of Out are ignored: progress must not
// stop a run.
func (p *Progress) Update(s Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || s.Step < p.last.Step {
		return
	}
	p.last = s
	now := p.cfg.Now()
	if !p.due(now) {
		return
	}
	p.updateRate(now)
	p.draw(now)
}

// Write shows one or more whole lines, such as those of a log, above the bar.
// With it a Progress can be the output of a slog.Handler.
func (p *Progress) Write(lines []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.cfg.Out, eraseLine)
		p.shown = false
	}
	n, err := p.cfg.Out.Write(lines)
	if p.terminal && !p.closed && p.last.Step > 0 {
		p.draw(p.cfg.Now())
	}
	return n, err
}

// Close shows the last status once more and ends the line. Calling it again
// does nothing; lines that come through Write are still shown.
func (p *Progress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	now := p.cfg.Now()
	if p.terminal || p.percent != p.percentDone() {
		p.updateRate(now)
		p.draw(now)
	}
	if p.shown {
		fmt.Fprintln(p.cfg.Out)
		p.shown = false
	}
}

// due decides whether the last status is to be shown at time now.
func (p *Progress) due(now time.Time) bool {
	since := now.Sub(p.lastDraw)
	if p.terminal {
		return since >= redrawInterval
	}
	return since >= p.cfg.Interval || p.percentDone()/percentStep > p.percent/percentStep
}

func (p *Progress) updateRate(now time.Time) {
	elapsed := now.Sub(p.mark.at)
	if elapsed <= 0 || (elapsed < rateWindow && p.rate > 0) {
		return
	}
	p.rate = float64(p.last.Samples-p.mark.samples) / elapsed.Seconds()
	if elapsed >= rateWindow {
		p.mark = rateMark{at: now, samples: p.last.Samples}
	}
}

// draw writes the last status, as a bar or as a plain line.
func (p *Progress) draw(now time.Time) {
	p.lastDraw, p.percent = now, p.percentDone()
	if !p.terminal {
		fmt.Fprintf(p.cfg.Out, "%6.1f s  %3d %%  %s\n", now.Sub(p.start).Seconds(), p.percent, p.describe())
		return
	}
	filled := p.percent * barCells / 100
	bar := strings.Repeat("#", filled) + strings.Repeat(".", barCells-filled)
	line := fmt.Sprintf("%3d %% [%s] %s", p.percent, bar, p.describe())
	fmt.Fprint(p.cfg.Out, eraseLine, line[:min(len(line), maxColumns)])
	p.shown = true
}

func (p *Progress) describe() string {
	servers := "servers"
	if p.last.NumServers == 1 {
		servers = "server"
	}
	if p.last.Waiting {
		return fmt.Sprintf("epoch %d/%d  waiting for workers  %d %s", p.last.Epoch, p.last.Epochs, p.last.NumServers, servers)
	}
	return fmt.Sprintf("epoch %d/%d  loss %.4f  %.0f samples/s  %d %s",
		p.last.Epoch, p.last.Epochs, p.last.Loss, p.rate, p.last.NumServers, servers)
}

func (p *Progress) percentDone() int {
	return max(0, min(100, p.last.Step*100/p.cfg.TotalSteps))
}
