package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/examples/internal/mnist/mnisttest"
	"github.com/elasticps/elasticps/ps"
)

// mainVariable turns the test binary into the program: its processes run this binary.
const mainVariable = "ELASTICPS_TEST_CLUSTER_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// small are the flags of a run of a few seconds: the same program, less data.
func small(t *testing.T, more ...string) []string {
	return append([]string{
		"-data", mnisttest.Small(t, 4800, 1000), "-batch", "32", "-epochs", "2", "-last-batch", "1200", "-last-epochs", "1",
		"-dwell", "200ms", "-dwell-down", "300ms", "-cooldown", "300ms", "-min-accuracy", "0.8",
	}, more...)
}

var processLine = regexp.MustCompile(`process (\d+)`)

// requireEnded requires that every process that the output names has ended, except
// this one.
func requireEnded(t *testing.T, output string) {
	t.Helper()
	found := processLine.FindAllStringSubmatch(output, -1)
	require.NotEmpty(t, found)
	for _, match := range found {
		pid, err := strconv.Atoi(match[1])
		require.NoError(t, err)
		if pid == os.Getpid() {
			continue
		}
		process, err := os.FindProcess(pid)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return process.Signal(syscall.Signal(0)) != nil }, 10*time.Second, 20*time.Millisecond,
			"process %d is left over", pid)
	}
}

type result struct {
	Accuracy float64 `json:"test_accuracy"`
	Servers  []struct {
		Count int `json:"count"`
	} `json:"servers"`
	Migrations   []any  `json:"migrations"`
	Acknowledged int64  `json:"pushes_acknowledged"`
	Applied      int64  `json:"pushes_applied"`
	Lost         *int64 `json:"lost"`
	Doubled      *int64 `json:"doubled"`
}

func readResult(t *testing.T, path string) (r result) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &r))
	return r
}

// output is what a program wrote, for readers on other goroutines.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// TestSmoke is the whole program: workers join late, leave early and are killed.
func TestSmoke(t *testing.T) {
	t.Setenv(mainVariable, "1")
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "result.json")
	var out output
	require.NoError(t, run(ctx, small(t, "-json", path), &out, &out), "%v", &out)
	text := out.String()
	requireEnded(t, text)
	// One more is the one on which Eventually asks.
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 10*time.Second, 10*time.Millisecond, "goroutines are left over")
	for _, want := range []string{
		"[ElasticController] Scaled PS: 1→2 Trigger: ", "early-leaver: left", "late-joiner: ready", "worker-2: SIGKILL", "worker-0: left", "worker-1: left",
	} {
		require.Contains(t, text, want)
	}
	r := readResult(t, path)
	require.Greater(t, r.Accuracy, 0.8)
	require.NotEmpty(t, r.Migrations)
	require.Equal(t, 1, r.Servers[len(r.Servers)-1].Count)
	require.Zero(t, *r.Lost)
	require.Zero(t, *r.Doubled)
	require.EqualValues(t, 304*17, r.Acknowledged)
	// The killed worker may have been in the middle of a step.
	require.GreaterOrEqual(t, r.Applied, r.Acknowledged)
	require.LessOrEqual(t, r.Applied, r.Acknowledged+17)
}

// start runs the program as a process of its own until it has said want, and returns
// it with its output so far.
func start(t *testing.T, want string, args ...string) (*exec.Cmd, *output) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), mainVariable+"=1")
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, unless the test has failed
	var out output
	said, closed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(closed)
		var once sync.Once
		lines := bufio.NewScanner(pipe)
		for lines.Scan() {
			_, _ = out.Write(append(lines.Bytes(), '\n'))
			if strings.Contains(lines.Text(), want) {
				once.Do(func() { close(said) })
			}
		}
	}()
	select {
	case <-said:
	case <-closed:
		t.Fatalf("it ended: %v", &out)
	case <-time.After(time.Minute):
		t.Fatalf("it did not say %q: %v", want, &out)
	}
	return cmd, &out
}

// TestEndedFromOutside ends the controller while it trains on several servers: nothing
// of it is left, whether it could do something about it or not.
func TestEndedFromOutside(t *testing.T) {
	for name, tc := range map[string]struct {
		signal os.Signal
		code   int
	}{"ctrl-c": {os.Interrupt, 130}, "kill": {os.Kill, -1}} {
		t.Run(name, func(t *testing.T) {
			if name == "kill" && runtime.GOOS != "linux" {
				t.Skip("only Linux ends the children of a process that was killed")
			}
			cmd, out := start(t, "Scaled PS: 1→2", small(t, "-epochs", "1000")...)
			require.NoError(t, cmd.Process.Signal(tc.signal))
			state := make(chan *os.ProcessState, 1)
			go func() { s, _ := cmd.Process.Wait(); state <- s }()
			select {
			case s := <-state:
				require.Equal(t, tc.code, s.ExitCode(), "%v", out)
			case <-time.After(30 * time.Second):
				t.Fatal("it did not end")
			}
			requireEnded(t, out.String())
		})
	}
}

var listens = regexp.MustCompile(`controller on (\S+),`)

