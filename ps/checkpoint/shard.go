package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/elasticps/elasticps/shard"
)

// Shard is the state of one shard, without the values of its parameters.
type Shard struct {
	ID    shard.ID
	Layer string // name of the layer
	// Begin and End are the elements of the layer that the shard is.
	Begin, End int64
	Epoch      shard.Epoch
	Applied    uint64 // pushes applied, wherever the shard was
	Clock      uint64 // clock of the cut
	// Slots are the names of the arrays that a parameter has besides its weight, such as
	// "m" and "v", in their order: 1 to 32 lower-case letters, digits and '_' each.
	Slots []string
	// Blocks are the blocks that a file holds, ascending: all of them, or in an increment
	// those that have changed since the parent.
	Blocks []int
	// Dim is the number of values of a row of a sparse layer; 0 when the layer is dense, and
	// the next three are empty.
	Dim int
	// SlotElems says of each of Slots how many values a row has in it, Dim or 1.
	SlotElems []int
	// Rows and Waiting say of each of Blocks how many rows, and bytes of Rows.Waiting, it has.
	Rows, Waiting []int
	// Windows are the encoded push windows (shard.Windows), BlockState what the server
	// keeps for each block. This package does not look into them.
	Windows, BlockState []byte
}

// entry is what the header of a file says of a shard, as JSON in the metadata.
type entry struct {
	ID         shard.ID    `json:"id"`
	Layer      string      `json:"layer"`
	Begin      int64       `json:"begin"`
	End        int64       `json:"end"`
	Epoch      shard.Epoch `json:"epoch"`
	Applied    uint64      `json:"applied"`
	Clock      uint64      `json:"clock"`
	Slots      []string    `json:"slots"`
	Blocks     ascending   `json:"blocks"`
	Dim        int         `json:"dim,omitempty"`
	SlotElems  counts      `json:"slot_elems,omitempty"`
	Rows       counts      `json:"rows,omitempty"`
	Waiting    counts      `json:"waiting_bytes,omitempty"`
	Windows    int         `json:"window_bytes"`
	BlockState int         `json:"block_state_bytes"`
}

func entryOf(s *Shard) entry {
	return entry{
		ID: s.ID, Layer: s.Layer, Begin: s.Begin, End: s.End, Epoch: s.Epoch, Applied: s.Applied, Clock: s.Clock,
		Slots: append([]string{}, s.Slots...), Blocks: append([]int{}, s.Blocks...), Windows: len(s.Windows), BlockState: len(s.BlockState),
		Dim: s.Dim, SlotElems: slices.Clone(s.SlotElems), Rows: slices.Clone(s.Rows), Waiting: slices.Clone(s.Waiting),
	}
}

// shard is the Shard of an entry, without the state that the entry has the lengths of.
func (e *entry) shard() Shard {
	return Shard{
		ID: e.ID, Layer: e.Layer, Begin: e.Begin, End: e.End, Epoch: e.Epoch, Applied: e.Applied, Clock: e.Clock,
		Slots: slices.Clone(e.Slots), Blocks: slices.Clone([]int(e.Blocks)),
		Dim: e.Dim, SlotElems: slices.Clone([]int(e.SlotElems)), Rows: slices.Clone([]int(e.Rows)), Waiting: slices.Clone([]int(e.Waiting)),
	}
}

// numBlocks is the number of blocks of the whole shard.
func (e *entry) numBlocks() int { return int((e.End - e.Begin + BlockElems - 1) / BlockElems) }

// blockElems is the number of elements of block b.
func (e *entry) blockElems(b int) int { return int(min(BlockElems, e.End-e.Begin-int64(b)*BlockElems)) }

// part names the shard in errors.
func (e *entry) part() string { return fmt.Sprintf("shard %d", e.ID) }

