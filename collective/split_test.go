package collective_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/internal/starved"
)

// splitAll lets all ranks split their groups and returns what each got.
func splitAll(t *testing.T, groups []*collective.Group, wish func(rank int) (color, key int)) []*collective.Group {
	t.Helper()
	parts := make([]*collective.Group, len(groups))
	onAll(t, len(groups), func(rank int) (err error) {
		color, key := wish(rank)
		parts[rank], err = groups[rank].Split(background(t), color, key)
		return err
	})
	t.Cleanup(func() { closeAll(parts) })
	return parts
}

// everyKind is kinds and ranks that have nothing but addresses.
func everyKind(t *testing.T, n int) map[string]func(int, *collective.Config) {
	k := kinds(t)
	k["addresses"] = byAddresses(t, n)
	return k
}

// members are the places of ranks in the group that was split.
func members(g *collective.Group) string {
	return strings.ReplaceAll(fmt.Sprint(g.Members()), "rank-", "")
}

func TestSplit(t *testing.T) {
	for name, change := range everyKind(t, 6) {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			groups := found(t, 6, change)
			parts := splitAll(t, groups, func(rank int) (int, int) {
				if rank == 4 {
					return collective.NoGroup, 0
				}
				return rank % 2, -(rank / 5) // 5 before 1 and 3, which have equal keys
			})
			require.Nil(t, parts[4])
			for rank, want := range []string{"[0 2]", "[5 1 3]", "[0 2]", "[5 1 3]", "", "[5 1 3]"} {
				if rank != 4 {
					require.Equal(t, want, members(parts[rank]))
					require.Equal(t, fmt.Sprintf("rank-%d", rank), parts[rank].Members()[parts[rank].Rank()])
					require.Equal(t, fmt.Sprintf("%s/1.1.%d", groups[0].Name(), rank%2), parts[rank].Name())
					require.Equal(t, uint64(1), parts[rank].Epoch())
				}
			}
			onAll(t, 6, func(rank int) error { // of both, in the order of each
				if parts[rank] == nil {
					return sumOnes(background(t), groups[rank], 1000)
				}
				h, err := parts[rank].Start(background(t), collective.Call{Collective: collective.Barrier, Op: collective.Max, Dst: one(), Src: one()})
				if err != nil {
					return err
				}
				return errors.Join(sumOnes(background(t), groups[rank], 1000), h.Wait(background(t)), sumOnes(background(t), parts[rank], 1000))
			})
			closeAll(groups) // the parts do not need it
			onAll(t, 6, func(rank int) error {
				if parts[rank] == nil {
					return nil
				}
				return sumOnes(background(t), parts[rank], 1000)
			})
		})
	}
}

func one() collective.Buffer { return collective.Of(make([]uint8, 1)) }

// Groups that were split from groups that were split, and from the successor of one.
func TestSplitAgain(t *testing.T) {
	leakless(t)
	groups := found(t, 4, overSockets(t, false, func(_ int, c *collective.Config) { c.Group = strings.Repeat("g", 120) }))
	first := splitAll(t, groups, func(rank int) (int, int) { return rank / 2, 0 })
	alone := splitAll(t, first, func(rank int) (int, int) { return rank % 2, 0 })
	for rank, g := range alone {
		require.Equal(t, []string{fmt.Sprintf("rank-%d", rank)}, g.Members())
		require.LessOrEqual(t, len(g.Name()), collective.MaxNameBytes)
		require.NoError(t, g.Barrier(background(t)))
	}
	next := make([]*collective.Group, 4)
	onAll(t, 4, func(rank int) (err error) {
		next[rank], err = groups[rank].Shrink(background(t))
		return err
	})
	t.Cleanup(func() { closeAll(next) })
	again := splitAll(t, next, func(rank int) (int, int) { return rank % 2, 0 })
	onAll(t, 4, func(rank int) error {
		return errors.Join(sumOnes(background(t), again[rank], 100), sumOnes(background(t), first[rank], 100))
	})
	names := map[string]bool{}
	for _, g := range slices.Concat(first, alone, again) {
		names[g.Name()] = true
	}
	require.Len(t, names, 2+4+2)
}

