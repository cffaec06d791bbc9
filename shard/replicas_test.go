package shard_test

import (
	"slices"
	"testing"

	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

// TestCorrect has what a coordinator orders when a server tells what it holds.
func TestCorrect(t *testing.T) {
	record := shard.Record{Assignment: shard.Assignment{Shard: 7, Owner: "a", Epoch: 3, Attempt: 5}, Followers: shard.FollowersOf("b")}
	moving := record
	moving.Pending = &shard.Pending{Shard: 7, From: "a", To: "c", Epoch: 3, Attempt: 5, Phase: shard.PendingMoving}
	require.NoError(t, moving.Validate())
	for name, c := range map[string]struct {
		record shard.Record
		server shard.ServerID
		copy   shard.Copy
		want   shard.EffectKind // 0: the copy is as it should be
	}{
		"owner":                          {record, "a", shard.Copy{State: shard.Serving, Epoch: 3, Attempt: 5}, 0},
		"promoted follower":              {record, "a", shard.Copy{State: shard.CaughtUp, Epoch: 2, Attempt: 4}, shard.EffectActivate},
		"promoted source of a switch":    {record, "a", shard.Copy{State: shard.Frozen, Epoch: 1, Attempt: 4}, shard.EffectActivate},
		"owner since before a refill":    {record, "a", shard.Copy{State: shard.Serving, Epoch: 1, Attempt: 2, Ended: true}, shard.EffectDepose},
		"created but recorded elsewhere": {record, "a", shard.Copy{State: shard.Serving, Epoch: 1, Ended: true}, shard.EffectDepose},
		"frozen, its attempt not over":   {record, "a", shard.Copy{State: shard.Frozen, Epoch: 3, Attempt: 5}, 0},
		"owner without a copy":           {record, "a", shard.Copy{}, 0},
		"source of a move under way":     {moving, "a", shard.Copy{State: shard.Frozen, Epoch: 3, Attempt: 5}, 0},
		"target of a move under way":     {moving, "c", shard.Copy{State: shard.Receiving, Epoch: 3, Attempt: 5}, 0},
		"follower":                       {record, "b", shard.Copy{State: shard.CaughtUp, Epoch: 3, Attempt: 5}, 0},
		"former owner":                   {record, "c", shard.Copy{State: shard.Serving, Epoch: 2, Attempt: 4}, shard.EffectDepose},
		"former target":                  {record, "c", shard.Copy{State: shard.Receiving, Epoch: 2, Attempt: 4}, shard.EffectDiscard},
		"former follower":                {record, "c", shard.Copy{State: shard.CaughtUp, Epoch: 2, Attempt: 4}, shard.EffectDiscard},
		"one that has given it away":     {record, "c", shard.Copy{State: shard.Released, Epoch: 3, Attempt: 4}, 0},
		"former follower, another moves": {moving, "d", shard.Copy{State: shard.CaughtUp, Epoch: 2, Attempt: 4}, shard.EffectDiscard},
	} {
		t.Run(name, func(t *testing.T) {
			e, wrong := c.record.Correct(c.server, c.copy)
			require.Equal(t, c.want != 0, wrong)
			if !wrong {
				return
			}
			require.Equal(t, c.want, e.Kind)
			_, err := c.copy.Step(e)
			require.NoError(t, err, "the copy takes the order")
		})
	}
}

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

// TestPlanFollowersLetsGo: as many followers stay as are wanted, and one that is to be
// emptied makes room for another where there is no room for both.
func TestPlanFollowersLetsGo(t *testing.T) {
	model := shard.Model{Layers: []shard.Layer{{Name: "l", Shape: []int{100}}}}
	shards, err := shard.Partition(model, shard.PartitionOptions{})
	require.NoError(t, err)
	servers := []shard.Server{{ID: "a", Domain: "x"}, {ID: "b", Domain: "x"}, {ID: "c", Domain: "y"}, {ID: "d", Domain: "z"}, {ID: "e", Domain: "z"}}
	plan := func(want int, draining shard.ServerID, followers ...shard.ServerID) (add, drop []shard.ServerID) {
		is := slices.Clone(servers)
		for i := range is {
			is[i].Draining = is[i].ID == draining
		}
		records := []shard.Record{{Assignment: shard.Assignment{Owner: "a", Epoch: 1}, Followers: shard.FollowersOf(followers...)}}
		p := shard.PlanFollowers(records, shards, is, want, nil)
		for _, m := range p.Add {
			add = append(add, m.To)
		}
		for _, m := range p.Drop {
			drop = append(drop, m.To)
		}
		return add, drop
	}
	for name, c := range map[string]struct {
		want      int
		draining  shard.ServerID
		followers []shard.ServerID
		add, drop []shard.ServerID
	}{
		"none":                          {-1, "", nil, nil, nil},
		"enough":                        {1, "", []shard.ServerID{"b"}, nil, nil},
		"one too many":                  {1, "", []shard.ServerID{"b", "c"}, nil, []shard.ServerID{"b"}},
		"two in one domain":             {2, "", []shard.ServerID{"c", "d", "e"}, nil, []shard.ServerID{"e"}},
		"two too many, one at a time":   {1, "", []shard.ServerID{"c", "d", "e"}, nil, []shard.ServerID{"e"}},
		"one to be emptied":             {1, "b", []shard.ServerID{"b"}, []shard.ServerID{"c"}, nil},
		"one to be emptied is replaced": {1, "b", []shard.ServerID{"b", "c"}, nil, []shard.ServerID{"b"}},
		"one to be emptied, no room":    {3, "b", []shard.ServerID{"b", "c", "d"}, nil, []shard.ServerID{"b"}},
		"all that there can be":         {3, "", []shard.ServerID{"b", "c", "d"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			add, drop := plan(c.want, c.draining, c.followers...)
			require.Equal(t, c.add, add)
			require.Equal(t, c.drop, drop)
		})
	}
}

// TestPlanFollowersLetsGoEvenly: when each shard has a follower too many, all servers keep as
// many as the others.
func TestPlanFollowersLetsGoEvenly(t *testing.T) {
	model := shard.Model{Layers: []shard.Layer{{Name: "l", Shape: []int{8, 1000}}}}
	shards, err := shard.Partition(model, shard.PartitionOptions{MaxShardBytes: 4000})
	require.NoError(t, err)
	require.Len(t, shards, 8)
	servers := []shard.Server{{ID: "a", Domain: "x"}, {ID: "b", Domain: "y"}, {ID: "c", Domain: "z"}}
	var records []shard.Record
	for _, s := range shards {
		records = append(records, shard.Record{
			Assignment: shard.Assignment{Shard: s.ID, Owner: "a", Epoch: 1}, Followers: shard.FollowersOf("b", "c"),
		})
	}
	dropped := map[shard.ServerID]int{}
	for _, m := range shard.PlanFollowers(records, shards, servers, 1, nil).Drop {
		dropped[m.To]++
	}
	require.Equal(t, map[shard.ServerID]int{"b": 4, "c": 4}, dropped)
}
