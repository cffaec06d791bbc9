package ps

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClocksBSP(t *testing.T) {
	c := newClocks(Consistency{Mode: BSP})
	require.Equal(t, uint32(0), c.join(1, 0))
	require.Equal(t, uint32(0), c.join(2, 0))
	released, err := c.tick(1, 0)
	require.NoError(t, err)
	require.Empty(t, released, "1 waits for 2")
	require.Equal(t, uint32(0), c.join(3, 0), "a late member takes part in the open clock")
	released, err = c.tick(2, 0)
	require.NoError(t, err)
	require.Empty(t, released)
	require.Equal(t, []uint64{1, 2}, c.leave(3), "a member that leaves holds nobody")
	require.Equal(t, uint32(1), c.open())

	released, err = c.tick(1, 0)
	require.NoError(t, err)
	require.Equal(t, []uint64{1}, released, "a repeated tick gets the lost answer again")
	_, err = c.tick(1, 5)
	require.Error(t, err)
	_, err = c.tick(9, 0)
	require.ErrorIs(t, err, ErrNotMember)

	require.Empty(t, c.leave(9))
	c.leave(1)
	c.leave(2)
	require.Equal(t, uint32(2), c.open(), "without members everything is finished")
	require.Equal(t, uint32(2), c.join(4, 0))
	require.Equal(t, uint32(2), c.join(4, 0), "joining twice changes nothing")
	require.Equal(t, uint32(7), c.join(5, 7), "back with a later clock")
}

// A worker comes back that had not heard of a clock which another one has begun, and a checkpoint
// waits for the end of a clock: the first one catches up, and nobody goes on.
func TestClocksCatchUpForACheckpoint(t *testing.T) {
	c := newClocks(Consistency{Mode: BSP})
	c.comeBack(1, 449)
	c.comeBack(2, 450)
	c.cut = true
	tick := func(inc uint64, clock uint32, want ...uint64) {
		t.Helper()
		released, err := c.tick(inc, clock)
		require.NoError(t, err)
		require.Equal(t, want, released)
	}
	tick(2, 450)
	_, all := c.barrier()
	require.False(t, all)
	tick(1, 449, 1)
	tick(1, 450)
	clock, all := c.barrier()
	require.True(t, all)
	require.Equal(t, uint32(451), clock)
	c.cut = false
	require.Equal(t, []uint64{1, 2}, c.release())
}

// No schedule of joins, ticks and leaves lets a worker run further ahead than the
// mode allows, holds back a worker that may go, or releases anybody twice.
func TestClocksBound(t *testing.T) {
	modes := map[Consistency]uint32{{Mode: BSP}: 0, {Mode: SSP}: 0, {Mode: SSP, Staleness: 3}: 3, {Mode: ASP}: 1 << 30}
	steps := 100_000
	if testing.Short() {
		steps = 20_000
	}
	for mode, bound := range modes {
		rng := rand.New(rand.NewPCG(7, uint64(bound)))
		c := newClocks(mode)
		at := map[uint64]uint32{}
		waiting := map[uint64]bool{}
		next := uint64(1)
		for range steps {
			switch inc := 1 + rng.Uint64N(next); {
			case rng.IntN(20) == 0 && len(at) < 12:
				at[next] = c.join(next, 0)
				next++
			case rng.IntN(40) == 0:
				take(t, at, waiting, c.leave(inc))
				delete(at, inc)
				delete(waiting, inc)
			default:
				clock, ok := at[inc]
				if !ok || waiting[inc] {
					continue
				}
				waiting[inc] = true
				released, err := c.tick(inc, clock)
				require.NoError(t, err)
				take(t, at, waiting, released)
			}
			requireBound(t, at, waiting, bound)
		}
	}
}

func take(t *testing.T, at map[uint64]uint32, waiting map[uint64]bool, released []uint64) {
	for _, inc := range released {
		if _, ok := at[inc]; !ok {
			continue
		}
		require.True(t, waiting[inc], "%d released without waiting", inc)
		delete(waiting, inc)
		at[inc]++
	}
}

func requireBound(t *testing.T, at map[uint64]uint32, waiting map[uint64]bool, bound uint32) {
	var done, clocks []uint32
	for inc, clock := range at {
		clocks = append(clocks, clock)
		if waiting[inc] {
			clock++
		}
		done = append(done, clock)
	}
	if len(at) == 0 {
		return
	}
	slowest := slices.Min(done)
	require.LessOrEqual(t, slices.Max(clocks), slowest+bound, "ahead of the slowest")
	for inc := range waiting {
		require.Greater(t, at[inc]+1, slowest+bound, "%d waits at %d although the slowest has finished %d", inc, at[inc], slowest)
	}
}
