package stream_test

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/elasticps/elasticps/internal/stream"
)

func percentile(d []time.Duration, p float64) time.Duration {
	slices.Sort(d)
	return d[int(float64(len(d)-1)*p)]
}

// BenchmarkPingPong alternates blocks of round trips over plain net.Conns and over
// Conns, so that both see the same machine.
func BenchmarkPingPong(b *testing.B) {
	const size, block = 64, 200
	for _, network := range []string{"tcp", "unix"} {
		b.Run(network, func(b *testing.B) {
			rawA, rawB := socketPair(b, network)
			defer rawA.Close()
			defer rawB.Close()
			go echoRaw(rawB, size)
			a, z := streamPair(b, network, stream.Config{})
			go echo(z, size)
			p := make([]byte, size)
			var raw, ours []time.Duration
			for b.Loop() {
				for range block {
					begin := time.Now()
					if _, err := rawA.Write(p); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(rawA, p); err != nil {
						b.Fatal(err)
					}
					raw = append(raw, time.Since(begin))
				}
				for range block {
					begin := time.Now()
					if err := a.Send(p); err != nil {
						b.Fatal(err)
					}
					if _, err := a.Next(size); err != nil {
						b.Fatal(err)
					}
					ours = append(ours, time.Since(begin))
				}
			}
			r50, o50 := percentile(raw, 0.5), percentile(ours, 0.5)
			b.ReportMetric(float64(r50.Nanoseconds()), "raw-p50-ns")
			b.ReportMetric(float64(o50.Nanoseconds()), "p50-ns")
			b.ReportMetric(float64(o50)/float64(r50), "p50-ratio")
			b.ReportMetric(float64(percentile(ours, 0.99))/float64(percentile(raw, 0.99)), "p99-ratio")
		})
	}
}

// echoRaw ends with its connection; the other side sees any failure.
func echoRaw(nc net.Conn, size int) {
	p := make([]byte, size)
	for {
		if _, err := io.ReadFull(nc, p); err != nil {
			return
		}
		if _, err := nc.Write(p); err != nil {
			return
		}
	}
}

// BenchmarkSendSmall sends 64 bytes at a time from 1 and from 8 goroutines; the
// reader counts them. pause is work between two sends of a goroutine.
func BenchmarkSendSmall(b *testing.B) {
	for _, senders := range []int{1, 8} {
		for _, pause := range []time.Duration{0, time.Microsecond, 4 * time.Microsecond} {
			b.Run(fmt.Sprintf("senders=%d/pause=%v", senders, pause), func(b *testing.B) {
				benchmarkSendSmall(b, senders, pause)
			})
		}
	}
}

func benchmarkSendSmall(b *testing.B, senders int, pause time.Duration) {
	const size, perLoop = 64, 8000
	a, z := streamPair(b, "tcp", stream.Config{})
	p := make([]byte, size)
	sends := 0
	begin := time.Now()
	for b.Loop() {
		got := receiveAsync(perLoop, func() error { _, err := z.Next(size); return err })
		var wg sync.WaitGroup
		for range senders {
			wg.Go(func() {
				for range perLoop / senders {
					if a.Send(p) != nil {
						return // the reader fails too
					}
					spin(pause)
				}
			})
		}
		wg.Wait()
		if err := <-got; err != nil {
			b.Fatal(err)
		}
		sends += perLoop
	}
	b.ReportMetric(float64(sends)/time.Since(begin).Seconds(), "sends/s")
}

func spin(d time.Duration) {
	for begin := time.Now(); d > 0 && time.Since(begin) < d; {
	}
}

// receiveAsync calls receive n times and sends the first error, or nil.
func receiveAsync(n int, receive func() error) <-chan error {
	got := make(chan error, 1)
	go func() {
		for range n {
			if err := receive(); err != nil {
				got <- err
				return
			}
		}
		got <- nil
	}()
	return got
}

// BenchmarkSendBig alternates blocks of 1 MiB writes to a plain net.Conn, header
// and payload in one buffer, with sends of a header and a payload.
func BenchmarkSendBig(b *testing.B) {
	const header, payload, block = 64, 1 << 20, 64
	for _, network := range []string{"tcp", "unix"} {
		b.Run(network, func(b *testing.B) {
			rawA, rawB := socketPair(b, network)
			defer rawA.Close()
			defer rawB.Close()
			a, z := streamPair(b, network, stream.Config{})
			src, dst := make([]byte, header+payload), make([]byte, header+payload)
			timed := func(send, receive func() error) time.Duration {
				begin := time.Now()
				got := receiveAsync(block, receive)
				for range block {
					if err := send(); err != nil {
						b.Fatal(err)
					}
				}
				if err := <-got; err != nil {
					b.Fatal(err)
				}
				return time.Since(begin)
			}
			var raw, ours []time.Duration
			for b.Loop() {
				raw = append(raw, timed(
					func() error { _, err := rawA.Write(src); return err },
					func() error { _, err := io.ReadFull(rawB, dst); return err }))
				ours = append(ours, timed(
					func() error { return a.Send(src[:header], src[header:]) },
					func() error {
						if _, err := z.Next(header); err != nil {
							return err
						}
						return z.ReadFull(dst[header:])
					}))
			}
			r50, o50 := percentile(raw, 0.5), percentile(ours, 0.5)
			b.ReportMetric(block*(header+payload)/r50.Seconds()/1e9, "raw-GB/s")
			b.ReportMetric(block*(header+payload)/o50.Seconds()/1e9, "GB/s")
			b.ReportMetric(float64(r50)/float64(o50), "speed-ratio")
		})
	}
}