// TestRolesByHand starts each role as one does on several hosts. The server that was
// started by hand takes part, and the worker that leaves early is not missed.
func TestRolesByHand(t *testing.T) {
	t.Setenv(mainVariable, "1") // for the servers that the controller starts
	const secret = "secret of the test"
	path := filepath.Join(t.TempDir(), "result.json")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out output
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, small(t, "-role", "controller", "-secret", secret, "-json", path, "-max-servers", "3"), &out, &out)
	}()
	require.Eventually(t, func() bool { return listens.MatchString(out.String()) }, time.Minute, 10*time.Millisecond)
	join := []string{"-controller", listens.FindStringSubmatch(out.String())[1], "-secret", secret, "-data", mnisttest.Small(t, 4800, 1000)}

	server := make(chan error, 1)
	go func() {
		server <- run(ctx, append([]string{"-role", "server", "-id", "by-hand"}, join...), &out, &out)
	}()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "data on 127.0.0.1") }, time.Minute, 10*time.Millisecond)
	workers := make(chan error, 3)
	for i, steps := range []string{"0", "0", "10"} {
		go func() {
			args := append([]string{"-role", "worker", "-name", "worker-" + strconv.Itoa(i), "-max-steps", steps}, join...)
			workers <- run(ctx, args, &out, &out)
		}()
	}
	for range 3 {
		require.NoError(t, <-workers, "%v", &out)
	}
	require.NoError(t, <-ended, "%v", &out)
	require.NoError(t, <-server)
	require.Contains(t, out.String(), "by-hand", "shards were on the server")
	require.Contains(t, out.String(), "\ndone\n")
	require.NotContains(t, out.String(), "the controller is gone")
	requireEnded(t, out.String())
	r := readResult(t, path)
	require.Zero(t, *r.Lost)
	require.Zero(t, *r.Doubled)
	require.Equal(t, r.Acknowledged, r.Applied)
}

// TestServerLeaves stops a server that was started by hand: it hands its shards over
// first.
func TestServerLeaves(t *testing.T) {
	t.Setenv(mainVariable, "1") // for the servers that the controller starts
	const secret = "secret of the test"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out output
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, small(t, "-role", "controller", "-secret", secret), &out, &out)
	}()
	require.Eventually(t, func() bool { return listens.MatchString(out.String()) }, time.Minute, 10*time.Millisecond)
	controller := listens.FindStringSubmatch(out.String())[1]

	stopped, stop := context.WithCancel(ctx)
	defer stop()
	server := make(chan error, 1)
	go func() {
		server <- run(stopped, []string{"-role", "server", "-id", "by-hand", "-controller", controller, "-secret", secret}, &out, &out)
	}()
	node, err := actor.Start(ctx, actor.Config{Name: "test", Listen: "127.0.0.1:0", Secret: secret})
	require.NoError(t, err)
	defer node.Close()
	peer, err := node.Connect(ctx, controller)
	require.NoError(t, err)
	admin, err := ps.NewAdmin(node, actor.Ref{Node: peer, Name: ps.CoordinatorProcess})
	require.NoError(t, err)
	owned := func() int {
		status, _ := admin.Status(ctx)
		for _, s := range status.Servers {
			if s.ID == "by-hand" {
				return s.Owned
			}
		}
		return 0
	}
	require.Eventually(t, func() bool { return owned() > 0 }, 30*time.Second, 20*time.Millisecond, "%v", &out)
	stop()
	require.NoError(t, <-server, "%v", &out)
	require.Regexp(t, `by-hand: draining, [1-9]\d* shards to move\n(?s:.*)by-hand: drained\n`, out.String())
	status, err := admin.Status(ctx)
	require.NoError(t, err)
	total := 0
	for _, s := range status.Servers {
		require.NotEqual(t, "by-hand", string(s.ID))
		total += s.Owned
	}
	require.Equal(t, status.Shards, total)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	requireEnded(t, out.String())
}

func TestFlags(t *testing.T) {
	data := mnisttest.Small(t, 4800, 1000)
	for want, args := range map[string][]string{
		`-role is "boss", want controller, server or worker`: {"-role", "boss"},
		"-role server needs -controller HOST:PORT":           {"-role", "server"},
		"-role server needs -id":                             {"-role", "server"},
		"-role worker needs -name":                           {"-role", "worker"},
		"-role controller needs -secret or $":                {"-role", "controller"},
		"-max-steps is -1, want 0 or more":                   {"-max-steps", "-1"},
		`-listen "nowhere"`:                                  {"-listen", "nowhere"},
		"is not loopback, want -insecure":                    {"-listen", "0.0.0.0:0"},
		`"foo" is not a flag`:                                {"foo"},
		`-json is "-", want a file`:                          {"-json", "-"},
		"/does/not/exist/r.json":                             {"-json", "/does/not/exist/r.json"},
		"Secret has 3 bytes":                                 {"-role", "controller", "-secret", "abc", "-data", data},
	} {
		var out bytes.Buffer
		require.ErrorContains(t, run(t.Context(), args, &out, &out), want)
	}
	var out bytes.Buffer
	require.ErrorIs(t, run(t.Context(), []string{"-help"}, &out, &out), flag.ErrHelp)
	require.True(t, strings.HasPrefix(out.String(), "cluster trains"))
}

// TestJoinNobody names the address when there is no controller, first and last.
func TestJoinNobody(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), remindAfter+500*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	err := run(ctx, []string{"-role", "server", "-id", "s", "-controller", "127.0.0.1:1", "-secret", "12345678"}, &out, &out)
	require.ErrorContains(t, err, "join the controller at 127.0.0.1:1")
	require.Equal(t, "waiting for the controller at 127.0.0.1:1\n", out.String())
}
