package rows

import (
	"context"
	"slices"

	"github.com/elasticps/elasticps/ps"
)

// Client is what a Batch needs of a ps.Client.
type Client interface {
	// PullRows fills dst with the rows of a table, in the order of ids.
	PullRows(ctx context.Context, table string, ids []int64, dst []float32) error
	// PushRows sends the gradients of rows of a table.
	PushRows(ctx context.Context, table string, ids []int64, grads []float32) error
}

var _ Client = (*ps.Client)(nil)

// Batch is the distinct rows of one table that a step uses, with their gradients.
type Batch struct {
	table  string
	dim    int
	ids    []int64
	at     map[int64]int
	values []float32
	grads  []float32
}

// NewBatch returns a Batch of no rows, of a table whose rows have dim elements.
func NewBatch(table string, dim int) *Batch {
	return &Batch{table: table, dim: dim, at: map[int64]int{}}
}

// Reset begins a step: it has no rows.
func (b *Batch) Reset() {
	b.ids = b.ids[:0]
	clear(b.at)
}

// Add returns the place of a row in the Batch. It is the same for the same id until the
// next Reset; places count from 0.
func (b *Batch) Add(id int64) int {
	at, ok := b.at[id]
	if !ok {
		at = len(b.ids)
		b.at[id] = at
		b.ids = append(b.ids, id)
	}
	return at
}

// Use begins a step with these rows, which must be distinct, in places of their order: those
// of a Batch of another table. Add is for steps that Reset began. The slice is not kept.
func (b *Batch) Use(ids []int64) {
	b.Reset()
	b.ids = append(b.ids, ids...)
}

// IDs returns the distinct rows, in the order of their places. They are valid until the next Reset.
func (b *Batch) IDs() []int64 { return b.ids }

// Len returns the number of distinct rows.
func (b *Batch) Len() int { return len(b.ids) }

// Zero sets the gradients of all rows that were added to zero. Pull does it too: Zero is for
// steps that do not need the values.
func (b *Batch) Zero() {
	n := len(b.ids) * b.dim
	b.grads = slices.Grow(b.grads[:0], n)[:n]
	clear(b.grads)
}

// Pull fetches all rows that were added, and sets their gradients to zero.
func (b *Batch) Pull(ctx context.Context, c Client) error {
	b.Zero()
	n := len(b.ids) * b.dim
	b.values = slices.Grow(b.values[:0], n)[:n]
	return c.PullRows(ctx, b.table, b.ids, b.values)
}

// Row returns the row at a place, as pulled. It is valid until the next Pull.
func (b *Batch) Row(at int) []float32 { return b.values[at*b.dim : (at+1)*b.dim : (at+1)*b.dim] }

// Grad returns the gradient of the row at a place, for the caller to add to. It is valid until
// the next Zero or Pull.
func (b *Batch) Grad(at int) []float32 { return b.grads[at*b.dim : (at+1)*b.dim : (at+1)*b.dim] }

// Push sends the gradients of all rows and returns when they are applied.
func (b *Batch) Push(ctx context.Context, c Client) error {
	return c.PushRows(ctx, b.table, b.ids, b.grads)
}
