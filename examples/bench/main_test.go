package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mainVariable turns the test binary into the program: its processes run this binary.
const mainVariable = "ELASTICPS_TEST_BENCH_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// measureQuick runs the program on some rows and returns them as they stand in the
// file, and the table.
func measureQuick(t *testing.T, only string) ([]map[string]any, string) {
	t.Helper()
	t.Setenv(mainVariable, "1")
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "rows.json")
	var out, faults bytes.Buffer
	require.NoError(t, run(ctx, []string{"-quick", "-only", only, "-json", path}, &out, &faults), "%v%v", &out, &faults)
	require.Empty(t, faults.String(), "servers complain")
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 10*time.Second, 10*time.Millisecond, "goroutines are left over")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var rows []map[string]any
	for line := range strings.Lines(string(content)) {
		var r map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		rows = append(rows, r)
	}
	return rows, out.String()
}

// TestSmoke measures over real sockets between processes: the file has the rows that
// were asked for, with exactly the keys of the contract.
func TestSmoke(t *testing.T) {
	only := "push.unix"
	if !hasUnix {
		only = "push.tcp"
	}
	rows, table := measureQuick(t, only)
	require.Len(t, rows, len(bulkSizes()))
	for i, r := range rows {
		require.Equal(t, only, r["name"])
		require.EqualValues(t, bulkSizes()[i], r["size"])
		require.Equal(t, "GB/s", r["unit"])
		require.EqualValues(t, 3, r["repeats"])
		require.Contains(t, r["note"], "in flight")
		delete(r, "note")
		require.Len(t, r, 8)
		value, limit, ratio := r["value"].(float64), r["limit"].(float64), r["ratio"].(float64)
		between := r["range"].([]any)
		require.Positive(t, value)
		require.Positive(t, limit)
		require.InDelta(t, value/limit, ratio, 1e-9)
		require.Len(t, between, 2)
		require.LessOrEqual(t, between[0], value)
		require.GreaterOrEqual(t, between[1], value)
	}
	require.Contains(t, table, "64 MiB")
	require.Contains(t, table, "5 rows, ")
}

// TestMeasurements runs what TestSmoke does not reach, as far as it is quick.
func TestMeasurements(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	if underRace {
		t.Skip("takes more than a minute; the other tests run the program under the race detector")
	}
	for only, numRows := range map[string]int{
		"push.latency.tcp": 4, "push.rate": 1, "pushpull.workers": 7, "allocs": 13, "pull.local": 5, "migrate": 16,
		"optimizer.adam.cache": 1, "codec": 10, "push.tcp.fp16": 1,
		"replicas.push": 1, "replicas.latency": 2, "failover": 1, "checkpoint.write": 1,
		"allreduce.shm": 10, "allreduce.alloc": 10, "alltoall.shm": 4, "allgather.tcp": 4,
		"rows.pull.tcp.10k": 2, "rows.push.local.1M.64": 2, "rows.memory.adagradbyrow": 1,
	} {
		t.Run(only, func(t *testing.T) {
			rows, _ := measureQuick(t, only)
			require.Len(t, rows, numRows)
			for _, r := range rows {
				require.True(t, strings.HasPrefix(r["name"].(string), only), r["name"])
				require.NotZero(t, r["repeats"])
				require.GreaterOrEqual(t, r["value"], 0.0)
			}
		})
	}
}

// TestInterrupted ends the program in the middle of a measurement: it says so, and
// its server is gone.
func TestInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no signal to send")
	}
	path := filepath.Join(t.TempDir(), "rows.json")
	cmd := exec.Command(os.Args[0], "-only", "push.tcp", "-json", path)
	cmd.Env = append(os.Environ(), mainVariable+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 30 * time.Second // a server that is left would hold the output open
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	measured := func() bool {
		content, _ := os.ReadFile(path)
		return len(content) > 0
	}
	require.Eventually(t, measured, time.Minute, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-ended:
		require.False(t, errors.Is(err, exec.ErrWaitDelay), "a server is left")
		require.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode(), "%v", &out)
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		t.Fatal("it did not end")
	}
	require.Contains(t, out.String(), "interrupted")
}

func TestFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"flag provided but not defined: -foo; the flags are -json FILE, -only NAME, -quick and -redis ADDRESS": {"-foo"},
		`"foo" is not a flag; the flags are -json FILE, -only NAME, -quick and -redis ADDRESS`:                 {"foo"},
		`-only "nothing" is the beginning of no row; they begin with limit, push, pull, `:                      {"-only", "nothing"},
		`-only "" is the beginning of no row`:                                                                  {"-only", "push.tcp,"},
		`-json is "-", want a file`:                                                                            {"-json", "-"},
	} {
		var out bytes.Buffer
		err := run(t.Context(), args, &out, &out)
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, errUsage)
		require.Equal(t, exitUsage, exitCode(err, false, &out))
		require.Contains(t, out.String(), want)
	}
	var out bytes.Buffer
	err := run(t.Context(), []string{"-json", filepath.Join(t.TempDir(), "none", "rows.json")}, &out, &out)
	require.ErrorContains(t, err, "-json")
	require.Equal(t, exitFailed, exitCode(err, false, &out))
	out.Reset()
	err = run(t.Context(), []string{"-help"}, &out, &out)
	require.ErrorIs(t, err, flag.ErrHelp)
	require.Zero(t, exitCode(err, false, &out))
	require.True(t, strings.HasPrefix(out.String(), "bench measures"))
	require.Contains(t, out.String(), "migrate.gap.p99")
	require.Equal(t, exitInterrupted, exitCode(context.Canceled, true, &out))
	require.Zero(t, exitCode(nil, false, &out))
}
