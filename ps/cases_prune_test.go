package ps_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
)

// TestCheckpointIsPaced: a server takes as long as BytesPerSecond says; it serves meanwhile.
func TestCheckpointIsPaced(t *testing.T) {
	const layers, elems, rate = 4, 64 << 10, 4 << 20
	c := newCluster(t, layersJob(ps.NoReplicas, layers, elems), saving(checkpoint.Folder(t.TempDir()), func(c *ps.CheckpointConfig) { c.BytesPerSecond = rate }))
	c.server("s1")
	c.placed()
	w := c.worker("w")
	written := make(chan ps.CheckpointReport, 1)
	go func() {
		r, err := c.admin.Checkpoint(c.ctx, true)
		if err != nil {
			r.Reason = err.Error()
		}
		written <- r
	}()
	for pushes := 0; ; pushes++ {
		require.NoError(t, w.Push(c.ctx, fmt.Sprint("l", pushes%layers), vector(elems, -1)))
		select {
		case r := <-written:
			require.NoError(t, r.Err())
			require.GreaterOrEqual(t, r.Took, time.Duration(4*layers*elems*int64(time.Second)/rate))
			require.Greater(t, pushes, layers)
			return
		default:
		}
	}
}

// TestCheckpointDoesNotWaitForRemoval: a checkpoint is there as soon as it is committed, while
// older ones are being removed; the next one is not committed before they are.
func TestCheckpointDoesNotWaitForRemoval(t *testing.T) {
	for name, fails := range map[string]bool{"the next one": false, "the one after one that failed": true} {
		t.Run(name, func(t *testing.T) { commitsAfterRemoval(t, fails) })
	}
}

// commitsAfterRemoval has a third checkpoint taken while the first one is being removed. Fails says
// that another one fails before it.
func commitsAfterRemoval(t *testing.T, fails bool) {
	settled(t)
	storage := &stuckRemoval{
		Storage: checkpoint.Folder(t.TempDir()), removing: make(chan struct{}), release: make(chan struct{}), written: make(chan string, 16),
	}
	c := newCluster(t, layersJob(ps.NoReplicas, 2, 100), saving(storage, func(c *ps.CheckpointConfig) { c.Keep, c.FullEvery = 1, 1 }), oneNode)
	c.server("s1")
	c.placed()
	require.Equal(t, "ckpt-00000001", c.save(true).Name)
	require.Equal(t, "ckpt-00000002", c.save(true).Name)
	<-storage.removing
	if fails {
		storage.full.Store(true)
		r, err := c.admin.Checkpoint(c.ctx, true)
		require.NoError(t, err)
		require.ErrorContains(t, r.Err(), errFull.Error())
		storage.full.Store(false)
	}
	for len(storage.written) > 0 {
		<-storage.written
	}
	third := make(chan ps.CheckpointReport, 1)
	go func() {
		r, err := c.admin.Checkpoint(c.ctx, true)
		if err == nil {
			third <- r
		}
		close(third)
	}()
	select { // its shards are written meanwhile
	case name := <-storage.written:
		require.True(t, strings.HasPrefix(name, "ckpt-00000003/") && strings.HasSuffix(name, ".safetensors"), name)
	case <-c.ctx.Done():
		require.Fail(t, "nothing is written while an older checkpoint is removed")
	}
	select {
	case r := <-third:
		require.Fail(t, "committed while an older one is removed", "%+v", r)
	case <-time.After(100 * time.Millisecond):
	}
	names, err := checkpoint.List(c.ctx, storage)
	require.NoError(t, err)
	require.NotContains(t, names, "ckpt-00000003")
	close(storage.release)
	r := <-third
	require.NoError(t, r.Err())
	require.Equal(t, "ckpt-00000003", r.Name)
	eventually(t, "only the newest is kept", func() bool {
		objects, err := storage.List(c.ctx, "")
		require.NoError(t, err)
		for _, o := range objects {
			if !strings.HasPrefix(o.Name, "ckpt-00000003/") {
				return false
			}
		}
		return true
	})
}

// stuckRemoval is a storage whose first removal says that it has begun, and waits for release.
type stuckRemoval struct {
	checkpoint.Storage
	removing, release chan struct{}
	written           chan string
	full              atomic.Bool // it takes nothing
}

var errFull = errors.New("no space left in the storage")

func (s *stuckRemoval) Put(ctx context.Context, name string, size int64, write func(io.Writer) error) error {
	if s.full.Load() {
		return errFull
	}
	err := s.Storage.Put(ctx, name, size, write)
	s.written <- name
	return err
}

func (s *stuckRemoval) Remove(ctx context.Context, name string) error {
	select {
	case <-s.release:
	default:
		select {
		case s.removing <- struct{}{}:
		case <-s.release:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-s.release:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return s.Storage.Remove(ctx, name)
}
