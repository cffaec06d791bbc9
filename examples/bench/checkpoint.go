package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// checkpointsKept is how many checkpoints of a deployment are kept.
const checkpointsKept = 1

// checkpointBytes is the size of the model that is written.
func (o options) checkpointBytes() int64 {
	if o.quick {
		return 64 * mib
	}
	return 256 * mib
}

// measureCheckpoint measures full checkpoints of one server, until they are committed,
// against a plain file of as many bytes that is forced to the same disk.
func (b *bench) measureCheckpoint(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "bench-checkpoint-")
	if err != nil {
		return fmt.Errorf("bench: folder for checkpoints: %w", err)
	}
	defer os.RemoveAll(dir)
	size := b.checkpointBytes()
	d, err := b.deploy(ctx, layout{
		transport: transportTCP, servers: 1, checkpoints: filepath.Join(dir, "job"),
		model: shard.Model{Layers: []shard.Layer{layerOf(layerName(size), size)}},
	})
	if err != nil {
		return err
	}
	p, err := b.alternate(ctx, plainFile(filepath.Join(dir, "plain"), size), d.checkpoint)
	if err != nil {
		return err
	}
	r := compared("checkpoint.write", size, "GB/s", 1e-9, p.product[0], p.limit[0])
	r.Note = "a full one, until it is committed; limit: a plain file of as many bytes, written and synced"
	return b.out.add(r)
}

// checkpoint is the probe of the bytes per second of one checkpoint, however long it takes.
// It returns when older ones are removed, which is not part of the time: no later probe pays
// for that.
func (d *deployment) checkpoint(ctx context.Context, _ time.Duration) ([]float64, error) {
	began := time.Now()
	report, err := d.admin.Checkpoint(ctx, true)
	if err == nil {
		err = report.Err()
	}
	took := time.Since(began)
	if err == nil {
		err = d.pruned(ctx)
	}
	return []float64{float64(report.Bytes) / took.Seconds()}, err
}

// pruned waits until no more checkpoints are there than are kept.
func (d *deployment) pruned(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	for {
		objects, err := checkpoint.Folder(d.checkpoints).List(ctx, "")
		if err != nil {
			return err
		}
		there := map[string]bool{}
		for _, o := range objects {
			there[path.Dir(o.Name)] = true
		}
		if len(there) <= checkpointsKept {
			return nil
		}
		time.Sleep(time.Millisecond) // List ends with ctx
	}
}

// plainFile is the probe of the bytes per second of one file that is written MiB by MiB,
// and forced to the disk.
func plainFile(file string, size int64) probe {
	piece := make([]byte, mib)
	for i := range piece {
		piece[i] = byte(i)
	}
	return func(context.Context, time.Duration) ([]float64, error) {
		began := time.Now()
		f, err := os.Create(file)
		if err != nil {
			return nil, fmt.Errorf("bench: plain file: %w", err)
		}
		for left := size; left > 0 && err == nil; left -= mib {
			_, err = f.Write(piece)
		}
		if err == nil {
			err = f.Sync()
		}
		took := time.Since(began)
		if closed := f.Close(); err == nil {
			err = closed
		}
		if removed := os.Remove(file); err == nil {
			err = removed
		}
		return []float64{float64(size) / took.Seconds()}, err
	}
}
