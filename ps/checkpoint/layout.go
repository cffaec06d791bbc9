package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/elasticps/elasticps/shard"
)

const (
	// BlockElems is the number of parameters of a block, the unit in which shards are
	// written, checked and saved again. The last block of a shard may be shorter.
	BlockElems = 1 << 16
	// MaxSlots is the largest number of optimizer slots of a shard.
	MaxSlots = 16
	// MaxHeaderBytes is the longest header of a file of shards: some 290,000 tensors,
	// which are 24 GiB of weights with two slots each. Servers that hold more write
	// several files.
	MaxHeaderBytes = 32 << 20
	// MaxBlockStateBytes is the largest BlockState of a shard, per block.
	MaxBlockStateBytes = 64

	shardsFormat  = "elasticps.shards"
	formatVersion = 1
)

// Shard is the state of one shard, without its float32 values.
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
	Windows    int         `json:"window_bytes"`
	BlockState int         `json:"block_state_bytes"`
}

func rowOf(s *Shard) row {
	return row{
		ID: s.ID, Layer: s.Layer, Begin: s.Begin, End: s.End, Epoch: s.Epoch, Applied: s.Applied, Clock: s.Clock,
		Slots: append([]string{}, s.Slots...), Blocks: append([]int{}, s.Blocks...), Windows: len(s.Windows), BlockState: len(s.BlockState),
	}
}

// shard is the Shard of a row, without the state that the row has the lengths of.
func (r *row) shard() Shard {
	return Shard{
		ID: r.ID, Layer: r.Layer, Begin: r.Begin, End: r.End, Epoch: r.Epoch, Applied: r.Applied, Clock: r.Clock,
		Slots: slices.Clone(r.Slots), Blocks: slices.Clone([]int(r.Blocks)),
	}
}

// numBlocks is the number of blocks of the whole shard.
func (r *row) numBlocks() int { return int((r.End - r.Begin + BlockElems - 1) / BlockElems) }

// blockElems is the number of elements of block b.
func (r *row) blockElems(b int) int { return int(min(BlockElems, r.End-r.Begin-int64(b)*BlockElems)) }

// blockBytes is the size of a block with its slots, when it is not cut short by the end of
// the shard.
func (r *row) blockBytes() int64 { return 4 * BlockElems * int64(1+len(r.Slots)) }

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
	return nil
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

// layout is what a file of shards holds and where. The order of the data is: of each shard
// each block, its weights and then its slots; of each shard its push windows and its block
// state; then the CRC-32C of each of those tensors, four bytes each, lowest first.
type layout struct {
	rows   []row
	places []place
	sums   place // of the checksums: offset, and the number of them
	bytes  int64 // of all tensors
}

// place is a run of tensors: the offset of the first in the data, and its index.
type place struct {
	offset int64
	tensor int
}

// layoutOf lays out a file of the shards, which must ascend by ID.
func layoutOf(rows []row) (*layout, error) {
	if len(rows) < 1 || len(rows) > shard.MaxShards {
		return nil, fmt.Errorf("%d shards, must be 1 to %d", len(rows), shard.MaxShards)
	}
	l := &layout{rows: rows, places: make([]place, 2*len(rows))}
	var at place
	for i := range rows {
		r := &rows[i]
		if err := r.validate(); err != nil {
			return nil, fmt.Errorf("shard %d: %w", r.ID, err)
		}
		if i > 0 && r.ID <= rows[i-1].ID {
			return nil, fmt.Errorf("shard %d after shard %d, must ascend", r.ID, rows[i-1].ID)
		}
		l.places[i] = at
		for _, b := range r.Blocks {
			at.offset += 4 * int64(r.blockElems(b)) * int64(1+len(r.Slots))
		}
		at.tensor += len(r.Blocks) * (1 + len(r.Slots))
	}
	for i := range rows {
		l.places[len(rows)+i] = at
		at.offset += int64(rows[i].Windows) + int64(rows[i].BlockState)
		at.tensor += 2
	}
	l.sums = at
	l.bytes = at.offset + 4*int64(at.tensor)
	return l, nil
}

