package ps_test

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// BenchmarkCheckpoint writes full checkpoints of 192 MiB of state while a worker pushes
// parts of 4 MiB, and says how fast that is beside a plain write with fsync of as many
// bytes to the same disk, and how many pushes there are beside none being written.
func BenchmarkCheckpoint(b *testing.B) {
	b.Run("fast", func(b *testing.B) { benchmarkCheckpoint(b, 0) })
	b.Run("paced", func(b *testing.B) { benchmarkCheckpoint(b, 64<<20) })
}

func benchmarkCheckpoint(b *testing.B, rate int64) {
	const elems = 16 << 20 // 64 MiB, with two slots
	dir := b.TempDir()
	job := ps.Job{Model: shard.Model{Layers: []shard.Layer{layer("x", elems/1024, 1024)}}, Optimizer: ps.Adam(1e-3), MaxShardBytes: 4 << 20}
	c := newCluster(b, job, saving(checkpoint.Folder(dir), func(c *ps.CheckpointConfig) { c.FullEvery, c.Keep, c.BytesPerSecond = 1, 1, rate }))
	c.within(10 * time.Minute)
	c.server("s1")
	w := c.worker("w")
	var pushed atomic.Int64
	ctx, stop := context.WithCancel(c.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		grad := vector(1<<20, 1)
		for i := 0; ctx.Err() == nil; i++ {
			if w.PushRange(ctx, "x", i%16*1024, grad) == nil {
				pushed.Add(1)
			}
		}
	}()
	pace := func(f func()) float64 {
		n, began := pushed.Load(), time.Now()
		f()
		return float64(pushed.Load()-n) / time.Since(began).Seconds()
	}
	eventually(b, "the state is there, slots and all", func() bool { return pushed.Load() >= 64 })
	var bytes, saving, quiet, busy, plain float64
	for b.Loop() {
		quiet += pace(func() { time.Sleep(500 * time.Millisecond) })
		var r ps.CheckpointReport
		busy += pace(func() { r = c.save(true) })
		quiet += pace(func() { time.Sleep(500 * time.Millisecond) })
		bytes += float64(r.Bytes)
		saving += r.Took.Seconds()
		plain += plainWrite(b, filepath.Join(dir, "plain"), r.Bytes).Seconds()
	}
	stop()
	<-ended
	b.ReportMetric(bytes/saving/1e6, "MB/s")
	b.ReportMetric(plain/saving, "of-plain-write")
	b.ReportMetric(2*busy/quiet, "of-pushes")
}

// plainWrite is how long it takes to write that many bytes and force them to the disk.
func plainWrite(b *testing.B, name string, n int64) time.Duration {
	b.Helper()
	chunk := make([]byte, 1<<20)
	for i := range chunk {
		chunk[i] = byte(i * i)
	}
	began := time.Now()
	f, err := os.Create(name)
	require.NoError(b, err)
	for ; n > 0; n -= int64(len(chunk)) {
		_, err = f.Write(chunk[:min(n, int64(len(chunk)))])
		require.NoError(b, err)
	}
	require.NoError(b, f.Sync())
	require.NoError(b, f.Close())
	took := time.Since(began)
	require.NoError(b, os.Remove(name))
	return took
}
