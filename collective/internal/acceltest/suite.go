package acceltest

import (
	"context"
	"fmt"
	"math"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/accelerator"
)

// Types are all that there are.
var Types = []accelerator.Type{
	accelerator.Float32, accelerator.Float64, accelerator.Float16, accelerator.BFloat16, accelerator.Int8, accelerator.Uint8,
	accelerator.Int32, accelerator.Uint32, accelerator.Int64, accelerator.Uint64, accelerator.Float8E4M3, accelerator.Float8E5M2,
}

var ops = []collective.Op{collective.Sum, collective.Product, collective.Min, collective.Max, collective.Average}

// Values returns elements of a rank that all types hold exactly.
func Values(t accelerator.Type, rank, n int) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = float64((i*5+rank*3)%4 + 1)
		switch t {
		case accelerator.Uint8, accelerator.Uint32, accelerator.Uint64:
		default:
			if (i+rank)%3 == 0 {
				values[i] = -values[i]
			}
		}
	}
	return values
}

// Reduced returns what values of n ranks are combined to. Averages of integers are truncated.
func Reduced(t accelerator.Type, op collective.Op, values [][]float64) []float64 {
	result := append([]float64(nil), values[0]...)
	for _, v := range values[1:] {
		for i := range result {
			switch op {
			case collective.Product:
				result[i] *= v[i]
			case collective.Min:
				result[i] = min(result[i], v[i])
			case collective.Max:
				result[i] = max(result[i], v[i])
			default:
				result[i] += v[i]
			}
		}
	}
	for i := range result {
		if op == collective.Average {
			result[i] /= float64(len(values))
			switch t {
			case accelerator.Int8, accelerator.Uint8, accelerator.Int32, accelerator.Uint32, accelerator.Int64, accelerator.Uint64:
				result[i] = math.Trunc(result[i])
			}
		}
	}
	return result
}

// Reductions compares all reductions that the library says it has, for all types, with those
// of float64, and that it refuses the others by the right error.
func (w *World) Reductions(counts ...int) {
	n := len(w.Groups)
	for _, t := range Types {
		for _, op := range ops {
			all := w.Groups[0].Device().Library().Capabilities()
			for _, count := range counts {
				values, whole := make([][]float64, n), make([][]float64, n)
				for r := range n {
					values[r], whole[r] = Values(t, r, count), Values(t, r, n*count)
				}
				want, parts := Reduced(t, op, values), Reduced(t, op, whole)
				w.Each(func(ctx context.Context, r int) error {
					if all.Supports(accelerator.AllReduce, t, op) != nil {
						return w.refused(ctx, r, t, op)
					}
					if err := w.allReduce(ctx, r, t, op, values[r], want); err != nil {
						return fmt.Errorf("all-reduce, %v of %v: %w", op, t, err)
					}
					if err := w.reduce(ctx, r, t, op, values[r], want); err != nil {
						return fmt.Errorf("reduce, %v of %v: %w", op, t, err)
					}
					if all.Supports(accelerator.ReduceScatter, t, op) != nil {
						return nil
					}
					return w.reduceScatter(ctx, r, t, op, whole[r], parts[r*count:(r+1)*count])
				})
			}
		}
	}
}

func (w *World) refused(ctx context.Context, r int, t accelerator.Type, op collective.Op) error {
	b, err := w.Put(ctx, r, t, []float64{1})
	if err != nil {
		return err
	}
	err = w.Groups[r].AllReduce(ctx, b, b, op)
	require.ErrorIs(w.T, err, accelerator.ErrUnsupported)
	return free(ctx, b)
}

