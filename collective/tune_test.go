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
)

// tuned lets ranks measure, and find algorithms by their calls.
func tuned(_ int, c *collective.Config) { c.NoCalibration = false }

// mostCalls is more than any contest takes.
const mostCalls = 4000

// untilOver makes calls on all ranks until call has been made often enough for all contests to
// be over, or stop says so.
func untilOver(t *testing.T, groups []*collective.Group, call func(rank, i int) error, stop func() bool) {
	t.Helper()
	for i := range mostCalls {
		onAll(t, len(groups), func(rank int) error { return call(rank, i) })
		all, decided, _ := groups[0].Contests()
		if all > 0 && all == decided || stop != nil && stop() {
			return
		}
	}
	require.Fail(t, "a contest has no end")
}

func due(groups []*collective.Group) func() bool {
	return func() bool {
		_, _, n := groups[0].Contests()
		return n > 0
	}
}

// exactSum is an all-reduce of numbers whose sum is exact in any order.
func exactSum(ctx context.Context, g *collective.Group, count int) error {
	x := make([]float32, count)
	for i := range x {
		x[i] = float32(g.Rank() + i%7)
	}
	if err := g.AllReduce(ctx, collective.Of(x), collective.Of(x), collective.Sum); err != nil {
		return err
	}
	n := g.Size()
	for i := range x {
		if want := float32(n*(n-1)/2 + n*(i%7)); x[i] != want {
			return fmt.Errorf("rank %d of %d, element %d of %d: %v, want %v", g.Rank(), n, i, count, x[i], want)
		}
	}
	return nil
}

// transports make the configurations of groups that tune.
var transports = map[string]func(t *testing.T) func(int, *collective.Config){
	"local":  func(*testing.T) func(int, *collective.Config) { return tuned },
	"memory": func(t *testing.T) func(int, *collective.Config) { return overMemory(t, tuned) },
	"unix":   func(t *testing.T) func(int, *collective.Config) { return overSockets(t, false, tuned) },
	"tcp": func(t *testing.T) func(int, *collective.Config) {
		return overSockets(t, true, func(rank int, c *collective.Config) {
			tuned(rank, c)
			c.Streams, c.Node = 2, fmt.Sprint("node-", rank/2)
		})
	},
}

// Calls of many sizes and types, several under way at a time, are right while their algorithms
// are tried and after that, and ranks come to the same end.
func TestTunedCallsAreRight(t *testing.T) {
	for name, change := range transports {
		for _, n := range []int{3, 4} {
			t.Run(fmt.Sprintf("%s, %d ranks", name, n), func(t *testing.T) {
				leakless(t)
				groups := found(t, n, change(t))
				ctx := background(t)
				untilOver(t, groups, func(rank, i int) error { return severalCalls(ctx, groups[rank], i) }, nil)
				for range 3 {
					onAll(t, n, func(rank int) error { return severalCalls(ctx, groups[rank], 5) })
				}
				all, decided, _ := groups[0].Contests()
				for _, g := range groups[1:] {
					a, d, _ := g.Contests()
					require.Equal(t, []int{all, decided}, []int{a, d})
				}
				t.Logf("%d contests", all)
			})
		}
	}
}

// severalCalls makes calls that are under way together, and one of each other kind.
func severalCalls(ctx context.Context, g *collective.Group, i int) error {
	n := g.Size()
	type pair struct {
		x []int64
		h *collective.Handle
	}
	var pairs []pair
	for k, count := range []int{1 + i%3, 300, 5000 + i%100} {
		x := make([]int64, count)
		for j := range x {
			x[j] = int64(g.Rank() * (j + k))
		}
		h, err := g.Start(ctx, collective.Call{Collective: collective.AllReduce, Dst: collective.Of(x), Src: collective.Of(x), Op: collective.Sum})
		if err != nil {
			return err
		}
		pairs = append(pairs, pair{x, h})
	}
	part, all := []int32{int32(g.Rank()), int32(i)}, make([]int32, 2*n)
	errs := []error{
		exactSum(ctx, g, 40),
		g.AllGather(ctx, collective.Of(all), collective.Of(part)),
		g.ReduceScatter(ctx, collective.Of(part), collective.Of(slices.Clone(all)), collective.Max),
		g.Barrier(ctx),
	}
	if part[0] != int32(g.Rank()) || part[1] != int32(i) || all[2*(n-1)] != int32(n-1) {
		errs = append(errs, fmt.Errorf("rank %d: gathered %v, part %v", g.Rank(), all, part))
	}
	for k, p := range pairs {
		errs = append(errs, p.h.Wait(ctx))
		for j, x := range p.x {
			if want := int64(n * (n - 1) / 2 * (j + k)); x != want {
				return errors.Join(append(errs, fmt.Errorf("element %d of %d: %d, want %d", j, len(p.x), x, want))...)
			}
		}
	}
	return errors.Join(errs...)
}

