package collective_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
