package shard

import (
	"errors"
	"fmt"
)

// ErrPartition is wrapped by the errors of Partition that do not concern the
// model itself.
var ErrPartition = errors.New("shard: partition")

const (
	// MaxShards is the largest number of shards of one job.
	MaxShards = 1 << 20
	// MinShardBytes is the smallest limit that PartitionOptions accepts.
	MinShardBytes = 64

	defaultParts         = 128      // shards of a large model under the default limit
	defaultMinShardBytes = 64 << 10 // below this, messages cost more than bytes
	defaultMaxShardBytes = 64 << 20
	evenParts            = 12 // divides by 1, 2, 3, 4, 6 and 12 servers
)

// PartitionOptions tune Partition. The zero value is the documented default.
type PartitionOptions struct {
	// MaxShardBytes is the size of the largest shard, in bytes, at least MinShardBytes. Zero
	// means 1/128 of the dense layers, but at least 64 KiB and at most 64 MiB. A layer that
	// needs six shards or more is then cut into a multiple of twelve, so that 2, 3, 4, 6 or 12
	// servers share it evenly. For a sparse layer zero means 1/12 of its expected rows, within
	// the same bounds: each batch has ids in all its shards.
	MaxShardBytes int64
}

// Partition cuts a model into shards: by layer, and a layer over the limit into runs of
// whole rows of nearly equal length. If a single row is over the limit, a dense layer is cut
// into runs of elements, without regard to rows, and a sparse one into single rows. The
// shards cover every element exactly once, in the order of layers and elements; the ID of
// each is its index. A layer without elements has no shard. Errors wrap ErrInvalidModel, or
// ErrPartition if an option or the number of shards is out of bounds.
func Partition(m Model, o PartitionOptions) ([]Shard, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if o.MaxShardBytes != 0 && o.MaxShardBytes < MinShardBytes {
		return nil, fmt.Errorf("%w: shard limit of %d bytes, at least %d needed", ErrPartition, o.MaxShardBytes, MinShardBytes)
	}
	limit, even := o.MaxShardBytes, int64(1)
	if limit == 0 {
		limit = min(max(m.denseBytes()/defaultParts, defaultMinShardBytes), defaultMaxShardBytes)
		even = evenParts
	}
	var shards []Shard
	for i, l := range m.Layers {
		most := limit
		if l.Sparse && o.MaxShardBytes == 0 {
			most = min(max((l.Bytes()+evenParts-1)/evenParts, defaultMinShardBytes), defaultMaxShardBytes)
		}
		cut := cutLayer(l, most, even)
		if int64(len(shards))+cut.parts > MaxShards {
			return nil, fmt.Errorf("%w: more than %d shards at layer %d %.64q with a limit of %d bytes each", ErrPartition, MaxShards, i, l.Name, most)
		}
		shards = cut.appendTo(shards, i, l.DType)
	}
	return shards, nil
}

// cut says how one layer falls into pieces: parts runs of units (rows or
// elements) of unitElems elements each.
type cut struct {
	units, unitElems, parts int64
}

func cutLayer(l Layer, limit, even int64) cut {
	elems := l.Elems()
	if elems == 0 {
		return cut{}
	}
	c := cut{units: int64(l.Rows()), unitElems: int64(l.RowElems())}
	unitBytes := c.unitElems * l.DType.Size()
	if unitBytes > limit && !l.Sparse {
		c = cut{units: elems, unitElems: 1}
		unitBytes = l.DType.Size()
	}
	unitsPerPart := max(limit/unitBytes, 1)
	c.parts = (c.units + unitsPerPart - 1) / unitsPerPart
	if c.parts >= evenParts/2 {
		c.parts = min((c.parts+even-1)/even*even, c.units)
	}
	return c
}

func (m Model) denseBytes() int64 {
	var n int64
	for _, l := range m.Layers {
		if !l.Sparse {
			n += l.Bytes()
		}
	}
	return n
}

func (c cut) appendTo(shards []Shard, layer int, dtype DType) []Shard {
	if c.parts == 0 {
		return shards
	}
	// The first `longer` parts have one unit more; no product of two large
	// numbers is needed.
	length, longer := c.units/c.parts, c.units%c.parts
	begin := int64(0)
	for p := range c.parts {
		n := length
		if p < longer {
			n++
		}
		end := begin + n*c.unitElems
		shards = append(shards, Shard{ID: ID(len(shards)), Range: Range{Layer: layer, Begin: begin, End: end}, DType: dtype})
		begin = end
	}
	return shards
}