// Whatever is tried, sums of Deterministic have the same bits, in whatever pieces they are made.
func TestTunedAndDeterministic(t *testing.T) {
	groups := found(t, 3, func(rank int, c *collective.Config) { tuned(rank, c); c.Deterministic = true })
	ctx := background(t)
	inputs := make([][]float32, len(groups))
	rng := rand.New(rand.NewPCG(5, 6))
	for rank := range inputs {
		inputs[rank] = make([]float32, 3000)
		for i := range inputs[rank] {
			inputs[rank][i] = float32(rng.NormFloat64())
		}
	}
	want := make([]float32, 3000)
	for i := range want {
		want[i] = inputs[0][i] + inputs[1][i] + inputs[2][i]
	}
	untilOver(t, groups, func(rank, i int) error {
		x := slices.Clone(inputs[rank])
		cut := []int{0, 1 + i%7, 40, 800 + i%50, len(x)}
		for k, begin := range cut[:len(cut)-1] {
			piece := collective.Of(x[begin:cut[k+1]])
			if err := groups[rank].AllReduce(ctx, piece, piece, collective.Sum); err != nil {
				return err
			}
		}
		if !slices.Equal(want, x) {
			return fmt.Errorf("rank %d, step %d: other bits than in the order of the ranks", rank, i)
		}
		return nil
	}, nil)
}

// Calls that differ are an error on all ranks, also where some compare how long calls took.
func TestMismatchWhileTuned(t *testing.T) {
	for name, change := range transports {
		if name == "memory" {
			continue // nothing is tried
		}
		for _, before := range []string{"the first call", "a comparison"} {
			t.Run(name+", "+before, func(t *testing.T) {
				leakless(t)
				groups := found(t, 3, change(t))
				ctx := background(t)
				if before == "a comparison" {
					untilOver(t, groups, func(rank, _ int) error { return exactSum(ctx, groups[rank], 100) }, due(groups))
				}
				for rank, err := range errorsOf(3, func(rank int) error { return exactSum(ctx, groups[rank], 100+rank/2) }) {
					require.ErrorIs(t, err, collective.ErrMismatch, "rank %d", rank)
					var m *collective.MismatchError
					require.ErrorAs(t, err, &m)
					require.ElementsMatch(t, []int{100, 101}, []int{m.Mine.Count, m.Theirs.Count}, "what the ranks called")
					require.Equal(t, collective.AllReduce, m.Mine.Collective)
				}
			})
		}
	}
}

// A rank that comes so late that the others have said what they wait in finds that it agrees.
func TestLateWhileTuned(t *testing.T) {
	groups := found(t, 3, tuned)
	ctx := background(t)
	call := func(rank, _ int) error { return exactSum(ctx, groups[rank], 100) }
	late := func(rank int) error {
		if rank == 2 {
			<-time.After(collective.AnnounceAfter * 5 / 2)
		}
		return call(rank, 0)
	}
	onAll(t, 3, late)
	untilOver(t, groups, call, due(groups))
	onAll(t, 3, late)
	untilOver(t, groups, call, nil)
}

// A rank that stays away from a comparison ends the group on all, and the next group finds its
// algorithms anew.
func TestShrinkWhileTuned(t *testing.T) {
	for name, change := range transports {
		if name == "memory" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			leakless(t)
			groups := found(t, 4, change(t))
			ctx := background(t)
			call := func(rank, _ int) error { return exactSum(ctx, groups[rank], 100) }
			untilOver(t, groups, call, due(groups))
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			for rank, err := range errorsOf(3, func(rank int) error { return exactSum(short, groups[rank], 100) }) {
				require.Error(t, err, "rank %d", rank)
				var op *collective.OpError
				require.ErrorAs(t, err, &op)
				require.Equal(t, 100, op.Call.Count)
			}
			groups[3].Kill()
			next := make([]*collective.Group, 3)
			onAll(t, 3, func(rank int) (err error) {
				next[rank], err = groups[rank].Shrink(ctx, 3)
				return err
			})
			defer closeAll(next)
			all, _, _ := next[0].Contests()
			require.Zero(t, all)
			untilOver(t, next, func(rank, _ int) error { return exactSum(ctx, next[rank], 100) }, nil)
		})
	}
}

// One rank is enough to do without.
func TestNotTuned(t *testing.T) {
	groups := found(t, 3, func(rank int, c *collective.Config) { c.NoCalibration = rank == 1 })
	ctx := background(t)
	for range 50 {
		onAll(t, 3, func(rank int) error { return exactSum(ctx, groups[rank], 100) })
	}
	all, _, _ := groups[0].Contests()
	require.Zero(t, all)
}
