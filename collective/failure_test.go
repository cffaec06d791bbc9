package collective_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/schedule"
	"github.com/elasticps/elasticps/internal/starved"
)

// kinds are the ways in which ranks may be connected.
func kinds(t *testing.T) map[string]func(int, *collective.Config) {
	return map[string]func(int, *collective.Config){"local": nil, "memory": overMemory(t, nil), "unix": overSockets(t, false, nil), "tcp": overSockets(t, true, nil)}
}

func sumOnes(ctx context.Context, g *collective.Group, count int) error {
	x := make([]float32, count)
	for i := range x {
		x[i] = 1
	}
	if err := g.AllReduce(ctx, collective.Of(x), collective.Of(x), collective.Sum); err != nil {
		return err
	}
	for i := range x {
		if x[i] != float32(g.Size()) {
			return fmt.Errorf("element %d is %v, want %d", i, x[i], g.Size())
		}
	}
	return nil
}

// soon is the bound of the issue for errors of survivors.
const soon = time.Second

// Case 1: ranks that differ in count, type, operation, root or kind of call have an error
// on all of them at once, which names both calls.
func TestCase1MismatchIsAnErrorEverywhere(t *testing.T) {
	type variant struct {
		collective collective.Collective
		count      int
		op         collective.Op
		root       int
		wide       bool // float64
	}
	plain := variant{collective.AllReduce, 100, collective.Sum, 0, false}
	call := func(v variant) collective.Call {
		b := collective.Of(make([]float32, v.count))
		if v.wide {
			b = collective.Of(make([]float64, v.count))
		}
		return collective.Call{Collective: v.collective, Dst: b, Src: b, Op: v.op, Root: v.root}
	}
	for name, differs := range map[string][2]variant{
		"count":              {plain, {collective.AllReduce, 101, collective.Sum, 0, false}},
		"size and algorithm": {plain, {collective.AllReduce, 1 << 20, collective.Sum, 0, false}},
		"count zero":         {plain, {collective.AllReduce, 0, collective.Sum, 0, false}},
		"type":               {plain, {collective.AllReduce, 100, collective.Sum, 0, true}},
		"operation":          {plain, {collective.AllReduce, 100, collective.Max, 0, false}},
		"kind":               {plain, {collective.Reduce, 100, collective.Sum, 0, false}},
		"everybody waits":    {{collective.Broadcast, 100, 0, 1, false}, {collective.Broadcast, 100, 0, 0, false}},
		"barrier":            {plain, {collective.Barrier, 1, collective.Sum, 0, false}},
	} {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			groups := found(t, 3, nil)
			m := starved.Watch(t)
			errs := errorsOf(3, func(rank int) error {
				ctx := background(t)
				h, err := groups[rank].Start(ctx, call(differs[rank%2]))
				if err == nil {
					err = h.Wait(ctx)
				}
				if err == nil { // its part was over before: the next call has the error
					err = groups[rank].Barrier(ctx)
				}
				return err
			})
			m.Less(m.Took(), soon)
			for rank, err := range errs {
				require.ErrorIs(t, err, collective.ErrMismatch, "rank %d", rank)
				var m *collective.MismatchError
				require.ErrorAs(t, err, &m)
				require.NotEqual(t, m.Mine, m.Theirs)
				require.Contains(t, err.Error(), m.Mine.String())
				require.ErrorIs(t, groups[rank].Barrier(background(t)), collective.ErrMismatch)
			}
		})
	}
}

