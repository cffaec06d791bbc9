package collective_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/internal/starved"
)

// allocAll lets all ranks make a buffer.
func allocAll[T collective.Element](t *testing.T, groups []*collective.Group, kind collective.Type, n int) ([]collective.Buffer, [][]T) {
	t.Helper()
	buffers, elements := make([]collective.Buffer, len(groups)), make([][]T, len(groups))
	onAll(t, len(groups), func(rank int) (err error) {
		if buffers[rank], err = groups[rank].Alloc(background(t), kind, n); err != nil {
			return err
		}
		elements[rank], err = collective.Elements[T](buffers[rank])
		return err
	})
	return buffers, elements
}

// The matrix in buffers of Alloc: all types and operations, whole and in part, over whatever
// the ranks are connected by.
func TestAllocMatrix(t *testing.T) {
	for name, change := range kinds(t) {
		for _, n := range []int{1, 2, 3, 5} {
			if n == 5 && collective.RaceEnabled {
				continue
			}
			t.Run(fmt.Sprint(name, ", ", n), func(t *testing.T) {
				leakless(t)
				groups := found(t, n, func(rank int, c *collective.Config) {
					c.Group = fmt.Sprint("allocated ", n)
					if change != nil {
						change(rank, c)
					}
				})
				allocType(t, float32s, groups, collective.Float32)
				allocType(t, halves, groups, collective.Float16)
				allocType(t, int64s, groups, collective.Int64)
				allocType(t, bytes, groups, collective.Uint8)
				if collective.RaceEnabled {
					return // a type of each width is enough
				}
				allocType(t, float64s, groups, collective.Float64)
				allocType(t, brains, groups, collective.BFloat16)
				allocType(t, int32s, groups, collective.Int32)
			})
		}
	}
}

func allocType[T collective.Element](t *testing.T, v values[T], groups []*collective.Group, kind collective.Type) {
	const count = 20_011
	n := len(groups)
	buffers, elements := allocAll[T](t, groups, kind, count)
	for _, op := range ops {
		if kind == collective.Uint8 && op == collective.Average {
			continue // the sum may wrap around
		}
		for _, r := range [][2]int{{0, count}, {3, count - 4}, {7, 7 + n - 1}, {5, 5}} {
			x := inputs(v, n, count, op)
			onAll(t, n, func(rank int) error {
				copy(elements[rank], x[rank])
				b := buffers[rank].Slice(r[0], r[1])
				return groups[rank].AllReduce(background(t), b, b, op)
			})
			for i := range count {
				for rank := range n {
					switch inside := r[0] <= i && i < r[1]; {
					case inside && !within(v, oracle(v, x, i, op), v.read(elements[rank][i]), n+1):
						require.Equal(t, oracle(v, x, i, op), v.read(elements[rank][i]), "%v %v, element %d", kind, op, i)
					case !inside && elements[rank][i] != x[rank][i], inside && elements[rank][i] != elements[0][i]:
						require.Fail(t, "wrong element", "%v %v, element %d on rank %d", kind, op, i, rank)
					}
				}
			}
		}
	}
	for _, b := range buffers {
		b.Free()
	}
}

// A caller may write to its buffer as soon as its call has returned, while others are still
// in theirs.
func TestCase0AllocIsTheCallersAgain(t *testing.T) {
	leakless(t)
	for _, n := range []int{2, 3, 5, 9} {
		groups := found(t, n, overMemory(t, nil))
		buffers, elements := allocAll[float32](t, groups, collective.Float32, 30_000)
		onAll(t, n, func(rank int) error {
			for round := range 30 {
				for i := range elements[rank] {
					elements[rank][i] = float32(round + rank)
				}
				if err := groups[rank].AllReduce(background(t), buffers[rank], buffers[rank], collective.Sum); err != nil {
					return err
				}
				for i, x := range elements[rank] {
					if want := float32(n*round + n*(n-1)/2); x != want {
						return fmt.Errorf("round %d, element %d is %v, want %v", round, i, x, want)
					}
					elements[rank][i] = -1e9
				}
			}
			return nil
		})
	}
}

