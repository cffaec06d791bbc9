package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// small are the flags of a run of a few seconds: the same program, less data.
func small(more ...string) []string {
	return append([]string{
		"-images", "4800", "-test-images", "1000", "-batch", "32", "-epochs", "2", "-last-batch", "1200", "-last-epochs", "1",
		"-dwell", "200ms", "-dwell-down", "300ms", "-cooldown", "300ms", "-min-accuracy", "0.8",
	}, more...)
}

// requireNothingLeft requires as many goroutines as before, in the end, and the one
// on which Eventually asks.
func requireNothingLeft(t *testing.T, before int) {
	t.Helper()
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 10*time.Second, 10*time.Millisecond, "goroutines are left over")
}

func TestSmoke(t *testing.T) {
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "result.json")
	var out bytes.Buffer
	require.NoError(t, run(ctx, small("-json", path), &out, &out), "%v", &out)
	requireNothingLeft(t, before)
	require.Contains(t, out.String(), "[ElasticController] Scaled PS: 1→2 Trigger: ")
	require.Contains(t, out.String(), "test accuracy")

	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var result struct {
		Accuracy float64 `json:"test_accuracy"`
		Servers  []struct {
			Count int `json:"count"`
		} `json:"servers"`
		Migrations []struct {
			FreezeMS float64 `json:"freeze_ms"`
		} `json:"migrations"`
		Killed       int     `json:"servers_killed"`
		TakenOver    int     `json:"shards_taken_over"`
		RecoveryMS   float64 `json:"recovery_ms"`
		Acknowledged int64   `json:"pushes_acknowledged"`
		Applied      int64   `json:"pushes_applied"`
		Lost         *int64  `json:"lost"`
		Doubled      *int64  `json:"doubled"`
	}
	require.NoError(t, json.Unmarshal(content, &result))
	require.Greater(t, result.Accuracy, 0.8)
	require.NotEmpty(t, result.Migrations)
	require.Equal(t, 1, result.Servers[0].Count)
	require.Equal(t, 1, result.Servers[len(result.Servers)-1].Count)
	require.Equal(t, result.Acknowledged, result.Applied)
	// 300 steps and 4, each with a push to 15 pieces of the model and 2 rows of a probe.
	require.EqualValues(t, 304*17, result.Acknowledged)
	require.Zero(t, *result.Lost)
	require.Zero(t, *result.Doubled)
	require.Equal(t, 1, result.Killed)
	require.Positive(t, result.TakenOver)
	require.Positive(t, result.RecoveryMS)
}

// signalWriter tells when a text was written.
type signalWriter struct {
	mu   sync.Mutex
	text strings.Builder
	want string
	seen func()
}

func (w *signalWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(b)
	if strings.Contains(w.text.String(), w.want) {
		w.seen()
	}
	return len(b), nil
}

// TestInterrupt ends a run while it trains on several servers.
func TestInterrupt(t *testing.T) {
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out := &signalWriter{want: "Scaled PS: 1→2", seen: cancel}
	begun := time.Now()
	err := run(ctx, small("-epochs", "1000"), out, out)
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(begun), time.Minute)
	requireNothingLeft(t, before)
}

func TestNotAccurateEnough(t *testing.T) {
	if underRace {
		t.Skip("differs from TestSmoke in what it does with the result only")
	}
	path := filepath.Join(t.TempDir(), "result.json")
	var out bytes.Buffer
	err := run(t.Context(), small("-min-accuracy", "1", "-json", path), &out, &out)
	require.ErrorContains(t, err, "want at least 100.00 %")
	require.FileExists(t, path, "the result is written all the same")
}

func TestFlags(t *testing.T) {
	if underRace {
		t.Skip("reads the images again and again, on one goroutine")
	}
	for want, args := range map[string][]string{
		"-workers is 0, want 1 to 16":           {"-workers", "0"},
		"-bandwidth is 0, want over 0":          {"-bandwidth", "0"},
		"-min-accuracy is 97.5, want 0 to 1":    {"-min-accuracy", "97.5"},
		"batch size of phase 0 is 0":            {"-batch", "0", "-images", "10"},
		"-max-servers is 1, want 2 or more":     {"-max-servers", "1"},
		"were not found in /does/not/exist":     {"-data", "/does/not/exist"},
		"name their folder with -data DIR":      {"-data", "/does/not/exist"},
		`"foo" is not a flag`:                   {"foo"},
		"flag provided but not defined: -wrong": {"-wrong"},
	} {
		var out bytes.Buffer
		require.ErrorContains(t, run(t.Context(), args, &out, &out), want)
	}
	require.False(t, errors.Is(run(t.Context(), []string{"-lr", "NaN", "-images", "10"}, &bytes.Buffer{}, &bytes.Buffer{}), context.Canceled))
}
