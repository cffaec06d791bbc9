package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// requireNothingLeft requires as many goroutines as before, in the end, and the one
// on which Eventually asks.
func requireNothingLeft(t *testing.T, before int) {
	t.Helper()
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 10*time.Second, 10*time.Millisecond, "goroutines are left over")
}

// TestSmoke is the program with less data.
func TestSmoke(t *testing.T) {
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "result.json")
	var out bytes.Buffer
	require.NoError(t, run(ctx, []string{"-words", "100000", "-dim", "32", "-batch", "128", "-epochs", "2", "-json", path}, &out, &out), "%v", &out)
	requireNothingLeft(t, before)
	require.Contains(t, out.String(), "[ElasticController] Scaled PS: 1→3 Trigger: ")
	require.Contains(t, out.String(), "\n  err  ")

	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var r result
	require.NoError(t, json.Unmarshal(content, &r))
	require.Greater(t, r.Merit, 0.6)
	require.Greater(t, r.Merit, r.BaselineMerit+0.05)
	require.InDelta(t, 0.5, r.BaselineMerit, 0.15)
	require.Positive(t, r.PairsPerSecond)
	require.Zero(t, r.Lost)
	require.Zero(t, r.Doubled)
	most := 0
	for _, s := range r.Servers {
		most = max(most, s.Count)
	}
	require.Equal(t, []int{1, 3, 2}, []int{r.Servers[0].Count, most, r.Servers[len(r.Servers)-1].Count})
	require.Positive(t, r.Migrations)
	total := int64(0)
	for _, s := range r.Rows {
		require.Positive(t, s.Rows)
		total += s.Rows
	}
	require.Len(t, r.Rows, 2)
	require.LessOrEqual(t, total, int64(3*r.Vocabulary))
	require.Greater(t, total, int64(2*r.Vocabulary), "nearly every word was pushed")
}

func TestInterrupt(t *testing.T) {
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := &signalWriter{want: "samples/s", seen: cancel}
	begun := time.Now()
	require.ErrorIs(t, run(ctx, []string{"-words", "50000", "-epochs", "1000"}, out, out), context.Canceled)
	require.Less(t, time.Since(begun), time.Minute)
	requireNothingLeft(t, before)
}

// signalWriter tells when a text was written.
type signalWriter struct {
	text bytes.Buffer
	want string
	seen func()
}

func (w *signalWriter) Write(b []byte) (int, error) {
	w.text.Write(b)
	if bytes.Contains(w.text.Bytes(), []byte(w.want)) {
		w.seen()
	}
	return len(b), nil
}

func TestFlags(t *testing.T) {
	dir := t.TempDir()
	for want, args := range map[string][]string{
		"-words is 5, want 1000 to 1073741824":      {"-words", "5"},
		"-dim is 0, want 1 to 1024":                 {"-dim", "0"},
		"-subsample is NaN, want 0 to 1":            {"-subsample", "NaN"},
		"-lr is 0, want over 0 and at most 10":      {"-lr", "0"},
		"-workers is 99, want 1 to 16":              {"-dim", "0", "-workers", "99"},
		`"foo" is not a flag`:                       {"foo"},
		"flag provided but not defined: -wrong":     {"-wrong"},
		"0 Go files in ":                            {"-corpus", dir},
		"report: write " + dir + ": it is a folder": {"-json", dir},
	} {
		var out bytes.Buffer
		require.ErrorContains(t, run(t.Context(), args, &out, &out), want)
	}
}
