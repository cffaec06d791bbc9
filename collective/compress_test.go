package collective_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/codec"
	"github.com/elasticps/elasticps/collective/schedule"
)

var codecs = []codec.Format{
	codec.Float16, codec.BFloat16, codec.E4M3, codec.E5M2, codec.MXE4M3, codec.MXE5M2, codec.OneBit,
}

// codecErrors bound the relative error of a sum of normal numbers, for any number of ranks.
var codecErrors = map[codec.Format]float64{
	codec.Float16: 0.0005, codec.BFloat16: 0.003, codec.E4M3: 0.04, codec.E5M2: 0.08, codec.MXE4M3: 0.045, codec.MXE5M2: 0.085, codec.OneBit: 1,
}

// gaussians are normal numbers of each rank, the same at every call.
func gaussians(n, count int) [][]float32 {
	x := make([][]float32, n)
	for rank := range x {
		rng := rand.New(rand.NewPCG(uint64(rank), uint64(count)))
		x[rank] = make([]float32, count)
		for i := range x[rank] {
			x[rank][i] = float32(rng.NormFloat64())
		}
	}
	return x
}

// sumOf adds in float64, and divides where it is an average.
func sumOf(x [][]float32, op collective.Op) []float64 {
	sum := make([]float64, len(x[0]))
	for _, one := range x {
		for i, v := range one {
			sum[i] += float64(v)
		}
	}
	if op == collective.Average {
		for i := range sum {
			sum[i] /= float64(len(x))
		}
	}
	return sum
}

// distance is the relative error of got.
func distance(want []float64, got []float32) float64 {
	var wrong, square float64
	for i := range want {
		wrong += (float64(got[i]) - want[i]) * (float64(got[i]) - want[i])
		square += want[i] * want[i]
	}
	return math.Sqrt(wrong / max(square, 1e-300))
}

// digestOf is that of the bits, NaN included.
func digestOf(x []float32) [sha256.Size]byte {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return sha256.Sum256(b)
}

// compressed reduces x on all ranks and wants the same bits everywhere. It returns them.
func compressed(t testing.TB, groups []*collective.Group, x [][]float32, op collective.Op, inPlace bool, c func(rank int) collective.Compression) []float32 {
	t.Helper()
	out := make([][]float32, len(groups))
	onAll(t, len(groups), func(rank int) error {
		src := slices.Clone(x[rank])
		out[rank] = src
		if !inPlace {
			out[rank] = make([]float32, len(src))
		}
		return groups[rank].AllReduceCompressed(background(t), out[rank], src, op, c(rank))
	})
	for rank := range out {
		require.Equal(t, digestOf(out[0]), digestOf(out[rank]), "rank %d", rank)
	}
	return out[0]
}

// plain is a compression without feedback, where that may be.
func plain(f codec.Format) func(int) collective.Compression {
	return func(int) collective.Compression {
		if f == codec.OneBit {
			return collective.Compression{Format: f, Feedback: &codec.Feedback{}, Name: "x"}
		}
		return collective.Compression{Format: f}
	}
}

// Cases 12 and 16: all ranks have the same bits, whatever the number of ranks and elements,
// in place or not.
func TestCompressedMatrix(t *testing.T) {
	leakless(t)
	sizes := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 16}
	if collective.RaceEnabled {
		sizes = []int{1, 2, 3, 5}
	}
	for _, n := range sizes {
		groups := found(t, n, func(_ int, c *collective.Config) { c.SegmentBytes = 300 * n })
		for i, count := range []int{0, 1, n - 1, n, n + 1, 127, 128, 129, 128*n - 1, 128*n + 1, 10_007} {
			compressedByEach(t, groups, count, i, fmt.Sprint(n, " ranks"))
		}
		closeAll(groups)
	}
}

// compressedByEach makes an all-reduce of so many elements by every codec, and holds the errors
// of those that are large enough to their bounds. turn changes operation and place.
func compressedByEach(t *testing.T, groups []*collective.Group, count, turn int, who string) {
	t.Helper()
	x := gaussians(len(groups), count)
	for k, f := range codecs {
		op := []collective.Op{collective.Sum, collective.Average}[(turn+k)%2]
		got := compressed(t, groups, x, op, turn%2 == 0, plain(f))
		if count > 1000 {
			require.Less(t, distance(sumOf(x, op), got), codecErrors[f], "%v, %s, %v", f, who, op)
		}
	}
}

// The error of a sum does not grow with the number of ranks: it is that of two roundings.
func TestCompressedErrors(t *testing.T) {
	if collective.RaceEnabled {
		t.Skip("no other code than in the matrix")
	}
	for _, n := range []int{2, 4, 8, 16, 32} {
		groups := found(t, n, nil)
		x := gaussians(n, 20_000)
		for _, f := range codecs[:6] {
			got := distance(sumOf(x, collective.Sum), compressed(t, groups, x, collective.Sum, true, plain(f)))
			t.Logf("%2d ranks, %v: %.5f", n, f, got)
			require.Less(t, got, codecErrors[f], "%v, %d ranks", f, n)
		}
		closeAll(groups)
	}
}

