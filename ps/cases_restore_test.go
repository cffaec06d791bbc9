package ps_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
)

// heldFiles is a storage whose files of shards are read only when open is closed.
type heldFiles struct {
	checkpoint.Storage
	asked chan struct{} // capacity 1
	open  chan struct{}
}

func (s *heldFiles) Read(ctx context.Context, name string, offset int64, p []byte) error {
	if strings.HasSuffix(name, ".safetensors") {
		select {
		case s.asked <- struct{}{}:
		default:
		}
		select {
		case <-s.open:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return s.Storage.Read(ctx, name, offset, p)
}

// TestServerAnswersWhileItRestores: a storage that is slow to give a shard holds up that
// shard alone, not the orders to its server, nor its reports.
func TestServerAnswersWhileItRestores(t *testing.T) {
	folder := checkpoint.Folder(t.TempDir())
	c := newCluster(t, layersJob(ps.NoReplicas, 2, 100), saving(folder))
	c.servers(1)
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "l0", vector(100, -1)))
	c.save(true)

	slow := &heldFiles{Storage: folder, asked: make(chan struct{}, 1), open: make(chan struct{})}
	d := newCluster(t, layersJob(ps.NoReplicas, 2, 100), saving(folder, restoring(ps.RestoreLatest)))
	d.checkpoints = slow
	d.servers(1)
	<-slow.asked
	before := d.status().Servers[0]
	for range 5 { // more than one report of the server, which looks at all shards
		ctx, cancel := context.WithTimeout(d.ctx, 5*time.Second)
		load, err := d.admin.Load(ctx, before)
		cancel()
		require.NoError(t, err)
		require.Zero(t, load.Shards)
		_, err = d.admin.Copies(d.ctx, before)
		require.NoError(t, err)
	}
	close(slow.open)
	got := make([]float32, 100)
	require.NoError(t, d.client("reader").Pull(d.ctx, "l0", got))
	require.Equal(t, vector(100, 1), got)
}
