package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMedianAndQuantile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for name, tc := range map[string]struct {
		values        []float64
		median        float64
		p50, p99, max float64
	}{
		"none":    {nil, 0, 0, 0, 0},
		"one":     {[]float64{7}, 7, 7, 7, 7},
		"two":     {[]float64{4, 1}, 2.5, 1, 4, 4},
		"odd":     {[]float64{9, 1, 5}, 5, 5, 9, 9},
		"hundred": {hundred, 50.5, 50, 99, 100},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(tc.values)
			require.Equal(t, tc.median, median(tc.values))
			require.Equal(t, tc.p50, quantile(tc.values, 0.5))
			require.Equal(t, tc.p99, quantile(tc.values, 0.99))
			require.Equal(t, tc.max, quantile(tc.values, 1))
			require.Equal(t, before, tc.values, "the series is not sorted in place")
		})
	}
}

func TestRows(t *testing.T) {
	r := compared("push.tcp", mib, "GB/s", 1e-9, []float64{3e9, 1e9, 2e9}, []float64{5e9, 4e9, 3e9})
	require.InDelta(t, 2, r.Value, 1e-9)
	require.InDelta(t, 4, *r.Limit, 1e-9)
	require.InDelta(t, 0.5, *r.Ratio, 1e-9)
	require.InDeltaSlice(t, []float64{1, 3}, r.Range[:], 1e-9)
	require.Equal(t, 3, r.Repeats)

	r = measured("limit.copy", mib, "GB/s", 1, []float64{4})
	require.Nil(t, r.Limit)
	require.Nil(t, r.Ratio)
	require.Nil(t, r.against(0).Ratio, "no ratio to nothing")
}

func TestTargets(t *testing.T) {
	for _, tc := range []struct {
		name   string
		size   int64
		text   string
		value  float64
		limit  float64
		missed bool
	}{
		{"push.tcp", mib, ">= 0.88", 0.87, 1, true},
		{"push.tcp", mib, ">= 0.88", 0.88, 1, false},
		{"push.tcp", 4 * kib, "-", 0.01, 1, false},
		{"push.latency.unix.p50", 64, "<= 1.30", 1.31, 1, true},
		{"push.latency.unix.p99", 64, "<= 2.50", 2.4, 1, false},
		{"push.rate", 64, ">= 1.00M abs", 999_999, 1e7, true},
		{"push.rate", 64, ">= 1.00M abs", 1e6, 1e7, false},
		{"migrate", gib, ">= 0.70", 0.5, 1, true},
		{"migrate.freeze.p99", gib, "<= 5.00 abs", 5.1, 0, true},
		{"migrate.freeze.max", gib, "-", 99, 0, false},
		{"optimizer.adam", 64 * mib, ">= 0.80", 0.9, 1, false},
		{"optimizer.adam.cache", mib, ">= 8.00", 7.9, 1, true},
		{"limit.tcp", mib, "-", 1, 0, false},
	} {
		target := targetOf(tc.name, tc.size)
		require.Equal(t, tc.text, target.String(), tc.name)
		r := row{Value: tc.value}
		if tc.limit != 0 {
			r = r.against(tc.limit)
		}
		require.Equal(t, tc.missed, target.missed(r), "%s %v", tc.name, tc.value)
	}
}

// Case 26 of collectives: bandwidths of the bus have the factors of nccl-tests, and bounds the
// bytes that all ranks together send at least.
func TestBusFactors(t *testing.T) {
	const n, parts = float64(numRanks), float64(numRanks-1) / numRanks
	want := map[string][2]float64{ // bus, wire
		"allreduce": {2 * parts, 2 * (n - 1)}, "broadcast": {1, n - 1},
		"reducescatter": {parts, n - 1}, "allgather": {parts, n - 1}, "alltoall": {parts, n - 1},
	}
	got := map[string][2]float64{}
	for _, op := range append(operations(), allReduce()) {
		got[op.name] = [2]float64{op.bus, op.wire}
	}
	require.Equal(t, want, got)
}

// TestTargetNames finds targets of rows that no longer are.
func TestTargetNames(t *testing.T) {
	names := rowNames(allFamilies())
	for _, target := range targets() {
		before, after, _ := strings.Cut(target.name, "*")
		fits := func(name string) bool { return strings.HasPrefix(name, before) && strings.HasSuffix(name, after) }
		unix := strings.Contains(target.name, "unix") && !hasUnix
		require.True(t, unix || slices.ContainsFunc(names, fits), target.name)
	}
	slices.Sort(names)
	require.Equal(t, names, slices.Compact(slices.Clone(names)), "every name once")
}

