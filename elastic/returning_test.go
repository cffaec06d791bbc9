package elastic_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

// TestDeadServerDelaysNoPlan: a server died while there was no coordinator. The controller of
// the next one replaces it long before it would give up the wait for one that is merely silent.
func TestDeadServerDelaysNoPlan(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	start := func(name string) *actor.Node {
		n, err := actor.Start(ctx, actor.Config{Name: name, Secret: "secret of the test"})
		require.NoError(t, err)
		t.Cleanup(func() { _ = n.Close() })
		return n
	}
	kv, err := store.NewMemory(store.Config{})
	require.NoError(t, err)
	defer kv.Close()
	home := start("home")
	coordinate := func() *ps.Coordinator {
		c, err := ps.StartCoordinator(ctx, ps.CoordinatorConfig{Node: home, Store: kv, Job: ps.Job{
			Model:         shard.Model{Layers: []shard.Layer{{Name: "w", Shape: []int{numRows, rowElems}}}},
			Optimizer:     ps.SGD(1),
			MaxShardBytes: 4 * rowElems,
		}})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first := coordinate()
	admin, err := ps.NewAdmin(home, first.Ref())
	require.NoError(t, err)
	nodes := map[shard.ServerID]*actor.Node{}
	provider := elastic.NewInProcess(func(ctx context.Context, id shard.ServerID) (io.Closer, error) {
		n := start(string(id))
		nodes[id] = n
		if _, err := n.Connect(ctx, home.Addr()); err != nil {
			return nil, err
		}
		return ps.StartServer(ctx, ps.ServerConfig{Node: n, ID: id, Coordinator: first.Ref()})
	})
	defer provider.Close()
	require.NoError(t, provider.Start(ctx, "ps-0"))
	require.NoError(t, provider.Start(ctx, "ps-1"))
	require.Eventually(t, func() bool {
		st, err := admin.Status(ctx)
		return err == nil && st.NumServers == 2 && st.Exposed == 0 && len(st.Map.Assignments) == numRows
	}, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, first.Close())
	require.NoError(t, provider.Stop(ctx, "ps-1"))
	require.NoError(t, nodes["ps-1"].Close())
	coordinate()
	controller, err := elastic.Start(ctx, home, elastic.Config{
		Cluster: elastic.NewCluster(admin, provider), Interval: 20 * time.Millisecond, Policy: elastic.Policy{Manual: true},
	})
	require.NoError(t, err)
	defer controller.Close()
	require.NoError(t, controller.Scale(ctx, 2))
	st, err := admin.Status(ctx)
	require.NoError(t, err)
	require.Less(t, st.Uptime, 8*time.Second)
	for _, s := range st.Servers {
		require.InDelta(t, numRows/2, s.Owned, 1)
	}
}