// validate reports the first fault of an entry.
func (e *entry) validate() error {
	switch {
	case e.Layer == "" || len(e.Layer) > shard.MaxNameBytes || !utf8.ValidString(e.Layer):
		return fmt.Errorf("layer name %.64q of %d bytes, must be UTF-8 of 1 to %d", e.Layer, len(e.Layer), shard.MaxNameBytes)
	case e.Begin < 0 || e.End <= e.Begin || e.End > shard.MaxLayerElems:
		return fmt.Errorf("elements [%d, %d), must not be empty and within [0, %d)", e.Begin, e.End, int64(shard.MaxLayerElems))
	case e.Slots == nil || e.Blocks == nil:
		return errors.New("no slots or no blocks, not even an empty list")
	case len(e.Slots) > MaxSlots:
		return fmt.Errorf("%d slots, limit %d", len(e.Slots), MaxSlots)
	case e.Windows < 0 || e.Windows > shard.MaxWindowsBytes:
		return fmt.Errorf("push windows of %d bytes, limit %d", e.Windows, shard.MaxWindowsBytes)
	}
	for i, name := range e.Slots {
		if len(name) < 1 || len(name) > 32 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			return fmt.Errorf("slot name %.64q, must be 1 to 32 lower-case letters, digits and '_'", name)
		}
		if slices.Contains(e.Slots[:i], name) {
			return fmt.Errorf("two slots named %q", name)
		}
	}
	blocks := int64(e.numBlocks())
	if e.BlockState < 0 || int64(e.BlockState) > MaxBlockStateBytes*blocks {
		return fmt.Errorf("block state of %d bytes, limit %d", e.BlockState, MaxBlockStateBytes*blocks)
	}
	last := -1
	for _, b := range e.Blocks {
		if b <= last || int64(b) >= blocks {
			return fmt.Errorf("block %d after %d of %d, must ascend", b, last, blocks)
		}
		last = b
	}
	return e.validateRows()
}

// validateRows reports the first fault of what a sparse shard has and a dense one has not.
func (e *entry) validateRows() error {
	dim := int64(e.Dim)
	switch {
	case e.Dim == 0 && len(e.SlotElems)+len(e.Rows)+len(e.Waiting) == 0:
		return nil
	case e.Dim < 1 || e.Dim > shard.MaxSparseRowElems:
		return fmt.Errorf("rows of %d values, must be 1 to %d", e.Dim, shard.MaxSparseRowElems)
	case e.Begin%dim != 0 || e.End%dim != 0:
		return fmt.Errorf("elements [%d, %d), must be whole rows of %d", e.Begin, e.End, e.Dim)
	case len(e.SlotElems) != len(e.Slots):
		return fmt.Errorf("values of a row in %d slots, must be %d", len(e.SlotElems), len(e.Slots))
	case len(e.Rows) != len(e.Blocks) || len(e.Waiting) != len(e.Blocks):
		return fmt.Errorf("rows of %d blocks and waiting bytes of %d, must be %d", len(e.Rows), len(e.Waiting), len(e.Blocks))
	}
	bytes := 8 + 8 + 4*e.Dim // of a row
	for i, n := range e.SlotElems {
		if n != 1 && n != e.Dim {
			return fmt.Errorf("%d values of a row in slot %q, must be 1 or %d", n, e.Slots[i], e.Dim)
		}
		bytes += 4 * n
	}
	for i, n := range e.Rows {
		waiting := e.Waiting[i]
		if n < 0 || waiting < 0 || waiting > MaxRowsBytes || n > (MaxRowsBytes-waiting)/bytes {
			return fmt.Errorf("block %d with %d rows of %d bytes and %d waiting bytes, limit %d in all", e.Blocks[i], n, bytes, waiting, MaxRowsBytes)
		}
	}
	return nil
}

// tensors is the number of tensors of a block.
func (e *entry) tensors() int {
	if e.Dim > 0 {
		return 4 + len(e.Slots)
	}
	return 1 + len(e.Slots)
}

// appendSizes appends the lengths of the tensors, in bytes, of block number i of those that the
// file holds, which begins at that offset of the data.
func (e *entry) appendSizes(dst []int, i int, offset int64) []int {
	if e.Dim == 0 {
		for range e.tensors() {
			dst = append(dst, 4*e.blockElems(e.Blocks[i]))
		}
		return dst
	}
	n, waiting := e.Rows[i], e.Waiting[i]
	dst = append(dst, waiting+int(-(offset+int64(waiting))&7), 8*n, 8*n, 4*n*e.Dim)
	for _, elems := range e.SlotElems {
		dst = append(dst, 4*n*elems)
	}
	return dst
}
