package collective_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/schedule"
	"github.com/elasticps/elasticps/internal/kernel"
)

// values of a type: how they are made of float64 and read back.
type values[T collective.Element] struct {
	make func(float64) T
	read func(T) float64
	// relative error that one rounding may cause, 0 for exact types
	unit float64
}

var (
	float32s = values[float32]{func(x float64) float32 { return float32(x) }, func(x float32) float64 { return float64(x) }, 6e-8}
	float64s = values[float64]{func(x float64) float64 { return x }, func(x float64) float64 { return x }, 2.3e-16}
	halves   = values[collective.Half]{toHalf, fromHalf, 4.9e-4}
	brains   = values[collective.Brain]{toBrain, fromBrain, 3.95e-3}
	int32s   = values[int32]{func(x float64) int32 { return int32(x) }, func(x int32) float64 { return float64(x) }, 0}
	int64s   = values[int64]{func(x float64) int64 { return int64(x) }, func(x int64) float64 { return float64(x) }, 0}
	bytes    = values[uint8]{func(x float64) uint8 { return uint8(x) }, func(x uint8) float64 { return float64(x) }, 0}
)

func toHalf(x float64) collective.Half {
	var h [1]uint16
	kernel.EncodeFP16(h[:], []float32{float32(x)})
	return collective.Half(h[0])
}

func fromHalf(h collective.Half) float64 {
	var x [1]float32
	kernel.DecodeFP16(x[:], []uint16{uint16(h)})
	return float64(x[0])
}

func toBrain(x float64) collective.Brain {
	var h [1]uint16
	kernel.EncodeBF16(h[:], []float32{float32(x)})
	return collective.Brain(h[0])
}

func fromBrain(b collective.Brain) float64 {
	return float64(math.Float32frombits(uint32(b) << 16))
}

// inputs of all ranks: small whole numbers and quarters, so that integers neither wrap
// around nor floats vanish, and that products stay small.
func inputs[T collective.Element](v values[T], n, count int, op collective.Op) [][]T {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(count)))
	x := make([][]T, n)
	for rank := range x {
		x[rank] = make([]T, count)
		for i := range x[rank] {
			f := float64(rng.IntN(15))
			switch {
			case op == collective.Product:
				f = float64(1 + rng.IntN(8)/7) // 1, seldom 2
			case v.unit > 0:
				f = f*0.37 + 0.11
			}
			x[rank][i] = v.make(f)
		}
	}
	return x
}

// oracle combines element i of all ranks in float64.
func oracle[T collective.Element](v values[T], x [][]T, i int, op collective.Op) float64 {
	y := v.read(x[0][i])
	for _, other := range x[1:] {
		z := v.read(other[i])
		switch op {
		case collective.Sum, collective.Average:
			y += z
		case collective.Product:
			y *= z
		case collective.Min:
			y = min(y, z)
		case collective.Max:
			y = max(y, z)
		}
	}
	if op == collective.Average {
		y /= float64(len(x))
		if v.unit == 0 {
			y = math.Trunc(y)
		}
	}
	return v.read(v.make(y))
}

// within allows for as many roundings as there are combinations.
func within[T collective.Element](v values[T], want, got float64, roundings int) bool {
	return want == got || math.Abs(want-got) <= v.unit*float64(roundings)*max(math.Abs(want), 1e-30)
}

// matrix is one group and what to run on it.
type matrix[T collective.Element] struct {
	values[T]
	t       *testing.T
	groups  []*collective.Group
	forced  schedule.Algorithm
	inPlace bool
}

// call makes a call on all ranks; dst and src of each rank are made by buffers, which
// returns the same slice twice, or overlapping ones, when in place.
func (m *matrix[T]) call(what string, buffers func(rank int) (dst, src []T), c collective.Call) [][]T {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out := make([][]T, len(m.groups))
	errs := errorsOf(len(m.groups), func(rank int) error {
		dst, src := buffers(rank)
		out[rank] = dst
		c := c
		c.Dst, c.Src = collective.Of(dst), collective.Of(src)
		h, err := m.groups[rank].Start(ctx, c)
		if err != nil {
			return err
		}
		return h.Wait(ctx)
	})
	for rank, err := range errs {
		require.NoError(m.t, err, "%s on rank %d", what, rank)
	}
	return out
}

func (m *matrix[T]) roundings() int { return len(m.groups) + 1 }

func (m *matrix[T]) same(what string, i int, want float64, got T) {
	m.t.Helper()
	if !within(m.values, want, m.read(got), m.roundings()) {
		require.Equal(m.t, want, m.read(got), "%s, element %d", what, i)
	}
}

func clone[T any](x []T) []T { return append(make([]T, 0, len(x)+1), x...) }

