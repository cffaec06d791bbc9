package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/pipeline"
	"github.com/elasticps/elasticps/internal/leak"
)

// affine is a stage that multiplies by a weight: y = w x, of as many elements as in.
type affine struct {
	weight     float32
	first      bool
	last       bool
	elems      int
	inputs     map[int][]float32
	gradient   float32
	out, grads map[int][]float32
	fail       int // micro-batch whose forward step fails; 0: none
}

func newAffine(stage, stages, elems int) *affine {
	return &affine{
		weight: float32(stage + 2), first: stage == 0, last: stage == stages-1, elems: elems,
		inputs: map[int][]float32{}, out: map[int][]float32{}, grads: map[int][]float32{},
	}
}

var errOfTest = errors.New("of the test")

func (a *affine) Forward(micro int, in []float32) ([]float32, error) {
	if a.fail > 0 && micro == a.fail {
		return nil, errOfTest
	}
	if a.first {
		in = make([]float32, a.elems)
		for i := range in {
			in[i] = float32(micro + i)
		}
	}
	a.inputs[micro] = in
	out := make([]float32, a.elems)
	for i, x := range in {
		out[i] = a.weight * x
	}
	a.out[micro] = out
	if a.last {
		return nil, nil
	}
	return out, nil
}

func (a *affine) Backward(micro int, grad []float32) ([]float32, error) {
	if a.last { // of half the sum of squares
		grad = a.out[micro]
	}
	down := make([]float32, a.elems)
	for i, g := range grad {
		a.gradient += g * a.inputs[micro][i]
		down[i] = g * a.weight
	}
	if a.first {
		return nil, nil
	}
	return down, nil
}

// alone computes the gradients of all stages on one goroutine.
func alone(t *testing.T, stages, micros, elems, batches int) []float32 {
	all := make([]*affine, stages)
	for i := range all {
		all[i] = newAffine(i, stages, elems)
	}
	for range batches {
		for m := range micros {
			var x []float32
			var err error
			for _, a := range all {
				x, err = a.Forward(m, x)
				require.NoError(t, err)
			}
			for i := stages - 1; i >= 0; i-- {
				x, err = all[i].Backward(m, x)
				require.NoError(t, err)
			}
		}
	}
	var gradients []float32
	for _, a := range all {
		gradients = append(gradients, a.gradient)
	}
	return gradients
}

// A pipeline computes what one process computes, to the bit, with tensors that fit into the
// buffers of sockets and those that do not.
func TestPipelineIsEqualToOneProcess(t *testing.T) {
	for _, c := range []struct{ stages, micros, elems int }{{1, 3, 5}, {2, 5, 7}, {3, 4, 1 << 18}, {4, 9, 100}, {4, 2, 100}} {
		everywhere(t, func(t *testing.T, apart bool) {
			const batches = 3
			groups, nodes := ranks(t, c.stages, apart)
			got := make([]float32, c.stages)
			require.NoError(t, errors.Join(onAll(c.stages, func(rank int) error {
				s, err := pipeline.Start(background(t), config(groups[rank], nodes[rank], c.micros, c.elems))
				if err != nil {
					return err
				}
				a := newAffine(rank, c.stages, c.elems)
				for range batches {
					if err := s.Run(background(t), a); err != nil {
						return err
					}
				}
				got[rank] = a.gradient
				return errors.Join(groups[rank].Barrier(background(t)), s.Close())
			})...))
			require.Equal(t, alone(t, c.stages, c.micros, c.elems, batches), got)
		})
	}
}

func config(g *collective.Group, n *actor.Node, micros, elems int) pipeline.Config {
	cfg := pipeline.Config{Node: n, Group: g, NumMicros: micros, In: elems, Out: elems}
	if g.Rank() == 0 {
		cfg.In = 0
	}
	if g.Rank() == g.Size()-1 {
		cfg.Out = 0
	}
	return cfg
}

// The failure of one stage is an error of all, at once.
func TestFailureOfAStage(t *testing.T) {
	everywhere(t, func(t *testing.T, apart bool) {
		groups, nodes := ranks(t, 3, apart)
		begin := time.Now()
		errs := onAll(3, func(rank int) error {
			s, err := pipeline.Start(background(t), config(groups[rank], nodes[rank], 6, 100))
			if err != nil {
				return err
			}
			a := newAffine(rank, 3, 100)
			if rank == 1 {
				a.fail = 3
			}
			return errors.Join(s.Run(background(t), a), s.Close())
		})
		require.Less(t, time.Since(begin), 20*time.Second)
		require.ErrorIs(t, errs[1], errOfTest)
		require.ErrorContains(t, errs[1], "stage 1, F3")
		for _, rank := range []int{0, 2} {
			require.ErrorIs(t, errs[rank], collective.ErrAborted)
			require.ErrorContains(t, errs[rank], fmt.Sprint("stage ", rank))
		}
	})
}

func TestStartRefuses(t *testing.T) {
	leak.Check(t, 20*time.Second)
	groups, nodes := ranks(t, 2, false)
	for want, cfg := range map[string]pipeline.Config{
		"needs a Node and a Group":                {},
		"0 micro-batches, must be 1":              {Node: nodes[0], Group: groups[0]},
		"In is 4 for stage 0, must be 0":          {Node: nodes[0], Group: groups[0], NumMicros: 1, In: 4, Out: 4},
		"Out is 0 for stage 0, must be 0 for the": {Node: nodes[0], Group: groups[0], NumMicros: 1},
		"Depth is 1, must be at least the 2 ":     {Node: nodes[0], Group: groups[0], NumMicros: 3, Out: 4, Depth: 1},
	} {
		_, err := pipeline.Start(background(t), cfg)
		require.ErrorIs(t, err, collective.ErrArgument)
		require.ErrorContains(t, err, want)
	}
	for want, change := range map[string]func(*pipeline.Config){
		"Out is 4 for stage 0, In is 5 for stage 1":                        func(c *pipeline.Config) { c.In = 5 },
		"NumMicros and Depth are 3 and 3 for stage 0, 7 and 3 for stage 1": func(c *pipeline.Config) { c.NumMicros = 7 },
	} {
		for _, err := range onAll(2, func(rank int) error {
			cfg := config(groups[rank], nodes[rank], 3, 4)
			if rank == 1 {
				change(&cfg)
			}
			_, err := pipeline.Start(background(t), cfg)
			return err
		}) {
			require.ErrorIs(t, err, collective.ErrArgument)
			require.ErrorContains(t, err, want)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := pipeline.Start(ctx, config(groups[0], nodes[0], 3, 4))
	require.ErrorIs(t, err, context.DeadlineExceeded, "the other stage does not come")
}
