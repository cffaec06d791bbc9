package shard_test

import (
	"math/rand/v2"
	"testing"

	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

func pieces(sizes ...int64) []shard.Shard {
	shards := make([]shard.Shard, len(sizes))
	at := int64(0)
	for i, n := range sizes {
		shards[i] = shard.Shard{ID: shard.ID(i), Range: shard.Range{Begin: at, End: at + n}}
		at += n
	}
	return shards
}

func TestPlaceRefuses(t *testing.T) {
	shards := pieces(10, 10)
	for name, list := range map[string][]shard.Server{
		"none":              nil,
		"all draining":      {{ID: "a", Draining: true}},
		"twice":             {{ID: "a"}, {ID: "a"}},
		"no name":           {{ID: ""}},
		"negative capacity": {{ID: "a", CapacityBytes: -1}},
		"too small":         {{ID: "a", CapacityBytes: 79}},
	} {
		_, err := shard.Place(shards, list)
		require.ErrorIs(t, err, shard.ErrPlace, name)
	}
	_, err := shard.Place(pieces(10, -1), servers(2))
	require.ErrorIs(t, err, shard.ErrPlace)
}

func TestPlaceHonoursCapacity(t *testing.T) {
	shards := pieces(10, 10, 10, 10)
	m, err := shard.Place(shards, []shard.Server{{ID: "a", CapacityBytes: 40}, {ID: "b"}})
	require.NoError(t, err)
	require.Len(t, m.Of("a"), 1)
	require.Len(t, m.Of("b"), 3)
	moves, err := shard.Rebalance(m, shards, []shard.Server{{ID: "a", CapacityBytes: 40}, {ID: "b"}})
	require.NoError(t, err)
	require.Empty(t, moves)
}

func TestAssignPlacesOnlyTheUnplaced(t *testing.T) {
	shards := pieces(10, 10, 10)
	m, err := shard.Place(shards, servers(3))
	require.NoError(t, err)
	lost, err := m.WithOwner(1, "")
	require.NoError(t, err)
	again, err := shard.Assign(lost, shards, servers(3))
	require.NoError(t, err)
	require.Equal(t, shard.Assignment{Shard: 1, Epoch: 2, Owner: "s01"}, again.Assignments[1])
	require.Equal(t, m.Assignments[0], again.Assignments[0])
	require.Greater(t, again.Version, lost.Version)
	require.Empty(t, lost.Assignments[1].Owner, "the argument is unchanged")
}

func TestRebalanceDrains(t *testing.T) {
	shards := pieces(20, 20, 20, 20, 10, 10, 10, 10, 10, 10)
	list := servers(3)
	m, err := shard.Place(shards, list)
	require.NoError(t, err)
	list[1].Draining = true
	moves, err := shard.Rebalance(m, shards, list)
	require.NoError(t, err)
	require.NoError(t, shard.ValidateMoves(m, shards, list, moves))
	after := apply(t, m, moves)
	require.Empty(t, after.Of("s01"))
	require.LessOrEqual(t, imbalance(after, shards, []shard.Server{list[0], list[2]}), 1.05)
}

// TestRebalanceLeavesLostServers: shards of a server that is not in the list
// are not moved, and those without an owner are not placed.
func TestRebalanceLeavesLostServers(t *testing.T) {
	shards := pieces(10, 10, 10, 10)
	m, err := shard.Place(shards, servers(4))
	require.NoError(t, err)
	m, err = m.WithOwner(3, "")
	require.NoError(t, err)
	moves, err := shard.Rebalance(m, shards, servers(2))
	require.NoError(t, err)
	require.Empty(t, moves)
}

// TestRebalanceRandom changes servers at random: every plan is valid, and the
// next call has nothing left to do.
func TestRebalanceRandom(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		sizes := make([]int64, 1+rng.IntN(60))
		for i := range sizes {
			sizes[i] = rng.Int64N(1000)
		}
		shards := pieces(sizes...)
		m, err := shard.Place(shards, servers(1+rng.IntN(6)))
		require.NoError(t, err)
		list := servers(8)
		for i := range list {
			list[i].Draining = i > 0 && rng.IntN(3) == 0
		}
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		moves, err := shard.Rebalance(m, shards, list)
		require.NoError(t, err)
		require.NoError(t, shard.ValidateMoves(m, shards, list, moves), "seed %d", seed)
		again, err := shard.Rebalance(m, shards, servers2(list, rng))
		require.NoError(t, err)
		require.Equal(t, moves, again, "the order of servers does not matter")
		after := apply(t, m, moves)
		for _, s := range list {
			if s.Draining {
				require.Empty(t, after.Of(s.ID))
			}
		}
		active := 0
		for _, s := range list {
			if !s.Draining {
				active++
			}
		}
		now, total := loads(after, shards, list)
		largest := int64(0)
		for _, s := range shards {
			largest = max(largest, s.Bytes())
		}
		require.LessOrEqual(t, now, total/int64(active)*105/100+largest)
	}
}

