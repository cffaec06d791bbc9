package collective_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/schedule"
)

// Case 0: when a call has returned, its buffers are the caller's: overwriting them at once
// harms nobody.
func TestCase0PoisonAfterReturn(t *testing.T) {
	for name, change := range kinds(t) {
		for _, a := range algorithms {
			t.Run(fmt.Sprintf("%s, %v", name, a), func(t *testing.T) {
				n := 2 + int(a)%4
				groups := found(t, n, func(rank int, c *collective.Config) {
					c.Group = fmt.Sprint("poison ", a)
					if change != nil {
						change(rank, c)
					}
					c.Node = fmt.Sprint(rank / 2)
					force(a, c)
				})
				onAll(t, n, func(rank int) error {
					x := make([]float32, 50_000)
					rounds := 20
					if collective.RaceEnabled {
						rounds = 3
					}
					for round := range rounds {
						for i := range x {
							x[i] = float32(round + rank)
						}
						if err := groups[rank].AllReduce(background(t), collective.Of(x), collective.Of(x), collective.Sum); err != nil {
							return err
						}
						want := float32(n*round + n*(n-1)/2)
						for i := range x {
							if x[i] != want {
								return fmt.Errorf("round %d, element %d: %v, want %v", round, i, x[i], want)
							}
							x[i] = float32(math.NaN())
						}
					}
					return nil
				})
			})
		}
	}
}

// noise has numbers whose sum depends on the order.
func noise(seed uint64, n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Ldexp(rng.Float64()-0.5, rng.IntN(20)))
	}
	return x
}

// Case 13: with Deterministic the bits of a sum depend on neither the size of the call, nor
// on what is fused with it, nor on the algorithm, and they are those of a sum by rank.
func TestCase13DeterministicBits(t *testing.T) {
	const n, count = 5, 40_000
	whole := make([][]float32, n)
	want := make([]float32, count)
	for rank := range whole {
		whole[rank] = noise(uint64(rank), count)
		for i, x := range whole[rank] {
			want[i] += x // the first one is added to zero, which changes no bits
		}
	}
	for _, a := range []schedule.Algorithm{0, schedule.Flat, schedule.Direct} {
		groups := found(t, n, func(_ int, c *collective.Config) {
			c.Deterministic = true
			force(a, c)
		})
		for _, pieces := range []int{1, 3, 400} {
			onAll(t, n, func(rank int) error {
				x := append([]float32(nil), whole[rank]...)
				for i := range pieces {
					piece := collective.Of(x[i*count/pieces : (i+1)*count/pieces])
					if err := groups[rank].AllReduce(background(t), piece, piece, collective.Sum); err != nil {
						return err
					}
				}
				for i := range x {
					if math.Float32bits(x[i]) != math.Float32bits(want[i]) {
						return fmt.Errorf("%v in %d pieces: element %d is %v, want %v", a, pieces, i, x[i], want[i])
					}
				}
				return nil
			})
		}
	}
}

// Case 12: all ranks have the same bits, whatever the algorithm and type. The matrix checks
// it for numbers that are nearly exact; here every sum is rounded.
func TestCase12SameBitsOnAllRanks(t *testing.T) {
	for _, n := range []int{3, 4, 7} {
		for _, a := range algorithms {
			groups := found(t, n, func(rank int, c *collective.Config) {
				c.Node = fmt.Sprint(rank / 3)
				c.SegmentBytes = 4096
				force(a, c)
			})
			singles, half := make([][]float32, n), make([][]collective.Half, n)
			onAll(t, n, func(rank int) error {
				singles[rank] = noise(uint64(rank), 5003)
				for _, x := range singles[rank] {
					half[rank] = append(half[rank], toHalf(float64(x/1024)))
				}
				if err := groups[rank].AllReduce(background(t), collective.Of(singles[rank]), collective.Of(singles[rank]), collective.Sum); err != nil {
					return err
				}
				return groups[rank].AllReduce(background(t), collective.Of(half[rank]), collective.Of(half[rank]), collective.Average)
			})
			for rank := range n {
				require.Equal(t, singles[0], singles[rank], "%v", a)
				require.Equal(t, half[0], half[rank], "%v", a)
			}
		}
	}
}