// Case 18: rows and columns of a grid of ranks at once, from goroutines that begin in any
// order, hinder each other nowhere.
func TestCase18SplitsAtOnce(t *testing.T) {
	for name, change := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			groups := found(t, 6, change)
			rows := splitAll(t, groups, func(rank int) (int, int) { return rank / 3, 0 })
			columns := splitAll(t, groups, func(rank int) (int, int) { return rank % 3, 0 })
			rounds := 200
			if collective.RaceEnabled {
				rounds = 20
			}
			onAll(t, 6, func(rank int) error {
				r := rand.New(rand.NewPCG(18, uint64(rank)))
				all := []*collective.Group{groups[rank], rows[rank], columns[rank]}
				for range rounds {
					r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
					errs := errorsOf(len(all), func(i int) error { return sumOnes(background(t), all[i], 500) })
					if err := errors.Join(errs...); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// A rank that dies is an error in its groups. The group of the other color goes on, and that
// of its own makes a smaller one.
func TestSplitOutlivesADeath(t *testing.T) {
	for name, change := range everyKind(t, 6) {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			groups := found(t, 6, change)
			parts := splitAll(t, groups, func(rank int) (int, int) { return rank % 2, rank })
			m := starved.Watch(t)
			killed := time.Now()
			groups[0].Kill()
			parts[0].Kill()
			errs := errorsOf(6, func(rank int) error {
				if rank == 0 {
					return nil
				}
				return sumOnes(background(t), parts[rank], 1000)
			})
			m.Less(time.Since(killed), soon)
			for rank, err := range errs {
				switch {
				case rank%2 == 1:
					require.NoError(t, err, "rank %d is of the other color", rank)
				case rank > 0:
					require.ErrorIs(t, err, collective.ErrRankLost)
					require.Equal(t, []int{0}, collective.Lost(err))
				}
			}
			evens := shrinkAll(t, []*collective.Group{parts[0], parts[2], parts[4]}, 0)
			require.Equal(t, parts[2].Name(), evens[0].Name())
			require.Equal(t, uint64(2), evens[0].Epoch())
			shrinkAll(t, groups, 0)
		})
	}
}

// A rank that dies after all wishes are known is an error for its own color at once; the
// others have their group.
func TestSplitWithARankThatIsGone(t *testing.T) {
	leakless(t)
	groups := found(t, 4, overSockets(t, false, nil))
	onAll(t, 4, func(rank int) error {
		switch rank {
		case 0:
			return collective.GiveUpSplit(background(t), groups[0], 0)
		case 2:
			_, err := groups[2].Split(background(t), 0, 0)
			if !errors.Is(err, collective.ErrRankLost) && !errors.Is(err, collective.ErrMissing) {
				return fmt.Errorf("of the color of the dead: got %v", err)
			}
			return nil
		}
		g, err := groups[rank].Split(background(t), 1, 0)
		if err != nil {
			return err
		}
		return errors.Join(sumOnes(background(t), g, 100), g.Barrier(background(t)), g.Close())
	})
	onAll(t, 4, func(rank int) error { return sumOnes(background(t), groups[rank], 100) }) // as it was
}

func TestSplitRefuses(t *testing.T) {
	leakless(t)
	groups := found(t, 3, nil)
	_, err := groups[0].Split(background(t), -2, 0)
	require.ErrorIs(t, err, collective.ErrArgument)
	require.ErrorContains(t, err, "color -2, must be 0 or more, or -1 for no group")
	onAll(t, 3, func(rank int) error { return sumOnes(background(t), groups[rank], 10) })

	errs := errorsOf(3, func(rank int) error { // one calls something that looks the same
		if rank == 2 {
			all := make([]int64, 12)
			return groups[2].AllGather(background(t), collective.Of(all), collective.Of(all[8:]))
		}
		_, err := groups[rank].Split(background(t), 0, 0)
		return err
	})
	for _, rank := range []int{0, 1} {
		require.ErrorIs(t, errs[rank], collective.ErrMismatch)
	}
	require.ErrorContains(t, errs[0], "rank 2 did not")
	require.Error(t, groups[2].Barrier(background(t)), "it hears of it")
}

// A rank that does not come to a split is an error by the deadline, as in any call.
func TestSplitWithoutARank(t *testing.T) {
	leakless(t)
	groups := found(t, 3, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	m := starved.Watch(t)
	errs := errorsOf(2, func(rank int) error {
		_, err := groups[rank].Split(ctx, 0, 0)
		return err
	})
	m.Less(m.Took(), soon)
	for _, err := range errs {
		var op *collective.OpError
		require.ErrorAs(t, err, &op)
	}
	_, err := groups[2].Split(background(t), 0, 0)
	require.ErrorIs(t, err, collective.ErrAborted)
}
