package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

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
	// MaxRowsBytes is the largest block of a sparse shard, with all that belongs to its rows:
	// whoever writes or reads it holds it in memory.
	MaxRowsBytes = 1 << 30

	shardsFormat  = "elasticps.shards"
	formatVersion = 2 // 1 has no sparse layers, and is written where there are none
)

// layout is what a file of shards holds and where. The order of the data is: of each shard
// each block; of each shard its push windows and its block state; then the CRC-32C of each of
// those tensors, four bytes each, lowest first. A block is its weights and then its slots. One of a
// sparse shard is what waits, with as many zeros behind it as bring the next to a multiple of 8
// bytes; ids, state words, weights, slots.
type layout struct {
	shards []entry
	blocks [][]int64 // by shard: offsets of its blocks, and of their end
	places []place   // by shard: its blocks; and then its state
	sums   place     // of the checksums: offset, and the number of them
	bytes  int64     // of all tensors
}

// place is a run of tensors: the offset of the first in the data, and its index.
type place struct {
	offset int64
	tensor int
}

// layoutOf lays out a file of the shards, which must ascend by ID.
func layoutOf(shards []entry) (*layout, error) {
	if len(shards) < 1 || len(shards) > shard.MaxShards {
		return nil, fmt.Errorf("%d shards, must be 1 to %d", len(shards), shard.MaxShards)
	}
	l := &layout{shards: shards, blocks: make([][]int64, len(shards)), places: make([]place, 2*len(shards))}
	var at place
	var sizes []int
	for i := range shards {
		e := &shards[i]
		if err := e.validate(); err != nil {
			return nil, fmt.Errorf("shard %d: %w", e.ID, err)
		}
		if i > 0 && e.ID <= shards[i-1].ID {
			return nil, fmt.Errorf("shard %d after shard %d, must ascend", e.ID, shards[i-1].ID)
		}
		l.places[i] = at
		l.blocks[i] = make([]int64, 0, len(e.Blocks)+1)
		for n := range e.Blocks {
			l.blocks[i] = append(l.blocks[i], at.offset)
			sizes = e.appendSizes(sizes[:0], n, at.offset)
			for _, size := range sizes {
				at.offset += int64(size)
			}
		}
		l.blocks[i] = append(l.blocks[i], at.offset)
		at.tensor += len(e.Blocks) * e.tensors()
	}
	for i := range shards {
		l.places[len(shards)+i] = at
		at.offset += int64(shards[i].Windows) + int64(shards[i].BlockState)
		at.tensor += 2
	}
	l.sums = at
	l.bytes = at.offset + 4*int64(at.tensor)
	return l, nil
}

// values is where block number i of those that the file holds of shard number s begins.
func (l *layout) values(s, i int) place {
	return place{l.blocks[s][i], l.places[s].tensor + i*l.shards[s].tensors()}
}

// state is where the push windows of shard number s begin; its block state follows.
func (l *layout) state(s int) place { return l.places[len(l.shards)+s] }

// find returns the number of a shard.
func (l *layout) find(id shard.ID) (int, bool) {
	return slices.BinarySearchFunc(l.shards, id, func(e entry, id shard.ID) int { return cmp.Compare(e.ID, id) })
}

// version is the oldest version of the format that can say what the file holds.
func (l *layout) version() int {
	if slices.ContainsFunc(l.shards, func(e entry) bool { return e.Dim > 0 }) {
		return 2
	}
	return 1
}

// header writes the header of the file. There is one way to write it, so whoever reads one
// compares it with what it has to be.
func (l *layout) header(h *header) error {
	shards, err := json.Marshal(l.shards)
	if err != nil {
		return err
	}
	h.begin("format", shardsFormat, "version", strconv.Itoa(l.version()), "shards", string(shards))
	for i := range l.shards {
		e := &l.shards[i]
		layer := quote(e.Layer)
		layer = slices.Clip(append(layer[:len(layer)-1], '@'))
		for n, b := range e.Blocks {
			name := strconv.AppendInt(layer, e.Begin+int64(b)*BlockElems, 10)
			e.block(h, slices.Clip(name), n)
		}
	}
	for i := range l.shards {
		e := &l.shards[i]
		h.tensor(fmt.Appendf(nil, `"shard/%d/windows"`, e.ID), "U8", 1, e.Windows)
		h.tensor(fmt.Appendf(nil, `"shard/%d/blocks"`, e.ID), "U8", 1, e.BlockState)
	}
	h.tensor([]byte(`"crc32c"`), "U8", 1, l.sums.tensor, 4)
	return h.end()
}

// block adds the tensors of block number i of those that the file holds. The name, which lacks
// the quotation mark at its end, is clipped.
func (e *entry) block(h *header, name []byte, i int) {
	slot := func(s int) []byte { return append(name, "/slot/"+e.Slots[s]+`"`...) }
	if e.Dim == 0 {
		n := e.blockElems(e.Blocks[i])
		h.tensor(append(name, '"'), "F32", 4, n)
		for s := range e.Slots {
			h.tensor(slot(s), "F32", 4, n)
		}
		return
	}
	n, waiting := e.Rows[i], e.appendSizes(nil, i, h.data)[0]
	h.tensor(append(name, `/waiting"`...), "U8", 1, waiting)
	h.tensor(append(name, `/ids"`...), "I64", 8, n)
	h.tensor(append(name, `/state"`...), "U64", 8, n)
	h.tensor(append(name, `/weights"`...), "F32", 4, n, e.Dim)
	for s, elems := range e.SlotElems {
		h.tensor(slot(s), "F32", 4, n, elems)
	}
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
	shards, err := decodeList([]byte(m.Shards), shard.MaxShards, func(e *entry) error {
		if int64(e.ID) <= last {
			return fmt.Errorf("shard %d after shard %d, must ascend", e.ID, last)
		}
		last = int64(e.ID)
		return e.validate()
	})
	if err != nil {
		return nil, fmt.Errorf("%w: header: shards: %w", ErrDamaged, err)
	}
	l, err := layoutOf(shards)
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
