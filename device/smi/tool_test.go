package smi

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
)

// program writes a shell script and returns its path.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tool")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755))
	return path
}

func devices(t *testing.T, c Config, makeTool func(Config) (*Tool, error)) ([]device.Device, error) {
	t.Helper()
	tool, err := makeTool(c)
	require.NoError(t, err)
	return tool.Devices(t.Context())
}

func TestConfig(t *testing.T) {
	_, err := NVIDIA(Config{Timeout: -1, MaxOutputBytes: -2})
	require.ErrorContains(t, err, "smi: Timeout -1ns: want >= 0")
	require.ErrorContains(t, err, "smi: MaxOutputBytes -2: want >= 0")
}

func TestToolsRunTheirPrograms(t *testing.T) {
	golden, err := filepath.Abs("testdata")
	require.NoError(t, err)
	cases := []struct {
		make  func(Config) (*Tool, error)
		text  string
		args  string
		count int
	}{
		{NVIDIA, "nvidia-a100.txt", "--query-gpu=" + nvidiaQuery + " --format=csv,nounits", 4},
		{Ascend, "ascend-a3.txt", "info", 2},
		{MooreThreads, "moorethreads-s5000.txt", "", 2},
	}
	for _, c := range cases {
		path := program(t, `[ "$*" = "`+c.args+`" ] && [ "$LC_ALL" = C ] && cat `+filepath.Join(golden, c.text))
		list, err := devices(t, Config{Program: path}, c.make)
		require.NoError(t, err)
		require.Len(t, list, c.count)
	}
}

func TestToolFaults(t *testing.T) {
	var run *RunError
	_, err := devices(t, Config{Program: "no-such-program-of-a-vendor"}, Ascend)
	require.ErrorAs(t, err, &run)
	require.ErrorIs(t, err, exec.ErrNotFound)

	_, err = devices(t, Config{Program: program(t, "echo DrvMngGetConsoleLogLevel failed. >&2; exit 255")}, Ascend)
	require.EqualError(t, err, `smi: npu-smi ended with code 255: "DrvMngGetConsoleLogLevel failed."`)
	_, err = devices(t, Config{Program: program(t, "echo 'NVIDIA-SMI has failed because it could not communicate'; exit 9")}, NVIDIA)
	require.ErrorContains(t, err, "ended with code 9: \"NVIDIA-SMI has failed")
	_, err = devices(t, Config{Program: program(t, "echo 'Field \"power.draw\" is not a valid field to query.'; exit 2")}, NVIDIA)
	require.ErrorContains(t, err, "not a valid field")
	_, err = devices(t, Config{Program: program(t, "kill -KILL $$")}, MooreThreads)
	require.ErrorContains(t, err, "ended with code -1")

	_, err = devices(t, Config{Program: program(t, "yes"), MaxOutputBytes: 100}, Ascend)
	require.ErrorIs(t, err, ErrOutput)
	_, err = devices(t, Config{Program: program(t, "yes >&2")}, Ascend)
	require.ErrorIs(t, err, ErrOutput)

	begin := time.Now()
	_, err = devices(t, Config{Program: program(t, "sleep 60 & wait"), Timeout: 50 * time.Millisecond}, Ascend)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begin), 10*time.Second, "a child that holds the output open is not waited for")
}

func TestNVIDIALostDevicesInEitherOutput(t *testing.T) {
	text, err := os.ReadFile("testdata/nvidia-a100.txt")
	require.NoError(t, err)
	const lost = "Unable to determine the device handle for GPU3: 0000:4C:00.0: Unknown Error\n"
	header, rows, _ := strings.Cut(string(text), "\n")
	for _, o := range []Output{
		{Stdout: string(text), Stderr: lost, ExitCode: 15},
		{Stdout: string(text), Stderr: lost},
		{Stdout: header + "\n" + lost + rows, ExitCode: 15},
	} {
		list, err := parseNVIDIA(o)
		require.NoError(t, err)
		require.Len(t, list, 5)
	}
	_, err = parseNVIDIA(Output{Stdout: string(text), ExitCode: 15})
	require.ErrorContains(t, err, "ended with code 15", "the list may be cut")
	_, err = parseNVIDIA(Output{Stdout: header + "\n0\n", Stderr: lost, ExitCode: 15})
	require.ErrorContains(t, err, "nvidia-smi")
}

func TestToolRunsOneProcessAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish, running := make(chan struct{}), 0
		tool, err := MooreThreads(Config{Run: func(ctx context.Context, _ int, _ string, _ ...string) (Output, error) {
			running++
			<-finish
			return Output{}, ctx.Err()
		}})
		require.NoError(t, err)
		done := make(chan error, 2)
		for range 2 {
			go func() { _, err := tool.Devices(t.Context()); done <- err }()
		}
		synctest.Wait()
		require.Equal(t, 1, running)
		require.ErrorIs(t, <-done, context.DeadlineExceeded, "the second waits for its turn and no longer than the timeout")
		synctest.Wait() // the time of the first is over as well
		close(finish)
		require.ErrorIs(t, <-done, context.DeadlineExceeded)
		require.Equal(t, 1, running)
	})
}
