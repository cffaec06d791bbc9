package table

import (
	"errors"
	"fmt"

	"github.com/elasticps/elasticps/shard"
)

const (
	// BlockElems is the number of elements of the bucket space in one block.
	BlockElems = 1 << 16
	// MaxBlockRows is the largest number of rows of one block, whatever Config says.
	MaxBlockRows = 1 << (placeBits - 1)

	maxFilterTouches = 255 // what one byte counts
)

// Config describes the rows of one shard of an embedding table. Rows, Dim, Begin, End and
// Rule are needed; zero in all other fields is the default that they name.
type Config struct {
	// Name is that of the table. First weights depend on it.
	Name string
	// Rows is the number of hash buckets of the whole table: the rows that are
	// expected, not a limit. Dim is the number of weights of a row.
	Rows int64
	Dim  int
	// Begin and End bound the shard in the bucket space of Rows*Dim elements.
	Begin, End int64
	// Init gives the first weights of a row, by default zeros.
	Init shard.Initializer
	// Rule is the optimizer.
	Rule Rule
	// Sums says that gradients are added up until [Table.Close] steps with their sum. By
	// default each push steps.
	Sums bool
	// Admit says when a row comes into being, by default at its first push.
	Admit Admission
	// ExpireAfter is how long, in the unit of the caller's clock, a row may go without
	// push until [Table.Expire] removes it. Zero is forever.
	ExpireAfter uint32
	// MaxRows is the largest number of rows of this shard, zero for any. Evict says what
	// is done about a push that would go over it.
	MaxRows int64
	Evict   Eviction
	// BlockRows is the largest number of rows of a block that [Table.Refuses] lets pushes
	// make, or that eviction leaves. Zero: MaxBlockRows, which is the most.
	BlockRows int
}

// Rule is how an optimizer steps one row.
type Rule struct {
	// Slots is the state that each row has beside its weights.
	Slots []Slot
	// Steps says that rows count their steps.
	Steps bool
	// Step applies gradient g to weights w. The slots have the lengths of their
	// declaration. It is step number t of the row, from 1, or 0 when Steps is false; it
	// stays at [MaxSteps] once it is there. The learning rate is to be multiplied by factor, see
	// [Table.Scale]. No slice may be kept.
	Step func(w, g []float32, slots [][]float32, t uint64, factor float64)
}

// MaxSteps is the largest step count of a row. The corrections of Adam, which depend on it,
// are 1 long before.
const MaxSteps = 1<<31 - 1

// Slot is one array of optimizer state of a row.
type Slot struct {
	// Elems is its length, Dim or 1.
	Elems int
	// Start is the value that its elements have before the first step.
	Start float32
}

// Admission keeps rows from being made for ids that are hardly ever seen.
type Admission struct {
	// Touches is the number of pushes at which an id gets its row; 0 and 1 mean the
	// first. The gradients of earlier pushes are dropped.
	Touches uint32
	// FilterBytes is about the memory of a counting Bloom filter for this shard, of one
	// byte per counter, so that Touches is at most 255. With zero there is one exact
	// counter, of some 30 bytes, for each id that waits; they go when they expire or are
	// deleted.
	FilterBytes int64
}

// Eviction says what a push does for an id without row when the table has MaxRows.
type Eviction uint8

// Ways to keep to MaxRows. Refuse is the zero value; the others keep each block to its share
// of MaxRows, at least one row, and remove a sixteenth of its rows at a time.
const (
	// Refuse evicts nothing: [Table.Refuses] says of a push that it would go over MaxRows. Whoever
	// pushes has asked it; Push itself makes the rows, so that a copy which has some of the
	// blocks only, yet, makes the same.
	Refuse Eviction = iota
	// LeastRecentlyUsed removes the rows whose last push is the longest ago.
	LeastRecentlyUsed
	// LowestNorm removes the rows whose weights have the smallest L2 norm.
	LowestNorm
)

// String returns the name of the policy as used in errors and logs.
func (e Eviction) String() string {
	switch e {
	case Refuse:
		return "refuse"
	case LeastRecentlyUsed:
		return "least recently used"
	case LowestNorm:
		return "lowest norm"
	}
	return fmt.Sprintf("eviction(%d)", uint8(e))
}

// Validate reports every fault at once, each with its value and bound. [New] needs a
// configuration without any.
func (c Config) Validate() error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("table: %.64q: "+format, append([]any{c.Name}, args...)...))
	}
	elems := c.Rows * int64(c.Dim)
	if c.Rows < 1 || c.Dim < 1 || c.Rows > shard.MaxLayerElems/int64(max(c.Dim, 1)) {
		fault("%d rows of %d weights, must be at least 1 of at least 1, and at most %d in all", c.Rows, c.Dim, int64(shard.MaxLayerElems))
	} else if c.Begin < 0 || c.Begin > c.End || c.End > elems {
		fault("elements [%d, %d), must be within [0, %d)", c.Begin, c.End, elems)
	}
	if c.Init.Kind == shard.Assigned || c.Init.Kind > shard.Xavier {
		fault("initializer %v, rows have values from the start", c.Init.Kind)
	}
	if c.Rule.Step == nil {
		fault("rule without Step")
	}
	for i, s := range c.Rule.Slots {
		if s.Elems != 1 && s.Elems != c.Dim {
			fault("slot %d of %d elements, must be 1 or %d", i, s.Elems, c.Dim)
		}
	}
	if c.Admit.FilterBytes < 0 {
		fault("filter of %d bytes, must be at least 0", c.Admit.FilterBytes)
	}
	if c.Admit.FilterBytes > 0 && c.Admit.Touches > maxFilterTouches {
		fault("admission after %d touches, a filter counts to %d", c.Admit.Touches, maxFilterTouches)
	}
	if c.MaxRows < 0 || c.BlockRows < 0 || c.BlockRows > MaxBlockRows {
		fault("MaxRows %d and BlockRows %d, must be at least 0, the second at most %d", c.MaxRows, c.BlockRows, MaxBlockRows)
	}
	if c.Evict > LowestNorm {
		fault("eviction %d is unknown, last known %d", uint8(c.Evict), uint8(LowestNorm))
	}
	return errors.Join(errs...)
}
