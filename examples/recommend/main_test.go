package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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

// TestSmoke is the program with fewer ratings, as many for each user as in a full run.
func TestSmoke(t *testing.T) {
	r := runJSON(t, "-ratings", "60000", "-users", "300", "-items", "300", "-dim", "4", "-batch", "256")
	require.InDelta(t, plantedNoise, *r.NoiseFloor, 0.02)
	require.Greater(t, r.RMSE, *r.NoiseFloor)
	require.Less(t, r.RMSE, 1.15**r.NoiseFloor)
	require.Less(t, r.TrainRMSE, r.RMSE)
	require.Greater(t, r.ItemMeanRMSE, 1.5*r.RMSE)
	require.Greater(t, r.MeanRMSE, r.ItemMeanRMSE)
	require.Positive(t, r.PerSecond)
	require.Len(t, r.Rows, 2)
	require.EqualValues(t, 600, r.Rows[0].Rows+r.Rows[1].Rows)
	require.Positive(t, r.Rows[0].Rows)
	require.Positive(t, r.Rows[1].Rows)
}

// TestData reads synthetic ratings from a file.
func TestData(t *testing.T) {
	all, _ := plant(20_000, 100, 100, 1)
	var text strings.Builder
	for _, r := range all {
		fmt.Fprintf(&text, "%d\t%d\t%v\t0\n", r.user-50, r.item<<40, r.value)
	}
	path := filepath.Join(t.TempDir(), "u.data")
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o644))
	r := runJSON(t, "-data", path, "-dim", "4", "-batch", "256")
	require.Nil(t, r.NoiseFloor)
	require.Equal(t, 20_000, r.Ratings+r.HeldOut)
	require.Less(t, r.RMSE, 0.8*r.ItemMeanRMSE)

	require.NoError(t, os.WriteFile(path, []byte("1\t2\tgood\t4\n"), 0o644))
	var out bytes.Buffer
	require.ErrorContains(t, run(t.Context(), []string{"-data", path}, &out, &out), `u.data: line 1: field rating is "good"`)
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	require.ErrorContains(t, run(t.Context(), []string{"-data", path}, &out, &out), "recommend: too few ratings")
}

// stopping is where a program writes that is to end after its first epoch.
type stopping struct {
	bytes.Buffer
	stop func()
}

func (w *stopping) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("epoch 1/")) {
		w.stop()
	}
	return w.Buffer.Write(b)
}

func TestInterrupt(t *testing.T) {
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := &stopping{stop: cancel}
	require.ErrorIs(t, run(ctx, []string{"-ratings", "10000", "-epochs", "10000"}, out, out), context.Canceled)
	require.Contains(t, out.String(), "epoch 1/")
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 10*time.Second, 10*time.Millisecond, "goroutines are left over")
}

func TestFlags(t *testing.T) {
	dir := t.TempDir()
	for want, args := range map[string][]string{
		"-ratings is 0, want 1 to 268435456":        {"-ratings", "0"},
		"-dim is 0, want 1 to 1024":                 {"-users", "0", "-dim", "0"},
		"-lr is -1, want over 0 and at most 10":     {"-lr", "-1"},
		"-decay is NaN, want 0 to 10":               {"-decay", "NaN"},
		`"foo" is not a flag`:                       {"foo"},
		"flag provided but not defined: -wrong":     {"-wrong"},
		"no such file":                              {"-data", filepath.Join(dir, "gone")},
		"report: write " + dir + ": it is a folder": {"-json", dir},
	} {
		var out bytes.Buffer
		require.ErrorContains(t, run(t.Context(), args, &out, &out), want)
	}
}