// Case 15: the average of integers is the sum divided by the ranks, truncated towards zero.
func TestCase15AverageOfIntegers(t *testing.T) {
	const n = 3
	for _, a := range []schedule.Algorithm{schedule.Flat, schedule.Ring} {
		groups := found(t, n, func(_ int, c *collective.Config) { force(a, c) })
		onAll(t, n, func(rank int) error {
			x, y, z := []int32{int32(rank), -1, -int32(rank)}, []int64{1, 1, int64(5 * rank)}, []uint8{1, 2, 4}
			for _, b := range []collective.Buffer{collective.Of(x), collective.Of(y), collective.Of(z)} {
				if err := groups[rank].AllReduce(background(t), b, b, collective.Average); err != nil {
					return err
				}
			}
			if fmt.Sprint(x, y, z) != "[1 -1 -1] [1 1 5] [1 2 4]" {
				return fmt.Errorf("%v: %v %v %v", a, x, y, z)
			}
			return nil
		})
	}
}

// Case 23: sums of 16 bits are made in float32: the error is that of one rounding, for any
// number of ranks.
func TestCase23HalfSumsRoundOnce(t *testing.T) {
	for _, n := range []int{2, 8, 32} {
		for _, count := range []int{100, 20_000} {
			groups := found(t, n, nil)
			x := inputs(brains, n, count, collective.Sum)
			out := make([][]collective.Brain, n)
			onAll(t, n, func(rank int) error {
				out[rank] = append([]collective.Brain(nil), x[rank]...)
				return groups[rank].AllReduce(background(t), collective.Of(out[rank]), collective.Of(out[rank]), collective.Sum)
			})
			var square, wrong float64
			for i := range count {
				exact := 0.0
				for rank := range n {
					exact += fromBrain(x[rank][i])
				}
				square += exact * exact
				wrong += (fromBrain(out[0][i]) - exact) * (fromBrain(out[0][i]) - exact)
			}
			require.Less(t, math.Sqrt(wrong/square), 0.003, "%d ranks, %d elements", n, count)
			closeAll(groups)
		}
	}
}

// NaN and infinities pass through sums, and NaN through Min and Max.
func TestNonFiniteValues(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, a := range []schedule.Algorithm{schedule.Flat, schedule.Ring, schedule.RecursiveDoubling} {
		groups := found(t, 2, func(_ int, c *collective.Config) { force(a, c) })
		onAll(t, 2, func(rank int) error {
			for _, op := range []collective.Op{collective.Sum, collective.Max, collective.Min} {
				x := [][]float32{{inf, nan, inf}, {1, 1, -inf}}[rank]
				if err := groups[rank].AllReduce(background(t), collective.Of(x), collective.Of(x), op); err != nil {
					return err
				}
				if want := map[collective.Op]string{collective.Sum: "[+Inf NaN NaN]", collective.Max: "[+Inf NaN +Inf]", collective.Min: "[1 NaN -Inf]"}[op]; fmt.Sprint(x) != want {
					return fmt.Errorf("%v by %v: %v, want %v", op, a, x, want)
				}
			}
			return nil
		})
	}
}

