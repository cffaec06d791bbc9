package actor

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func percentile(d []time.Duration, p float64) time.Duration {
	slices.Sort(d)
	return d[min(len(d)-1, int(float64(len(d))*p))]
}

// rawRoundTrip is one round trip of plain Go code over TCP, of a message as large as a
// small call.
func rawRoundTrip(b *testing.B, c net.Conn, buf []byte) {
	if _, err := c.Write(buf); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(c, buf); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRemoteCall compares a call to another process with a TCP round trip to the
// same process, interleaved in the same run.
func BenchmarkRemoteCall(b *testing.B) {
	n, child := withChild(b, Config{})
	ref := Ref{Node: "child", Name: "echo"}
	raw, err := net.Dial("tcp", child.raw)
	require.NoError(b, err)
	defer raw.Close()
	ctx := within(b, 10*time.Minute)
	buf := make([]byte, 40)
	var calls, raws []time.Duration
	block := func(samples *[]time.Duration, f func()) {
		for range 200 {
			begin := time.Now()
			f()
			*samples = append(*samples, time.Since(begin))
		}
	}
	call := func() {
		if _, err := n.Call(ctx, ref, testMessage{Seq: 1}); err != nil {
			b.Fatal(err)
		}
	}
	for range 5 { // warm up
		block(&calls, call)
		block(&raws, func() { rawRoundTrip(b, raw, buf) })
	}
	calls, raws = nil, nil
	for b.Loop() {
		block(&calls, call)
		block(&raws, func() { rawRoundTrip(b, raw, buf) })
	}

	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	callP50, callP99 := percentile(calls, 0.5), percentile(calls, 0.99)
	rawP50, rawP99 := percentile(raws, 0.5), percentile(raws, 0.99)
	b.ReportMetric(us(callP50), "call-p50-µs")
	b.ReportMetric(us(callP99), "call-p99-µs")
	b.ReportMetric(us(rawP50), "tcp-p50-µs")
	b.ReportMetric(us(rawP99), "tcp-p99-µs")
	b.ReportMetric(float64(callP50)/float64(rawP50), "p50-ratio")
	b.ReportMetric(float64(callP99)/float64(rawP99), "p99-ratio")
}

// BenchmarkRemoteCast casts to a process of another OS process, which counts them and
// checks their order.
func BenchmarkRemoteCast(b *testing.B) {
	n, _ := withChild(b, Config{})
	ref := Ref{Node: "child", Name: "count"}
	ctx := within(b, 10*time.Minute)
	seq := int64(0)
	m := &testPointer{}
	for b.Loop() {
		m.Seq = seq
		seq++
		if err := n.Cast(ctx, ref, m); err != nil {
			b.Fatal(err)
		}
	}
	got, err := Call[testMessage](ctx, n, ref, "count")
	require.NoError(b, err)
	require.Equal(b, testMessage{Seq: seq, Text: "0"}, got, "all arrived, in order")
	b.ReportMetric(float64(seq)/b.Elapsed().Seconds(), "casts/s")
}

// BenchmarkLocalCast casts within one node until all are handled.
func BenchmarkLocalCast(b *testing.B) {
	n := startNode(b, Config{})
	k := &counter{}
	ref, err := n.Spawn(context.Background(), "count", k, Options{})
	require.NoError(b, err)
	ctx := within(b, 10*time.Minute)
	ms := make([]testPointer, 1<<20)
	seq := int64(0)
	for b.Loop() {
		m := &ms[seq&(1<<20-1)]
		m.Seq = seq
		seq++
		if err := n.Cast(ctx, ref, m); err != nil {
			b.Fatal(err)
		}
	}
	got, err := Call[testMessage](ctx, n, ref, "count")
	require.NoError(b, err)
	require.Equal(b, testMessage{Seq: seq, Text: "0"}, got)
	b.ReportMetric(float64(seq)/b.Elapsed().Seconds(), "casts/s")
}

// BenchmarkLocalCall is a call within one node.
func BenchmarkLocalCall(b *testing.B) {
	n := startNode(b, Config{})
	ref, err := n.Spawn(context.Background(), "echo", ActorFunc(echo), Options{})
	require.NoError(b, err)
	ctx := within(b, 10*time.Minute)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := n.Call(ctx, ref, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkParallelCall has many callers of a process in another OS process.
func BenchmarkParallelCall(b *testing.B) {
	n, _ := withChild(b, Config{})
	ref := Ref{Node: "child", Name: "echo"}
	ctx := within(b, 10*time.Minute)
	const callers = 64
	begin := time.Now()
	total := 0
	for b.Loop() {
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range 100 {
					if _, err := n.Call(ctx, ref, testMessage{Seq: 1}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		total += callers * 100
	}
	b.ReportMetric(float64(total)/time.Since(begin).Seconds(), "calls/s")
}

// BenchmarkTwoNodeCast is BenchmarkRemoteCast within one OS process, for profiles.
func BenchmarkTwoNodeCast(b *testing.B) {
	n, far := pair(b)
	ref, err := far.Spawn(context.Background(), "count", &counter{}, Options{})
	require.NoError(b, err)
	ctx := within(b, 10*time.Minute)
	m := &testPointer{}
	b.ReportAllocs()
	for b.Loop() {
		if err := n.Cast(ctx, ref, m); err != nil {
			b.Fatal(err)
		}
		m.Seq++
	}
	_, err = n.Call(ctx, ref, "count")
	require.NoError(b, err)
}
