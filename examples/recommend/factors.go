package main

import (
	"context"
	"math"

	"gonum.org/v1/gonum/blas/blas32"

	"github.com/elasticps/elasticps/examples/internal/rows"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// The tables of the job, and what it trains on. A row is the factors of a user or an item, and
// behind them its bias.
const (
	userTable     = "users"
	itemTable     = "items"
	ratingDataset = "ratings"
)

// batchesPerRange is how many batches a worker takes at a time.
const batchesPerRange = 16

// job is what is trained, on how many ratings. How many rows there will be need not be known.
func (o options) job(numRatings int) ps.Job {
	table := func(name string, rows int) shard.Layer {
		return shard.Layer{
			Name: name, Sparse: true, Shape: []int{rows, o.dim + 1},
			Init: shard.Initializer{Kind: shard.Normal, Scale: 0.1, Seed: o.seed},
		}
	}
	return ps.Job{
		Name:      "recommend",
		Model:     shard.Model{Layers: []shard.Layer{table(userTable, 10_000), table(itemTable, 10_000)}},
		Optimizer: ps.Adagrad(o.learningRate),
		Datasets: []ps.Dataset{{
			Name: ratingDataset, Records: int64(numRatings), RangeRecords: int64(batchesPerRange * o.batch),
			Epochs: o.epochs, Shuffle: true, Seed: o.seed,
		}},
		MaxShardBytes: 64 << 10,
		Replicas:      ps.NoReplicas,
	}
}

// factorization predicts a rating as a mean, the biases of user and item, and the product of
// their factors (Koren, Bell and Volinsky, Matrix Factorization Techniques for Recommender
// Systems, IEEE Computer 2009), for the ratings of one batch.
type factorization struct {
	mean        float32
	decay       float32 // of rows, for each rating that uses them
	users       *rows.Batch
	items       *rows.Batch
	places      [][2]int // of each rating, in users and items
	predictions []float32
}

func newFactorization(dim int, mean, decay float32) *factorization {
	return &factorization{mean: mean, decay: decay, users: rows.NewBatch(userTable, dim+1), items: rows.NewBatch(itemTable, dim+1)}
}

// predict pulls the rows of the ratings' users and items, and predicts the ratings. The
// predictions are valid until the next call.
func (f *factorization) predict(ctx context.Context, c rows.Client, batch []rating) ([]float32, error) {
	f.users.Reset()
	f.items.Reset()
	f.places, f.predictions = f.places[:0], f.predictions[:0]
	for _, r := range batch {
		f.places = append(f.places, [2]int{f.users.Add(r.user), f.items.Add(r.item)})
	}
	if err := f.users.Pull(ctx, c); err != nil {
		return nil, err
	}
	if err := f.items.Pull(ctx, c); err != nil {
		return nil, err
	}
	for _, at := range f.places {
		p, q := f.users.Row(at[0]), f.items.Row(at[1])
		k := len(p) - 1
		f.predictions = append(f.predictions, f.mean+p[k]+q[k]+blas32.Implementation().Sdot(k, p, 1, q, 1))
	}
	return f.predictions, nil
}

// learn pushes the gradient of half the squared errors of the batch that was predicted last,
// and of the decay.
func (f *factorization) learn(ctx context.Context, c rows.Client, batch []rating) error {
	for i, r := range batch {
		wrong := f.predictions[i] - r.value
		p, q := f.users.Row(f.places[i][0]), f.items.Row(f.places[i][1])
		gp, gq := f.users.Grad(f.places[i][0]), f.items.Grad(f.places[i][1])
		k := len(p) - 1
		for j := range k {
			gp[j] += wrong*q[j] + f.decay*p[j]
			gq[j] += wrong*p[j] + f.decay*q[j]
		}
		gp[k] += wrong + f.decay*p[k]
		gq[k] += wrong + f.decay*q[k]
	}
	if err := f.users.Push(ctx, c); err != nil {
		return err
	}
	return f.items.Push(ctx, c)
}

// rmse is the root of the mean squared error of predictions of the ratings.
func rmse(predictions []float32, ratings []rating) float64 {
	sum := 0.0
	for i, r := range ratings {
		d := float64(predictions[i] - r.value)
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(ratings)))
}
