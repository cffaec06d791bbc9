package ps

import (
	"context"
	"fmt"

	"github.com/elasticps/elasticps/internal/table"
	"github.com/elasticps/elasticps/ps/checkpoint"
)

// A cut of a table: the same as that of a dense shard, with rows for blocks.

// slotElems is how many values a row has in each slot.
func slotElems(rule table.Rule) (elems []int) {
	for _, s := range rule.Slots {
		elems = append(elems, s.Elems)
	}
	return elems
}

// countRows notes how many rows, and bytes of waiting ids, a block of the cut has.
func (c *cut) countRows(b int) {
	c.state.Rows = append(c.state.Rows, c.table.Len(b))
	c.state.Waiting = append(c.state.Waiting, c.table.WaitingBytes(b))
}

// copyRows returns the rows of a block as they are in the cut: of those that were pushed
// to in an earlier clock what its closing makes, of others without what was pushed in the
// clock of the cut.
func (c *cut) copyRows(b int) *checkpoint.Rows {
	var columns table.Columns
	c.table.Copy(b, &columns)
	if c.closes(b) {
		c.table.Scale(c.r.factor(c.live[b].clock))
		c.table.Settle(&columns)
	} else {
		columns.DropSums()
	}
	return &checkpoint.Rows{
		IDs: columns.IDs, State: columns.State, Weights: columns.Weights, Slots: columns.Slots, Waiting: c.table.AppendWaiting(b, nil),
	}
}

// restoreRows fills the table of a copy from a checkpoint.
func (r *replica) restoreRows(ctx context.Context, from *checkpoint.Checkpoint) (checkpoint.Shard, error) {
	config := r.tableConfig
	var sums []float32
	return from.ReadRows(ctx, r.spec.ID, config.Dim, r.opt.slotNames(), slotElems(config.Rule), func(b int, rows *checkpoint.Rows) error {
		if b >= len(r.blocks) {
			return fmt.Errorf("%w: block %d of shard %d, it has %d", checkpoint.ErrMismatch, b, r.spec.ID, len(r.blocks))
		}
		if n := len(rows.Weights); config.Sums && n > len(sums) {
			sums = make([]float32, n)
		}
		columns := table.Columns{IDs: rows.IDs, State: rows.State, Weights: rows.Weights, Slots: rows.Slots}
		if config.Sums {
			columns.Sums = sums[:len(rows.Weights)]
		}
		err := r.table.Append(b, &columns)
		if err == nil && config.Admit.Touches > 1 { // this job may admit at once
			err = r.table.SetWaiting(b, rows.Waiting)
		}
		if err != nil {
			return fmt.Errorf("%w: shard %d: %w", checkpoint.ErrDamaged, r.spec.ID, err)
		}
		return nil
	})
}
