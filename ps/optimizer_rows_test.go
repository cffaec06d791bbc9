package ps_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/table"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// rowReference is an optimizer of one row in float64; it counts its own steps.
type rowReference struct {
	*reference
	sum float64 // AdagradRow
}

func (r *rowReference) step(grad []float32) {
	if r.o.Kind != ps.KindAdagradRow {
		r.reference.step(grad)
		return
	}
	squares := 0.0
	for _, g := range grad {
		squares += float64(g) * float64(g)
	}
	r.sum += squares / float64(len(grad))
	for i, g := range grad {
		r.w[i] -= r.o.LearningRate * float64(g) / (math.Sqrt(r.sum) + r.o.Epsilon)
	}
}

// Every row agrees with a float64 reference of its own, whenever it is touched first and
// however often, across copies: slots start at their own values and rows count their steps.
func TestT26RowsAgainstReference(t *testing.T) {
	optimizers := map[string]ps.Optimizer{
		"sgd": ps.SGD(0.05), "sgd decay": withDecay(ps.SGD(0.05), 0.01),
		"momentum": ps.Momentum(0.05, 0.9), "nesterov": ps.Nesterov(0.05, 0.9),
		"adagrad": ps.Adagrad(0.1), "adagrad started": withAccumulator(ps.Adagrad(0.1), 0.3),
		"adagrad by row": ps.AdagradRow(0.1), "by row started": withAccumulator(ps.AdagradRow(0.1), 0.3),
		"adam": ps.Adam(0.01), "adam decay": withDecay(ps.Adam(0.01), 0.01), "adamw": ps.AdamW(0.01, 0.05),
		"amsgrad": ps.AMSGrad(0.01), "ftrl": ps.FTRL(0.1, 0, 0),
		"ftrl started": withAccumulator(ps.FTRL(0.1, 0.5, 0.1), 0.1),
	}
	for name, o := range optimizers {
		for _, sums := range []bool{false, true} {
			for _, dim := range []int{1, 16, 19} {
				t.Run(name, func(t *testing.T) { rowsRun(t, o, dim, sums) })
			}
		}
	}
}

func rowsRun(t *testing.T, o ps.Optimizer, dim int, sums bool) {
	const numRows = 40
	c := table.Config{
		Name: "x", Rows: 1000, Dim: dim, End: int64(1000 * dim), Rule: o.RowRule(dim), Sums: sums,
		Init: shard.Initializer{Kind: shard.Uniform, Scale: 0.5, Seed: 3},
	}
	require.NoError(t, c.Validate())
	tab := table.New(c)
	rng := rand.New(rand.NewPCG(1, 2))
	rows := make([]*rowReference, numRows)
	grad, got := make([]float32, dim), make([]float32, dim)
	for step := range 100 {
		for i := range rows {
			id := []int64{int64(i) - numRows/2}
			if step < 2*i || step%(i%4+1) != 0 {
				continue // its turn has not come
			}
			if rows[i] == nil {
				tab.Pull(id, got)
				rows[i] = &rowReference{newReference(o, got), o.InitialAccumulator}
			}
			for k := range grad {
				grad[k] = float32(rng.NormFloat64())
			}
			rows[i].step(grad)
			tab.Push(id, grad, 1)
			tab.Close(0)
		}
		if step == 50 {
			var columns table.Columns
			tab.Copy(0, &columns)
			tab = table.New(c)
			require.NoError(t, tab.Append(0, &columns))
		}
	}
	for i, r := range rows {
		tab.Pull([]int64{int64(i) - numRows/2}, got)
		require.InDeltaSlice(t, r.w, got, 2e-4, "row %d", i)
	}
}