// Over sockets, too, buffers are the caller's when a call has returned.
func TestCompressedOverSockets(t *testing.T) {
	leakless(t)
	count := 300_001
	if collective.RaceEnabled {
		count = 40_001
	}
	for name, nodes := range map[string][]int{"unix": {0, 0, 0}, "tcp": {0, 1, 2}, "unix, two nodes": {0, 1, 0, 1, 1}, "tcp, two nodes": {0, 0, 1, 1}} {
		n := len(nodes)
		groups := found(t, n, overSockets(t, strings.HasPrefix(name, "tcp"), func(rank int, c *collective.Config) {
			byNode(nodes...)(rank, c)
			c.Group, c.Streams = name, 2
		}))
		x := gaussians(n, count)
		want := compressed(t, found(t, n, byNode(nodes...)), x, collective.Average, true, plain(codec.E4M3))
		onAll(t, n, func(rank int) error {
			mine := make([]float32, count)
			for round := range 5 {
				copy(mine, x[rank])
				if err := groups[rank].AllReduceCompressed(background(t), mine, mine, collective.Average, collective.Compression{Format: codec.E4M3}); err != nil {
					return err
				}
				if !slices.Equal(mine, want) {
					return fmt.Errorf("round %d differs", round)
				}
				for i := range mine {
					mine[i] = float32(math.NaN())
				}
			}
			return nil
		})
		closeAll(groups)
	}
}

// What travels has exactly the bytes that the format says.
func TestCompressedBytes(t *testing.T) {
	const n, count = 4, n4 * codec.Block
	groups := found(t, n, func(_ int, c *collective.Config) { force(schedule.Direct, c) })
	x := gaussians(n, count)
	travelled := func(run func()) (sent, received int64) {
		var before [n]collective.Traffic
		for rank, g := range groups {
			before[rank] = g.Traffic()
		}
		run()
		for rank, g := range groups {
			now := g.Traffic()
			if rank > 0 {
				require.Equal(t, sent, now.Sent-before[rank].Sent, "rank %d", rank)
			}
			sent, received = now.Sent-before[rank].Sent, now.Received-before[rank].Received
			require.Equal(t, sent, received)
		}
		return sent, received
	}
	full, _ := travelled(func() {
		onAll(t, n, func(rank int) error {
			y := make([]float32, count)
			return groups[rank].AllReduce(background(t), collective.Of(y), collective.Of(x[rank]), collective.Sum)
		})
	})
	require.Equal(t, int64(2*(n-1)*4*count/n), full, "what is compared with")
	for _, f := range codecs {
		got, _ := travelled(func() { compressed(t, groups, x, collective.Sum, true, plain(f)) })
		require.Equal(t, int64(2*(n-1)*f.EncodedLen(count)/n), got, "%v", f)
		switch f {
		case codec.Float16, codec.BFloat16:
			require.Equal(t, full/2, got)
		case codec.OneBit:
			require.Equal(t, full/32+full/codec.Block, got)
		default:
			require.Equal(t, full/4+full/codec.Block, got, "a quarter and the scales")
		}
	}
}

// n4 is a number of blocks that four ranks share evenly.
const n4 = 4 * 25

// NaN and infinities of one rank come out not finite on all, and no later step suffers.
func TestCompressedNonFinite(t *testing.T) {
	const n, count = 3, 1_000
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	groups := found(t, n, nil)
	for _, f := range codecs {
		left := make([]codec.Feedback, n)
		with := func(rank int) collective.Compression {
			return collective.Compression{Format: f, Feedback: &left[rank], Name: "x"}
		}
		x := gaussians(n, count)
		good := x
		bad := [][]float32{slices.Clone(x[0]), slices.Clone(x[1]), slices.Clone(x[2])}
		at := []int{0, 10, 340, 500, 700, 999} // parts of all ranks
		for i, k := range at {
			bad[i%n][k] = []float32{nan, inf, -inf}[i/2]
		}
		got := compressed(t, groups, bad, collective.Sum, true, with)
		for _, k := range at {
			require.NotZero(t, got[k]-got[k], "%v: element %d is %v", f, k, got[k])
		}
		finite := 0
		for _, v := range got {
			if v-v == 0 {
				finite++
			}
		}
		if f != codec.OneBit {
			require.Equal(t, count-len(at), finite, "%v", f)
		}
		for _, v := range compressed(t, groups, good, collective.Sum, true, with) {
			require.Zero(t, v-v, "%v: %v in the next step", f, v)
		}
	}
}

// Ranks whose compression differs get an error that says so, all of them.
func TestCompressedMismatch(t *testing.T) {
	leakless(t)
	for _, other := range []codec.Format{codec.E5M2, 0} {
		groups := found(t, 3, nil)
		errs := errorsOf(3, func(rank int) error {
			x := make([]float32, 1000)
			c := collective.Compression{Format: codec.E4M3}
			if rank == 2 {
				c.Format = other
			}
			return groups[rank].AllReduceCompressed(background(t), x, x, collective.Sum, c)
		})
		for rank, err := range errs {
			require.ErrorIs(t, err, collective.ErrMismatch, "rank %d", rank)
			require.ErrorContains(t, err, "1000 float32 as e4m3 sum")
		}
		closeAll(groups)
	}
}

