package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
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
	// Dim is the number of values of a row of a sparse layer, 0 when the layer is dense. The four
	// fields belong together and are empty for a dense layer: SlotElems says of each slot how many
	// values a row has in it, Dim or 1; Rows and Waiting how many rows and how many bytes of
	// Rows.Waiting each of Blocks has.
	Dim                      int
	SlotElems, Rows, Waiting []int
	// Windows are the encoded push windows (shard.Windows), BlockState what the server
	// keeps for each block. This package does not look into them.
	Windows, BlockState []byte
}

// row is what the header of a file says of a shard, as JSON in the metadata.
type row struct {
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

func rowOf(s *Shard) row {
	return row{
		ID: s.ID, Layer: s.Layer, Begin: s.Begin, End: s.End, Epoch: s.Epoch, Applied: s.Applied, Clock: s.Clock,
		Slots: append([]string{}, s.Slots...), Blocks: append([]int{}, s.Blocks...), Windows: len(s.Windows), BlockState: len(s.BlockState),
		Dim: s.Dim, SlotElems: slices.Clone(s.SlotElems), Rows: slices.Clone(s.Rows), Waiting: slices.Clone(s.Waiting),
	}
}

// shard is the Shard of a row, without the state that the row has the lengths of.
func (r *row) shard() Shard {
	return Shard{
		ID: r.ID, Layer: r.Layer, Begin: r.Begin, End: r.End, Epoch: r.Epoch, Applied: r.Applied, Clock: r.Clock,
		Slots: slices.Clone(r.Slots), Blocks: slices.Clone([]int(r.Blocks)),
		Dim: r.Dim, SlotElems: slices.Clone([]int(r.SlotElems)), Rows: slices.Clone([]int(r.Rows)), Waiting: slices.Clone([]int(r.Waiting)),
	}
}

// numBlocks is the number of blocks of the whole shard.
func (r *row) numBlocks() int { return int((r.End - r.Begin + BlockElems - 1) / BlockElems) }

// blockElems is the number of elements of block b.
func (r *row) blockElems(b int) int { return int(min(BlockElems, r.End-r.Begin-int64(b)*BlockElems)) }

// part names the shard in errors.
func (r *row) part() string { return fmt.Sprintf("shard %d", r.ID) }

// validate reports the first fault of a row.
func (r *row) validate() error {
	switch {
	case r.Layer == "" || len(r.Layer) > shard.MaxNameBytes || !utf8.ValidString(r.Layer):
		return fmt.Errorf("layer name %.64q of %d bytes, must be UTF-8 of 1 to %d", r.Layer, len(r.Layer), shard.MaxNameBytes)
	case r.Begin < 0 || r.End <= r.Begin || r.End > shard.MaxLayerElems:
		return fmt.Errorf("elements [%d, %d), must not be empty and within [0, %d)", r.Begin, r.End, int64(shard.MaxLayerElems))
	case r.Slots == nil || r.Blocks == nil:
		return errors.New("no slots or no blocks, not even an empty list")
	case len(r.Slots) > MaxSlots:
		return fmt.Errorf("%d slots, limit %d", len(r.Slots), MaxSlots)
	case r.Windows < 0 || r.Windows > shard.MaxWindowsBytes:
		return fmt.Errorf("push windows of %d bytes, limit %d", r.Windows, shard.MaxWindowsBytes)
	}
	for i, name := range r.Slots {
		if len(name) < 1 || len(name) > 32 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			return fmt.Errorf("slot name %.64q, must be 1 to 32 lower-case letters, digits and '_'", name)
		}
		if slices.Contains(r.Slots[:i], name) {
			return fmt.Errorf("two slots named %q", name)
		}
	}
	blocks := int64(r.numBlocks())
	if r.BlockState < 0 || int64(r.BlockState) > MaxBlockStateBytes*blocks {
		return fmt.Errorf("block state of %d bytes, limit %d", r.BlockState, MaxBlockStateBytes*blocks)
	}
	last := -1
	for _, b := range r.Blocks {
		if b <= last || int64(b) >= blocks {
			return fmt.Errorf("block %d after %d of %d, must ascend", b, last, blocks)
		}
		last = b
	}
	return r.validateRows()
}

