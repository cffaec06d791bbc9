package main

import (
	"context"
	"math"

	"github.com/elasticps/elasticps/examples/internal/rows"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// The layers of the job.
const (
	biasLayer    = "bias"
	weightTable  = "weights"
	factorTable  = "factors"
	expectedRows = 1 << 20
)

// job is what is trained. Weights are under FTRL-proximal (McMahan et al., Ad Click
// Prediction: a View from the Trenches, KDD 2013), factors under Adagrad. Features that come
// up once or twice get no row: there are many, and nothing can be learnt about them.
func (o options) job() ps.Job {
	factors := ps.Adagrad(o.learningRate)
	factors.InitialAccumulator = 1 // what comes up rarely moves little, as under FTRL with its beta of 1
	admitted := ps.Table{AdmitAfter: uint32(o.admit)}
	return ps.Job{
		Name: "ctr",
		Model: shard.Model{Layers: []shard.Layer{
			{Name: biasLayer, Shape: []int{1}},
			{Name: weightTable, Sparse: true, Shape: []int{expectedRows, 1}},
			{
				Name: factorTable, Sparse: true, Shape: []int{expectedRows, o.dim},
				Init: shard.Initializer{Kind: shard.Normal, Scale: 0.01, Seed: o.seed},
			},
		}},
		Optimizer:     factors,
		Optimizers:    map[string]ps.Optimizer{weightTable: ps.FTRL(o.alpha, o.l1, 1)},
		Tables:        map[string]ps.Table{weightTable: admitted, factorTable: admitted},
		MaxShardBytes: 1 << 20,
		Replicas:      ps.NoReplicas,
	}
}

// client is what a machine needs of a ps.Client.
type client interface {
	rows.Client
	// Pull fills dst with a layer.
	Pull(ctx context.Context, layer string, dst []float32) error
	// Push sends the gradient of a layer.
	Push(ctx context.Context, layer string, grad []float32) error
}

var _ client = (*ps.Client)(nil)

// machine is a factorization machine (Rendle, Factorization Machines, ICDM 2010) with the
// rows that one batch of samples uses: the logit of a click is a bias, a weight for each
// feature and, for each pair of features, the product of their factors.
type machine struct {
	bias     [1]float32
	biasGrad [1]float32
	weights  *rows.Batch
	factors  *rows.Batch // of the same rows, in the same places
	features [][numFields]int
	sum      []float32 // of the factors of a sample
}

func newMachine(dim int) *machine {
	return &machine{
		weights: rows.NewBatch(weightTable, 1), factors: rows.NewBatch(factorTable, dim), sum: make([]float32, dim),
	}
}

// pull fetches all that the samples need.
func (m *machine) pull(ctx context.Context, c client, batch []sample) error {
	m.weights.Reset()
	m.features = m.features[:0]
	var ids [numFields]int64
	for i := range batch {
		batch[i].features(&ids)
		var at [numFields]int
		for f, id := range ids {
			at[f] = m.weights.Add(id)
		}
		m.features = append(m.features, at)
	}
	m.factors.Use(m.weights.IDs())
	m.biasGrad[0] = 0
	if err := c.Pull(ctx, biasLayer, m.bias[:]); err != nil {
		return err
	}
	if err := m.weights.Pull(ctx, c); err != nil {
		return err
	}
	return m.factors.Pull(ctx, c)
}

// push sends the gradients of all that was pulled.
func (m *machine) push(ctx context.Context, c client) error {
	if err := c.Push(ctx, biasLayer, m.biasGrad[:]); err != nil {
		return err
	}
	if err := m.weights.Push(ctx, c); err != nil {
		return err
	}
	return m.factors.Push(ctx, c)
}

// logit is what the machine says about sample i of the batch. It leaves the sum of the
// factors behind, from which all products of pairs follow in linear time (Rendle, lemma 3.1).
func (m *machine) logit(i int) float32 {
	y := m.bias[0]
	clear(m.sum)
	squares := float32(0)
	for _, at := range m.features[i] {
		y += m.weights.Row(at)[0]
		for k, x := range m.factors.Row(at) {
			m.sum[k] += x
			squares += x * x
		}
	}
	products := -squares
	for _, s := range m.sum {
		products += s * s
	}
	return y + products/2
}

// learn adds the gradient of the logistic loss of sample i, whose logit y was computed last.
func (m *machine) learn(i int, y float32, click bool) {
	g := float32(1 / (1 + math.Exp(-float64(y))))
	if click {
		g--
	}
	m.biasGrad[0] += g
	for _, at := range m.features[i] {
		m.weights.Grad(at)[0] += g
		row, grad := m.factors.Row(at), m.factors.Grad(at)
		for k, s := range m.sum {
			grad[k] += g * (s - row[k])
		}
	}
}
