package shard_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/shard"
)

// TestPlanFollowersAvoids: a server that could not follow a shard is asked again only if
// there is no other, however well it would fit.
func TestPlanFollowersAvoids(t *testing.T) {
	model := shard.Model{Layers: []shard.Layer{{Name: "l", Shape: []int{100}}}}
	shards, err := shard.Partition(model, shard.PartitionOptions{})
	require.NoError(t, err)
	records := []shard.Record{{Assignment: shard.Assignment{Owner: "a", Epoch: 1}}}
	servers := []shard.Server{{ID: "a", Domain: "x"}, {ID: "b", Domain: "y"}, {ID: "c", Domain: "x"}}
	to := func(servers []shard.Server, avoid shard.ServerID) shard.ServerID {
		plan := shard.PlanFollowers(records, shards, servers, 1, map[shard.ID]shard.ServerID{0: avoid})
		require.Len(t, plan.Add, 1)
		return plan.Add[0].To
	}
	require.Equal(t, shard.ServerID("b"), to(servers, ""), "another failure domain")
	require.Equal(t, shard.ServerID("c"), to(servers, "b"))
	require.Equal(t, shard.ServerID("b"), to(servers, "c"))
	require.Equal(t, shard.ServerID("b"), to(servers[:2], "b"), "there is no other")
}