// Cases 2, 6 and 22: the death of a rank, before the first call or within one, is a typed
// error on all others within a second, by whatever they are connected; the rest goes on.
func TestCase6DeathIsAnErrorEverywhere(t *testing.T) {
	for name, change := range kinds(t) {
		for _, a := range []schedule.Algorithm{0, schedule.Ring, schedule.Chain} {
			t.Run(fmt.Sprintf("%s, %v", name, a), func(t *testing.T) {
				leakless(t)
				groups := found(t, 5, func(rank int, c *collective.Config) {
					c.Group = fmt.Sprint("dies ", a)
					if change != nil {
						change(rank, c)
					}
					force(a, c)
				})
				m := starved.Watch(t)
				var killed time.Time
				errs := errorsOf(5, func(rank int) error {
					if rank == 2 {
						killed = time.Now()
						groups[rank].Kill()
						return nil
					}
					return sumOnes(background(t), groups[rank], 100_000)
				})
				m.Less(time.Since(killed), soon)
				for rank, err := range errs {
					if rank != 2 {
						require.ErrorIs(t, err, collective.ErrRankLost, "rank %d", rank)
						require.Equal(t, []int{2}, collective.Lost(err))
						require.ErrorContains(t, err, "rank-2")
					}
				}
				smaller := shrinkAll(t, groups, 2)
				m.Less(time.Since(killed), 2*time.Second)
				for _, g := range smaller {
					require.Equal(t, uint64(2), g.Epoch())
					require.Equal(t, []string{"rank-0", "rank-1", "rank-3", "rank-4"}, g.Members())
				}
			})
		}
	}
}

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

// Case 3: an error says which call, on which rank, waiting for whom, for how long.
func TestCase3ErrorsNameRanks(t *testing.T) {
	leakless(t)
	groups := found(t, 2, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	m := starved.Watch(t)
	err := sumOnes(ctx, groups[0], 10)
	m.Less(m.Took(), 300*time.Millisecond+soon)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var op *collective.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, 0, op.Rank)
	require.Equal(t, 1, op.Waiting)
	require.Equal(t, uint64(1), op.Seq)
	require.Equal(t, collective.AllReduce, op.Call.Collective)
	require.Positive(t, op.Elapsed)
	require.Less(t, op.Elapsed, m.Took())
	require.ErrorContains(t, err, op.Elapsed.Round(time.Microsecond).String())
	require.ErrorContains(t, err, "all-reduce of 10 float32 sum")
	require.ErrorIs(t, sumOnes(background(t), groups[1], 10), collective.ErrAborted, "the other rank hears of it")
}

// A call whose context has no deadline ends by Config.Timeout.
func TestTimeoutOfCallsWithoutDeadline(t *testing.T) {
	leakless(t)
	groups := found(t, 2, func(_ int, c *collective.Config) { c.Timeout = 200 * time.Millisecond })
	m := starved.Watch(t)
	require.ErrorIs(t, sumOnes(context.Background(), groups[0], 10), context.DeadlineExceeded)
	m.Less(m.Took(), soon)
}

// Case 4: an abort from another goroutine releases all callers: those of its own rank at once
// (the fastest of a few times counts, for processors may be busy), and those elsewhere.
func TestCase4AbortReleasesEverybody(t *testing.T) {
	const own = 100 * time.Millisecond
	for name, change := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			least := time.Hour
			for try := 0; try < 5 && least >= own; try++ {
				groups := found(t, 3, func(rank int, c *collective.Config) {
					if change != nil {
						change(rank, c)
					}
					c.Group = fmt.Sprint("aborted ", try)
				})
				var handles [2]*collective.Handle // rank 1 never comes
				for i, rank := range []int{0, 2} {
					b := collective.Of(make([]float32, 1000))
					var err error
					handles[i], err = groups[rank].Start(background(t), collective.Call{Collective: collective.AllReduce, Dst: b, Src: b, Op: collective.Sum})
					require.NoError(t, err)
				}
				require.Never(t, func() bool { return ended(handles[0]) || ended(handles[1]) }, 20*time.Millisecond, 5*time.Millisecond)
				m, aborted := starved.Watch(t), time.Now()
				groups[2].Abort()
				err := handles[1].Wait(background(t))
				least = min(least, time.Since(aborted))
				errs := []error{err, handles[0].Wait(background(t))}
				select {
				case <-groups[1].Done():
				case <-background(t).Done():
				}
				m.Less(time.Since(aborted), soon)
				errs = append(errs, groups[1].Err(), groups[1].Barrier(background(t)))
				for _, err := range errs {
					require.ErrorIs(t, err, collective.ErrAborted)
					require.ErrorContains(t, err, "by rank 2")
				}
				closeAll(groups)
			}
			require.Less(t, least, own)
		})
	}
}

