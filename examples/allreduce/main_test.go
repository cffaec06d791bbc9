package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/examples/internal/mnist/mnisttest"
	"github.com/elasticps/elasticps/examples/internal/ranks"
	"github.com/elasticps/elasticps/internal/leak"
)

// TestMain is also the program of the other workers.
func TestMain(m *testing.M) {
	if !ranks.First() {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestSmoke is the whole program, with little data: the smaller the format, the fewer bytes,
// exactly, and all of them learn.
func TestSmoke(t *testing.T) {
	leak.Check(t, 20*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "result.json")
	var out bytes.Buffer
	err := run(ctx, []string{
		"-data", mnisttest.Small(t, 1280, 500), "-images", "0", "-workers", "3", "-batch", "96", "-epochs", "2", "-formats", "float32,bfloat16,e4m3",
		"-min-accuracy", "0.6", "-within", "0.04", "-json", path,
	}, &out, os.Stderr)
	require.NoError(t, err, "%v", &out)
	require.Contains(t, out.String(), "3 workers; all-reduce: dense, with 203530 parameters, below 100000000")
	var r result
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &r))
	require.Equal(t, 26, r.Steps)
	require.Len(t, r.Runs, 3)
	for i, want := range []struct {
		format string
		share  float64
	}{{"float32", 1}, {"bfloat16", 1.0 / 2}, {"e4m3", 1.0/4 + 1.0/128}} {
		one := r.Runs[i]
		require.Equal(t, want.format, one.Format)
		require.True(t, one.Equal)
		require.Greater(t, one.Accuracy, 0.6)
		// Each of three workers sends two thirds of the gradient to be summed and of the sums, at
		// least: as they are, by whatever algorithm the group has chosen.
		least := want.share * 4 * 203530 * 4 / 3
		if i == 0 {
			require.Greater(t, float64(one.BytesPerStep), 0.99*least)
			continue
		}
		require.InEpsilon(t, least, float64(one.BytesPerStep), 0.01, want.format)
	}
}

func TestVerdict(t *testing.T) {
	good := oneRun{Format: "float32", Accuracy: 0.97, Equal: true}
	o := options{minAccuracy: 0.95, within: 0.005}
	require.NoError(t, result{Runs: []oneRun{good, {Format: "e4m3", Accuracy: 0.9651, Equal: true}}}.verdict(o))
	for want, bad := range map[string]oneRun{
		"e4m3: the parameters of the workers differ": {Format: "e4m3", Accuracy: 0.97},
		"at most 0.50 points less than the 97.00 %":  {Format: "e4m3", Accuracy: 0.9649, Equal: true},
		"94.00 %, want at least 95.00 %":             {Format: "e4m3", Accuracy: 0.94, Equal: true},
	} {
		require.ErrorContains(t, result{Runs: []oneRun{good, bad}}.verdict(o), want)
	}
}

func TestFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"-workers is 17, want 1 to 16":                            {"-workers", "17"},
		"-batch is 127, want a multiple of the 4 workers":         {"-batch", "127"},
		`-formats: "fp4", want some of float32, float16, bfloat1`: {"-formats", "float32,fp4"},
		"-images is 10, want 0 or at least":                       {"-images", "10"},
		"-within is 2, want 0 to 1":                               {"-within", "2"},
		`"foo" is not a flag`:                                     {"foo"},
		"were not found in /does/not/exist":                       {"-data", "/does/not/exist"},
	} {
		var out bytes.Buffer
		require.ErrorContains(t, run(t.Context(), args, &out, &out), want)
	}
}