func TestReport(t *testing.T) {
	var out bytes.Buffer
	r, err := newReport(options{only: []string{"push"}}, &out)
	require.NoError(t, err)
	require.NoError(t, r.add(compared("push.tcp", mib, "GB/s", 1, []float64{2}, []float64{4})))
	require.NoError(t, r.add(measured("pull.tcp", mib, "GB/s", 1, []float64{1})))
	require.ErrorContains(t, r.add(row{Name: "push.rate", Value: math.NaN()}), "push.rate")
	r.summarize()
	require.NoError(t, r.close())
	require.Contains(t, out.String(), "below")
	require.NotContains(t, out.String(), "pull.tcp")
	require.Contains(t, out.String(), "1 rows, 1 below their targets: push.tcp 1 MiB\n")
}

func TestNumbers(t *testing.T) {
	for want, v := range map[string]float64{
		"1.23M": 1.234e6, "12.3k": 12345, "1234": 1234, "123": 123.4, "12.3": 12.34, "1.23": 1.234, "0.00": 0, "0.0012": 0.00123,
	} {
		require.Equal(t, want, number(v))
	}
	for want, n := range map[string]int64{
		"64 B": 64, "4 KiB": 4096, "1 MiB": mib, "1 GiB": gib, "1.5 MiB": mib + mib/2, "1000 B": 1000, "1.0 MiB": mib + 4,
	} {
		require.Equal(t, want, sizeText(n))
	}
}

// TestAlternate takes turns, the order changing, with a warm-up that does not count.
func TestAlternate(t *testing.T) {
	var calls []string
	record := func(name string, figures ...float64) probe {
		return func(context.Context, time.Duration) ([]float64, error) {
			calls = append(calls, name)
			return figures, nil
		}
	}
	b := &bench{options: options{quick: true}}
	p, err := b.alternate(t.Context(), record("limit", 1), record("product", 2, 3))
	require.NoError(t, err)
	require.Equal(t, strings.Fields("limit product limit product product limit limit product"), calls)
	require.Equal(t, [][]float64{{1, 1, 1}}, p.limit)
	require.Equal(t, [][]float64{{2, 2, 2}, {3, 3, 3}}, p.product)

	broken := errors.New("broken")
	_, err = b.alternate(t.Context(), nil, func(context.Context, time.Duration) ([]float64, error) { return nil, broken })
	require.ErrorIs(t, err, broken)
}

func TestDrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate, err := drive(t.Context(), 3, 2, time.Second, func(context.Context, int) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		require.NoError(t, err)
		require.InDelta(t, 30, rate, 1e-6)
	})
	broken := errors.New("broken")
	var calls atomic.Int64
	_, err := drive(t.Context(), 2, 1, time.Minute, func(context.Context, int) error {
		if calls.Add(1) == 10 {
			return broken
		}
		return nil
	})
	require.ErrorIs(t, err, broken)
}

// TestWitness sees a gap that lasts beyond the time that is asked about.
func TestWitness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := witness{last: time.Now()}
		w.acknowledged()
		w.reset()
		time.Sleep(time.Millisecond)
		w.acknowledged()
		go func() {
			time.Sleep(5 * time.Millisecond)
			w.acknowledged()
		}()
		gap, err := w.longest(t.Context())
		require.NoError(t, err)
		require.Equal(t, 5*time.Millisecond, gap)
		_, err = w.longest(t.Context()) // nobody pushes any more
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// TestRawHostile sends what no client of ours does: the server closes the connection.
func TestRawHostile(t *testing.T) {
	s, err := startRawServer(t.Context())
	require.NoError(t, err)
	defer s.close()
	for _, e := range []exchange{{0, 1}, {maxExchange + 1, 0}, {1, maxExchange + 1}} {
		conn, err := net.Dial("tcp", s.tcp)
		require.NoError(t, err)
		_, err = conn.Write(e.encode())
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
		n, err := conn.Read(make([]byte, 1))
		require.Zero(t, n)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Error(t, err)
		require.NoError(t, conn.Close())
	}
	c, err := dialRaw(t.Context(), "tcp", s.tcp, exchange{in: 10, out: 3 * rawChunk})
	require.NoError(t, err)
	require.NoError(t, c.turn())
	require.NoError(t, c.turn())
	require.NoError(t, c.Close())
}