// validateRows reports the first fault of what a sparse shard has and a dense one has not.
func (r *row) validateRows() error {
	dim := int64(r.Dim)
	switch {
	case r.Dim == 0 && len(r.SlotElems)+len(r.Rows)+len(r.Waiting) == 0:
		return nil
	case r.Dim < 1 || r.Dim > shard.MaxSparseRowElems:
		return fmt.Errorf("rows of %d values, must be 1 to %d", r.Dim, shard.MaxSparseRowElems)
	case r.Begin%dim != 0 || r.End%dim != 0:
		return fmt.Errorf("elements [%d, %d), must be whole rows of %d", r.Begin, r.End, r.Dim)
	case len(r.SlotElems) != len(r.Slots):
		return fmt.Errorf("values of a row in %d slots, must be %d", len(r.SlotElems), len(r.Slots))
	case len(r.Rows) != len(r.Blocks) || len(r.Waiting) != len(r.Blocks):
		return fmt.Errorf("rows of %d blocks and waiting bytes of %d, must be %d", len(r.Rows), len(r.Waiting), len(r.Blocks))
	}
	bytes := 8 + 8 + 4*r.Dim // of a row
	for i, n := range r.SlotElems {
		if n != 1 && n != r.Dim {
			return fmt.Errorf("%d values of a row in slot %q, must be 1 or %d", n, r.Slots[i], r.Dim)
		}
		bytes += 4 * n
	}
	for i, n := range r.Rows {
		waiting := r.Waiting[i]
		if n < 0 || waiting < 0 || waiting > MaxRowsBytes || n > (MaxRowsBytes-waiting)/bytes {
			return fmt.Errorf("block %d with %d rows of %d bytes and %d waiting bytes, limit %d in all", r.Blocks[i], n, bytes, waiting, MaxRowsBytes)
		}
	}
	return nil
}

// tensors is the number of tensors of a block.
func (r *row) tensors() int {
	if r.Dim > 0 {
		return 4 + len(r.Slots)
	}
	return 1 + len(r.Slots)
}

// appendSizes appends the lengths of the tensors, in bytes, of block number i of those that the
// file holds, which begins at that offset of the data.
func (r *row) appendSizes(dst []int, i int, offset int64) []int {
	if r.Dim == 0 {
		for range r.tensors() {
			dst = append(dst, 4*r.blockElems(r.Blocks[i]))
		}
		return dst
	}
	n, waiting := r.Rows[i], r.Waiting[i]
	dst = append(dst, waiting+int(-(offset+int64(waiting))&7), 8*n, 8*n, 4*n*r.Dim)
	for _, elems := range r.SlotElems {
		dst = append(dst, 4*n*elems)
	}
	return dst
}

// ascending is a list of numbers that ascend from 0 or more.
type ascending []int

// UnmarshalJSON implements json.Unmarshaler. It stops at the first number that does not ascend, so
// that a long list of nothing takes no memory.
func (a *ascending) UnmarshalJSON(src []byte) error {
	last := -1
	list, err := decodeRows(src, math.MaxInt32, func(n *int) error {
		if *n <= last {
			return fmt.Errorf("%d after %d, must ascend", *n, last)
		}
		last = *n
		return nil
	})
	*a = append(ascending{}, list...)
	return err
}

// counts is a list of one number per block of a sparse shard or less. The header says more than
// 200 bytes about each such block, which bounds the list.
type counts []int

// UnmarshalJSON implements json.Unmarshaler. It stops at the first number too many.
func (c *counts) UnmarshalJSON(src []byte) error {
	list, err := decodeRows(src, MaxHeaderBytes/200, func(*int) error { return nil })
	*c = list
	return err
}

// decodeRows reads a JSON array of at most limit values, each of which check accepts before
// the next one is read.
func decodeRows[T any](src []byte, limit int, check func(*T) error) ([]T, error) {
	d := json.NewDecoder(bytes.NewReader(src))
	d.DisallowUnknownFields()
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, fmt.Errorf("not an array (%v)", err)
	}
	var rows []T
	for d.More() {
		if len(rows) == limit {
			return nil, fmt.Errorf("more than %d", limit)
		}
		var r T
		err := d.Decode(&r)
		if err == nil {
			err = check(&r)
		}
		if err != nil {
			return nil, fmt.Errorf("number %d: %w", len(rows), err)
		}
		if len(rows) == cap(rows) {
			rows = slices.Grow(rows, len(rows)+1) // twice as long: append grows long lists in many steps
		}
		rows = append(rows, r)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("more than an array")
	}
	return rows, nil
}