func ended(h *collective.Handle) bool {
	select {
	case <-h.Done():
		return true
	default:
		return false
	}
}

// Case 5: aborting and closing twice, in any order, is fine.
func TestCase5AbortAndCloseTwice(t *testing.T) {
	leakless(t)
	groups := found(t, 2, nil)
	groups[0].Abort()
	groups[0].Abort()
	require.NoError(t, groups[0].Close())
	require.NoError(t, groups[0].Close())
	groups[0].Abort()
	require.NoError(t, groups[1].Close())
	groups[1].Abort()
	require.Error(t, groups[1].Barrier(background(t)))
	_, err := groups[1].Shrink(background(t))
	require.ErrorIs(t, err, collective.ErrClosed)
}

// A rank that has closed is an error to those that need it, and to no others.
func TestUseAfterALeave(t *testing.T) {
	for name, change := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			groups := found(t, 3, change)
			onAll(t, 3, func(rank int) error {
				err := sumOnes(background(t), groups[rank], 100)
				if rank == 1 {
					err = errors.Join(err, groups[1].Close())
				}
				return err
			})
			require.NoError(t, groups[0].Err())
			for _, rank := range []int{0, 2} {
				err := sumOnes(background(t), groups[rank], 100)
				require.ErrorIs(t, err, collective.ErrRankLost)
				require.Equal(t, []int{1}, collective.Lost(err))
			}
			require.ErrorIs(t, groups[1].Barrier(background(t)), collective.ErrClosed)
			shrinkAll(t, groups, 1)
		})
	}
}

// A rank that hangs, background and all, is lost after PeerTimeout.
func TestSilentRankIsLost(t *testing.T) {
	leakless(t)
	groups := found(t, 3, overSockets(t, false, func(_ int, c *collective.Config) { c.PeerTimeout = 500 * time.Millisecond }))
	thaw := groups[1].Freeze()
	m := starved.Watch(t)
	errs := errorsOf(2, func(i int) error { return sumOnes(background(t), groups[2*i], 100) })
	thaw()
	m.Less(m.Took(), 500*time.Millisecond+2*soon)
	for _, err := range errs {
		require.ErrorIs(t, err, collective.ErrRankLost)
		require.Equal(t, []int{1}, collective.Lost(err))
	}
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

// Two hundred ranks die at random moments of a stream of calls; nobody hangs, everybody
// else goes on.
func TestRandomKillsNeverHang(t *testing.T) {
	leakless(t)
	kills := 200
	if testing.Short() {
		kills = 40
	}
	rng := rand.New(rand.NewPCG(7, 7))
	local := &collective.Local{}
	for done := 0; done < kills; {
		n := 3 + rng.IntN(4)
		name := fmt.Sprint("kills ", done)
		groups := found(t, n, func(_ int, c *collective.Config) { c.Local, c.Group = local, name })
		for len(groups) > 2 {
			victim, calls := rng.IntN(len(groups)), rng.IntN(4)
			groups = killOne(t, groups, victim, calls, rng.IntN(50_000))
			done++
		}
		closeAll(groups)
	}
}

// killOne kills a rank after it has made some calls, and returns the group of the others.
func killOne(t *testing.T, groups []*collective.Group, victim, calls, count int) []*collective.Group {
	t.Helper()
	next := make([]*collective.Group, len(groups))
	errs := errorsOf(len(groups), func(rank int) error {
		g := groups[rank]
		if rank == victim {
			for range calls {
				if err := sumOnes(background(t), g, count); err != nil {
					return err
				}
			}
			time.AfterFunc(time.Duration(count)*10*time.Nanosecond, g.Kill)
			_ = sumOnes(background(t), g, count) // it may die before or after
			g.Kill()
			return g.Close()
		}
		var err error
		for err == nil {
			err = sumOnes(background(t), g, count)
		}
		if !errors.Is(err, collective.ErrRankLost) {
			return err
		}
		next[rank], err = g.Shrink(background(t), victim)
		return err
	})
	var left []*collective.Group
	for rank, err := range errs {
		require.NoError(t, err, "rank %d of %d", rank, len(groups))
		if rank != victim {
			left = append(left, next[rank])
		}
	}
	return left
}
