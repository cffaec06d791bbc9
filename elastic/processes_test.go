//go:build unix

package elastic

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/shard"
)

// roleVariable makes the test binary play a server process instead of running tests.
const roleVariable = "ELASTICPS_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		playRole(role)
		return
	}
	os.Exit(m.Run())
}

func playRole(role string) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	switch role {
	case "server":
		fmt.Println("hello")
		fmt.Println("READY")
		<-signals
		fmt.Print("bye without a line end")
	case "deaf":
		fmt.Println("READY")
		select {}
	case "mute":
		select {}
	case "broken":
		fmt.Fprintln(os.Stderr, "no such model")
		os.Exit(3)
	case "parent": // starts a server, says its process id, and waits to be killed
		p, err := NewProcesses(ProcessConfig{Command: roleCommand("deaf"), Ready: "READY"})
		if err == nil {
			err = p.Start(context.Background(), "child")
		}
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("child", p.running["child"].cmd.Process.Pid)
		select {}
	}
}

func roleCommand(role string) func(shard.ServerID) *exec.Cmd {
	return func(shard.ServerID) *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), roleVariable+"="+role)
		return cmd
	}
}

func newProcesses(t *testing.T, c ProcessConfig) *Processes {
	t.Helper()
	p, err := NewProcesses(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// alive reports whether a process exists that is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return fields[0] != "Z"
}

func TestProcessesStartAndStop(t *testing.T) {
	var out lockedBuffer
	p := newProcesses(t, ProcessConfig{Command: roleCommand("server"), Ready: "READY", Output: &out})
	ctx := deadline(t)
	require.NoError(t, p.Start(ctx, "ps-1"))
	require.NoError(t, p.Start(ctx, "ps-2"))
	require.ErrorIs(t, p.Start(ctx, "ps-1"), ErrServerExists)
	pid := p.running["ps-1"].cmd.Process.Pid
	require.NoError(t, p.Stop(ctx, "ps-1"))
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "reaped")
	require.Contains(t, out.String(), "ps-1: hello\nps-1: READY\n")
	require.Contains(t, out.String(), "ps-1: bye without a line end\n", "it ended by SIGTERM")
	require.ErrorIs(t, p.Stop(ctx, "ps-1"), ErrUnknownServer)
	require.NoError(t, p.Start(ctx, "ps-1"), "the name is free again")
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Start(ctx, "ps-1"), ErrProviderClosed)
}

func TestProcessesKillsWhatDoesNotEnd(t *testing.T) {
	p := newProcesses(t, ProcessConfig{Command: roleCommand("deaf"), Ready: "READY", Grace: 100 * time.Millisecond})
	require.NoError(t, p.Start(deadline(t), "ps-1"))
	pid := p.running["ps-1"].cmd.Process.Pid
	require.NoError(t, p.Stop(deadline(t), "ps-1"))
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)

	require.NoError(t, p.Start(deadline(t), "ps-1"))
	p.config.Grace = time.Hour
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	require.NoError(t, p.Stop(ctx, "ps-1"), "the end of the context cuts the grace short")
}

func TestProcessesThatDoNotStart(t *testing.T) {
	p := newProcesses(t, ProcessConfig{Command: roleCommand("broken"), Ready: "READY"})
	err := p.Start(deadline(t), "ps-1")
	require.ErrorContains(t, err, `server "ps-1" ended before it was ready: exit status 3; its last line: "no such model"`)
	require.ErrorIs(t, p.Stop(deadline(t), "ps-1"), ErrUnknownServer)

	p = newProcesses(t, ProcessConfig{Command: roleCommand("mute"), Ready: "READY"})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Start(ctx, "ps-1"), context.DeadlineExceeded)
	require.Empty(t, p.running)

	p = newProcesses(t, ProcessConfig{Command: func(shard.ServerID) *exec.Cmd { return exec.Command("/nonexistent/server") }})
	require.ErrorIs(t, p.Start(deadline(t), "ps-1"), os.ErrNotExist)

	p = newProcesses(t, ProcessConfig{Command: func(shard.ServerID) *exec.Cmd { return nil }, MaxProcesses: 1})
	require.ErrorContains(t, p.Start(deadline(t), "ps-1"), "Command returned nil")

	p = newProcesses(t, ProcessConfig{Command: roleCommand("deaf"), Ready: "READY", MaxProcesses: 1, Grace: time.Millisecond})
	require.NoError(t, p.Start(deadline(t), "ps-1"))
	require.ErrorContains(t, p.Start(deadline(t), "ps-2"), "1 processes run, at most 1")
}

func TestProcessThatEndedByItselfIsForgotten(t *testing.T) {
	p := newProcesses(t, ProcessConfig{Command: roleCommand("server"), Ready: "READY"})
	require.NoError(t, p.Start(deadline(t), "ps-1"))
	c := p.running["ps-1"]
	require.NoError(t, c.cmd.Process.Kill())
	<-c.ended
	require.NoError(t, p.Stop(deadline(t), "ps-1"))
	require.NoError(t, p.Start(deadline(t), "ps-1"))
}

// TestServersEndWithTheirParent kills a process that runs a server and looks whether
// the kernel ends the server.
func TestServersEndWithTheirParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a death signal")
	}
	parent := roleCommand("parent")("")
	stdout, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	text, ok := strings.CutPrefix(strings.TrimSpace(line), "child ")
	require.True(t, ok, line)
	pid, err := strconv.Atoi(text)
	require.NoError(t, err)
	require.True(t, alive(pid))
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	require.Eventually(t, func() bool { return !alive(pid) }, 10*time.Second, 5*time.Millisecond)
}

func TestProcessConfig(t *testing.T) {
	_, err := NewProcesses(ProcessConfig{Grace: -1, MaxProcesses: -1})
	require.ErrorContains(t, err, "no Command")
	require.ErrorContains(t, err, "Grace -1ns")
	require.ErrorContains(t, err, "MaxProcesses -1")
}

func TestLineWriterCutsLongLines(t *testing.T) {
	var out bytes.Buffer
	w := newLineWriter(new(sync.Mutex), &out, "> ", "")
	n, err := w.Write(bytes.Repeat([]byte{'x'}, 3*maxLine+5))
	require.NoError(t, err)
	require.Equal(t, 3*maxLine+5, n)
	require.LessOrEqual(t, cap(w.partial), 2*maxLine)
	w.flush()
	require.Equal(t, 4, strings.Count(out.String(), "\n"))
	require.Equal(t, 3*maxLine+5, strings.Count(out.String(), "x"))
	_, _ = w.Write([]byte("a\nb"))
	_, _ = w.Write([]byte("c\n\n"))
	require.True(t, strings.HasSuffix(out.String(), "> a\n> bc\n> \n"))
}
