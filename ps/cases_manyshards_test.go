package ps_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// TestRegisterWithManyShards: a server with more copies than one message has room for comes
// back to another coordinator, which learns of each: that one is missing, too.
func TestRegisterWithManyShards(t *testing.T) {
	settled(t)
	shards := 12_000
	if testing.Short() {
		shards = 2000 // still many messages
	}
	job := ps.Job{Optimizer: ps.SGD(1), Replicas: ps.NoReplicas}
	for i := range shards {
		job.Model.Layers = append(job.Model.Layers, layer(fmt.Sprint("l", i), 1))
	}
	c := newCluster(t, job)
	s := c.server("s1")
	w := c.worker("w")
	last := shards - 1
	require.Eventually(t, func() bool { return c.status().Map.Assignments[last].Owner == "s1" }, 50*time.Second, 100*time.Millisecond)
	require.NoError(t, w.Push(c.ctx, "l0", vector(1, -1)))
	s.LoseCopy(shard.ID(last))
	require.NoError(t, c.coord.Close())
	c.startCoordinator()
	eventually(t, "s1 is back", func() bool { return c.upServer("s1") })
	fresh := c.worker("fresh")
	ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
	defer cancel()
	got := make([]float32, 1)
	require.NoError(t, fresh.Pull(ctx, "l0", got))
	require.Equal(t, vector(1, 1), got)
	require.NoError(t, fresh.Push(ctx, fmt.Sprint("l", last-1), vector(1, -1)))
	require.ErrorIs(t, fresh.Push(ctx, fmt.Sprint("l", last), vector(1, -1)), ps.ErrShardLost)
	require.Equal(t, shards-1, len(c.holds("s1")))
}