// Ranks that ask for different memory, or of which some use it and others do not, have an
// error on all of them.
func TestAllocMismatch(t *testing.T) {
	calls := map[string]func(rank int, g *collective.Group, b collective.Buffer) error{
		"count": func(rank int, g *collective.Group, _ collective.Buffer) error {
			_, err := g.Alloc(background(t), collective.Float32, 100+rank%2)
			return err
		},
		"type": func(rank int, g *collective.Group, _ collective.Buffer) error {
			_, err := g.Alloc(background(t), []collective.Type{collective.Float32, collective.Int32}[rank%2], 100)
			return err
		},
		"other call": func(rank int, g *collective.Group, _ collective.Buffer) error {
			if rank == 1 {
				return g.Barrier(background(t))
			}
			_, err := g.Alloc(background(t), collective.Float32, 100)
			return err
		},
		"other part": func(rank int, g *collective.Group, b collective.Buffer) error {
			b = b.Slice(rank%2, 20_000+rank%2)
			return g.AllReduce(background(t), b, b, collective.Sum)
		},
		"other memory": func(rank int, g *collective.Group, b collective.Buffer) error {
			if rank == 1 {
				b = collective.Of(make([]float32, b.Len()))
			}
			return g.AllReduce(background(t), b, b, collective.Sum)
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			groups := found(t, 3, overMemory(t, nil))
			buffers, _ := allocAll[float32](t, groups, collective.Float32, 30_000)
			m := starved.Watch(t)
			for rank, err := range errorsOf(3, func(rank int) error { return call(rank, groups[rank], buffers[rank]) }) {
				require.ErrorIs(t, err, collective.ErrMismatch, "rank %d", rank)
			}
			m.Less(m.Took(), 2*soon)
		})
	}
}

// Memory that was freed, by Free or with the last group, is an error to calls; what is in use
// stays until it is not.
func TestAllocAfterFree(t *testing.T) {
	leakless(t)
	groups := found(t, 2, overMemory(t, nil))
	buffers, _ := allocAll[float32](t, groups, collective.Float32, 1<<20)
	others, _ := allocAll[float32](t, groups, collective.Float32, 100)
	handles := make([]*collective.Handle, 2)
	for rank, g := range groups {
		var err error
		handles[rank], err = g.Start(background(t), collective.Call{Collective: collective.AllReduce, Dst: buffers[rank], Src: buffers[rank], Op: collective.Sum})
		require.NoError(t, err)
		buffers[rank].Free()
		buffers[rank].Free()
	}
	for rank, h := range handles {
		require.NoError(t, h.Wait(background(t)))
		b := buffers[rank]
		require.ErrorIs(t, groups[rank].AllReduce(background(t), b, b, collective.Sum), collective.ErrArgument)
		require.ErrorIs(t, groups[rank].Send(background(t), b, 1-rank), collective.ErrArgument)
		_, err := collective.Elements[float32](b)
		require.ErrorContains(t, err, "has been freed")
		_, err = collective.Elements[int32](others[rank])
		require.ErrorContains(t, err, "elements of int32, the buffer has float32")
	}
	onAll(t, 2, func(rank int) error { return groups[rank].Close() })
	_, err := collective.Elements[float32](others[0])
	require.ErrorIs(t, err, collective.ErrArgument, "closed")
	collective.Of([]float32{1}).Free()
	_, err = groups[0].Alloc(background(t), collective.Type(99), 1)
	require.ErrorIs(t, err, collective.ErrArgument)
	_, err = groups[0].Alloc(background(t), collective.Float64, -1)
	require.ErrorContains(t, err, "must be 0 to 8589934592")
	_, err = groups[0].Alloc(background(t), collective.Float64, 1)
	require.ErrorIs(t, err, collective.ErrClosed)
}

// A rank dies in an all-reduce in shared memory; the others' memory is still theirs, holds
// what they put there, and is combined in the next group, where new memory can be made too.
func TestAllocOutlivesItsGroup(t *testing.T) {
	leakless(t)
	const n, count = 4, 50_000
	groups := found(t, n, overMemory(t, nil))
	buffers, elements := allocAll[float32](t, groups, collective.Float32, count)
	errs := errorsOf(n, func(rank int) error {
		if rank == 1 {
			groups[rank].Kill()
			return groups[rank].Close()
		}
		return groups[rank].AllReduce(background(t), buffers[rank], buffers[rank], collective.Sum)
	})
	for rank, err := range errs {
		if rank != 1 {
			require.ErrorIs(t, err, collective.ErrRankLost)
		}
	}
	smaller := shrinkAll(t, groups, 1)
	onAll(t, n-1, func(i int) error {
		rank := []int{0, 2, 3}[i]
		b, x := buffers[rank], elements[rank]
		for k := range x {
			x[k] = float32(k)
		}
		if err := smaller[i].AllReduce(background(t), b, b, collective.Sum); err != nil {
			return err
		}
		if x[count-1] != float32((n-1)*(count-1)) {
			return fmt.Errorf("got %v", x[count-1])
		}
		return nil
	})
	again, _ := allocAll[float32](t, smaller, collective.Float32, count)
	onAll(t, n-1, func(i int) error {
		return smaller[i].AllReduce(background(t), again[i], again[i], collective.Sum)
	})
}
