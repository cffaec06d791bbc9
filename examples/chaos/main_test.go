package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
)

// TestMain turns the test binary into the program for the processes that it starts.
func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// output is what the program writes, from several goroutines.
type output struct {
	mu   sync.Mutex
	text strings.Builder
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

// TestSmoke is the whole program, on little data.
func TestSmoke(t *testing.T) {
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "result.json")
	out := new(output)
	err := run(ctx, []string{
		"-duration", "6s", "-seed", "3", "-workers", "2", "-images", "2000", "-test-images", "1000", "-batch", "32", "-json", path,
	}, out, out)
	require.NoError(t, err, "%v", out)
	// One more is the one on which Eventually asks.
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 10*time.Second, 10*time.Millisecond, "goroutines are left over")
	require.Contains(t, out.String(), "pushes acknowledged")

	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var result struct {
		Faults []struct {
			AtMS       float64 `json:"at_ms"`
			Kind       string  `json:"kind"`
			Target     string  `json:"target"`
			RecoveryMS float64 `json:"recovery_ms"`
		} `json:"faults"`
		Recovery struct {
			P50 float64 `json:"p50"`
			P99 float64 `json:"p99"`
			Max float64 `json:"max"`
		} `json:"recovery_ms"`
		Steps        int64    `json:"steps"`
		Acknowledged int64    `json:"pushes_acknowledged"`
		Lost         *int64   `json:"lost"`
		Doubled      *int64   `json:"doubled"`
		Accuracy     float64  `json:"test_accuracy"`
		Baseline     *float64 `json:"baseline_accuracy"`
	}
	require.NoError(t, json.Unmarshal(content, &result))
	require.NotEmpty(t, result.Faults)
	for i, x := range result.Faults {
		require.Positive(t, x.RecoveryMS)
		require.LessOrEqual(t, x.RecoveryMS, result.Recovery.Max)
		if i > 0 {
			require.Greater(t, x.AtMS, result.Faults[i-1].AtMS)
		}
	}
	require.LessOrEqual(t, result.Recovery.P50, result.Recovery.P99)
	require.Positive(t, result.Steps)
	require.GreaterOrEqual(t, result.Acknowledged, result.Steps*17, "15 pieces of the model and 2 rows of a probe")
	require.Zero(t, *result.Lost)
	require.Zero(t, *result.Doubled)
	require.Greater(t, result.Accuracy, 0.7)
	require.InDelta(t, *result.Baseline, result.Accuracy, 0.1)
}

// TestFinishTellsWhatIsWrong: what was lost or doubled makes the program fail.
func TestFinishTellsWhatIsWrong(t *testing.T) {
	for want, r := range map[string]result{
		"2 pushes were lost and 0 applied twice": {with: outcome{lost: 2}},
		"0 pushes were lost and 3 applied twice": {without: outcome{doubled: 3}},
		"with all its copies: shard 6":           {with: outcome{gone: "shard 6"}},
	} {
		require.ErrorContains(t, r.finish(settings{}, io.Discard), want)
	}
	require.NoError(t, result{}.finish(settings{}, io.Discard))
}

func TestScheduleDependsOnTheSeedOnly(t *testing.T) {
	row := func(seed uint64, store string) (faults []fault) {
		sched := settings{Seed: seed, NumServers: 3, NumWorkers: 2, Etcd: store}.newSchedule()
		for range 1000 {
			faults = append(faults, sched.next())
		}
		return faults
	}
	require.Equal(t, row(1, ""), row(1, ""))
	require.NotEqual(t, row(1, ""), row(2, ""))
	seen := map[string]int{}
	for _, x := range row(1, "127.0.0.1:2379") {
		seen[string(x.kind)+" "+x.on()]++
		require.GreaterOrEqual(t, x.hold, leastHold)
		require.LessOrEqual(t, x.hold, mostHold)
	}
	for _, want := range []string{"kill server", "cut server", "cut-in server", "cut-out server", "kill worker", "kill controller", "cut etcd"} {
		require.Positive(t, seen[want], want)
	}
	require.Zero(t, seen["kill etcd"])
	for _, x := range row(1, "") {
		require.NotEqual(t, etcd, x.target)
	}
}

