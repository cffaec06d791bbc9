package collective_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/internal/starved"
)

// shrinkAll lets all but the dead make a smaller group and proves that it works.
func shrinkAll(t *testing.T, groups []*collective.Group, dead ...int) []*collective.Group {
	t.Helper()
	gone := map[int]bool{}
	for _, rank := range dead {
		gone[rank] = true
	}
	var left []*collective.Group
	for rank, g := range groups {
		if !gone[rank] {
			left = append(left, g)
		}
	}
	smaller := make([]*collective.Group, len(left))
	onAll(t, len(left), func(i int) error {
		var err error
		smaller[i], err = left[i].Shrink(background(t), dead...)
		if err != nil {
			return err
		}
		return sumOnes(background(t), smaller[i], 10_000)
	})
	t.Cleanup(func() { closeAll(smaller) })
	return smaller
}

// Case 7: a rank that never comes is named at the deadline, and the same ranks may try
// again under another name; a name that was used is refused.
func TestCase7MissingRankIsNamed(t *testing.T) {
	for name, change := range map[string]func(int, *collective.Config){"local": nil, "store": overSockets(t, false, nil), "addresses": byAddresses(t, 3)} {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			local := &collective.Local{}
			join := func(ctx context.Context, rank int, group string) (*collective.Group, error) {
				cfg := collective.Config{Group: group, Rank: rank, Size: 3, Local: local, NoCalibration: true}
				if change != nil {
					change(rank, &cfg)
				}
				return collective.Join(ctx, cfg)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			m := starved.Watch(t)
			errs := errorsOf(2, func(i int) error {
				_, err := join(ctx, 2*i, "first")
				return err
			})
			m.Less(m.Took(), 300*time.Millisecond+soon)
			for _, err := range errs {
				require.ErrorIs(t, err, collective.ErrMissing)
				var missing *collective.MissingError
				require.ErrorAs(t, err, &missing)
				require.Greater(t, missing.Waited, 100*time.Millisecond)
				require.Less(t, missing.Waited, 300*time.Millisecond+soon)
			}
			require.ErrorIs(t, errs[0], context.DeadlineExceeded)
			require.ErrorContains(t, errs[0], "rank 1")
			if name == "addresses" { // this one has asked the host, that lives and waits as well
				require.Regexp(t, `rank-0 at 127\.0\.0\.1:\d+, after \d+ms: `, errs[1].Error())
			}
			groups := make([]*collective.Group, 3)
			onAll(t, 3, func(rank int) (err error) {
				groups[rank], err = join(background(t), rank, "second")
				return err
			})
			defer closeAll(groups)
			if name == "addresses" {
				return // the second start would need the same ports
			}
			_, err := join(background(t), 1, "second")
			require.ErrorIs(t, err, collective.ErrConflict)
		})
	}
}

// byAddresses lets ranks meet by a list of addresses, without a store.
func byAddresses(tb testing.TB, n int) func(int, *collective.Config) {
	addresses := freeAddresses(tb, n)
	return func(_ int, c *collective.Config) {
		c.Local, c.Addresses, c.Secret = nil, addresses, []byte("of the test")
	}
}

// Survivors agree by addresses too, also when the first rank, which hosted the first
// rendezvous, is the one that died; and a newcomer takes its place.
func TestByAddressesWhenTheHostDies(t *testing.T) {
	leakless(t)
	var addresses []string
	change := byAddresses(t, 4)
	groups := found(t, 4, func(rank int, c *collective.Config) {
		change(rank, c)
		if rank == 0 {
			addresses = c.Addresses
		}
	})
	groups[0].Kill()
	for rank := 1; rank < 4; rank++ {
		require.ErrorIs(t, sumOnes(background(t), groups[rank], 100), collective.ErrRankLost)
	}
	smaller := shrinkAll(t, groups, 0)
	require.Equal(t, []string{"rank-1", "rank-2", "rank-3"}, smaller[2].Members())
	larger := make([]*collective.Group, 4)
	onAll(t, 4, func(i int) (err error) {
		if i < 3 {
			larger[i], err = smaller[i].Grow(background(t), 1)
		} else {
			newcomer := append(slices.Clone(addresses), freeAddresses(t, 1)...)
			larger[i], err = collective.Join(background(t), collective.Config{
				Name: "new", Rank: 4, Addresses: newcomer, Secret: []byte("of the test"), NoCalibration: true,
			})
		}
		if err != nil {
			return err
		}
		return sumOnes(background(t), larger[i], 100)
	})
	require.Equal(t, []string{"rank-1", "rank-2", "rank-3", "new"}, larger[0].Members())
	closeAll(larger)
}

// Case 21: newcomers and members go on together from one epoch.
func TestCase21GrowAtOneEpoch(t *testing.T) {
	for name, change := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			local := &collective.Local{}
			set := func(rank int, c *collective.Config) {
				if change != nil {
					change(rank, c)
				}
				if c.Local != nil {
					c.Local = local
				}
			}
			groups := found(t, 2, set)
			larger := make([]*collective.Group, 4)
			onAll(t, 4, func(i int) (err error) {
				if i < 2 {
					larger[i], err = groups[i].Grow(background(t), 2)
				} else {
					cfg := collective.Config{Name: fmt.Sprint("new-", i), Local: local, NoCalibration: true}
					set(0, &cfg)
					larger[i], err = collective.Join(background(t), cfg)
				}
				if err != nil {
					return err
				}
				return sumOnes(background(t), larger[i], 1000)
			})
			defer closeAll(larger)
			for i, g := range larger {
				require.Equal(t, i, g.Rank())
				require.Equal(t, uint64(2), g.Epoch())
				require.Equal(t, []string{"rank-0", "rank-1", "new-2", "new-3"}, g.Members())
			}
		})
	}
}

// A rank that dies while the others agree on the next group is named by its place in the
// one that they have, and the next attempt does without it.
func TestDeathDuringShrink(t *testing.T) {
	for name, change := range map[string]func(int, *collective.Config){"local": nil, "store": overSockets(t, false, nil)} {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			groups := found(t, 4, change)
			groups[3].Kill()
			require.ErrorIs(t, groups[0].Barrier(background(t)), collective.ErrRankLost)
			short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			_, err := groups[0].Shrink(short, 3) // it has come to the rendezvous now
			require.ErrorIs(t, err, collective.ErrMissing)
			require.ErrorContains(t, err, "rank-1, rank-2")
			groups[0].Kill()
			smaller := make([]*collective.Group, 2)
			onAll(t, 2, func(i int) (err error) {
				attempts := 0
				for ; smaller[i] == nil; attempts++ {
					smaller[i], err = groups[i+1].Shrink(background(t), 3)
					if err != nil && fmt.Sprint(collective.Lost(err)) != "[0]" {
						return err
					}
				}
				if attempts != 2 || smaller[i].Epoch() != 3 {
					return fmt.Errorf("%d attempts, epoch %d", attempts, smaller[i].Epoch())
				}
				return sumOnes(background(t), smaller[i], 100)
			})
			closeAll(smaller)
			require.NoError(t, groups[0].Close())
		})
	}
}