func TestProcessors(t *testing.T) {
	p, ok := parseStat("cpu  100 10 20 5000 7 3 4 50 0 0")
	require.True(t, ok)
	require.Equal(t, 1370*time.Millisecond, p.busy)
	require.Equal(t, 500*time.Millisecond, p.stolen)
	for _, bad := range []string{"", "cpu 1 2", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 x 5 6 7 8"} {
		_, ok := parseStat(bad)
		require.False(t, ok, bad)
	}
	now := time.Now()
	before := processors{at: now}
	after := processors{at: now.Add(10 * time.Second), busy: 12 * time.Second, stolen: time.Second}
	require.Equal(t, "other programs used 10 % of the processors, other guests of the host 5 %", others(before, after, 10*time.Second, 2))
	require.Contains(t, others(before, after, 13*time.Second, 2), "used 0 %")
}

// TestTwin measures in this process what another one is asked for.
func TestTwin(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, runTwin(t.Context(), strings.NewReader("1ms\n1ms\n"), &out))
	require.Len(t, strings.Fields(out.String()), 2)
	require.ErrorContains(t, runTwin(t.Context(), strings.NewReader("soon\n"), &out), "soon")
}

// TestZipf draws ids and compares how often with the law, and with how many are different.
func TestZipf(t *testing.T) {
	const n = 1000
	counts := make([]float64, n)
	all := 0.0
	for _, ids := range batchesOf(zipf, n) {
		require.Len(t, ids, batchIDs)
		for _, id := range ids {
			counts[id]++
			all++
		}
	}
	harmonic := 0.0
	for k := range n {
		harmonic += 1 / float64(k+1)
	}
	for k, count := range counts {
		want := all / harmonic / float64(k+1)
		require.InDelta(t, want, count, 6*math.Sqrt(want), "id %d", k)
	}
	even := batchesOf(uniform, n)
	require.InDelta(t, n*(1-math.Exp(-float64(batchIDs)/n))/batchIDs, distinctShare(even), 0.001)
	require.Equal(t, 0.5, distinctShare([][]int64{{1, 2, 1, 2}, {7, 8, 8, 7}}))
	require.Equal(t, even, batchesOf(uniform, n), "every run has the same")
}

// TestRedis talks to a server that reads commands and answers them, then wrongly.
func TestRedis(t *testing.T) {
	get := redisOp{"hmget", true, false}
	require.Equal(t, "*4\r\n$5\r\nHMGET\r\n$15\r\nelasticps-bench\r\n$8\r\n\x01\x00\x00\x00\x00\x00\x00\x00\r\n$8\r\n\x02\x00\x00\x00\x00\x00\x00\x00\r\n",
		string(get.command([]int64{1, 2}, nil)))
	require.Equal(t, "*3\r\n$4\r\nMSET\r\n$8\r\n\x01\x00\x00\x00\x00\x00\x00\x00\r\n$1\r\nx\r\n",
		string(redisOp{"mset", false, true}.command([]int64{1}, []byte("x"))))
	command, answer := get.command([]int64{1, 2}, nil), get.answer(2)
	require.Equal(t, 4+2*(5+redisBytes+2), len(answer))

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	const rounds = 100
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			served <- err
			return
		}
		defer conn.Close()
		got := make([]byte, len(command))
		for i := 0; ; i++ {
			if _, err := io.ReadFull(conn, got); err != nil {
				served <- nil
				return
			}
			reply := slices.Clone(answer)
			if i >= rounds {
				reply[0] = '-'
			}
			if _, err := conn.Write(reply); err != nil || !bytes.Equal(got, command) {
				served <- fmt.Errorf("%q: %w", got, err)
				return
			}
		}
	}()
	c, err := dialRedis(t.Context(), l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, c.exchange(t.Context(), slices.Repeat([][]byte{command}, rounds), answer))
	require.ErrorContains(t, c.exchange(t.Context(), [][]byte{command}, answer), `instead of "*2\r\n`)
	require.NoError(t, <-served)
	b := &bench{options: options{only: []string{"redis.mget"}}}
	require.ErrorIs(t, b.measureRedis(t.Context()), errUsage)
}