// TestRecovery: what counts is the last disturbed round, or the first one if none was.
func TestRecovery(t *testing.T) {
	zero := time.Now()
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	rounds := func(ends ...int) *prober {
		p := new(prober) // pairs of begin and end; a negative end has failed
		for i := 0; i < len(ends); i += 2 {
			r := round{began: at(ends[i]), ended: at(int(math.Abs(float64(ends[i+1]))))}
			if ends[i+1] < 0 {
				r.err = ps.ErrUnavailable
			}
			p.rounds = append(p.rounds, r)
		}
		return p
	}
	for name, tc := range map[string]struct {
		rounds []int
		want   int
	}{
		"nothing noticed":           {[]int{90, 110, 120, 140, 150, 160}, 40},
		"one that was under way":    {[]int{90, 900, 910, 920}, 800},
		"disturbed again":           {[]int{120, 140, 150, 600, 610, 620, 630, 1000, 1010, 1020}, 900},
		"failed at once":            {[]int{120, -130, 150, 160}, 30},
		"late before the fault":     {[]int{10, 99, 110, 120}, 20},
		"late after all is healthy": {[]int{110, 120, 2100, 2900}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			p := rounds(tc.rounds...)
			require.Equal(t, time.Duration(tc.want)*time.Millisecond, p.recovery(at(100), at(2000)))
		})
	}
	p := rounds(10, 20, 30, -40)
	require.True(t, p.since(at(10)))
	require.False(t, p.since(at(11)), "the second one has failed")
}

// echoes accepts connections and sends back what comes, until the test ends.
func echoes(t *testing.T, addr string) {
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { _, _ = io.Copy(nc, nc); _ = nc.Close() })
		}
	})
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { _ = l.Close() })
}

// TestProgramsAtTheSameTime: an address that one program has found free is given to no process
// of another, nor a second time.
func TestProgramsAtTheSameTime(t *testing.T) {
	given := map[string]bool{}
	for range 3 {
		p, err := newPorts()
		require.NoError(t, err)
		defer p.Close()
		for range 5*maxServers + 2 { // as many as a fleet needs
			addr, err := p.free()
			require.NoError(t, err)
			require.False(t, given[addr], addr)
			given[addr] = true
		}
	}
}

// TestLink cuts each direction: bytes wait, in order, and go on afterwards.
func TestLink(t *testing.T) {
	p, err := newPorts()
	require.NoError(t, err)
	defer p.Close()
	target, err := p.free()
	require.NoError(t, err)
	echoes(t, target)
	k, err := newLink(p, target)
	require.NoError(t, err)
	defer k.down()
	nc, err := net.Dial("tcp", k.addr)
	require.NoError(t, err)
	defer nc.Close()
	say := func(text string) {
		t.Helper()
		_, err := nc.Write([]byte(text))
		require.NoError(t, err)
	}
	hear := func(want string, within time.Duration) error {
		got := make([]byte, len(want))
		_ = nc.SetReadDeadline(time.Now().Add(within))
		_, err := io.ReadFull(nc, got)
		if err == nil && string(got) != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		return err
	}
	say("a")
	require.NoError(t, hear("a", 10*time.Second))
	for _, d := range []direction{toTarget, fromTarget} {
		k.cut(d)
		say("b")
		require.ErrorIs(t, hear("b", 50*time.Millisecond), os.ErrDeadlineExceeded)
		k.heal(d)
		require.NoError(t, hear("b", 10*time.Second))
	}

	k.down()
	require.Error(t, hear("x", 10*time.Second), "the connection has ended")
	_, err = net.Dial("tcp", k.addr)
	require.Error(t, err, "nobody is there")
	require.NoError(t, k.up())
	nc, err = net.Dial("tcp", k.addr)
	require.NoError(t, err)
	defer nc.Close()
	say("c")
	require.NoError(t, hear("c", 10*time.Second))
}

func TestFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"-duration is 0s, want over 0":      {"-duration", "0"},
		"-servers is 1, want 2 to 64":       {"-servers", "1"},
		"-workers is 65, want 1 to 64":      {"-workers", "65"},
		"-images is -1":                     {"-images", "-1"},
		"-batch is 0":                       {"-batch", "0"},
		"-logs: mkdir /dev/null":            {"-logs", "/dev/null/logs"},
		`-etcd "nowhere"`:                   {"-etcd", "nowhere"},
		`-etcd: etcdstore: open`:            {"-etcd", "127.0.0.1:1"},
		"/does/not/exist/r.json":            {"-json", "/does/not/exist/r.json"},
		`"foo" is not a flag`:               {"foo"},
		"were not found in /does/not/exist": {"-data", "/does/not/exist"},
	} {
		var out bytes.Buffer
		require.ErrorContains(t, run(t.Context(), args, &out, &out), want)
	}
}

// TestInterrupt ends a run in the middle of its faults: nothing is left.
func TestInterrupt(t *testing.T) {
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := new(output)
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-duration", "10m", "-images", "500", "-test-images", "100", "-workers", "1"}, out, out)
	}()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "recovered after") }, 50*time.Second, 20*time.Millisecond, "%v", out)
	cancel()
	err := <-ended
	require.True(t, errors.Is(err, context.Canceled), "%v", err)
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 10*time.Second, 10*time.Millisecond, "goroutines are left over")
}