func (m *matrix[T]) allReduce(count int, op collective.Op) {
	what := fmt.Sprintf("all-reduce of %d, %v, %v", count, op, m.forced)
	x := inputs(m.values, len(m.groups), count, op)
	out := m.call(what, func(rank int) ([]T, []T) {
		src := clone(x[rank])
		if m.inPlace {
			return src, src
		}
		return make([]T, count), src
	}, collective.Call{Collective: collective.AllReduce, Op: op})
	for rank := range out {
		for i := range count {
			m.same(what, i, oracle(m.values, x, i, op), out[rank][i])
			if out[rank][i] != out[0][i] {
				require.Equal(m.t, out[0][i], out[rank][i], "%s: bits of element %d on rank %d", what, i, rank)
			}
		}
	}
}

func (m *matrix[T]) reduce(count int, op collective.Op) {
	root := count % len(m.groups)
	what := fmt.Sprintf("reduce of %d, %v, %v", count, op, m.forced)
	x := inputs(m.values, len(m.groups), count, op)
	out := m.call(what, func(rank int) ([]T, []T) {
		src := clone(x[rank])
		if m.inPlace {
			return src, src
		}
		return make([]T, count), src
	}, collective.Call{Collective: collective.Reduce, Op: op, Root: root})
	for rank := range out {
		for i := range count {
			switch {
			case rank == root:
				m.same(what, i, oracle(m.values, x, i, op), out[rank][i])
			case m.inPlace: // not written to
				require.Equal(m.t, x[rank][i], out[rank][i])
			}
		}
	}
}

func (m *matrix[T]) reduceScatter(count int, op collective.Op) {
	n := len(m.groups)
	what := fmt.Sprintf("reduce-scatter of %d, %v, %v", count, op, m.forced)
	x := inputs(m.values, n, n*count, op)
	out := m.call(what, func(rank int) ([]T, []T) {
		src := clone(x[rank])
		if m.inPlace {
			return src[rank*count : (rank+1)*count], src
		}
		return make([]T, count), src
	}, collective.Call{Collective: collective.ReduceScatter, Op: op})
	for rank := range out {
		for i := range count {
			m.same(what, i, oracle(m.values, x, rank*count+i, op), out[rank][i])
		}
	}
}

func (m *matrix[T]) allGather(count int) {
	n := len(m.groups)
	what := fmt.Sprintf("all-gather of %d, %v", count, m.forced)
	x := inputs(m.values, n, count, collective.Sum)
	out := m.call(what, func(rank int) ([]T, []T) {
		dst := make([]T, n*count)
		if m.inPlace {
			src := dst[rank*count : (rank+1)*count]
			copy(src, x[rank])
			return dst, src
		}
		return dst, clone(x[rank])
	}, collective.Call{Collective: collective.AllGather})
	for rank := range out {
		for i := range n * count {
			if out[rank][i] != x[i/count][i%count] {
				require.Equal(m.t, x[i/count][i%count], out[rank][i], what)
			}
		}
	}
}

func (m *matrix[T]) broadcast(count int) {
	root := (count + 1) % len(m.groups)
	what := fmt.Sprintf("broadcast of %d, %v", count, m.forced)
	x := inputs(m.values, len(m.groups), count, collective.Sum)
	out := m.call(what, func(rank int) ([]T, []T) {
		switch {
		case rank != root:
			return make([]T, count), nil
		case m.inPlace:
			src := clone(x[rank])
			return src, src
		}
		return make([]T, count), clone(x[rank])
	}, collective.Call{Collective: collective.Broadcast, Root: root})
	for rank := range out {
		for i := range count {
			if out[rank][i] != x[root][i] {
				require.Equal(m.t, x[root][i], out[rank][i], what)
			}
		}
	}
}

func (m *matrix[T]) allToAll(count int) {
	n := len(m.groups)
	what := fmt.Sprintf("all-to-all of %d", count)
	x := inputs(m.values, n, n*count, collective.Sum)
	out := m.call(what, func(rank int) ([]T, []T) {
		src := clone(x[rank])
		if m.inPlace {
			return src, src
		}
		return make([]T, n*count), src
	}, collective.Call{Collective: collective.AllToAll})
	for rank := range out {
		for from := range n {
			for i := range count {
				if want := x[from][rank*count+i]; out[rank][from*count+i] != want {
					require.Equal(m.t, want, out[rank][from*count+i], what)
				}
			}
		}
	}
}

var ops = []collective.Op{collective.Sum, collective.Product, collective.Min, collective.Max, collective.Average}

// all runs everything that the forced algorithm can do.
func (m *matrix[T]) all(counts []int, forced map[collective.Collective]bool) {
	for _, count := range counts {
		for _, op := range ops {
			if m.unit == 0 && op == collective.Average && m.make(300) == m.make(300-256) {
				continue // a byte: the sum of 16 numbers may wrap around, see TestAverageOfIntegers
			}
			if forced[collective.AllReduce] {
				m.allReduce(count, op)
			}
			if forced[collective.Reduce] {
				m.reduce(count, op)
			}
			if forced[collective.ReduceScatter] {
				m.reduceScatter(count, op)
			}
		}
		if forced[collective.AllGather] {
			m.allGather(count)
		}
		if forced[collective.Broadcast] {
			m.broadcast(count)
		}
		if forced[collective.AllToAll] {
			m.allToAll(count)
		}
	}
}