func servers2(list []shard.Server, rng *rand.Rand) []shard.Server {
	other := append([]shard.Server{}, list...)
	rng.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
	return other
}

func TestT15PlanValidation(t *testing.T) {
	shards := pieces(10, 10, 10, 10)
	list := servers(4)
	list[2].Draining = true
	list[3].CapacityBytes = 80
	m := shard.MapOf([]shard.Assignment{
		{Shard: 0, Epoch: 1, Owner: "s00"},
		{Shard: 1, Epoch: 4, Owner: "s01"},
		{Shard: 2, Epoch: 1, Owner: "s00"},
		{Shard: 3},
	})
	before := m.Clone()
	for _, c := range []struct {
		name  string
		moves []shard.Move
		want  map[int]shard.Refusal
	}{
		{"none", nil, nil},
		{"good", []shard.Move{{Shard: 0, From: "s00", To: "s01"}, {Shard: 1, From: "s01", To: "s00"}}, nil},
		{"unknown shard", []shard.Move{{Shard: 4, From: "s00", To: "s01"}, {Shard: ^shard.ID(0), From: "s00", To: "s01"}}, map[int]shard.Refusal{0: shard.UnknownShard, 1: shard.UnknownShard}},
		{"unknown target", []shard.Move{{Shard: 0, From: "s00", To: "s77"}}, map[int]shard.Refusal{0: shard.UnknownServer}},
		{"empty target", []shard.Move{{Shard: 0, From: "s00"}}, map[int]shard.Refusal{0: shard.UnknownServer}},
		{"draining target", []shard.Move{{Shard: 0, From: "s00", To: "s02"}}, map[int]shard.Refusal{0: shard.DrainingTarget}},
		{"same source and target", []shard.Move{{Shard: 0, From: "s00", To: "s00"}}, map[int]shard.Refusal{0: shard.SameServer}},
		{"two moves of one shard", []shard.Move{{Shard: 0, From: "s00", To: "s01"}, {Shard: 0, From: "s00", To: "s03"}}, map[int]shard.Refusal{1: shard.DuplicateMove}},
		{"not the owner", []shard.Move{{Shard: 1, From: "s00", To: "s03"}}, map[int]shard.Refusal{0: shard.NotOwner}},
		{"unplaced", []shard.Move{{Shard: 3, To: "s01"}}, map[int]shard.Refusal{0: shard.Unplaced}},
		{"over capacity", []shard.Move{{Shard: 0, From: "s00", To: "s03"}, {Shard: 1, From: "s01", To: "s03"}, {Shard: 2, From: "s00", To: "s03"}}, map[int]shard.Refusal{0: shard.OverCapacity, 1: shard.OverCapacity, 2: shard.OverCapacity}},
		{"too many", make([]shard.Move, shard.MaxPlanMoves+1), map[int]shard.Refusal{-1: shard.TooManyMoves}},
		{"all faults at once", []shard.Move{{Shard: 9}, {Shard: 0, From: "s00", To: "s00"}, {Shard: 1, From: "s01", To: "s02"}}, map[int]shard.Refusal{0: shard.UnknownShard, 1: shard.SameServer, 2: shard.DrainingTarget}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := map[int]shard.Refusal{}
			for _, e := range refusals(shard.ValidateMoves(m, shards, list, c.moves)) {
				require.ErrorIs(t, e, shard.ErrMoveRefused)
				require.Contains(t, e.Error(), e.Reason.String())
				got[e.Index] = e.Reason
			}
			if len(c.want) == 0 {
				require.Empty(t, got)
				return
			}
			require.Equal(t, c.want, got)
		})
	}
	require.Equal(t, before, m, "nothing changed")
}

func refusals(err error) []*shard.MoveError {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*shard.MoveError
		for _, e := range joined.Unwrap() {
			all = append(all, refusals(e)...)
		}
		return all
	}
	if e, ok := err.(*shard.MoveError); ok {
		return []*shard.MoveError{e}
	}
	return nil
}

func TestMapValidate(t *testing.T) {
	m, err := shard.Place(pieces(1, 1, 1), servers(2))
	require.NoError(t, err)
	require.NoError(t, m.Validate(3))
	require.ErrorIs(t, m.Validate(4), shard.ErrInvalidMap)
	bad := m.Clone()
	bad.Assignments[1].Shard = 2
	bad.Assignments[0].Epoch = 0
	require.ErrorContains(t, bad.Validate(3), "position 1 holds shard 2")
	require.ErrorContains(t, bad.Validate(3), "shard 0 has owner")
	_, err = m.WithOwner(7, "x")
	require.ErrorIs(t, err, shard.ErrInvalidMap)
}