// Case 18: two groups of the same ranks, in which each rank begins calls in a random order of
// its own, do not hold each other up.
func TestCase18TwoGroupsInAnyOrder(t *testing.T) {
	leakless(t)
	const n, rounds = 3, 1000
	first := found(t, n, overSockets(t, false, func(_ int, c *collective.Config) { c.Group = "first" }))
	second := found(t, n, func(_ int, c *collective.Config) { c.Group = "second" })
	onAll(t, n, func(rank int) error {
		rng := rand.New(rand.NewPCG(uint64(rank), 0))
		var handles []*collective.Handle
		for range rounds {
			pair := []*collective.Group{first[rank], second[rank]}
			rng.Shuffle(2, func(i, j int) { pair[i], pair[j] = pair[j], pair[i] })
			for _, g := range pair {
				x := collective.Of([]int64{1})
				h, err := g.Start(background(t), collective.Call{Collective: collective.AllReduce, Dst: x, Src: x, Op: collective.Sum})
				if err != nil {
					return err
				}
				handles = append(handles, h)
			}
		}
		for _, h := range handles {
			if err := h.Wait(background(t)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Case 19: calls of several goroutines on one group are carried out one after the other;
// all results are right when they are the same calls.
func TestCase19ConcurrentCalls(t *testing.T) {
	leakless(t)
	groups := found(t, 3, nil)
	onAll(t, 3, func(rank int) error {
		var wg sync.WaitGroup
		errs := make(chan error, 8)
		for range 8 {
			wg.Go(func() {
				for range 20 {
					if err := sumOnes(background(t), groups[rank], 5000); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		wg.Wait()
		select {
		case err := <-errs:
			return err
		default:
			return nil
		}
	})
	require.Equal(t, uint64(160), groups[0].Completed())
}

func TestMessages(t *testing.T) {
	for name, change := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			groups := found(t, 3, change)
			onAll(t, 3, func(rank int) error { // all send at once, more than any socket takes
				to, from := (rank+1)%3, (rank+2)%3
				src, dst := make([]int64, 1<<20), make([]int64, 1<<20)
				src[0], src[len(src)-1] = int64(rank), int64(rank)
				sent := make(chan error, 1)
				go func() {
					for _, x := range [][]int64{src[:3], nil, src} {
						if err := groups[rank].Send(background(t), collective.Of(x), to); err != nil {
							sent <- err
							return
						}
					}
					sent <- nil
				}()
				for _, x := range [][]int64{dst[:3], nil, dst} {
					if err := groups[rank].Recv(background(t), collective.Of(x), from); err != nil {
						return err
					}
				}
				if dst[0] != int64(from) || dst[len(dst)-1] != int64(from) {
					return fmt.Errorf("got %d and %d", dst[0], dst[len(dst)-1])
				}
				return <-sent
			})
			require.ErrorIs(t, groups[0].Send(background(t), collective.Of([]int32{1}), 0), collective.ErrArgument)
			require.ErrorIs(t, groups[0].Recv(background(t), collective.Of([]int32{1}), 3), collective.ErrArgument)
			errs := errorsOf(2, func(rank int) error { // another length than was sent
				if rank == 0 {
					return groups[0].Recv(background(t), collective.Of(make([]int32, 5)), 1)
				}
				_ = groups[1].Send(background(t), collective.Of(make([]int32, 4)), 0) // may be over before
				_, err := groups[1].Start(background(t), collective.Call{})
				return err
			})
			require.ErrorIs(t, errs[0], collective.ErrMismatch)
			require.ErrorContains(t, errs[0], "message of 4 int32")
			require.ErrorIs(t, errs[1], collective.ErrArgument)
		})
	}
}

// Many small segments, all sent before the first one is read, fill no socket for good.
func TestManySmallSegments(t *testing.T) {
	leakless(t)
	for _, a := range []schedule.Algorithm{schedule.Direct, schedule.Ring} {
		groups := found(t, 3, overSockets(t, true, func(_ int, c *collective.Config) {
			c.Group, c.SegmentBytes = a.String(), 2000
			force(a, c)
		}))
		onAll(t, 3, func(rank int) error {
			const count = 4 << 20
			src, dst := make([]uint8, count), make([]uint8, 3*count)
			src[count-1] = uint8(rank + 1)
			if err := groups[rank].AllGather(background(t), collective.Of(dst), collective.Of(src)); err != nil {
				return err
			}
			if dst[count-1] != 1 || dst[2*count-1] != 2 || dst[3*count-1] != 3 {
				return fmt.Errorf("%v: %d %d %d", a, dst[count-1], dst[2*count-1], dst[3*count-1])
			}
			return nil
		})
		closeAll(groups)
	}
}

// Buckets are sent in one order whatever order the gradients come in, and overlap with
// what comes later.
func TestGradients(t *testing.T) {
	leakless(t)
	sizes := []int{1000, 10, 0, 5000, 300, 1}
	groups := found(t, 4, nil)
	onAll(t, 4, func(rank int) error {
		sync, err := collective.NewGradients(collective.GradientsConfig{Group: groups[rank], Sizes: sizes, BucketBytes: 8000})
		if err != nil {
			return err
		}
		if sync.Buckets() != 3 {
			return fmt.Errorf("%d buckets", sync.Buckets())
		}
		rng := rand.New(rand.NewPCG(uint64(rank), 3))
		for step := range 10 {
			grads := make([][]float32, len(sizes))
			for _, i := range rng.Perm(len(sizes)) {
				grads[i] = make([]float32, sizes[i])
				for k := range grads[i] {
					grads[i][k] = float32(step + i + rank)
				}
				if err := sync.Ready(background(t), i, grads[i]); err != nil {
					return err
				}
			}
			if err := sync.Wait(background(t)); err != nil {
				return err
			}
			for i, g := range grads {
				for _, x := range g {
					if want := float32(step+i) + 1.5; x != want {
						return fmt.Errorf("step %d, tensor %d: %v, want %v", step, i, x, want)
					}
				}
			}
		}
		return nil
	})
}

func TestGradientsRefuse(t *testing.T) {
	_, err := collective.NewGradients(collective.GradientsConfig{BucketBytes: 1, Sizes: []int{-1}, Op: 99})
	require.ErrorIs(t, err, collective.ErrArgument)
	for _, what := range []string{"Group", "BucketBytes 1", "tensor 0", "op 99"} {
		require.ErrorContains(t, err, what)
	}
	groups := found(t, 1, nil)
	sync, err := collective.NewGradients(collective.GradientsConfig{Group: groups[0], Sizes: []int{2, 2}})
	require.NoError(t, err)
	require.Equal(t, 1, sync.Buckets())
	require.NoError(t, sync.Ready(background(t), 0, make([]float32, 2)))
	require.ErrorContains(t, sync.Ready(background(t), 0, make([]float32, 2)), "was ready already")
	require.ErrorContains(t, sync.Ready(background(t), 1, make([]float32, 3)), "must be 2")
	require.ErrorContains(t, sync.Ready(background(t), 2, nil), "must be 0 to 1")
	require.ErrorContains(t, sync.Wait(background(t)), "tensor 1 is not ready")
	require.NoError(t, sync.Ready(background(t), 1, make([]float32, 2)))
	require.NoError(t, sync.Wait(background(t)))
}

// Bad arguments are errors that leave the group as it was.
func TestBadArguments(t *testing.T) {
	groups := found(t, 2, nil)
	g, ctx := groups[0], background(t)
	f, long, d := make([]float32, 4), make([]float32, 9), make([]float64, 4)
	for name, err := range map[string]error{
		"lengths":        g.AllReduce(ctx, collective.Of(f), collective.Of(f[:3]), collective.Sum),
		"types":          g.AllReduce(ctx, collective.Of(f), collective.Of(d), collective.Sum),
		"no op":          g.AllReduce(ctx, collective.Of(f), collective.Of(f), 0),
		"unknown op":     g.AllReduce(ctx, collective.Of(f), collective.Of(f), 77),
		"no buffers":     g.AllReduce(ctx, collective.Buffer{}, collective.Buffer{}, collective.Sum),
		"overlap":        g.AllReduce(ctx, collective.Of(long[:4]), collective.Of(long[1:5]), collective.Sum),
		"wrong in place": g.ReduceScatter(ctx, collective.Of(long[2:4]), collective.Of(long[:4]), collective.Sum),
		"gather":         g.AllGather(ctx, collective.Of(f), collective.Of(f)),
		"scatter":        g.ReduceScatter(ctx, collective.Of(f), collective.Of(f), collective.Sum),
		"to all":         g.AllToAll(ctx, collective.Of(long), collective.Of(long)),
		"root":           g.Broadcast(ctx, collective.Of(f), collective.Of(f), 2),
		"negative root":  g.Reduce(ctx, collective.Of(f), collective.Of(f), collective.Sum, -1),
	} {
		require.ErrorIs(t, err, collective.ErrArgument, name)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, g.Barrier(done), context.Canceled)
	require.NoError(t, g.Err(), "a context that has ended before the call is the caller's affair")
	onAll(t, 2, func(rank int) error { return sumOnes(ctx, groups[rank], 10) })
}

// A context that ends in the middle of a call ends it everywhere.
func TestCancelInTheMiddle(t *testing.T) {
	leakless(t)
	groups := found(t, 2, nil)
	ctx, cancel := context.WithCancelCause(context.Background())
	h, err := groups[0].Start(ctx, collective.Call{Collective: collective.Barrier, Dst: collective.Of([]uint8{0}), Src: collective.Of([]uint8{0}), Op: collective.Max})
	require.NoError(t, err)
	select {
	case <-h.Done():
		require.Fail(t, "ended without the other rank")
	case <-time.After(10 * time.Millisecond):
	}
	cause := fmt.Errorf("enough")
	cancel(cause)
	require.ErrorIs(t, h.Wait(background(t)), cause)
	require.ErrorContains(t, groups[1].Barrier(background(t)), "enough")
}

// A message of many frames arrives in order over connections that take turns.
func TestMessageOverSeveralConnections(t *testing.T) {
	leakless(t)
	groups := found(t, 2, overSockets(t, true, func(_ int, c *collective.Config) { c.Streams = 3 }))
	blob := make([]int64, 5<<20/8+1)
	for i := range blob {
		blob[i] = int64(i)
	}
	onAll(t, 2, func(rank int) error {
		got := make([]int64, len(blob))
		for range 3 {
			if rank == 0 {
				if err := groups[0].Send(background(t), collective.Of(blob), 1); err != nil {
					return err
				}
				continue
			}
			clear(got)
			if err := groups[1].Recv(background(t), collective.Of(got), 0); err != nil {
				return err
			}
			if !slices.Equal(got, blob) {
				return errors.New("the blob has changed on the way")
			}
		}
		return nil
	})
}
