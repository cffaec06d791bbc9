package training

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elasticps/elasticps/examples/internal/mnist"
	"github.com/elasticps/elasticps/ps"
)

// Client is what this package needs of a ps.Client.
type Client interface {
	// Assign gives a layer its first values.
	Assign(ctx context.Context, layer string, values []float32) error
	// Pull fills dst with the parameters of a layer.
	Pull(ctx context.Context, layer string, dst []float32) error
	// PullRange fills dst with rows of a layer, from the first on.
	PullRange(ctx context.Context, layer string, first int, dst []float32) error
}

var _ Client = (*ps.Client)(nil)

// Initialize gives the model its first values.
func Initialize(ctx context.Context, c Client, p Plan) error {
	mlp, err := mnist.NewMLP(mnist.Config{})
	if err != nil {
		return err
	}
	params := mlp.Init(p.Seed)
	for _, i := range []int{mnist.FC1Weight, mnist.FC2Weight} {
		if err := c.Assign(ctx, mlp.Layers()[i].Name, params[i]); err != nil {
			return fmt.Errorf("training: initialize: %w", err)
		}
	}
	return nil
}

// Accuracy pulls the model and returns the share of test images that it labels
// correctly. train is the training set, whose mean image belongs to the model.
func Accuracy(ctx context.Context, c Client, train, test *mnist.Set) (float64, error) {
	mlp, err := mnist.NewMLP(mnist.Config{Mean: train.Mean()})
	if err != nil {
		return 0, err
	}
	params := mlp.NewParams()
	for i, l := range mlp.Layers() {
		if err := c.Pull(ctx, l.Name, params[i]); err != nil {
			return 0, fmt.Errorf("training: accuracy: %w", err)
		}
	}
	return mlp.Accuracy(params, test)
}

// Audit compares the probe of a plan in the parameters with the accounts of the workers,
// who must have finished. lost counts pushes to the probe that a worker confirmed and
// that are not there, doubled those that are there and nobody started. Rows that are lost
// with their shard (ps.ErrShardLost) count as empty.
func Audit(ctx context.Context, c Client, p Plan, accounts []Account) (lost, doubled int64, err error) {
	for probe := range numProbes {
		values := make([]float32, (p.sharedRow()+1)*probeElems)
		for row := range p.sharedRow() + 1 {
			err := c.PullRange(ctx, probeName(probe), row, values[row*probeElems:(row+1)*probeElems])
			if err != nil && !errors.Is(err, ps.ErrShardLost) {
				return 0, 0, fmt.Errorf("training: audit: %w", err)
			}
		}
		l, d := auditProbe(probe, values, accounts)
		lost, doubled = lost+l, doubled+d
	}
	return lost, doubled, nil
}

// auditProbe judges one probe, row by row.
func auditProbe(probe int, values []float32, accounts []Account) (lost, doubled int64) {
	sharedRow := len(values)/probeElems - 1
	confirmed, started := make([]int64, sharedRow+1), make([]int64, sharedRow+1)
	for _, a := range accounts {
		confirmed[a.Slot], started[a.Slot] = a.Confirmed[probe], a.Started[probe]
		confirmed[sharedRow] += a.Confirmed[probe]
		started[sharedRow] += a.Started[probe]
	}
	for row := range sharedRow + 1 {
		cells := values[row*probeElems : (row+1)*probeElems]
		lost += max(0, confirmed[row]-int64(slices.Min(cells)))
		doubled += max(0, int64(slices.Max(cells))-started[row])
	}
	return lost, doubled
}
