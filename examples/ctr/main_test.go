package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// runJSON runs the program and returns its result.
func runJSON(t *testing.T, args ...string) (r result) {
	t.Helper()
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "result.json")
	var out bytes.Buffer
	require.NoError(t, run(ctx, append(args, "-json", path), &out, &out), "%v", &out)
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 10*time.Second, 10*time.Millisecond, "goroutines are left over")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &r))
	return r
}

// TestSmoke is the program with fewer samples.
func TestSmoke(t *testing.T) {
	r := runJSON(t, "-samples", "24000", "-window", "6000", "-batch", "128", "-servers", "3")
	require.EqualValues(t, 24_000, r.Samples)
	require.Len(t, r.Windows, 4)
	require.Greater(t, r.AUC, 0.6, "a model that learns nothing has 0.5")
	require.Greater(t, r.AUC, r.Windows[0].AUC)
	require.InDelta(t, 0.8, *r.BestAUC, 0.03)
	require.Less(t, r.AUC, *r.BestAUC)
	require.Positive(t, r.PerSecond)
	require.Len(t, r.Rows, 3)
	for _, s := range r.Rows {
		require.Positive(t, s.Rows)
	}
	// Rows that are admitted later are fewer.
	all := runJSON(t, "-samples", "3000", "-batch", "128", "-admit", "1")
	some := runJSON(t, "-samples", "3000", "-batch", "128", "-admit", "4")
	require.Less(t, total(some), total(all)/2)
}

func total(r result) (n int64) {
	for _, s := range r.Rows {
		n += s.Rows
	}
	return n
}

// TestData reads a log from a file: the first lines of a synthetic one, and some that are
// malformed.
func TestData(t *testing.T) {
	samples, err := readAll(&planted{seed: 1, total: 3000}, 100)
	require.NoError(t, err)
	var text strings.Builder
	for i, s := range samples {
		text.WriteString(format(s.record) + "\n")
		if i%1000 == 0 {
			text.WriteString(line(7, "seven") + "\n")
		}
	}
	path := filepath.Join(t.TempDir(), "log.txt")
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o644))
	r := runJSON(t, "-data", path, "-skip", "-window", "1000", "-batch", "64")
	require.EqualValues(t, 3000, r.Samples)
	require.EqualValues(t, 3, r.Skipped)
	require.Len(t, r.Windows, 3)
	require.Nil(t, r.BestAUC)
	require.Greater(t, r.AUC, 0.5)

	var out bytes.Buffer
	err = run(t.Context(), []string{"-data", path}, &out, &out)
	require.ErrorContains(t, err, `log.txt: line 2: field I7 is "seven"`)
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	require.ErrorContains(t, run(t.Context(), []string{"-data", path}, &out, &out), "ctr: the log has no samples")
}

// endless is a log without an end that ends the program after some batches.
type endless struct {
	planted
	after int64
	stop  func()
}

func (e *endless) next(batch []sample) (int, error) {
	if e.taken.Load() > e.after {
		e.stop()
	}
	return e.planted.next(batch)
}

func TestInterrupt(t *testing.T) {
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o := options{window: 1000, batch: 64, dim: 4, admit: 1, workers: 2, servers: 2, learningRate: 0.05, alpha: 0.1}
	_, err := train(ctx, o, &endless{planted: planted{total: 1 << 50}, after: 1000, stop: cancel}, time.Now(), &bytes.Buffer{})
	require.ErrorIs(t, err, context.Canceled)
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 10*time.Second, 10*time.Millisecond, "goroutines are left over")
}

func TestFlags(t *testing.T) {
	dir := t.TempDir()
	for want, args := range map[string][]string{
		"-samples is -1, want 0 to":                 {"-samples", "-1"},
		"-window is 1, want 2 to":                   {"-window", "1"},
		"-admit is 256, want 1 to 255":              {"-admit", "256"},
		"-lr is NaN, want over 0 and at most 10":    {"-lr", "NaN"},
		"-alpha is 0, want over 0 and at most 10":   {"-alpha", "0"},
		"-l1 is -1, want 0 to 1e6":                  {"-l1", "-1"},
		"-servers is 0, want 1 to 16":               {"-dim", "0", "-servers", "0"},
		`"foo" is not a flag`:                       {"foo"},
		"flag provided but not defined: -wrong":     {"-wrong"},
		"no such file":                              {"-data", filepath.Join(dir, "gone")},
		"report: write " + dir + ": it is a folder": {"-json", dir},
	} {
		var out bytes.Buffer
		require.ErrorContains(t, run(t.Context(), args, &out, &out), want)
	}
}