// free gives the memory of buffers back.
func free(ctx context.Context, buffers ...accelerator.Buffer) error {
	for _, b := range buffers {
		if err := b.Memory().Free(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *World) allReduce(ctx context.Context, r int, t accelerator.Type, op collective.Op, own, want []float64) error {
	src, err := w.Put(ctx, r, t, own)
	if err != nil {
		return err
	}
	dst, err := w.Put(ctx, r, t, make([]float64, len(own)))
	if err != nil {
		return err
	}
	if err := w.Groups[r].AllReduce(ctx, dst, src, op); err != nil {
		return err
	}
	if err := w.Want(ctx, r, dst, want); err != nil {
		return err
	}
	if err := w.Want(ctx, r, src, own); err != nil {
		return fmt.Errorf("source has changed: %w", err)
	}
	if err := w.Groups[r].AllReduce(ctx, src, src, op); err != nil {
		return err
	}
	if err := w.Want(ctx, r, src, want); err != nil {
		return fmt.Errorf("in place: %w", err)
	}
	return free(ctx, src, dst)
}

func (w *World) reduce(ctx context.Context, r int, t accelerator.Type, op collective.Op, own, want []float64) error {
	root := len(w.Groups) - 1
	src, err := w.Put(ctx, r, t, own)
	if err != nil {
		return err
	}
	dst := src
	if r == root {
		if dst, err = w.Put(ctx, r, t, make([]float64, len(own))); err != nil {
			return err
		}
	}
	if err := w.Groups[r].Reduce(ctx, dst, src, op, root); err != nil {
		return err
	}
	if r != root {
		return free(ctx, src)
	}
	if err := w.Want(ctx, r, dst, want); err != nil {
		return err
	}
	return free(ctx, src, dst)
}

func (w *World) reduceScatter(ctx context.Context, r int, t accelerator.Type, op collective.Op, own, want []float64) error {
	src, err := w.Put(ctx, r, t, own)
	if err != nil {
		return err
	}
	dst, err := src.Part(r*len(want), len(want)) // in place
	if err != nil {
		return err
	}
	if err := w.Groups[r].ReduceScatter(ctx, dst, src, op); err != nil {
		return err
	}
	if err := w.Want(ctx, r, dst, want); err != nil {
		return fmt.Errorf("reduce-scatter, %v of %v: %w", op, t, err)
	}
	return free(ctx, src)
}

// Movements checks the operations that move elements, for all types.
func (w *World) Movements(counts ...int) {
	n := len(w.Groups)
	for _, t := range Types {
		for _, count := range counts {
			var gathered []float64
			for r := range n {
				gathered = append(gathered, Values(t, r, count)...)
			}
			w.Each(func(ctx context.Context, r int) error {
				if err := w.gather(ctx, r, t, Values(t, r, count), gathered); err != nil {
					return fmt.Errorf("%v: %w", t, err)
				}
				return w.broadcast(ctx, r, t, count)
			})
			w.Each(func(ctx context.Context, r int) error { return w.exchange(ctx, r, t, count) })
		}
	}
}

func (w *World) gather(ctx context.Context, r int, t accelerator.Type, own, want []float64) error {
	dst, err := w.Put(ctx, r, t, make([]float64, len(want)))
	if err != nil {
		return err
	}
	src, err := w.Put(ctx, r, t, own)
	if err != nil {
		return err
	}
	if err := w.Groups[r].AllGather(ctx, dst, src); err != nil {
		return err
	}
	if err := w.Want(ctx, r, dst, want); err != nil {
		return fmt.Errorf("all-gather: %w", err)
	}
	return free(ctx, src, dst)
}

func (w *World) broadcast(ctx context.Context, r int, t accelerator.Type, count int) error {
	for root := range w.Groups {
		src, err := w.Put(ctx, r, t, Values(t, r, count))
		if err != nil {
			return err
		}
		dst, err := w.Put(ctx, r, t, make([]float64, count))
		if err != nil {
			return err
		}
		if err := w.Groups[r].Broadcast(ctx, dst, src, root); err != nil {
			return err
		}
		if err := w.Want(ctx, r, dst, Values(t, root, count)); err != nil {
			return fmt.Errorf("broadcast of %v from %d: %w", t, root, err)
		}
		if err := free(ctx, src, dst); err != nil {
			return err
		}
	}
	return nil
}

// exchange is an all-to-all, and messages around a ring where calls can be fused.
func (w *World) exchange(ctx context.Context, r int, t accelerator.Type, count int) error {
	g, n := w.Groups[r], len(w.Groups)
	var want []float64
	for from := range n {
		want = append(want, Values(t, from, n*count)[r*count:(r+1)*count]...)
	}
	src, err := w.Put(ctx, r, t, Values(t, r, n*count))
	if err != nil {
		return err
	}
	dst, err := w.Put(ctx, r, t, make([]float64, n*count))
	if err != nil {
		return err
	}
	able := g.Device().Library().Capabilities()
	err = g.AllToAll(ctx, dst, src)
	if able.Supports(accelerator.AllToAll, t, 0) != nil {
		require.ErrorIs(w.T, err, accelerator.ErrUnsupported)
		return free(ctx, src, dst)
	}
	if err == nil {
		err = w.Want(ctx, r, dst, want)
	}
	if err != nil {
		return fmt.Errorf("all-to-all of %v: %w", t, err)
	}
	if n > 1 {
		if err = g.Fuse(ctx,
			accelerator.Call{Operation: accelerator.Send, Src: src, Root: (r + 1) % n},
			accelerator.Call{Operation: accelerator.Recv, Dst: dst, Root: (r + n - 1) % n}); err == nil {
			err = w.Want(ctx, r, dst, Values(t, (r+n-1)%n, n*count))
		}
		if err != nil {
			return fmt.Errorf("messages of %v: %w", t, err)
		}
	}
	return free(ctx, src, dst)
}

// Messages sends from each rank to the next, one after the other, and meets at a barrier.
func (w *World) Messages(count int) {
	n := len(w.Groups)
	w.Each(func(ctx context.Context, r int) error {
		b, err := w.Put(ctx, r, accelerator.Int32, Values(accelerator.Int32, r, count))
		if err != nil {
			return err
		}
		if r > 0 {
			if err := w.Groups[r].Recv(ctx, b, r-1); err != nil {
				return err
			}
			if err := w.Want(ctx, r, b, Values(accelerator.Int32, 0, count)); err != nil {
				return err
			}
		}
		if r < n-1 {
			if err := w.Groups[r].Send(ctx, b, r+1); err != nil {
				return err
			}
		}
		return w.Groups[r].Barrier(ctx)
	})
}

// Refusals checks that wrong arguments are errors and leave the group as it was.
func (w *World) Refusals() {
	w.Each(func(ctx context.Context, r int) error {
		b, err := w.Put(ctx, r, accelerator.Float32, make([]float64, 12))
		if err != nil {
			return err
		}
		i, err := w.Put(ctx, r, accelerator.Int32, make([]float64, 12))
		if err != nil {
			return err
		}
		w.refuse(ctx, r, b, i)
		return w.Groups[r].AllReduce(ctx, b, b, collective.Sum)
	})
}

func (w *World) refuse(ctx context.Context, r int, b, i accelerator.Buffer) {
	g, other := w.Groups[r], w.Devices[(r+1)%len(w.Devices)]
	half, err := b.Part(0, 6)
	require.NoError(w.T, err)
	shifted, err := b.Part(3, 6)
	require.NoError(w.T, err)
	foreign, err := other.Wrap(1<<20, 48)
	require.NoError(w.T, err)
	freed, err := g.Device().Alloc(ctx, 48)
	require.NoError(w.T, err)
	require.NoError(w.T, freed.Free(ctx))
	require.NoError(w.T, freed.Free(ctx), "twice")
	n := len(w.Groups)
	for what, err := range map[string]error{
		"lengths":      g.AllReduce(ctx, half, b, collective.Sum),
		"types":        g.AllReduce(ctx, i, b, collective.Sum),
		"no memory":    g.AllReduce(ctx, accelerator.Buffer{}, accelerator.Buffer{}, collective.Sum),
		"overlap":      g.AllReduce(ctx, shifted, half, collective.Sum),
		"other device": g.AllReduce(ctx, foreign.Elements(accelerator.Float32), b, collective.Sum),
		"freed":        g.AllReduce(ctx, freed.Elements(accelerator.Float32), b, collective.Sum),
		"root":         g.Broadcast(ctx, b, b, n),
		"parts":        g.ReduceScatter(ctx, b, half, collective.Sum),
		"gathered":     g.AllGather(ctx, half, b),
		"to itself":    g.Send(ctx, b, r),
		"no such rank": g.Recv(ctx, b, -1),
		"nothing":      g.Fuse(ctx),
		"no operation": start(g.Start(ctx, accelerator.Call{Dst: b, Src: b})),
	} {
		require.ErrorIs(w.T, err, collective.ErrArgument, what)
	}
	require.ErrorIs(w.T, g.AllReduce(ctx, b, b, 0), accelerator.ErrUnsupported)
	_, err = b.Part(6, 7)
	require.ErrorIs(w.T, err, collective.ErrArgument)
	require.NoError(w.T, g.Err())
}

func start(_ *accelerator.Handle, err error) error { return err }