// whoKnows lists the operations that have an algorithm; 0 is the automatic choice.
func whoKnows(a schedule.Algorithm) map[collective.Collective]bool {
	list := []collective.Collective{collective.AllReduce}
	switch a {
	case 0:
		list = append(list, collective.ReduceScatter, collective.AllGather, collective.Broadcast, collective.Reduce, collective.AllToAll)
	case schedule.Flat:
		list = append(list, collective.Reduce)
	case schedule.Direct:
		list = append(list, collective.ReduceScatter, collective.AllGather, collective.Reduce, collective.AllToAll)
	case schedule.Ring:
		list = append(list, collective.ReduceScatter, collective.AllGather)
	case schedule.Tree, schedule.Chain:
		list = append(list, collective.Broadcast, collective.Reduce)
	}
	known := map[collective.Collective]bool{}
	for _, c := range list {
		known[c] = true
	}
	return known
}

// force makes a Config use an algorithm wherever it can.
func force(a schedule.Algorithm, c *collective.Config) {
	if a == 0 {
		return
	}
	c.Algorithms = map[collective.Collective]schedule.Algorithm{}
	for op := range whoKnows(a) {
		c.Algorithms[op] = a
	}
}

var algorithms = []schedule.Algorithm{
	0, schedule.Flat, schedule.Direct, schedule.RecursiveDoubling, schedule.HalvingDoubling,
	schedule.Ring, schedule.Tree, schedule.Chain, schedule.Hierarchical,
}

// oddCounts are those where cutting goes wrong first; the last makes several segments.
func oddCounts(n int) []int { return []int{0, 1, n - 1, n, n + 1, 2*n + 1, 1009} }

// runMatrix runs everything with every type; of many ranks, and for the race detector, a type of
// each width is enough.
func runMatrix(t *testing.T, groups []*collective.Group, a schedule.Algorithm, counts []int) {
	for _, inPlace := range []bool{false, true} {
		known := whoKnows(a)
		runType(t, float32s, groups, a, inPlace, counts, known)
		runType(t, halves, groups, a, inPlace, counts, known)
		runType(t, int64s, groups, a, inPlace, counts, known)
		runType(t, bytes, groups, a, inPlace, counts, known)
		if collective.RaceEnabled || len(groups) > 5 {
			continue
		}
		runType(t, float64s, groups, a, inPlace, counts, known)
		runType(t, brains, groups, a, inPlace, counts, known)
		runType(t, int32s, groups, a, inPlace, counts, known)
	}
}

func runType[T collective.Element](t *testing.T, v values[T], groups []*collective.Group, a schedule.Algorithm, inPlace bool, counts []int, known map[collective.Collective]bool) {
	m := &matrix[T]{values: v, t: t, groups: groups, forced: a, inPlace: inPlace}
	m.all(counts, known)
}

func TestMatrix(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 16} {
		if testing.Short() && n > 5 || collective.RaceEnabled && n > 3 {
			continue
		}
		for _, a := range algorithms {
			t.Run(fmt.Sprintf("%d ranks, %v", n, a), func(t *testing.T) {
				groups := found(t, n, func(rank int, c *collective.Config) {
					c.SegmentBytes = 512
					c.Node = fmt.Sprint("node-", rank*rank%3) // uneven
					force(a, c)
				})
				runMatrix(t, groups, a, oddCounts(n))
			})
		}
	}
}

// Ranks that share memory, where the chosen algorithm is Shared and where it is not.
func TestMatrixOverMemory(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 16} {
		if testing.Short() && n > 5 || collective.RaceEnabled && n > 3 {
			continue
		}
		for _, a := range append([]schedule.Algorithm{schedule.Shared}, algorithms...) {
			if a == schedule.Shared && n == 1 || a != 0 && a != schedule.Shared && n != 3 {
				continue
			}
			t.Run(fmt.Sprintf("%d ranks, %v", n, a), func(t *testing.T) {
				leakless(t)
				groups := found(t, n, overMemory(t, func(_ int, c *collective.Config) { force(a, c) }))
				counts := oddCounts(n)
				if a != 0 || collective.RaceEnabled {
					counts = []int{1, 7, 9001}
				}
				runMatrix(t, groups, a, counts)
			})
		}
	}
}

func TestMatrixOverSockets(t *testing.T) {
	for name, tcp := range map[string]bool{"unix": false, "tcp": true} {
		for _, a := range algorithms {
			t.Run(fmt.Sprintf("%s, %v", name, a), func(t *testing.T) {
				groups := found(t, 3, overSockets(t, tcp, func(rank int, c *collective.Config) {
					c.Streams = 1 + len(name)%2
					c.Node = fmt.Sprint("node-", rank/2)
					force(a, c)
				}))
				counts := []int{0, 2, 7, 20_011}
				if collective.RaceEnabled {
					counts = []int{7, 5003}
				}
				runMatrix(t, groups, a, counts)
			})
		}
	}
}
