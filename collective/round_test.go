package collective

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func founder(rank, size int) proposal {
	return proposal{Group: "g", Self: member{Name: string(rune('a' + rank)), Rank: rank, Nonce: string(rune('A' + rank))}, Add: size}
}

func names(r roster) string {
	s := ""
	for _, m := range r.Members {
		s += m.Name
	}
	return s
}

// take puts proposals into a round, none of which may be refused.
func take(t *testing.T, r round, ps ...proposal) round {
	t.Helper()
	for _, p := range ps {
		var err error
		r, err = r.take(p)
		require.NoError(t, err)
	}
	return r
}

func foundedBy(t *testing.T, n int) round {
	t.Helper()
	var r round
	for rank := n - 1; rank >= 0; rank-- { // they come in any order
		require.Zero(t, r.Last.Epoch)
		r = take(t, r, founder(rank, n))
	}
	require.Equal(t, uint64(1), r.Last.Epoch)
	return r
}

// again is a member's proposal for the group after r.
func again(r round, rank int, dead ...string) proposal {
	p := founder(rank, 0)
	p.Last, p.Dead = r.Last, dead
	return p
}

func TestRoundOfFounders(t *testing.T) {
	r := foundedBy(t, 3)
	require.Equal(t, "abc", names(r.Last))
	next, ok, err := r.outcome(founder(1, 3))
	require.True(t, ok)
	require.NoError(t, err)
	require.Equal(t, 1, next.rankOf("b"))
	require.Equal(t, []string{"rank 1", "rank 2"}, ptr(take(t, round{}, founder(0, 3))).missing())

	_, err = r.take(proposal{Group: "g", Self: member{Name: "d", Nonce: "D"}, Add: 3})
	require.ErrorIs(t, err, ErrConflict, "it was founded before")
	_, err = take(t, round{}, founder(0, 3)).take(founder(1, 4))
	require.ErrorIs(t, err, ErrConflict, "another size")
	other := founder(0, 3)
	other.Self.Name = "z"
	_, err = take(t, round{}, founder(0, 3)).take(other)
	require.ErrorIs(t, err, ErrConflict, "the rank is taken")
}

func ptr(r round) *round { return &r }

// A founder that was started again takes its own place, and the first start finds out.
func TestRoundOfARestart(t *testing.T) {
	restarted := founder(0, 2)
	restarted.Self.Nonce = "new"
	r := take(t, round{}, founder(0, 2), restarted)
	_, ok, err := r.outcome(founder(0, 2))
	require.True(t, ok)
	require.ErrorIs(t, err, ErrConflict)
	r = take(t, r, founder(1, 2))
	require.Equal(t, "new", r.Last.Members[0].Nonce)
}

func TestRoundWithoutTheDead(t *testing.T) {
	first := foundedBy(t, 4)
	r := take(t, first, again(first, 0, "c"), again(first, 3))
	require.Equal(t, []string{"b"}, r.missing())
	require.Equal(t, first.Last, r.Last)
	r = take(t, r, again(first, 1))
	require.Equal(t, uint64(2), r.Last.Epoch)
	require.Equal(t, "abd", names(r.Last))

	_, err := r.take(again(first, 2))
	require.ErrorIs(t, err, ErrConflict, "the one given up comes back too late")
	require.ErrorContains(t, err, "epoch 2")
	r = take(t, first, again(first, 0, "c"))
	_, err = r.take(again(first, 2))
	require.ErrorIs(t, err, ErrConflict, "or in time")
	require.ErrorContains(t, err, "given member \"c\" up")

	// One that had come and was given up afterwards is not taken along.
	r = take(t, first, again(first, 2), again(first, 0), again(first, 1), again(first, 3, "c"))
	require.Equal(t, "abd", names(r.Last))
	_, ok, err := r.outcome(again(first, 2))
	require.True(t, ok)
	require.ErrorIs(t, err, ErrConflict)
}

func TestRoundWithNewcomers(t *testing.T) {
	first := foundedBy(t, 2)
	early := proposal{Group: "g", Self: member{Name: "y", Nonce: "Y"}}
	late := proposal{Group: "g", Self: member{Name: "x", Nonce: "X"}}
	r := take(t, first, early)
	require.Equal(t, first.Last, r.Last, "nobody has asked for it")
	grow := again(first, 0)
	grow.Add = 1
	r = take(t, r, grow, again(first, 1))
	require.Equal(t, "aby", names(r.Last))

	grow.Last, grow.Add = r.Last, 1
	r = take(t, r, grow, again(r, 1), late)
	require.Equal(t, uint64(2), r.Last.Epoch, "the third member has not come")
	third := early
	third.Last = r.Last
	r = take(t, r, third)
	require.Equal(t, "abyx", names(r.Last))
	require.Equal(t, uint64(3), r.Last.Epoch)
	same := late
	same.Self.Nonce = "another"
	_, err := r.take(same)
	require.ErrorIs(t, err, ErrConflict, "the name is taken")
}

// Proposals for a later group than the round knows of bring it along.
func TestRoundCatchesUp(t *testing.T) {
	first := foundedBy(t, 3)
	second := take(t, first, again(first, 0), again(first, 1), again(first, 2))
	fresh := round{Last: first.Last} // of a host that has not heard of the second
	r := take(t, fresh, again(second, 1, "a"), again(second, 2))
	require.Equal(t, uint64(3), r.Last.Epoch)
	require.Equal(t, "bc", names(r.Last))
	require.Equal(t, second.Last, take(t, second, again(first, 2)).Last, "who is in it already needs nothing")
}

// Newcomers alone are no successor of a group whose members are all dead.
func TestRoundOfNobody(t *testing.T) {
	first := foundedBy(t, 1)
	r := take(t, first, proposal{Group: "g", Self: member{Name: "y", Nonce: "Y"}, Dead: []string{"a"}})
	require.Equal(t, first.Last, r.Last)
}