// values is where block number i of those that the file holds of shard number s begins.
func (l *layout) values(s, i int) place {
	r, at := &l.rows[s], l.places[s]
	return place{at.offset + int64(i)*r.blockBytes(), at.tensor + i*(1+len(r.Slots))}
}

// state is where the push windows of shard number s begin; its block state follows.
func (l *layout) state(s int) place { return l.places[len(l.rows)+s] }

// find returns the number of a shard.
func (l *layout) find(id shard.ID) (int, bool) {
	return slices.BinarySearchFunc(l.rows, id, func(r row, id shard.ID) int { return cmp.Compare(r.ID, id) })
}

// header writes the header of the file. There is one way to write it, so whoever reads one
// compares it with what it has to be.
func (l *layout) header(h *header) error {
	rows, err := json.Marshal(l.rows)
	if err != nil {
		return err
	}
	h.begin("format", shardsFormat, "version", strconv.Itoa(formatVersion), "shards", string(rows))
	for i := range l.rows {
		r := &l.rows[i]
		layer := quote(r.Layer)
		layer = slices.Clip(append(layer[:len(layer)-1], '@'))
		for _, b := range r.Blocks {
			n := r.blockElems(b)
			name := strconv.AppendInt(layer, r.Begin+int64(b)*BlockElems, 10)
			h.tensor(append(slices.Clip(name), '"'), "F32", 4, n)
			for _, slot := range r.Slots {
				h.tensor(append(slices.Clip(name), "/slot/"+slot+`"`...), "F32", 4, n)
			}
		}
	}
	for i := range l.rows {
		r := &l.rows[i]
		h.tensor(fmt.Appendf(nil, `"shard/%d/windows"`, r.ID), "U8", 1, r.Windows)
		h.tensor(fmt.Appendf(nil, `"shard/%d/blocks"`, r.ID), "U8", 1, r.BlockState)
	}
	h.tensor([]byte(`"crc32c"`), "U8", 1, l.sums.tensor, 4)
	return h.end()
}

// errHeader is wrapped by what decodeLayout finds.
var errHeader = errors.New("header")

// decodeLayout reads a header (without its length), which it does not keep. It is taken only
// if it is, to the byte, what this package writes for those shards. Memory is bounded by a
// small multiple of the header's length. The error wraps ErrDamaged or ErrNewer.
func decodeLayout(src []byte) (*layout, error) {
	var outer struct {
		Metadata struct{ Format, Version, Shards string } `json:"__metadata__"`
	}
	if err := json.Unmarshal(src, &outer); err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrDamaged, err)
	}
	m := &outer.Metadata
	if m.Format != shardsFormat {
		return nil, fmt.Errorf("%w: header: format %.64q, must be %q", ErrDamaged, m.Format, shardsFormat)
	}
	if v, err := strconv.Atoi(m.Version); err == nil && v > formatVersion {
		return nil, fmt.Errorf("%w: version %d, this is %d", ErrNewer, v, formatVersion)
	}
	last := int64(-1)
	rows, err := decodeRows([]byte(m.Shards), shard.MaxShards, func(r *row) error {
		if int64(r.ID) <= last {
			return fmt.Errorf("shard %d after shard %d, must ascend", r.ID, last)
		}
		last = int64(r.ID)
		return r.validate()
	})
	if err != nil {
		return nil, fmt.Errorf("%w: header: shards: %w", ErrDamaged, err)
	}
	l, err := layoutOf(rows)
	if err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrDamaged, err)
	}
	h := header{emit: func(b []byte) error {
		if !bytes.HasPrefix(src, b) {
			return errHeader
		}
		src = src[len(b):]
		return nil
	}}
	if err := l.header(&h); err != nil || len(src) > 0 {
		return nil, fmt.Errorf("%w: header: is not that of its shards, with %d bytes to go", ErrDamaged, len(src))
	}
	return l, nil
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