func TestCompressedArguments(t *testing.T) {
	groups := found(t, 2, nil)
	g, ctx := groups[0], background(t)
	x, half := make([]float32, 4), make([]collective.Half, 4)
	call := func(c collective.Call) error {
		_, err := g.Start(ctx, c)
		return err
	}
	e4m3 := collective.Compression{Format: codec.E4M3}
	for name, err := range map[string]error{
		"format":   g.AllReduceCompressed(ctx, x, x, collective.Sum, collective.Compression{Format: 99}),
		"op":       g.AllReduceCompressed(ctx, x, x, collective.Max, e4m3),
		"one bit":  g.AllReduceCompressed(ctx, x, x, collective.Sum, collective.Compression{Format: codec.OneBit}),
		"no name":  g.AllReduceCompressed(ctx, x, x, collective.Sum, collective.Compression{Format: codec.E4M3, Feedback: &codec.Feedback{}}),
		"lengths":  g.AllReduceCompressed(ctx, x, x[1:], collective.Sum, e4m3),
		"type":     call(collective.Call{Collective: collective.AllReduce, Dst: collective.Of(half), Src: collective.Of(half), Op: collective.Sum, Compression: e4m3}),
		"not all":  call(collective.Call{Collective: collective.AllToAll, Dst: collective.Of(x), Src: collective.Of(x), Compression: e4m3}),
		"to a one": call(collective.Call{Collective: collective.Reduce, Dst: collective.Of(x), Src: collective.Of(x), Op: collective.Sum, Compression: e4m3}),
	} {
		require.ErrorIs(t, err, collective.ErrArgument, name)
	}
	_, err := collective.NewGradients(collective.GradientsConfig{
		Group: g, Sizes: []int{1, 2}, Names: []string{"a", "a"}, Op: collective.Max, Compression: e4m3,
	})
	require.ErrorContains(t, err, `tensors 0 and 1 are both named "a"`)
	require.ErrorContains(t, err, "max, must be all-reduce of float32 sum or average")
	_, err = collective.NewGradients(collective.GradientsConfig{Group: g, Sizes: []int{1, 2}, Names: []string{"a"}})
	require.ErrorContains(t, err, "1 Names, must be 2")
	onAll(t, 2, func(rank int) error { return sumOnes(ctx, groups[rank], 10) })
}

// A rank that sends what is no packed number is lost, by name; it hears so too.
func TestCompressedDamage(t *testing.T) {
	leakless(t)
	groups := found(t, 3, nil)
	groups[1].Taint(0)
	errs := errorsOf(3, func(rank int) error {
		x := make([]float32, 1000)
		return groups[rank].AllReduceCompressed(background(t), x, x, collective.Sum, collective.Compression{Format: codec.E4M3})
	})
	for _, err := range errs {
		require.ErrorIs(t, err, collective.ErrRankLost)
		require.ErrorContains(t, err, "[1] (rank-1): it sent what does not unpack: codec: damaged bytes: scale NaN")
	}
}

// A call that ends in the middle fails all ranks as other calls do, and lets go of feedback.
func TestCompressedCancel(t *testing.T) {
	leakless(t)
	groups := found(t, 2, nil)
	var left codec.Feedback
	x := make([]float32, 1000)
	ctx, cancel := context.WithCancel(context.Background())
	c := collective.Compression{Format: codec.E4M3, Feedback: &left, Name: "x"}
	h, err := groups[0].Start(ctx, collective.Call{Collective: collective.AllReduce, Dst: collective.Of(x), Src: collective.Of(x), Op: collective.Sum, Compression: c})
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, h.Wait(background(t)), context.Canceled)
	held, err := left.Hold(t.Context(), codec.Place{}, codec.Tensor{Name: "x", Len: 1000})
	require.NoError(t, err)
	held.Release()
}

func BenchmarkCompressed(b *testing.B) {
	const n = 4
	for _, f := range append([]codec.Format{0}, codecs[:6]...) {
		for _, count := range []int{256 << 10, 4 << 20} {
			b.Run(fmt.Sprintf("%v/%dKiB", f, 4*count>>10), func(b *testing.B) {
				groups := found(b, n, overSockets(b, true, nil))
				x := gaussians(n, count)
				b.SetBytes(int64(4 * count))
				for b.Loop() {
					onAll(b, n, func(rank int) error {
						call := collective.Call{Collective: collective.AllReduce, Dst: collective.Of(x[rank]), Src: collective.Of(x[rank]), Op: collective.Average, Compression: collective.Compression{Format: f}}
						h, err := groups[rank].Start(background(b), call)
						if err != nil {
							return err
						}
						return h.Wait(background(b))
					})
				}
				closeAll(groups)
			})
		}
	}
}
